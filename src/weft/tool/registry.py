"""All tools, the selection for a configuration, and the tool that answers invalid calls."""

from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from weft.model.agent import list_offered
from weft.tool.contract import AnyTool, Audience, Tool, ToolContext, ToolResult, read_text
from weft.tool.inputs import (
    DEFAULT_COMMAND_TIMEOUT_MS,
    BashInput,
    BatchInput,
    EditInput,
    GlobInput,
    GrepInput,
    HistoryInput,
    JobsInput,
    ListInput,
    LspInput,
    MultiEditInput,
    PatchInput,
    PlanEnterInput,
    PlanExitInput,
    QuestionInput,
    ReadInput,
    RecallInput,
    TaskInput,
    TodoReadInput,
    TodoWriteInput,
    WebFetchInput,
    WriteInput,
)
from weft.tool.skill import SKILL, SkillSource, make_skill_tool
from weft.tool.websearch import CODESEARCH, WEBSEARCH, make_search_tools

AGENTS_PLACEHOLDER: Final = "{agents}"
TIMEOUT_PLACEHOLDER: Final = "{timeout}"


class InvalidInput(Struct, frozen=True, kw_only=True):
    tool: Annotated[str, Meta(description="The tool that was called.")]
    error: Annotated[str, Meta(description="What was wrong with the call.")]


async def invalid(arguments: InvalidInput, ctx: ToolContext) -> ToolResult:
    del ctx
    output = f"The arguments provided to the tool are invalid: {arguments.error}"
    return ToolResult(title="Invalid Tool", output=output)


INVALID = Tool(
    name="invalid", about=read_text("invalid"), takes=InvalidInput, run=invalid, watch_all=False, hidden=True
)


def declare(
    name: str,
    takes: type[Struct],
    function: str,
    *,
    describe: Callable[[Audience], str | None] | None = None,
    watch_all: bool = True,
    notes: bool = False,
    own_deadline: bool = False,
    hidden: bool = False,
) -> AnyTool:
    """Return a built-in tool. `function` names what does the work, as `module:name` in this package.

    It is loaded when the tool is called: a run calls few of the tools, and many runs none. The other arguments are those of `Tool`.
    """
    module, _, attribute = function.partition(":")

    async def run(wanted: Any, ctx: ToolContext) -> ToolResult:
        result: ToolResult = await getattr(import_module(f"weft.tool.{module}"), attribute)(wanted, ctx)
        return result

    return Tool(
        name=name,
        about=read_text(name),
        takes=takes,
        run=run,
        describe=describe,
        watch_all=watch_all,
        notes=notes,
        own_deadline=own_deadline,
        hidden=hidden,
    )


def make_bash_tool(timeout_ms: int) -> AnyTool:
    """Return the tool `bash`. A command ends after `timeout_ms` unless the model says otherwise."""

    async def run(wanted: Any, ctx: ToolContext) -> ToolResult:
        from weft.tool.shell.bash import bash  # noqa: PLC0415  loaded when it is called, as the others are

        return await bash(wanted, ctx, default_ms=timeout_ms)

    about = read_text("bash").replace(TIMEOUT_PLACEHOLDER, f"{timeout_ms / 1000:g} seconds")
    return Tool(
        name="bash", about=about, takes=BashInput, run=run, watch_all=False, notes=True, own_deadline=True
    )


def prefers_patches(api_id: str) -> bool:
    """Return True for models that were trained on patches.

    These are OpenAI's GPT models, except GPT-4 and the open-weight ones.
    """
    return "gpt-" in api_id and "oss" not in api_id and "gpt-4" not in api_id


def describe_apply_patch(audience: Audience) -> str | None:
    return read_text("apply_patch") if prefers_patches(audience.api_id) else None


def describe_edit(audience: Audience) -> str | None:
    return None if prefers_patches(audience.api_id) else read_text("edit")


def describe_write(audience: Audience) -> str | None:
    return None if prefers_patches(audience.api_id) else read_text("write")


def describe_task(audience: Audience) -> str | None:
    """Return the tool's description with the agents that may be used, or None if there are none."""
    usable = [
        f"- {name}: {agent.description or 'for what the user says it is for'}"
        for name, agent in list_offered(audience.agents).items()
        if audience.allowed("task", name)
    ]
    return read_text("task").replace(AGENTS_PLACEHOLDER, "\n".join(usable)) if usable else None


# What `watch_all`, `notes`, `own_deadline` and `hidden` mean, `Tool` says. Why some tools have them:
# * `jobs` is watched, because a job that it stops may change files while it ends.
# * `bash`, `task` and `batch` limit their own time: the model chooses the deadline of a command, a task takes as long as its child
#   sessions, and each call of a batch has a deadline.
# * `invalid`, `list` and `multiedit` are hidden: the first answers broken calls, the second attaches directories to prompts, and
#   some models call the third because they were trained on it.
QUESTION = declare("question", QuestionInput, "question:question", watch_all=False)
BASH = make_bash_tool(DEFAULT_COMMAND_TIMEOUT_MS)
READ = declare("read", ReadInput, "read:read", watch_all=False)
GLOB = declare("glob", GlobInput, "glob:glob", watch_all=False)
GREP = declare("grep", GrepInput, "grep:grep", watch_all=False)
EDIT = declare("edit", EditInput, "edit:edit", describe=describe_edit, watch_all=False, notes=True)
WRITE = declare("write", WriteInput, "write:write", describe=describe_write, watch_all=False, notes=True)
TASK = declare("task", TaskInput, "task:task", describe=describe_task, watch_all=False, own_deadline=True)
WEBFETCH = declare("webfetch", WebFetchInput, "webfetch:webfetch", watch_all=False)
TODOWRITE = declare("todowrite", TodoWriteInput, "todo:todowrite", watch_all=False)
TODOREAD = declare("todoread", TodoReadInput, "todo:todoread", watch_all=False)
APPLY_PATCH = declare(
    "apply_patch", PatchInput, "patch:apply_patch", describe=describe_apply_patch, watch_all=False, notes=True
)
LSP = declare("lsp", LspInput, "lsp.tool:lsp", watch_all=False)
BATCH = declare("batch", BatchInput, "batch:batch", watch_all=False, own_deadline=True)
LIST = declare("list", ListInput, "list:list_directory", watch_all=False, hidden=True)
MULTIEDIT = declare("multiedit", MultiEditInput, "edit:multiedit", watch_all=False, notes=True, hidden=True)
RECALL = declare("recall", RecallInput, "recall:recall", watch_all=False)
HISTORY = declare("history", HistoryInput, "history:search_history", watch_all=False)
JOBS = declare("jobs", JobsInput, "shell.jobs:jobs")
PLAN_EXIT = declare("plan_exit", PlanExitInput, "plan:plan_exit", watch_all=False)
PLAN_ENTER = declare("plan_enter", PlanEnterInput, "plan:plan_enter", watch_all=False)

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
    HISTORY,
    JOBS,
)

# These exist only if plans are kept in files.
PLAN_TOOLS: Final[tuple[AnyTool, ...]] = (PLAN_EXIT, PLAN_ENTER)

# `recall` is only useful after a compaction, `jobs` only after a background job was started.
AFTER_COMPACTION: Final = frozenset({"recall"})
AFTER_BACKGROUND_JOB: Final = frozenset({"jobs"})


class ToolSetup(Struct, frozen=True, kw_only=True):
    """What is configured for tools: skills, a search service, how long a command may run, and which experimental tools are on."""

    skills: SkillSource | None = None
    search: str | None = None
    lsp: bool = False
    batch: bool = False
    history: bool = False
    command_timeout_ms: int = DEFAULT_COMMAND_TIMEOUT_MS
    planning: bool = False


def list_tools(setup: ToolSetup) -> tuple[AnyTool, ...]:
    """Return the tools that exist in this configuration."""
    switches = (("lsp", setup.lsp), ("batch", setup.batch), ("history", setup.history))
    disabled = {name for name, enabled in switches if not enabled}
    configured: dict[str, AnyTool] = {tool.name: tool for tool in make_search_tools(setup.search)}
    if setup.command_timeout_ms != DEFAULT_COMMAND_TIMEOUT_MS:
        configured["bash"] = make_bash_tool(setup.command_timeout_ms)
    if setup.skills is not None:
        configured["skill"] = make_skill_tool(setup.skills)
    tools = (*TOOLS, *PLAN_TOOLS) if setup.planning else TOOLS
    return tuple(configured.get(tool.name, tool) for tool in tools if tool.name not in disabled)
