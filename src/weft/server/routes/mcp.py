"""HTTP for MCP servers: how they stand, connecting and leaving them, logging in, what they have to read."""

from typing import Any

from weft.errors import InvalidInputError
from weft.model.wire import Wire
from weft.model.workspace import AnyMcpStatus, McpResource
from weft.server.route import Call, route

MCP = "/mcp/{name}"
LONGEST_CODE = 16_384


class McpInput(Wire, frozen=True, kw_only=True):
    name: str
    config: dict[str, Any]


class CodeInput(Wire, frozen=True, kw_only=True):
    code: str


class Success(Wire, frozen=True, kw_only=True):
    success: bool


class AuthorizationUrl(Wire, frozen=True, kw_only=True):
    authorization_url: str


async def list_mcp(call: Call) -> dict[str, AnyMcpStatus]:
    """The MCP servers, and how it stands with each. Those that are not off are connected first, as in OpenCode."""
    return await call.api.mcp.list_servers(connect=True)


async def add_mcp(call: Call) -> dict[str, AnyMcpStatus]:
    """Connect to another MCP server, for as long as the directory is open."""
    asked: McpInput = call.body
    return {asked.name: await call.api.mcp.add_server(asked.name, asked.config)}


async def start_mcp_auth(call: Call) -> AuthorizationUrl:
    """Begin to log in to an MCP server."""
    return AuthorizationUrl(authorization_url=await call.api.mcp.start_login(call.names["name"]))


async def remove_mcp_auth(call: Call) -> Success:
    """Forget how to log in to an MCP server."""
    await call.api.mcp.remove_login(call.names["name"])
    return Success(success=True)


async def finish_mcp_auth(call: Call) -> AnyMcpStatus:
    """Finish logging in to an MCP server."""
    asked: CodeInput = call.body
    if not 0 < len(asked.code) <= LONGEST_CODE:
        raise InvalidInputError("code", "that is no code")
    return await call.api.mcp.finish_login(call.names["name"], asked.code)


async def authenticate_mcp(call: Call) -> AnyMcpStatus:
    """Log in to an MCP server by a browser here."""
    return await call.api.mcp.log_in(call.names["name"])


async def connect_mcp(call: Call) -> bool:
    """Connect to an MCP server that is configured; gives whether it is connected."""
    return await call.api.mcp.connect(call.names["name"])


async def disconnect_mcp(call: Call) -> bool:
    """Leave an MCP server."""
    return await call.api.mcp.disconnect(call.names["name"])


async def list_resources(call: Call) -> dict[str, McpResource]:
    """What MCP servers offer for reading."""
    return await call.api.mcp.list_resources()


ROUTES = (
    route("GET", "/experimental/resource", "experimental.resource.list", list_resources),
    route("GET", "/mcp", "mcp.status", list_mcp),
    route("POST", f"{MCP}/auth", "mcp.auth.start", start_mcp_auth),
    route("DELETE", f"{MCP}/auth", "mcp.auth.remove", remove_mcp_auth),
    route("POST", f"{MCP}/auth/callback", "mcp.auth.callback", finish_mcp_auth, takes=CodeInput),
    route("POST", f"{MCP}/auth/authenticate", "mcp.auth.authenticate", authenticate_mcp),
    route("POST", f"{MCP}/connect", "mcp.connect", connect_mcp),
    route("POST", f"{MCP}/disconnect", "mcp.disconnect", disconnect_mcp),
)

# A server may be any program: who offers no shell does not offer this either.
SHELL_ROUTES = (route("POST", "/mcp", "mcp.add", add_mcp, takes=McpInput),)
