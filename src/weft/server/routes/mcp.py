"""HTTP routes for MCP servers: status, connecting, logging in, and resources."""

from typing import Any

from weft.errors import InvalidInputError
from weft.model.wire import Wire
from weft.model.workspace import AnyMcpStatus, McpResource
from weft.server.route import DirectoryCall, route

MCP = "/mcp/{name}"
MAX_CODE_LENGTH = 16_384


class McpInput(Wire, frozen=True, kw_only=True):
    name: str
    config: dict[str, Any]


class CodeInput(Wire, frozen=True, kw_only=True):
    code: str


class Success(Wire, frozen=True, kw_only=True):
    success: bool


class AuthorizationUrl(Wire, frozen=True, kw_only=True):
    authorization_url: str


async def list_mcp(call: DirectoryCall) -> dict[str, AnyMcpStatus]:
    """List the MCP servers with their status. Enabled ones are connected first, as in OpenCode."""
    return await call.api.mcp.list_servers(connect=True)


async def add_mcp(call: DirectoryCall) -> dict[str, AnyMcpStatus]:
    """Connect to another MCP server, for as long as the directory is open."""
    input: McpInput = call.body
    return {input.name: await call.api.mcp.add_server(input.name, input.config)}


async def start_mcp_auth(call: DirectoryCall) -> AuthorizationUrl:
    """Start a login to an MCP server."""
    return AuthorizationUrl(authorization_url=await call.api.mcp.start_login(call.path_params["name"]))


async def remove_mcp_auth(call: DirectoryCall) -> Success:
    """Remove the login to an MCP server."""
    await call.api.mcp.remove_login(call.path_params["name"])
    return Success(success=True)


async def finish_mcp_auth(call: DirectoryCall) -> AnyMcpStatus:
    """Finish a login to an MCP server."""
    input: CodeInput = call.body
    if not 0 < len(input.code) <= MAX_CODE_LENGTH:
        raise InvalidInputError("code", f"it must have 1 to {MAX_CODE_LENGTH} characters")
    return await call.api.mcp.finish_login(call.path_params["name"], input.code)


async def authenticate_mcp(call: DirectoryCall) -> AnyMcpStatus:
    """Log in to an MCP server with a browser on this machine."""
    return await call.api.mcp.log_in(call.path_params["name"])


async def connect_mcp(call: DirectoryCall) -> bool:
    """Connect to a configured MCP server; return whether it is connected."""
    return await call.api.mcp.connect(call.path_params["name"])


async def disconnect_mcp(call: DirectoryCall) -> bool:
    """Disconnect from an MCP server."""
    return await call.api.mcp.disconnect(call.path_params["name"])


async def list_resources(call: DirectoryCall) -> dict[str, McpResource]:
    """List the resources of MCP servers."""
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

# An MCP server may be any program, so `--no-shell` leaves this route out, too.
SHELL_ROUTES = (route("POST", "/mcp", "mcp.add", add_mcp, takes=McpInput),)
