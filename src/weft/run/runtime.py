"""What the runs of a directory share: stores, models, tools, limits."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from weft.bus import BusListener
from weft.context.system import Briefing
from weft.context.tokens import Threshold
from weft.context.view import View
from weft.errors import SessionBusyError
from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.agent import AgentInfo, Command, ReadInstructions
from weft.model.event import SessionWarned
from weft.model.ids import Mint, SessionID
from weft.model.message import MessageWithParts
from weft.model.permission import Rulesets
from weft.model.project import Place
from weft.model.session import SessionInfo, get_weft_data
from weft.permission.gate import Gate
from weft.permission.questions import QuestionGate
from weft.permission.rules import hides_all
from weft.plugin.hooks import NO_HOOKS, Hooks
from weft.provider.registry import Registry
from weft.session.lifecycle import SessionMaker
from weft.session.reservations import DirectoryBudgets
from weft.store.contract import Store
from weft.tool.contract import AnyTool, ChildResult, ChildTask, ToolContext, ToolResources, refuse_spawn
from weft.tool.mcp.contract import McpServers, NoMcpServers
from weft.undo.context import UndoContext


class CompactionPolicy(Struct, frozen=True, kw_only=True):
    """What to do automatically when the context fills up.

    `auto` summarises a history that no longer fits, `prune` drops old tool outputs from requests. A request is too large if it
    exceeds the `threshold`, or the one for its model in `models`, or else all that the model's context can hold.
    """

    auto: bool = True
    prune: bool = True
    threshold: Threshold | None = None
    models: Mapping[str, Threshold] = {}


class RunDeadlines(Struct, frozen=True, kw_only=True):
    """The seconds that one tool call and one whole turn may take; None for no limit.

    Time in which weft waits for a person does not count. `to_deadlines` of `local/open.py` has the defaults.
    """

    tool: float | None = None
    turn: float | None = None


class SubtaskLimits(Struct, frozen=True, kw_only=True):
    """How deep child sessions may be nested, how many seconds one may take with all below it, and which tools no child gets."""

    depth: int = 3
    seconds: float = 3600
    primary_tools: tuple[str, ...] = ()


class EndJobs(Protocol):
    """End the background jobs of these sessions."""

    async def __call__(self, *sessions: SessionID) -> None: ...


async def end_no_jobs(*sessions: SessionID) -> None:
    """Do nothing: there are no background jobs."""


class CarriedFiles(Protocol):
    """Carries the files of a session to the node that continues it.

    * `take_over` is called when the lease of a session was taken, before anything is settled or run. It replaces the files with
      those that the last holder stored, and returns the session as it is then.
    * `store` is called under the lease when files may have changed: after each step, and before the lease is given back.
    """

    async def take_over(self, session: SessionInfo) -> SessionInfo: ...

    async def store(self, session: SessionInfo, history: Sequence[MessageWithParts]) -> None: ...


class FilesInPlace:
    """The `CarriedFiles` of an ordinary directory: every process that can continue a session has the directory itself.

    A session of a git workspace is refused: only a node with that workspace has its files.
    """

    async def take_over(self, session: SessionInfo) -> SessionInfo:
        workspace = get_weft_data(session).workspace
        if workspace:
            hint = f"only a node of the git workspace {workspace} can run it: weft attach URL -s {session.id}"
            raise SessionBusyError(session.id, hint=hint)
        return session

    async def store(self, session: SessionInfo, history: Sequence[MessageWithParts]) -> None:
        del session, history


async def spawn_nothing(_: ToolContext, child_task: ChildTask) -> ChildResult:
    """Refuse to start a child session: no runner has taken up this runtime yet."""
    return await refuse_spawn(child_task)


class Runtime(Struct, frozen=True, kw_only=True):
    """What all runs in one directory share.

    * `owner` names this process in leases;
    * `jitter` returns a random number from 0 to 1, which spreads retries;
    * `make_resources` returns what the tools of a session share;
    * `plan_files` says that plans are written to files; they are in `plans` if the directory is no checkout;
    * `listen` opens a listener to all events from then on;
    * `continue_on_deny` lets a run go on after a person refused a call;
    * `spawn` runs a child session for a tool call, `is_draining` says that no more steps are to begin (the runner provides both);
    * `view` caches what the model was shown (each run has its own);
    * `briefings` caches the briefings of the sessions that run; `new_briefings` are those that were made just now;
    * `hooks` calls plugins, `mcp` returns the MCP servers there are by now;
    * `session_tools` are tools that only one session is offered;
    * `files` carries the files of sessions to other nodes.
    """

    store: Store
    journal: Journal
    clock: Clock
    mint: Mint
    jitter: Callable[[], float]
    place: Place
    owner: str
    platform: str
    models: Registry
    agents: Mapping[str, AgentInfo]
    default_agent: str
    tools: Mapping[str, AnyTool]
    commands: Mapping[str, Command] = {}
    output_limit: int
    compaction: CompactionPolicy
    instructions: ReadInstructions
    plans: str
    plan_files: bool
    gate: Gate
    questions: QuestionGate
    make_resources: Callable[[SessionID], ToolResources]
    maker: SessionMaker
    listen: Callable[[], BusListener]
    subtasks: SubtaskLimits = SubtaskLimits()
    deadlines: RunDeadlines = RunDeadlines()
    continue_on_deny: bool = False
    budgets: DirectoryBudgets
    undo_context: UndoContext
    spawn: Callable[[ToolContext, ChildTask], Awaitable[ChildResult]] = spawn_nothing
    is_draining: Callable[[], bool] = lambda: False
    view: View = field(default_factory=View)
    briefings: dict[SessionID, Briefing] = field(default_factory=dict)
    new_briefings: set[SessionID] = field(default_factory=set)
    end_jobs: EndJobs = end_no_jobs
    hooks: Hooks = NO_HOOKS
    mcp: Callable[[], McpServers] = NoMcpServers
    session_tools: dict[SessionID, Mapping[str, AnyTool]] = field(default_factory=dict)
    files: CarriedFiles = FilesInPlace()


async def with_session_tools(runtime: Runtime, session: SessionID, rulesets: Rulesets) -> Runtime:
    """Return the runtime with the session's own tools and those of the MCP servers that are connected by now.

    Warn about servers that are not connected.

    Servers whose tools the `rulesets` all forbid are not waited for. Within a run tools are only ever added, at the end, so that
    the provider's cache of the conversation stays valid. OpenCode asks every server again for every step.
    """
    async for warning in runtime.mcp().connect_all(lambda prefix: not hides_all(prefix, rulesets)):
        await runtime.journal.commit(SessionWarned(session_id=session, message=warning))
    own = runtime.session_tools.get(session, {})
    new = {name: tool for name, tool in runtime.mcp().tools().items() if name not in runtime.tools}
    if not new and own.items() <= runtime.tools.items():
        return runtime
    return replace(runtime, tools={**runtime.tools, **new, **own})
