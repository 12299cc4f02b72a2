"""The list of tools, which of them exist in a configuration, and the tool that answers invalid calls."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from weft.tool.batch import BATCH
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult, read_description
from weft.tool.edit import EDIT, MULTIEDIT
from weft.tool.glob import GLOB
from weft.tool.grep import GREP
from weft.tool.list import LIST
from weft.tool.lsp.tool import LSP
from weft.tool.patch import APPLY_PATCH
from weft.tool.plan import PLAN_ENTER, PLAN_EXIT
from weft.tool.question import QUESTION
from weft.tool.read import READ
from weft.tool.recall import RECALL
from weft.tool.shell.bash import BASH
from weft.tool.shell.jobs import JOBS
from weft.tool.skill import SKILL, SkillSource, make_skill_tool
from weft.tool.task import TASK
from weft.tool.todo import TODOREAD, TODOWRITE
from weft.tool.webfetch import WEBFETCH
from weft.tool.websearch import CODESEARCH, WEBSEARCH, make_search_tools
from weft.tool.write import WRITE


class InvalidInput(Struct, frozen=True, kw_only=True):
    tool: Annotated[str, Meta(description="The tool that was called.")]
    error: Annotated[str, Meta(description="What was wrong with the call.")]


async def invalid(wanted: InvalidInput, ctx: ToolContext) -> ToolResult:
    del ctx
    output = f"The arguments provided to the tool are invalid: {wanted.error}"
    return ToolResult(title="Invalid Tool", output=output)


INVALID = Tool(
    name="invalid", about=read_description("invalid"), takes=InvalidInput, run=invalid, announces=True
)


# Models are told about the tools in this order.
TOOLS: Final[tuple[AnyTool, ...]] = (
    INVALID,
    QUESTION,
    BASH,
    READ,
    GLOB,
    GREP,
    EDIT,
    WRITE,
    TASK,
    WEBFETCH,
    TODOWRITE,
    TODOREAD,
    WEBSEARCH,
    CODESEARCH,
    SKILL,
    APPLY_PATCH,
    LSP,
    BATCH,
    LIST,
    MULTIEDIT,
    RECALL,
    JOBS,
)

# These exist only if plans are kept in files.
PLAN_TOOLS: Final[tuple[AnyTool, ...]] = (PLAN_EXIT, PLAN_ENTER)

# Models are not told about these: `invalid` answers broken calls, `list` attaches directories to prompts, and
# `multiedit` is there for models that were trained on it.
HIDDEN_TOOLS: Final = frozenset({"invalid", "list", "multiedit"})

# `recall` is only useful after a compaction, `jobs` only after a background job was started.
AFTER_COMPACTION: Final = frozenset({"recall"})
AFTER_BACKGROUND_JOB: Final = frozenset({"jobs"})


class ToolSetup(Struct, frozen=True, kw_only=True):
    """What is configured for tools: skills, a search service, and which experimental tools are on."""

    shelf: SkillSource | None = None
    search: str | None = None
    lsp: bool = False
    batch: bool = False
    planning: bool = False


def list_tools(equipment: ToolSetup) -> tuple[AnyTool, ...]:
    """Return the tools that exist in this configuration."""
    off = {name for name, on in (("lsp", equipment.lsp), ("batch", equipment.batch)) if not on}
    configured: dict[str, AnyTool] = {tool.name: tool for tool in make_search_tools(equipment.search)}
    if equipment.shelf is not None:
        configured["skill"] = make_skill_tool(equipment.shelf)
    tools = (*TOOLS, *PLAN_TOOLS) if equipment.planning else TOOLS
    return tuple(configured.get(tool.name, tool) for tool in tools if tool.name not in off)


def find_tool(name: str) -> AnyTool | None:
    return next((tool for tool in TOOLS if tool.name == name), None)
