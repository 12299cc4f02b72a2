"""HTTP for what sessions work with: agents, skills, tools, helping programs, MCP servers."""

from typing import Any

from msgspec import Struct

from weft.errors import NotFoundError, UnsupportedError
from weft.model.agent import Agent, Skill
from weft.model.around.place import AnyMcpStatus, FormatterStatus, LspStatus, ToolInfo
from weft.model.part import ModelRef
from weft.model.wire import Wire
from weft.server.route import Call, route

MCP = "/mcp/{name}"


class ToolQuery(Struct, frozen=True, kw_only=True):
    provider: str
    model: str


class McpInput(Wire, frozen=True, kw_only=True):
    name: str
    config: dict[str, Any]


class CodeInput(Wire, frozen=True, kw_only=True):
    code: str


class Success(Wire, frozen=True, kw_only=True):
    success: bool


class AuthorizationUrl(Wire, frozen=True, kw_only=True):
    authorization_url: str


async def list_agents(call: Call) -> list[Agent]:
    """The agents there are, the one that is used when none is named first."""
    return await call.api.surroundings.list_agents()


async def list_skills(call: Call) -> list[Skill]:
    """The skills there are."""
    return await call.api.surroundings.list_skills()


async def list_lsp(call: Call) -> list[LspStatus]:
    """The language servers that were started."""
    return await call.api.surroundings.list_lsp()


async def list_formatters(call: Call) -> list[FormatterStatus]:
    """The formatters there are, and whether they are used here."""
    return await call.api.surroundings.list_formatters()


async def list_tool_ids(call: Call) -> list[str]:
    """The names of the tools there are."""
    return [tool.id for tool in await call.api.surroundings.list_tools()]


async def list_tools(call: Call) -> list[ToolInfo]:
    """The tools as a model is told of them."""
    asked: ToolQuery = call.query
    model = ModelRef(provider_id=asked.provider, model_id=asked.model)
    return await call.api.surroundings.list_tools(model)


async def list_mcp(call: Call) -> dict[str, AnyMcpStatus]:
    """The MCP servers, and how it stands with each."""
    return await call.api.surroundings.list_mcp()


async def add_mcp(call: Call) -> dict[str, AnyMcpStatus]:
    """Connect to an MCP server; not built."""
    asked: McpInput = call.body
    raise UnsupportedError(f"connecting to the MCP server {asked.name[:80]!r}")


async def start_mcp_auth(call: Call) -> AuthorizationUrl:
    """Begin to log in to an MCP server."""
    raise await _not_there(call)


async def remove_mcp_auth(call: Call) -> Success:
    """Forget how to log in to an MCP server."""
    raise await _not_there(call)


async def finish_mcp_auth(call: Call) -> AnyMcpStatus:
    """Finish logging in to an MCP server."""
    raise await _not_there(call)


async def authenticate_mcp(call: Call) -> AnyMcpStatus:
    """Log in to an MCP server by a browser here."""
    raise await _not_there(call)


async def connect_mcp(call: Call) -> bool:
    """Connect to an MCP server that is configured."""
    raise await _not_there(call)


async def disconnect_mcp(call: Call) -> bool:
    """Leave an MCP server."""
    raise await _not_there(call)


async def _not_there(call: Call) -> NotFoundError | UnsupportedError:
    name = call.names["name"]
    if name in await call.api.surroundings.list_mcp():
        return UnsupportedError("this with MCP servers")
    return NotFoundError("MCP server", name[:80])


async def list_resources(call: Call) -> dict[str, dict[str, Any]]:
    """What MCP servers offer for reading."""
    del call
    return {}


ROUTES = (
    route("GET", "/agent", "app.agents", list_agents),
    route("GET", "/skill", "app.skills", list_skills),
    route("GET", "/lsp", "lsp.status", list_lsp),
    route("GET", "/formatter", "formatter.status", list_formatters),
    route("GET", "/experimental/tool/ids", "tool.ids", list_tool_ids),
    route("GET", "/experimental/tool", "tool.list", list_tools, query=ToolQuery),
    route("GET", "/experimental/resource", "experimental.resource.list", list_resources),
    route("GET", "/mcp", "mcp.status", list_mcp),
    route("POST", "/mcp", "mcp.add", add_mcp, takes=McpInput),
    route("POST", f"{MCP}/auth", "mcp.auth.start", start_mcp_auth),
    route("DELETE", f"{MCP}/auth", "mcp.auth.remove", remove_mcp_auth),
    route("POST", f"{MCP}/auth/callback", "mcp.auth.callback", finish_mcp_auth, takes=CodeInput),
    route("POST", f"{MCP}/auth/authenticate", "mcp.auth.authenticate", authenticate_mcp),
    route("POST", f"{MCP}/connect", "mcp.connect", connect_mcp),
    route("POST", f"{MCP}/disconnect", "mcp.disconnect", disconnect_mcp),
)
