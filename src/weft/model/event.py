"""All events. An event is a fact in the past tense. All events are published; `Durable` events are also stored.

On the wire an event is `{"type", "properties"}`. If its properties are one value, `whole` names the field with that value.
"""

from collections.abc import Awaitable, Callable
from typing import ClassVar, Literal, final

import msgspec

from weft.model.client_tool import ClientToolRequest
from weft.model.diff import FileDiff
from weft.model.failure import AnyFailure
from weft.model.ids import MessageID, PartID, PermissionID, QuestionID, SessionID
from weft.model.message import AnyMessage
from weft.model.part import AnyPart
from weft.model.permission import PermissionRequest, QuestionRequest, Reply
from weft.model.project import Project
from weft.model.session import AnyStatus, SessionInfo, Todo
from weft.model.wire import Wire


class Event(Wire, frozen=True, kw_only=True):
    # `type` is its name for clients. If `whole` names a field, clients get the value of that field instead of an object of all fields.
    type: ClassVar[str]
    whole: ClassVar[str] = ""


class SessionEvent(Event, frozen=True, kw_only=True):
    """An event that contains a session. The bus hides the secret of its share, and a store of a principal adds its owner."""

    info: SessionInfo


# --- durable events: published and stored ---


class ProjectUpdated(Event, frozen=True, kw_only=True):
    """A project was created, or its record changed."""

    type: ClassVar[str] = "project.updated"
    whole: ClassVar[str] = "info"

    info: Project


class SessionCreated(SessionEvent, frozen=True, kw_only=True):
    """A session was created."""

    type: ClassVar[str] = "session.created"


class SessionUpdated(SessionEvent, frozen=True, kw_only=True):
    """Something about a session changed: its title, its totals, its revert mark …"""

    type: ClassVar[str] = "session.updated"


class SessionDeleted(SessionEvent, frozen=True, kw_only=True):
    """A session was removed, with its messages, parts, diff and todos."""

    type: ClassVar[str] = "session.deleted"


class SessionDiffed(Event, frozen=True, kw_only=True):
    """The diff of the session was computed again."""

    type: ClassVar[str] = "session.diff"

    session_id: SessionID
    diff: tuple[FileDiff, ...]


class TodoUpdated(Event, frozen=True, kw_only=True):
    """The agent replaced its todo list."""

    type: ClassVar[str] = "todo.updated"

    session_id: SessionID
    todos: tuple[Todo, ...]


@final
class MessageUpdated(Event, frozen=True, kw_only=True):
    """A message was added or replaced."""

    type: ClassVar[str] = "message.updated"

    info: AnyMessage


class MessageRemoved(Event, frozen=True, kw_only=True):
    """A message and its parts were removed."""

    type: ClassVar[str] = "message.removed"

    session_id: SessionID
    message_id: MessageID


@final
class PartUpdated(Event, frozen=True, kw_only=True):
    """A part was added or replaced. `delta` is the text that was added, as OpenCode 1.1 sends it."""

    type: ClassVar[str] = "message.part.updated"

    part: AnyPart
    delta: str | None = None


class PartGrew(Event, frozen=True, kw_only=True):
    """The text of a part grew by `delta` at character `offset`. Applying the event again changes nothing."""

    type: ClassVar[str] = "message.part.delta"

    session_id: SessionID
    message_id: MessageID
    part_id: PartID
    field: str
    delta: str
    offset: int


class PartRemoved(Event, frozen=True, kw_only=True):
    """A part was removed."""

    type: ClassVar[str] = "message.part.removed"

    session_id: SessionID
    message_id: MessageID
    part_id: PartID


Durable = (
    ProjectUpdated
    | SessionCreated
    | SessionUpdated
    | SessionDeleted
    | SessionDiffed
    | TodoUpdated
    | MessageUpdated
    | MessageRemoved
    | PartUpdated
    | PartGrew
    | PartRemoved
)


# --- transient events: published and not stored ---


class SessionFailed(Event, frozen=True, kw_only=True):
    """A run failed, or a plugin did; without a session, the failure is not about one."""

    type: ClassVar[str] = "session.error"

    session_id: SessionID | None = None
    error: AnyFailure | None = None


class SessionWarned(Event, frozen=True, kw_only=True):
    """A warning for the person: about a budget, an MCP server, changes of files that are not recorded, or a share. The run continues."""

    type: ClassVar[str] = "session.warning"

    session_id: SessionID
    message: str


class StatusChanged(Event, frozen=True, kw_only=True):
    """A session became busy, waits to retry, or became idle."""

    type: ClassVar[str] = "session.status"

    session_id: SessionID
    status: AnyStatus


class SessionIdled(Event, frozen=True, kw_only=True):
    """The session is idle. Older clients wait for this event."""

    type: ClassVar[str] = "session.idle"

    session_id: SessionID


class SessionCompacted(Event, frozen=True, kw_only=True):
    """The conversation was summarised."""

    type: ClassVar[str] = "session.compacted"

    session_id: SessionID


class PermissionAsked(Event, frozen=True, kw_only=True):
    """A call waits for permission."""

    type: ClassVar[str] = "permission.asked"
    whole: ClassVar[str] = "request"

    request: PermissionRequest


class PermissionReplied(Event, frozen=True, kw_only=True):
    """A permission request was answered, or is no longer open."""

    type: ClassVar[str] = "permission.replied"

    session_id: SessionID
    request_id: PermissionID
    reply: Reply


class QuestionAsked(Event, frozen=True, kw_only=True):
    """The agent asks the person a question."""

    type: ClassVar[str] = "question.asked"
    whole: ClassVar[str] = "request"

    request: QuestionRequest


class QuestionReplied(Event, frozen=True, kw_only=True):
    """The person answered the questions."""

    type: ClassVar[str] = "question.replied"

    session_id: SessionID
    request_id: QuestionID
    answers: tuple[tuple[str, ...], ...]


class QuestionRejected(Event, frozen=True, kw_only=True):
    """The person dismissed the questions, or they are no longer open."""

    type: ClassVar[str] = "question.rejected"

    session_id: SessionID
    request_id: QuestionID


class ToolRequested(Event, frozen=True, kw_only=True):
    """A model called a tool of a client. That client accepts the request, runs the tool and sends its result."""

    type: ClassVar[str] = "tool.requested"
    whole: ClassVar[str] = "request"

    request: ClientToolRequest


class CommandExecuted(Event, frozen=True, kw_only=True):
    """A slash command was run, and answered."""

    type: ClassVar[str] = "command.executed"

    name: str
    session_id: SessionID
    arguments: str
    message_id: MessageID


class FileEdited(Event, frozen=True, kw_only=True):
    """A tool changed a file, and the formatter has run."""

    type: ClassVar[str] = "file.edited"

    file: str


class FileWatched(Event, frozen=True, kw_only=True):
    """The file watcher saw a change on disk."""

    type: ClassVar[str] = "file.watcher.updated"

    file: str
    event: Literal["add", "change", "unlink"]


class BranchChanged(Event, frozen=True, kw_only=True):
    """Another branch was checked out."""

    type: ClassVar[str] = "vcs.branch.updated"

    branch: str | None = None


Publish = Callable[[Event], Awaitable[None]]
"""A function that publishes an event."""


class PublishedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its cursor in the stream and the directory it is about."""

    cursor: int
    directory: str
    event: Event


def session_of(event: Event) -> SessionID | None:
    """Return the id of the session that an event is about, or None."""
    if type(event) is PartGrew:  # most events are
        return event.session_id
    match event:
        case SessionEvent():
            return event.info.id
        case MessageUpdated():
            return event.info.session_id
        case PartUpdated():
            return event.part.session_id
        case PermissionAsked() | QuestionAsked() | ToolRequested():
            return event.request.session_id
        case _:
            found: SessionID | None = getattr(event, "session_id", None)
            return found
