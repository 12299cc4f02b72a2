"""The tool contract: what an agent may do, and what a tool is given to do it with."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from weft.errors import NobodyError, NotFoundError, ToolError
from weft.host.clock import Clock
from weft.host.processes import Command
from weft.model.agent import Agent
from weft.model.ids import MessageID, SessionID
from weft.model.permission import CallRef, Question
from weft.model.search import Recalled
from weft.model.session import Todo
from weft.model.wire import Wire
from weft.outlook import EditorTerminals
from weft.sandbox.policy import OPEN, Sandbox
from weft.tool.buffers import Files
from weft.tool.diagnostic import Lookout, Unwatched
from weft.tool.files import Stamp
from weft.tool.network import Reach
from weft.tool.spill import Spill


class Watch(Protocol):
    """Around a change of these files, or with none named, of any: what they were like is kept.

    Not around a question to a person: what they do while they think is theirs.
    """

    def __call__(self, *files: str) -> AbstractAsyncContextManager[None]: ...


@asynccontextmanager
async def unwatched(*files: str) -> AsyncIterator[None]:
    """For where nothing can be taken back."""
    del files
    yield


Answers = tuple[tuple[str, ...], ...]


class Inquire(Protocol):
    """Put questions to the person; gives a list of answers for each.

    Raises `DismissedError` if they will not answer, and `NobodyError` if nobody is there.
    """

    async def __call__(self, questions: Sequence[Question], *, agent: str, call: CallRef) -> Answers: ...


class Handover(Protocol):
    """The change from one agent to another within a session, and the plan it is about."""

    async def find_plan(self) -> str:
        """Where the plan is written down."""
        ...

    async def hand_to(self, agent: str, words: str) -> None:
        """Go on as this agent, which is told these words."""
        ...


async def nobody(questions: Sequence[Question], *, agent: str, call: CallRef) -> Answers:
    """For where there is no person."""
    del questions, agent, call
    raise NobodyError


class NoHandover:
    """For where there is no other agent."""

    async def find_plan(self) -> str:
        raise ToolError("No plan is kept here.")

    async def hand_to(self, agent: str, words: str) -> None:
        raise ToolError(f"The work cannot be handed to {agent} from here: {words}")


class Job(Wire, frozen=True, kw_only=True):
    """A command that goes on by itself: whose it is, what it does, where its output goes, and how it ended."""

    id: str
    session_id: SessionID
    command: str
    description: str
    output: str
    started: int
    ended: int | None = None
    code: int | None = None


class Jobs(Protocol):
    """Whatever a job started ends with it; it ends with its session at the latest."""

    async def start(self, job: Job, command: Command) -> None:
        """Raises `ToolError` when it cannot be started."""

    def list(self, session: SessionID) -> list[Job]:
        """The jobs of a session, oldest first, those that have ended too."""

    async def stop(self, session: SessionID, id: str) -> Job:
        """End a job if it has not ended yet. Raises `NotFoundError`."""


class NoJobs:
    """For where nobody sees to them."""

    async def start(self, job: Job, command: Command) -> None:
        del job, command
        raise ToolError("Commands cannot be run in the background here.")

    def list(self, session: SessionID) -> list[Job]:
        del session
        return []

    async def stop(self, session: SessionID, id: str) -> Job:
        del session
        raise NotFoundError("job", id)


class Guard:
    """What a session has seen of files, by real path. One per session; `off` lets everything pass."""

    def __init__(self, *, off: bool = False) -> None:
        self._off = off
        self._seen: dict[str, Stamp] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def saw(self, path: str, stamp: Stamp) -> None:
        self._seen[path] = stamp

    def check(self, path: str, found: Stamp) -> None:
        """Raises `ToolError` unless the file is just as it was when last seen."""
        seen = self._seen.get(path)
        if self._off or seen == found:
            return
        if seen is None:
            raise ToolError(f"You must read file {path} before overwriting it. Use the Read tool first")
        if found.unsaved:
            raise ToolError(
                f"File {path} has been changed in the editor since it was last read, and is not saved. "
                "Read it again before changing it."
            )
        # OpenCode asks whether the file is newer than the reading of it. An older one (checked out again, moved
        # into place) is another file just as well.
        raise ToolError(
            f"File {path} has changed since it was last read (it was of {_time(seen)}, it is of {_time(found)}). "
            "Read it again before changing it."
        )

    def lock(self, path: str) -> asyncio.Lock:
        """Held while a file is changed, so that two calls in one step do not undo one another."""
        lock = self._locks.get(path)
        if lock is None:
            self._locks[path] = lock = asyncio.Lock()
        return lock


def _time(stamp: Stamp) -> str:
    return datetime.fromtimestamp(stamp.modified / 1e9, UTC).isoformat(timespec="milliseconds")


class Edited(Protocol):
    """Tell that a file was changed; returns when those who tidy it up (formatters) are done."""

    async def __call__(self, path: str) -> None: ...


class TodoList(Protocol):
    """The session's list of what is to be done."""

    async def read(self) -> Sequence[Todo]: ...

    async def write(self, todos: Sequence[Todo]) -> None: ...


class Recall(Protocol):
    """Find words in what was summed up, and is no longer before the model."""

    async def __call__(self, words: str, *, limit: int) -> Sequence[Recalled]: ...


class Desk(Struct, frozen=True, kw_only=True):
    """`environment` is all that child processes see; make it with `tool_environment`. `sandbox` is put around them."""

    guard: Guard
    spill: Spill
    todos: TodoList
    edited: Edited
    recall: Recall
    environment: Mapping[str, str]
    files: Files = Files()
    terminals: EditorTerminals | None = None
    lookout: Lookout = Unwatched()
    reach: Reach = Reach()
    inquire: Inquire = nobody
    handover: Handover = NoHandover()
    jobs: Jobs = NoJobs()
    sandbox: Sandbox = OPEN


Input = TypeVar("Input", bound=Struct)


class Attachment(Struct, frozen=True, kw_only=True):
    """A file handed back beside the text, as a `data:` URL."""

    mime: str
    url: str
    filename: str | None = None


class ToolResult(Struct, frozen=True, kw_only=True):
    """What came of a call: a title for people, the output for the model, metadata for screens."""

    title: str
    output: str
    metadata: dict[str, Any] = {}
    attachments: tuple[Attachment, ...] = ()


class Ask(Protocol):
    """May I? Returns when allowed, raises `NotPermittedError` when not."""

    async def __call__(
        self,
        permission: str,
        *patterns: str,
        always: tuple[str, ...] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None: ...


class Permits(Protocol):
    """Whether the rules let this pass without anybody being asked. It asks nobody, and grants do not count."""

    def __call__(self, permission: str, pattern: str) -> bool: ...


def all_passes(permission: str, pattern: str) -> bool:
    """For what a person does with their own hand."""
    del permission, pattern
    return True


class Report(Protocol):
    """Tell how a call is getting on, while it runs."""

    async def __call__(self, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> None: ...


class Errand(Struct, frozen=True, kw_only=True):
    """A task for a child session, and the agent that is to do it there; `session_id` goes on with an earlier one."""

    description: str
    prompt: str
    agent: str
    session_id: str | None = None


class Brought(Struct, frozen=True, kw_only=True):
    """What an errand brought back: the child's last words, and for screens what it did."""

    session_id: SessionID
    text: str
    metadata: dict[str, Any]


class Spawn(Protocol):
    """Send a child session on an errand, and wait for it. It has settled when this returns, raises or is cancelled."""

    async def __call__(self, errand: Errand) -> Brought: ...


async def alone(errand: Errand) -> Brought:
    """For where there is nobody to send."""
    del errand
    raise ToolError("No task can be handed on from here.")


class CallAlso(Protocol):
    """Have another tool called as if the model had called it: with a part, rules and limits of its own.

    Gives whether it went well. With `error` it is not called, and that is what its part says.
    """

    async def __call__(self, tool: str, arguments: dict[str, Any], *, error: str = "") -> bool: ...


async def nobody_calls(tool: str, arguments: dict[str, Any], *, error: str = "") -> bool:
    """For a use of a tool outside of an answer, where there is no place for more calls."""
    del tool, arguments, error
    raise ToolError("Other tools cannot be called from here.")


class ToolContext(Struct, frozen=True, kw_only=True):
    """All that a tool may touch. Cancelling its task is how a call is aborted."""

    session_id: SessionID
    message_id: MessageID
    call_id: str
    agent: str
    directory: str
    worktree: str
    clock: Clock
    ask: Ask
    report: Report
    desk: Desk
    agents: Mapping[str, Agent] = {}
    spawn: Spawn = alone
    call: CallAlso = nobody_calls
    watch: Watch = unwatched
    permits: Permits = all_passes


class Audience(Struct, frozen=True, kw_only=True):
    """Who is told of tools: a model under its provider's name for it, and an agent that is `allowed` some things.

    `allowed` says of a permission and a pattern whether no rule denies it; `agents` are all there are.
    """

    provider_id: str
    api_id: str
    allowed: Callable[[str, str], bool]
    agents: Mapping[str, Agent] = {}


class Tool(Struct, Generic[Input], frozen=True, kw_only=True):
    """A struct of what it takes, a function that does it, and a text that tells the model when to use it.

    `tell`, where the text depends on who reads it, gives that text, or None to whom the tool is not offered. A tool that
    `announces` says by `ctx.watch` what it is about to change; of any other, all that changes while it runs is its doing.
    One whose `schema` is somebody else's takes a `Given`: what was written reaches it as it is.
    """

    name: str
    about: str
    takes: type[Input]
    run: Callable[[Input, ToolContext], Awaitable[ToolResult]]
    tell: Callable[[Audience], str | None] | None = None
    announces: bool = False
    schema: dict[str, Any] | None = None


AnyTool = Tool[Any]


class Given(Struct, frozen=True):
    """Arguments as the model wrote them: any object, to be judged by whoever gave the schema."""

    arguments: dict[str, Any]


def schema_of(tool: AnyTool) -> dict[str, Any]:
    """The JSON schema of what the tool takes, as the model is told it. It is the same object every time."""
    takes: type[Struct] = tool.takes
    return _schema_of(takes) if tool.schema is None else tool.schema


@cache
def _schema_of(takes: type[Struct]) -> dict[str, Any]:
    (root,), components = msgspec.json.schema_components([takes], ref_template="#/$defs/{name}")
    own = components.pop(root["$ref"].rpartition("/")[2])
    return {**own, "additionalProperties": False} | ({"$defs": components} if components else {})


def to_input(tool: Tool[Input], given: dict[str, Any]) -> Input:
    """The model's arguments as what the tool takes, or an error the model can act on."""
    given = given if tool.schema is None else {"arguments": given}
    try:
        return msgspec.convert(given, tool.takes)
    except msgspec.ValidationError as error:
        # Some models put every value into quotes. What can only be meant one way is taken so.
        with suppress(msgspec.ValidationError):
            return msgspec.convert(given, tool.takes, strict=False)
        raise ToolError(
            f"The {tool.name} tool was called with invalid arguments: {error}.\n"
            "Please rewrite the input so it satisfies the expected schema."
        ) from error
