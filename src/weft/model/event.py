"""Every event: a fact, in the past tense, written once. `Durable` ones come to rest in a store; all are told.

On the wire an event is `{"type", "properties"}`. Some have one value as their properties; `whole` names that field.
"""

from typing import ClassVar, Literal

import msgspec

from weft.model.diff import FileDiff
from weft.model.failure import AnyFailure
from weft.model.ids import MessageID, PartID, PermissionID, QuestionID, SessionID
from weft.model.message import AnyMessage
from weft.model.part import AnyPart
from weft.model.permission import PermissionRequest, QuestionRequest, Reply
from weft.model.project import Project
from weft.model.session import AnyStatus, Session, Todo
from weft.model.wire import Wire


class Event(Wire, frozen=True, kw_only=True):
    type: ClassVar[str]
    whole: ClassVar[str] = ""


# --- durable: these change what is at rest ---


class ProjectUpdated(Event, frozen=True, kw_only=True):
    """A project was found for the first time, or its record changed."""

    type: ClassVar[str] = "project.updated"
    whole: ClassVar[str] = "info"

    info: Project


class SessionCreated(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "session.created"

    info: Session


class SessionUpdated(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "session.updated"

    info: Session


class SessionDeleted(Event, frozen=True, kw_only=True):
    """A session is gone, and with it its messages, parts, diff and todos."""

    type: ClassVar[str] = "session.deleted"

    info: Session


class SessionDiffed(Event, frozen=True, kw_only=True):
    """What the session did to files was worked out anew."""

    type: ClassVar[str] = "session.diff"

    session_id: SessionID
    diff: tuple[FileDiff, ...]


class TodoUpdated(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "todo.updated"

    session_id: SessionID
    todos: tuple[Todo, ...]


class MessageUpdated(Event, frozen=True, kw_only=True):
    """A message was added or replaced."""

    type: ClassVar[str] = "message.updated"

    info: AnyMessage


class MessageRemoved(Event, frozen=True, kw_only=True):
    """A message is gone, and its parts with it."""

    type: ClassVar[str] = "message.removed"

    session_id: SessionID
    message_id: MessageID


class PartUpdated(Event, frozen=True, kw_only=True):
    """A part was added or replaced; `delta` is the text it just grew by (as OpenCode 1.1 tells it)."""

    type: ClassVar[str] = "message.part.updated"

    part: AnyPart
    delta: str | None = None


class PartGrew(Event, frozen=True, kw_only=True):
    """The text of a part grew by `delta`, from character `offset` on. Saying so twice changes nothing."""

    type: ClassVar[str] = "message.part.delta"

    session_id: SessionID
    message_id: MessageID
    part_id: PartID
    field: str
    delta: str
    offset: int


class PartRemoved(Event, frozen=True, kw_only=True):
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


# --- passing: these are told, and nothing is kept of them ---


class SessionFailed(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "session.error"

    session_id: SessionID | None = None
    error: AnyFailure | None = None


class SessionWarned(Event, frozen=True, kw_only=True):
    """A person should know this, and nothing has failed yet: most of a budget is spent, or it cannot be kept."""

    type: ClassVar[str] = "session.warning"

    session_id: SessionID
    message: str


class StatusChanged(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "session.status"

    session_id: SessionID
    status: AnyStatus


class SessionRested(Event, frozen=True, kw_only=True):
    """The session is idle. Old clients wait for this one."""

    type: ClassVar[str] = "session.idle"

    session_id: SessionID


class SessionCompacted(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "session.compacted"

    session_id: SessionID


class PermissionAsked(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "permission.asked"
    whole: ClassVar[str] = "request"

    request: PermissionRequest


class PermissionReplied(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "permission.replied"

    session_id: SessionID
    request_id: PermissionID
    reply: Reply


class QuestionAsked(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "question.asked"
    whole: ClassVar[str] = "request"

    request: QuestionRequest


class QuestionReplied(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "question.replied"

    session_id: SessionID
    request_id: QuestionID
    answers: tuple[tuple[str, ...], ...]


class QuestionRejected(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "question.rejected"

    session_id: SessionID
    request_id: QuestionID


class CommandExecuted(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "command.executed"

    name: str
    session_id: SessionID
    arguments: str
    message_id: MessageID


class FileEdited(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "file.edited"

    file: str


class FileWatched(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "file.watcher.updated"

    file: str
    event: Literal["add", "change", "unlink"]


class BranchChanged(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "vcs.branch.updated"

    branch: str | None = None


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """An event as the bus carried it: where it stands in the stream, and the directory it is about."""

    cursor: int
    directory: str
    event: Event


def session_of(event: Event) -> SessionID | None:
    """The session an event is about, if it is about one."""
    match event:
        case SessionCreated() | SessionUpdated() | SessionDeleted():
            return event.info.id
        case MessageUpdated():
            return event.info.session_id
        case PartUpdated():
            return event.part.session_id
        case PermissionAsked() | QuestionAsked():
            return event.request.session_id
        case _:
            found: SessionID | None = getattr(event, "session_id", None)
            return found
