"""The list of tools, which of them an agent is offered, and the answer to a call that cannot be carried out."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from weft.tool.batch import BATCH
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult
from weft.tool.description import about
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
from weft.tool.skill import SKILL, Shelf, skill_tool
from weft.tool.task import TASK
from weft.tool.todo import TODOREAD, TODOWRITE
from weft.tool.webfetch import WEBFETCH
from weft.tool.websearch import CODESEARCH, WEBSEARCH, search_tools
from weft.tool.write import WRITE


class InvalidInput(Struct, frozen=True, kw_only=True):
    tool: Annotated[str, Meta(description="The tool that was called.")]
    error: Annotated[str, Meta(description="What was wrong with the call.")]


async def invalid(wanted: InvalidInput, ctx: ToolContext) -> ToolResult:
    del ctx
    output = f"The arguments provided to the tool are invalid: {wanted.error}"
    return ToolResult(title="Invalid Tool", output=output)


INVALID = Tool(name="invalid", about=about("invalid"), takes=InvalidInput, run=invalid, announces=True)


# In the order models are told of them.
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

# Offered where plans are kept in files.
PLANNING: Final[tuple[AnyTool, ...]] = (PLAN_EXIT, PLAN_ENTER)

# Of these a model is not told: where a broken call goes, how a directory is attached, and what one that was brought
# up on it may call all the same.
UNSEEN: Final = frozenset({"invalid", "list", "multiedit"})

# Of use only where something was summed up, and where something was started in the background.
AFTER_A_CUT: Final = frozenset({"recall"})
AFTER_A_JOB: Final = frozenset({"jobs"})


class Equipment(Struct, frozen=True, kw_only=True):
    """What is there for tools to work with, as configured: skills, a search service, which experiments are on."""

    shelf: Shelf | None = None
    search: str | None = None
    lsp: bool = False
    batch: bool = False
    planning: bool = False


def equipped(equipment: Equipment) -> tuple[AnyTool, ...]:
    """The tools there are with this equipment."""
    off = {name for name, on in (("lsp", equipment.lsp), ("batch", equipment.batch)) if not on}
    made: dict[str, AnyTool] = {tool.name: tool for tool in search_tools(equipment.search)}
    if equipment.shelf is not None:
        made["skill"] = skill_tool(equipment.shelf)
    tools = (*TOOLS, *PLANNING) if equipment.planning else TOOLS
    return tuple(made.get(tool.name, tool) for tool in tools if tool.name not in off)


def find_tool(name: str) -> AnyTool | None:
    return next((tool for tool in TOOLS if tool.name == name), None)
