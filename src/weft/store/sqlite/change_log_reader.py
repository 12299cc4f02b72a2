"""Read what changed since a position in the log of a SQLite store, as events with what is stored now."""

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

import apsw
from msgspec import Struct, field

from weft.api.change_log import MissedEvent
from weft.errors import CursorLostError, DocumentError
from weft.model.diff import FileDiff
from weft.model.event import (
    Event,
    MessageRemoved,
    MessageUpdated,
    PartRemoved,
    PartUpdated,
    ProjectUpdated,
    SessionCreated,
    SessionDeleted,
    SessionDiffed,
    SessionIdled,
    SessionUpdated,
    StatusChanged,
    TodoUpdated,
)
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import MessageWithParts
from weft.model.project import Project
from weft.model.session import Idle, SessionInfo, Todo, hide_share_secret
from weft.model.wire import decode
from weft.store.chain import DIFF_KEY, SESSION_KEY, TODO_KEY, ChainEntry
from weft.store.change_log import PublishedPosition
from weft.store.sqlite.connection import SqlRow, select
from weft.store.sqlite.events import CHAIN_SHIFT, find_history
from weft.store.sqlite.leases import find_holder, list_leased
from weft.store.sqlite.messages import NO_ROWS, MessageRows, build_messages, select_some_messages
from weft.store.sqlite.reader import SqliteReader
from weft.store.sqlite.writer import DatabaseWriter

# A listener that missed changes of more messages and parts than this reads its sessions again, which takes less time.
MAX_NAMED: Final = 5_000
KEPT_SERVERS: Final = 100

REGISTER = """INSERT INTO event_server (name, start) VALUES (?, (SELECT coalesce(max(position), 0) FROM event))
RETURNING number, start"""
FORGET_SERVERS = "DELETE FROM event_server WHERE number <= ?"
SELECT_SERVER = "SELECT number, start FROM event_server WHERE name = ?"
SELECT_NEXT_START = "SELECT start FROM event_server WHERE number > ? ORDER BY number LIMIT 1"
SELECT_ENDS = "SELECT (SELECT min(position) FROM event), (SELECT max(position) FROM event)"
# A history in the trash has no session: its deletion is a row of its own.
SELECT_CHANGES = f"""SELECT event.kind, event.id, event.document, history.session, chain.body, part.message, part.id
FROM event LEFT JOIN chain ON chain.number = event.entry LEFT JOIN part ON part.number = event.part
LEFT JOIN history ON history.number = coalesce(event.entry >> {CHAIN_SHIFT}, part.history) AND history.bundle IS NULL
WHERE event.position > ? ORDER BY event.position"""

ReadInThread = Callable[[Callable[[SqliteReader], Any]], Awaitable[Any]]


class SqliteChangeLog:
    """The `StoreChangeLog` of a SQLite store, which passes its writer and the function that reads in a thread."""

    def __init__(self, writer: DatabaseWriter, read: ReadInThread) -> None:
        self._writer = writer
        self._read = read
        self._published = PublishedPosition()

    @property
    def position(self) -> int:
        return self._published.find()

    def publishing(self) -> AbstractContextManager[None]:
        return self._published.publishing()

    def note_stored(self, position: int) -> None:
        """Note the last position of a write that was committed."""
        self._published.note_stored(position)

    async def register(self, server: str) -> None:
        def write(connection: apsw.Connection) -> int:
            [(number, start)] = select(connection, REGISTER, (server,))
            connection.execute(FORGET_SERVERS, (number - KEPT_SERVERS,))
            return int(start)

        self.note_stored(await self._writer.run(write))

    async def read(self, server: str, after: int) -> Sequence[MissedEvent]:
        missed: list[MissedEvent] = await self._read(lambda reader: read_missed(reader, server, after))
        return missed

    async def list_unsettled(self) -> list[str]:
        found: list[str] = await self._read(_list_unsettled)
        return found


class NamedMessage(Struct):
    """What changed in a message: its own document, and these parts."""

    is_changed: bool = False
    parts: dict[PartID, None] = field(default_factory=dict)


class NamedSession(Struct):
    """What changed in a session. `deleted` is its last document, if it was deleted."""

    documents: set[str] = field(default_factory=set)
    messages: dict[MessageID, NamedMessage] = field(default_factory=dict)
    is_new: bool = False
    has_ended: bool = False
    deleted: bytes | None = None


class NamedChanges:
    """Collects what rows of the log name, in the order in which it was first named (pure)."""

    def __init__(self) -> None:
        self.sessions: dict[SessionID, NamedSession] = {}
        self.projects: dict[str, None] = {}

    def add(self, row: SqlRow) -> None:
        kind, id, document, session, body, message, part = row
        if body is not None and session is not None:
            self._add_entry(self._get(session), decode(body, ChainEntry))
        elif part is not None and session is not None:
            self._get(session).messages.setdefault(message, NamedMessage()).parts[part] = None
        elif kind == "project":
            self.projects[id] = None
        elif kind == "deleted":
            # After other changes: a child is deleted before its parent.
            self.sessions.pop(id, None)
            self.sessions[id] = NamedSession(deleted=document)
        elif kind == "created":
            self._get(id).is_new = True
        elif kind == "ended":
            self._get(id).has_ended = True

    def count(self) -> int:
        return sum(
            len(message.parts) + 1 for each in self.sessions.values() for message in each.messages.values()
        )

    def _get(self, session: str) -> NamedSession:
        return self.sessions.setdefault(SessionID(session), NamedSession())

    def _add_entry(self, session: NamedSession, entry: ChainEntry) -> None:
        if entry.created:
            # Listeners are told only of the session itself, and read messages that it begins with (see `Journal.begin`).
            session.is_new = True
            return
        for change in entry.changes:
            kind, _, rest = change.key.partition("/")
            if kind == "message":
                session.messages.setdefault(MessageID(rest), NamedMessage()).is_changed = True
            elif kind == "part":
                message, _, part = rest.partition("/")
                session.messages.setdefault(MessageID(message), NamedMessage()).parts[PartID(part)] = None
            else:
                session.documents.add(kind)


class StoredSession(NamedTuple):
    """What is stored of a session that was named."""

    document: bytes | None
    messages: MessageRows
    diff: bytes | None
    todos: bytes | None
    is_running: bool


def read_missed(reader: SqliteReader, server: str, after: int) -> list[MissedEvent]:
    """Return the events for what changed after a position. Raise `CursorLostError` if that is not known, or too much."""
    named = NamedChanges()
    with reader.reading() as connection:
        oldest = _check_position(connection, server, after)
        try:
            for row in select(connection, SELECT_CHANGES, (after,)):
                named.add(row)
        except DocumentError as error:  # an entry of a chain is damaged
            raise CursorLostError(after, oldest) from error
        if named.count() > MAX_NAMED:
            raise CursorLostError(after, oldest)
        projects = [
            row
            for id in named.projects
            for row in select(connection, "SELECT id, document FROM project WHERE id = ?", (id,))
        ]
        rows = {
            id: _select_session(connection, reader.file.locks, id, session)
            for id, session in named.sessions.items()
        }
    missed = [_to_project_event(project) for project in reader.decode("project", projects, Project)]
    for id, session in named.sessions.items():
        missed += _to_session_events(reader, id, session, rows[id])
    return missed


def _check_position(connection: apsw.Connection, server: str, after: int) -> int:
    """Return the oldest position in the log. Raise `CursorLostError` if a listener of this server cannot resume after a position."""
    [(oldest, last)] = select(connection, SELECT_ENDS)
    for number, start in select(connection, SELECT_SERVER, (server,)):
        # What one server wrote after the next one began is not in the log if the database was restored from a backup.
        [(end,)] = select(connection, SELECT_NEXT_START, (number,)) or [(last or 0,)]
        if start <= after <= end and (oldest is None or oldest <= after + 1):
            return oldest or 0
    raise CursorLostError(after, oldest or 0)


def _select_session(
    connection: apsw.Connection, locks: str, id: SessionID, named: NamedSession
) -> StoredSession:
    history = find_history(connection, id)
    return StoredSession(
        _find_document(connection, "session WHERE id = ?", id),
        select_some_messages(connection, history, list(named.messages)) if named.messages else NO_ROWS,
        _find_document(connection, "diff WHERE history = ?", history)
        if DIFF_KEY in named.documents
        else None,
        _find_document(connection, "todo WHERE history = ?", history)
        if TODO_KEY in named.documents
        else None,
        named.has_ended and find_holder(connection, locks, id) is not None,
    )


def _find_document(connection: apsw.Connection, source: str, value: str | int | None) -> bytes | None:
    for (document,) in select(connection, f"SELECT document FROM {source}", (value,)):
        return bytes(document)
    return None


def _to_session_events(
    reader: SqliteReader, id: SessionID, named: NamedSession, rows: StoredSession
) -> list[MissedEvent]:
    document = named.deleted if rows.document is None else rows.document
    if document is None:
        return []
    try:
        info = hide_share_secret(decode(document, SessionInfo))
    except DocumentError as error:
        reader.note_damage("session", id, error)
        return []
    if rows.document is None:
        events: Iterable[Event] = [SessionDeleted(info=info)]
    else:
        messages = build_messages(id, rows.messages, reader.note_damage)
        events = _list_events(reader, info, named, rows, {message.info.id: message for message in messages})
    return [MissedEvent(directory=info.directory, project=info.project_id, event=event) for event in events]


def _list_events(
    reader: SqliteReader,
    info: SessionInfo,
    named: NamedSession,
    rows: StoredSession,
    messages: dict[MessageID, MessageWithParts],
) -> Generator[Event]:
    """Yield the events of a session that exists."""
    if named.is_new or named.deleted is not None:
        yield SessionCreated(info=info)
    if named.is_new or named.deleted is not None or SESSION_KEY in named.documents:
        yield SessionUpdated(info=info)
    for id, message in named.messages.items():
        yield from _list_message_events(info.id, id, message, messages.get(id))
    for diff in _decode_one(reader, "diff", info.id, rows.diff, tuple[FileDiff, ...]):
        yield SessionDiffed(session_id=info.id, diff=diff)
    for todos in _decode_one(reader, "todo", info.id, rows.todos, tuple[Todo, ...]):
        yield TodoUpdated(session_id=info.id, todos=todos)
    if named.has_ended and not rows.is_running:
        yield StatusChanged(session_id=info.id, status=Idle())
        yield SessionIdled(session_id=info.id)


def _decode_one(
    reader: SqliteReader, kind: str, id: SessionID, document: bytes | None, type: Any
) -> list[Any]:
    """Return the value of a document; nothing if there is none, or it cannot be read."""
    return [] if document is None else reader.decode(kind, [(id, document)], type)


def _list_message_events(
    session: SessionID, id: MessageID, named: NamedMessage, stored: MessageWithParts | None
) -> Generator[Event]:
    if stored is None:
        if named.is_changed:  # else its parts came before it
            yield MessageRemoved(session_id=session, message_id=id)
        return
    if named.is_changed:
        yield MessageUpdated(info=stored.info)
    parts = {part.id: part for part in stored.parts}
    for part in named.parts:
        if part in parts:
            yield PartUpdated(part=parts[part])
        else:
            yield PartRemoved(session_id=session, message_id=id, part_id=part)


def _to_project_event(project: Project) -> MissedEvent:
    return MissedEvent(directory=project.worktree, project=project.id, event=ProjectUpdated(info=project))


def _list_unsettled(reader: SqliteReader) -> list[str]:
    with reader.reading() as connection:
        sessions = list_leased(connection, reader.file.locks, alive=False)
    found = [reader.find_session(id) for id in sessions]
    return list(dict.fromkeys(session.directory for session in found if session is not None))
