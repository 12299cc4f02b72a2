"""The tool contract: the tool itself, the context of a call, and the result."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from weft.errors import NobodyError, NotFoundError, ToolError
from weft.host.clock import Clock
from weft.host.network import NetworkAccess
from weft.host.processes import ProcessCommand
from weft.model.agent import AgentInfo
from weft.model.display import bound_time
from weft.model.ids import MessageID, SessionID
from weft.model.permission import CallRef, Question
from weft.model.search import HistoryMatch, RecallMatch
from weft.model.session import Todo
from weft.model.verdict import CallEvidence
from weft.model.wire import Wire
from weft.sandbox.policy import NO_SANDBOX, Sandbox
from weft.tool.buffers import SessionFiles
from weft.tool.files import Stamp
from weft.tool.language_servers import LanguageServers, NoLanguageServers
from weft.tool.spill import Spill

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api.editor import EditorTerminals


class WatchChanges(Protocol):
    """Record what files were like before a change, so that the change can be undone.

    Use it as `async with ctx.watch(*files)` around the change. Without arguments, any file may change. Do not hold it
    while a question waits for the person: their own changes in the meantime must not be undone with the tool's.
    """

    def __call__(self, *files: str) -> AbstractAsyncContextManager[None]: ...


@asynccontextmanager
async def watch_nothing(*files: str) -> AsyncIterator[None]:
    """Record nothing. For callers that cannot undo."""
    del files
    yield


Answers = tuple[tuple[str, ...], ...]


class AskQuestions(Protocol):
    """Ask the person questions and return a list of answers for each.

    Raise `DismissedError` if they decline to answer, and `NobodyError` if nobody is there to answer.
    """

    async def __call__(self, questions: Sequence[Question], *, agent: str, call: CallRef) -> Answers: ...


class Handover(Protocol):
    """Hand a session over from one agent to another, with the plan they work on."""

    async def get_plan(self) -> str:
        """Return the path of the plan file."""
        ...

    async def hand_over(self, agent: str, words: str) -> None:
        """Let this agent continue the session, with these words as its prompt."""
        ...


async def refuse_questions(questions: Sequence[Question], *, agent: str, call: CallRef) -> Answers:
    """Raise `NobodyError`. For runs without a person."""
    del questions, agent, call
    raise NobodyError


class NoHandover:
    """Refuse every handover. For callers that have only one agent."""

    async def get_plan(self) -> str:
        raise ToolError("There is no plan here.")

    async def hand_over(self, agent: str, words: str) -> None:
        raise ToolError(f"The session cannot be handed over to {agent} here: {words}")


class Job(Wire, frozen=True, kw_only=True):
    """A command that runs in the background: its session, its output file, and how it ended."""

    id: str
    session_id: SessionID
    command: str
    description: str
    output: str
    started: int
    ended: int | None = None
    code: int | None = None


class Jobs(Protocol):
    """The background jobs of sessions.

    Every process that a job started ends with the job, and a job ends with its session at the latest.
    """

    async def start(self, job: Job, command: ProcessCommand) -> None:
        """Start a job. Raise `ToolError` if it cannot be started."""

    def list(self, session: SessionID) -> list[Job]:
        """Return the jobs of a session, oldest first, including those that have ended."""

    async def stop(self, session: SessionID, id: str) -> Job:
        """End a job if it is still running. Raise `NotFoundError` if the session has no such job."""


class NoJobs:
    """No background jobs. For callers that do not manage any."""

    async def start(self, job: Job, command: ProcessCommand) -> None:
        del job, command
        raise ToolError("Commands cannot be run in the background here.")

    def list(self, session: SessionID) -> list[Job]:
        del session
        return []

    async def stop(self, session: SessionID, id: str) -> Job:
        del session
        raise NotFoundError("job", id)


class ReadGuard:
    """Refuse changes to files that the session has not read in their current state.

    There is one guard per session. It remembers the stamp of every file the session has read, by real path. With `off`,
    every check passes.
    """

    def __init__(self, *, off: bool = False) -> None:
        self._off = off
        self._stamps: dict[str, Stamp] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def remember(self, path: str, stamp: Stamp) -> None:
        """Remember the stamp of a file that the session has just read or written."""
        self._stamps[path] = stamp

    def check(self, path: str, current: Stamp) -> None:
        """Raise `ToolError` unless `current` is the stamp that the session last remembered for the file."""
        last_read = self._stamps.get(path)
        if self._off or last_read == current:
            return
        if last_read is None:
            raise ToolError(f"You must read file {path} before overwriting it. Use the Read tool first")
        if current.unsaved:
            raise ToolError(
                f"File {path} has been changed in the editor since it was last read, and is not saved. "
                "Read it again before changing it."
            )
        # OpenCode only refuses a file that is newer than the last read. An older one (checked out again, or moved into
        # place) is a different file as well.
        raise ToolError(
            f"File {path} has changed since it was last read (modified {_format_time(last_read)} then, {_format_time(current)} now). "
            "Read it again before changing it."
        )

    def lock(self, path: str) -> asyncio.Lock:
        """Return the lock of a file.

        Hold it while changing the file, so that two calls in one step do not overwrite each other.
        """
        lock = self._locks.get(path)
        if lock is None:
            self._locks[path] = lock = asyncio.Lock()
        return lock


def _format_time(stamp: Stamp) -> str:
    milliseconds = bound_time(stamp.modified // 1_000_000)
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


class AfterEdit(Protocol):
    """Announce that a file was changed, and return when formatters are done with it."""

    async def __call__(self, path: str) -> None: ...


class TodoList(Protocol):
    """The todo list of the session."""

    async def read(self) -> Sequence[Todo]: ...

    async def write(self, todos: Sequence[Todo]) -> None: ...


class Recall(Protocol):
    """Search the part of the conversation that compaction removed from the context."""

    async def __call__(self, words: str, *, limit: int) -> Sequence[RecallMatch]: ...


class SessionHistory(Protocol):
    """The earlier sessions of the project, without the one that asks.

    `search` returns the best place of each session that contains all words. `read` returns a whole message, within bounds, and
    raises `NotFoundError` if the project has no such message.
    """

    async def search(self, words: str, *, limit: int) -> Sequence[HistoryMatch]: ...

    async def read(self, session: str, message: str) -> HistoryMatch: ...


def refuse_history() -> SessionHistory:
    """Raise `ToolError`. For callers that have no other sessions."""
    raise ToolError("There are no earlier sessions here.")


class ToolResources(Struct, frozen=True, kw_only=True):
    """What the tools of one session work with.

    `environment` is the whole environment of child processes (see `tool_environment`), and `sandbox` confines them.
    """

    guard: ReadGuard
    spill: Spill
    todos: TodoList
    after_edit: AfterEdit
    recall: Recall
    environment: Mapping[str, str]
    files: SessionFiles = SessionFiles()
    terminals: EditorTerminals | None = None
    language_servers: LanguageServers = NoLanguageServers()
    network: NetworkAccess = NetworkAccess()
    ask_questions: AskQuestions = refuse_questions
    handover: Handover = NoHandover()
    jobs: Jobs = NoJobs()
    history: Callable[[], SessionHistory] = refuse_history
    sandbox: Sandbox = NO_SANDBOX


Input = TypeVar("Input", bound=Struct)


class Attachment(Struct, frozen=True, kw_only=True):
    """A file that is returned beside the text, as a `data:` URL."""

    mime: str
    url: str
    filename: str | None = None


class ToolResult(Struct, frozen=True, kw_only=True):
    """The result of a call: a title for people, output for the model, metadata for clients."""

    title: str
    output: str
    metadata: dict[str, Any] = {}
    attachments: tuple[Attachment, ...] = ()


class AskPermission(Protocol):
    """Ask for permission. Return when it is granted, raise `NotPermittedError` when it is refused.

    `always` are the patterns that an "always" reply would allow from then on. `metadata` is shown to the person who is asked;
    its list `why` says why. Two of its lists also make the rules stricter. `mayWrite` has those of the patterns that may write
    files: the person is asked about them if `edit` is denied. `perhaps` has commands that may run, too: the person is asked if
    a rule names one of them to ask or to deny.
    """

    async def __call__(
        self,
        permission: str,
        *patterns: str,
        always: tuple[str, ...] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None: ...


class Permits(Protocol):
    """Return True if the rules allow this without a question. Earlier "always" replies do not count."""

    def __call__(self, permission: str, pattern: str) -> bool: ...


def permit_all(permission: str, pattern: str) -> bool:
    """Permit everything. For what a person does directly."""
    del permission, pattern
    return True


class ReportProgress(Protocol):
    """Report the progress of a call while it runs."""

    async def __call__(self, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> None: ...


class NoteEvidence(Protocol):
    """Store a note on what a call is about to do, or on its result, instead of its earlier note. Return when it is stored.

    If the process dies, this tells whether the call took effect: a tool that `notes` notes before it acts.
    """

    async def __call__(self, evidence: CallEvidence) -> None: ...


async def note_nothing(evidence: CallEvidence) -> None:
    """Store nothing. For uses of a tool outside of an answer."""
    del evidence


class ChildTask(Struct, frozen=True, kw_only=True):
    """A task for a child session, and the agent that does it. With `session_id`, continue an earlier child session."""

    description: str
    prompt: str
    agent: str
    session_id: str | None = None


class ChildResult(Struct, frozen=True, kw_only=True):
    """The result of a child session: its last answer, and metadata for clients."""

    session_id: SessionID
    text: str
    metadata: dict[str, Any]


class SpawnChild(Protocol):
    """Run a task in a child session and wait for it.

    The child session has settled when this returns, raises or is cancelled.
    """

    async def __call__(self, child_task: ChildTask) -> ChildResult: ...


async def refuse_spawn(child_task: ChildTask) -> ChildResult:
    """Raise `ToolError`. For callers that cannot start child sessions."""
    del child_task
    raise ToolError("Tasks cannot be delegated here.")


class CallTool(Protocol):
    """Call another tool as if the model had called it: with its own part, permission questions and limits.

    Return True if the call succeeded. With `error`, do not call the tool but store this error in its part.
    """

    async def __call__(self, tool: str, arguments: dict[str, Any], *, error: str = "") -> bool: ...


async def refuse_tool_call(tool: str, arguments: dict[str, Any], *, error: str = "") -> bool:
    """Raise `ToolError`. For uses of a tool outside of an answer, which cannot hold further calls."""
    del tool, arguments, error
    raise ToolError("Other tools cannot be called from here.")


class ToolContext(Struct, frozen=True, kw_only=True):
    """Everything that a tool may use. A call is aborted by cancelling its task."""

    session_id: SessionID
    message_id: MessageID
    call_id: str
    agent: str
    directory: str
    worktree: str
    clock: Clock
    ask: AskPermission
    report: ReportProgress
    resources: ToolResources
    agents: Mapping[str, AgentInfo] = {}
    spawn: SpawnChild = refuse_spawn
    call: CallTool = refuse_tool_call
    watch: WatchChanges = watch_nothing
    note: NoteEvidence = note_nothing
    permits: Permits = permit_all


class Audience(Struct, frozen=True, kw_only=True):
    """The model and agent that tools are offered to.

    `api_id` is the provider's own name for the model. `allowed` returns True if no rule denies a permission for a
    pattern. `agents` are all configured agents.
    """

    provider_id: str
    api_id: str
    allowed: Callable[[str, str], bool]
    agents: Mapping[str, AgentInfo] = {}


class Tool(Struct, Generic[Input], frozen=True, kw_only=True):
    """A tool: a struct of its arguments, a function that does the work, and a description for the model.

    `describe`, if set, replaces `about`: it returns the description for an audience, or None if the tool is not offered
    to it. With `watch_all`, every change of a file while the tool runs counts as its own and can be undone.
    Only a tool that changes no files, or that names them with `ctx.watch`, sets it to False. A tool that `notes` calls `ctx.note`
    before it changes anything. A tool with an `own_deadline` limits its own time, and no other deadline does. One that is
    `hidden` is not listed to models. With a `schema`, it takes `RawArguments`: the arguments as the model wrote them.
    """

    name: str
    about: str
    takes: type[Input]
    run: Callable[[Input, ToolContext], Awaitable[ToolResult]]
    describe: Callable[[Audience], str | None] | None = None
    watch_all: bool = True
    notes: bool = False
    own_deadline: bool = False
    hidden: bool = False
    schema: dict[str, Any] | None = None


AnyTool = Tool[Any]


class RawArguments(Struct, frozen=True):
    """The arguments as the model wrote them. The provider of the schema must check them."""

    arguments: dict[str, Any]


def schema_of(tool: AnyTool) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments, as the model sees it. Every call returns the same object."""
    takes: type[Struct] = tool.takes
    return build_schema(takes) if tool.schema is None else tool.schema


@cache
def build_schema(takes: type[Struct]) -> dict[str, Any]:
    """Return the JSON schema of a struct of arguments. Every call returns the same object."""
    (root,), components = msgspec.json.schema_components([takes], ref_template="#/$defs/{name}")
    root_schema = components.pop(root["$ref"].rpartition("/")[2])
    return {**root_schema, "additionalProperties": False} | ({"$defs": components} if components else {})


def to_input(tool: Tool[Input], arguments: dict[str, Any]) -> Input:
    """Convert the model's arguments to the tool's input. Raise a `ToolError` that the model can act on."""
    arguments = arguments if tool.schema is None else {"arguments": arguments}
    try:
        return msgspec.convert(arguments, tool.takes)
    except msgspec.ValidationError as error:
        # Some models quote every value. Accept the values that have only one meaning.
        with suppress(msgspec.ValidationError):
            return msgspec.convert(arguments, tool.takes, strict=False)
        raise ToolError(
            f"The {tool.name} tool was called with invalid arguments: {error}.\n"
            "Please rewrite the input so it satisfies the expected schema."
        ) from error


@cache
def read_text(name: str) -> str:
    """Return `about/<name>.md`: the description of a tool for models, or the prompt with which it hands over to another agent."""
    path = os.path.join(os.path.dirname(__file__), "about", f"{name}.md")
    with open(path, encoding="utf-8") as file:
        return file.read().strip()
