"""MCP servers over HTTP."""

from typing import Any, Final

from weft.client.asked import Asked, delete, get, post, quoted
from weft.client.http import Line
from weft.errors import NotFoundError, UnsupportedError
from weft.model.around.place import AnyMcpStatus, McpResource

Statuses = dict[str, AnyMcpStatus]
STATUS: Final = Asked(method="GET", path="/mcp", twice=True, long=True)


class RemoteMcp:
    def __init__(self, line: Line) -> None:
        self._line = line

    async def list_servers(self, *, connect: bool = False) -> Statuses:
        del connect  # whoever serves connects them before it answers
        found: Statuses = await self._line.ask(STATUS, Statuses)
        return found

    async def list_resources(self) -> dict[str, McpResource]:
        return await self._line.ask(get("/experimental/resource"), dict[str, McpResource])

    async def add_server(self, name: str, config: dict[str, Any]) -> AnyMcpStatus:
        body = {"name": name, "config": config}
        found: Statuses = await self._line.ask(post("/mcp", body, long=True), Statuses)
        if name not in found:
            raise NotFoundError("MCP server", name)
        return found[name]

    async def connect(self, name: str) -> bool:
        return await self._line.ask(post(_at(name, "connect"), long=True, twice=True), bool)

    async def disconnect(self, name: str) -> bool:
        return await self._line.ask(post(_at(name, "disconnect"), twice=True), bool)

    async def start_login(self, name: str) -> str:
        found: dict[str, str] = await self._line.ask(post(_at(name, "auth")), dict[str, str])
        return found.get("authorizationUrl", "")

    async def finish_login(self, name: str, code: str | None = None) -> AnyMcpStatus:
        if code is None:
            raise UnsupportedError("waiting for a browser over HTTP", hint="log_in does so at the server")
        status: AnyMcpStatus = await self._line.ask(
            post(_at(name, "auth", "callback"), {"code": code}, long=True), AnyMcpStatus
        )
        return status

    async def log_in(self, name: str) -> AnyMcpStatus:
        status: AnyMcpStatus = await self._line.ask(
            post(_at(name, "auth", "authenticate"), long=True), AnyMcpStatus
        )
        return status

    async def remove_login(self, name: str) -> None:
        await self._line.ask(delete(_at(name, "auth")), None)


def _at(name: str, *rest: str) -> str:
    return "/".join(("/mcp", quoted(name), *rest))
