"""A small MCP server that is an address: the weather, which is always the same here. It wants to see a key."""

import os

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

server = MCPServer("weather")


@server.tool()
def forecast(city: str) -> str:
    """What the weather will be like in a city."""
    return f"In {city} it will be sunny."


class Guarded:
    """Lets nobody in who does not bring the key."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app = app
        self.key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and Request(scope).headers.get("x-key") != self.key:
            await PlainTextResponse("Who are you?", status_code=403)(scope, receive, send)
            return
        await self.app(scope, receive, send)


if __name__ == "__main__":
    guarded = Guarded(server.streamable_http_app(), os.environ.get("WEATHER_KEY", "sunshine"))
    uvicorn.run(
        guarded, host="127.0.0.1", port=int(os.environ.get("WEATHER_PORT", "8765")), log_level="warning"
    )
