"""HTTP for what sessions work with: agents, skills, tools, helping programs."""

from msgspec import Struct

from weft.model.agent import Agent, Skill
from weft.model.around.place import FormatterStatus, LspStatus, ToolInfo
from weft.model.part import ModelRef
from weft.server.route import Call, route


class ToolQuery(Struct, frozen=True, kw_only=True):
    provider: str
    model: str


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


ROUTES = (
    route("GET", "/agent", "app.agents", list_agents),
    route("GET", "/skill", "app.skills", list_skills),
    route("GET", "/lsp", "lsp.status", list_lsp),
    route("GET", "/formatter", "formatter.status", list_formatters),
    route("GET", "/experimental/tool/ids", "tool.ids", list_tool_ids),
    route("GET", "/experimental/tool", "tool.list", list_tools, query=ToolQuery),
)
