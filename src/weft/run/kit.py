"""The kit: what a run needs, in one frozen record."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from weft.bus import Listener
from weft.context.system import Basis
from weft.context.tokens import Threshold
from weft.context.view import View
from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.agent import Agent, Command, ReadInstructions
from weft.model.event import SessionWarned
from weft.model.ids import Mint, SessionID
from weft.model.permission import Limits
from weft.model.project import Place
from weft.permission.gate import Gate
from weft.permission.questions import Questions
from weft.permission.rules import hides_all
from weft.plugin.hooks import UNHOOKED, Hooks
from weft.provider.registry import Registry
from weft.session.budget import Purse
from weft.session.lifecycle import Maker
from weft.store.contract import Store
from weft.tool.contract import AnyTool, Brought, Desk, Errand, ToolContext, alone
from weft.tool.mcp.tools import Guests, NoGuests
from weft.undo.recovery import Undoer


class Compaction(Struct, frozen=True, kw_only=True):
    """Whether to summarise what no longer fits, and to forget old tool outputs, without being asked.

    A request is held against the `threshold`, for some `models` against another, else against all that is usable.
    """

    auto: bool = True
    prune: bool = True
    threshold: Threshold | None = None
    models: Mapping[str, Threshold] = {}


class Deadlines(Struct, frozen=True, kw_only=True):
    """How many seconds one call of a tool may take, and a whole turn; None for as long as it takes.

    Neither counts the time in which a person is waited for.
    """

    tool: float | None = None
    turn: float | None = None


class Subtasks(Struct, frozen=True, kw_only=True):
    """How deep tasks may be handed on, and how long one may take with all below it; which tools stay with the first."""

    depth: int = 3
    seconds: float = 3600
    primary_tools: tuple[str, ...] = ()


class EndJobs(Protocol):
    """These sessions are over: end what goes on in the background for them."""

    async def __call__(self, *sessions: SessionID) -> None: ...


async def no_jobs(*sessions: SessionID) -> None:
    """For where nothing goes on in the background."""


async def nobody(_: ToolContext, errand: Errand) -> Brought:
    """For a kit that no runner has taken up."""
    return await alone(errand)


class Kit(Struct, frozen=True, kw_only=True):
    """Made once for a directory. `desk` gives what the tools of a session share; `owner` says who we are.

    With `plan_files` a plan is written to a file, which lies in `plans` where there is no checkout. `listen` hears all
    that is told from then on. With `continue_on_deny` a run goes on after the person refused a call. `spawn` sends a child on an errand for a call; the runner brings it. `view` remembers what
    a model was shown: every run has its own. `hooks` are what plugins have a say in, `guests` what MCP servers bring. `bases` remember what the models of
    sessions that are being run were told first.
    """

    store: Store
    journal: Journal
    clock: Clock
    mint: Mint
    chance: Callable[[], float]
    place: Place
    owner: str
    platform: str
    models: Registry
    agents: Mapping[str, Agent]
    default_agent: str
    tools: Mapping[str, AnyTool]
    commands: Mapping[str, Command] = {}
    output_limit: int
    compaction: Compaction
    instructions: ReadInstructions
    plans: str
    plan_files: bool
    gate: Gate
    questions: Questions
    desk: Callable[[SessionID], Desk]
    maker: Maker
    listen: Callable[[], Listener]
    subtasks: Subtasks = Subtasks()
    deadlines: Deadlines = Deadlines()
    continue_on_deny: bool = False
    purse: Purse
    undoer: Undoer
    spawn: Callable[[ToolContext, Errand], Awaitable[Brought]] = nobody
    view: View = field(default_factory=View)
    bases: dict[SessionID, Basis] = field(default_factory=dict)
    end_jobs: EndJobs = no_jobs
    hooks: Hooks = UNHOOKED
    guests: Guests = NoGuests()


async def joined(kit: Kit, session: SessionID, limits: Limits) -> Kit:
    """The kit with the tools that guests have brought by now. Of those that are not there the session is told. Nobody
    waits for a guest all of whose tools the `limits` forbid.

    Within a run there are only ever more of them, at the end: what a model was told of first stays, so that what its
    API remembers of the conversation does. OpenCode asks every server anew with every step.
    """
    async for missed in kit.guests.arrive(lambda prefix: not hides_all(prefix, limits)):
        await kit.journal.commit(SessionWarned(session_id=session, message=missed))
    new = {name: tool for name, tool in kit.guests.tools().items() if name not in kit.tools}
    return replace(kit, tools={**kit.tools, **new}) if new else kit
