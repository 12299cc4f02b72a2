"""MCP servers over HTTP on this machine, in a thread: one without a login, and one that requires a login."""

import asyncio
import json
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl


@contextmanager
def serve_app(build: Callable[[str], Any], *, lifespan: Literal["on", "off"] = "on") -> Iterator[str]:
    """Serve the application that `build` makes for a URL, and yield that URL."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen(64)
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        config = uvicorn.Config(
            build(url), log_level="critical", lifespan=lifespan, timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[bound])), daemon=True)
        thread.start()
        try:
            yield url
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


class OAuthProvider:
    """Logs in everybody who returns with the code they were given."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.renewals: dict[str, RefreshToken] = {}
        self.made = 0

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = secrets.token_hex(20)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=4e9,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self,
        client: OAuthClientInformationFull,  # noqa: ARG002  as the library calls it
        authorization_code: str,
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._make(client, authorization_code.scopes, authorization_code.resource)

    def _make(
        self, client: OAuthClientInformationFull, scopes: list[str], resource: str | None
    ) -> OAuthToken:
        self.made += 1
        token, renewal = secrets.token_hex(20), secrets.token_hex(20)
        named = {"client_id": client.client_id or "", "scopes": scopes}
        self.tokens[token] = AccessToken(token=token, expires_at=None, resource=resource, **named)
        self.renewals[renewal] = RefreshToken(token=renewal, resource=resource, **named)
        return OAuthToken(access_token=token, refresh_token=renewal, expires_in=3600, scope=" ".join(scopes))

    async def load_refresh_token(
        self,
        client: OAuthClientInformationFull,  # noqa: ARG002  as the library calls it
        refresh_token: str,
    ) -> RefreshToken | None:
        return self.renewals.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.renewals[refresh_token.token]
        return self._make(client, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.pop(token.token, None)


def app_with_login(registrar: OAuthProvider, *, registers: bool = True) -> Callable[[str], Any]:
    """Return a builder of an application at `/mcp` that requires a login."""

    def build(url: str) -> Any:
        server = MCPServer(
            "guarded",
            auth_server_provider=registrar,
            auth=AuthSettings(
                issuer_url=AnyHttpUrl(url),
                resource_server_url=AnyHttpUrl(f"{url}/mcp"),
                validate_token_resource=False,
                client_registration_options=ClientRegistrationOptions(enabled=registers),
            ),
        )

        @server.tool()
        def whisper() -> str:
            """Tell a secret."""
            return "the secret"

        return server.streamable_http_app()

    return build


async def answer_as_told(scope: Any, receive: Any, send: Any) -> None:
    """An application whose tool `echo` says whatever its arguments say, line by line as events, and then answers."""
    if scope["type"] != "http":
        return
    raw = b""
    while (piece := await receive()).get("more_body"):
        raw += piece["body"]
    message = json.loads(raw + piece["body"]) if scope["method"] == "POST" else {}
    params = message.get("params", {})
    match message.get("method"):
        case "initialize":
            capabilities = {"tools": {}}
            server = {"name": "parrot", "version": "1"}
            version = params["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": server}
        case "tools/list":
            result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}
        case _:
            result = {}
    words = bytes.fromhex(params.get("arguments", {}).get("hex", "")).replace(
        b'"<id>"', json.dumps(message.get("id")).encode()
    )
    answer = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode()
    lines = [line.rstrip(b"\r") for line in words.split(b"\n")]
    body = b"".join(b"data: " + line + b"\n\n" for line in (*lines, answer) if line)
    status = 405 if scope["method"] == "GET" else 200 if "id" in message else 202
    headers = [(b"content-type", b"text/event-stream")] if status == 200 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body if status == 200 else b""})
