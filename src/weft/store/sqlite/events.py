"""Apply events to the tables: plan what to write outside of the transaction, then write it inside."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

import apsw

from weft.model.event import (
    Durable,
    MessageRemoved,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    ProjectUpdated,
    SessionCreated,
    SessionDeleted,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import SessionID, check_file_name, check_file_names
from weft.model.message import AnyMessage
from weft.model.part import AnyPart, ReasoningPart, TextPart
from weft.model.wire import decode
from weft.store.chain import (
    ChainedChanges,
    collect_changes,
    encode_documents,
    encode_entry,
    get_root,
    link,
)
from weft.store.rows import (
    MessageColumns,
    PartColumns,
    SessionRow,
    to_bytes,
    to_message_columns,
    to_part_columns,
    to_session_row,
    to_text,
)
from weft.store.sqlite.change_log import log_change, log_deletion, log_entry, log_growth
from weft.store.sqlite.connection import select

UPSERT_PROJECT = """INSERT INTO project (id, document) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET document = excluded.document"""
UPSERT_SESSION = """INSERT INTO session
(id, project, parent, directory, title, tags, archived, pinned, created, updated, document)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET project = excluded.project, parent = excluded.parent, directory = excluded.directory,
title = excluded.title, tags = excluded.tags, archived = excluded.archived, pinned = excluded.pinned,
created = excluded.created, updated = excluded.updated, document = excluded.document"""
# Most changes of a session touch neither its title nor its place. This statement then leaves most indexes alone; the one above
# would write all of them again.
UPDATE_SESSION = """UPDATE session SET directory = ?4, tags = ?6, archived = ?7, pinned = ?8, updated = ?10, document = ?11
WHERE id = ?1 AND project = ?2 AND parent IS ?3 AND title = ?5 AND created = ?9"""
# Messages and parts are inserted this many at a time, and what is left one by one. In a table by itself that takes
# a quarter less than one by one; with more rows in a statement it takes hardly less.
ROWS_AT_ONCE = 8
_ONE_ROW = "(?, ?, ?, ?, ?)"
_SOME_ROWS = ", ".join([_ONE_ROW] * ROWS_AT_ONCE)
_UPSERT_MESSAGES = """INSERT INTO message (history, id, created, position, document) VALUES {}
ON CONFLICT (history, id) DO UPDATE SET created = excluded.created, position = excluded.position, document = excluded.document"""
_UPSERT_PARTS = """INSERT INTO part (history, message, id, length, document) VALUES {}
ON CONFLICT (history, message, id) DO UPDATE SET length = excluded.length, document = excluded.document"""
UPSERT_MESSAGE, UPSERT_SOME_MESSAGES = _UPSERT_MESSAGES.format(_ONE_ROW), _UPSERT_MESSAGES.format(_SOME_ROWS)
UPSERT_PART, UPSERT_SOME_PARTS = _UPSERT_PARTS.format(_ONE_ROW), _UPSERT_PARTS.format(_SOME_ROWS)
UPSERT_DIFF = """INSERT INTO diff (history, document) VALUES (?, ?)
ON CONFLICT (history) DO UPDATE SET document = excluded.document"""
UPSERT_TODO = """INSERT INTO todo (history, document) VALUES (?, ?)
ON CONFLICT (history) DO UPDATE SET document = excluded.document"""
SELECT_HISTORY = "SELECT number FROM history WHERE session = ? AND bundle IS NULL"
INSERT_HISTORY = "INSERT INTO history (session, since) VALUES (?, ?) RETURNING number"
# The length of a part is that of its last growth, if there is one.
SELECT_LENGTH = """SELECT number, coalesce(
    (SELECT growth.length FROM growth WHERE growth.history = part.history AND growth.part = part.number
     ORDER BY growth.number DESC LIMIT 1), length)
FROM part WHERE history = ? AND message = ? AND id = ? AND length IS NOT NULL"""
# The entries of history h have numbers between h << 32 and (h + 1) << 32.
CHAIN_SHIFT = 32
SELECT_HEAD = "SELECT number, hash FROM chain WHERE number > ? AND number < ? ORDER BY number DESC LIMIT 1"
INSERT_ENTRY = "INSERT INTO chain (number, hash, body) VALUES (?, ?, ?)"
SELECT_GROWTH = "SELECT start, delta FROM growth WHERE history = ? AND part = ? ORDER BY number"
SELECT_ANY_GROWTH = "SELECT 1 FROM growth WHERE history = ? LIMIT 1"
INSERT_GROWTH = "INSERT INTO growth (history, part, start, length, delta) VALUES (?, ?, ?, ?, ?)"
DELETE_GROWTH = """DELETE FROM growth WHERE history = ?
AND part = (SELECT number FROM part WHERE history = ? AND message = ? AND id = ?)"""
DELETE_GROWTH_OF_MESSAGE = """DELETE FROM growth WHERE history = ?
AND part IN (SELECT number FROM part WHERE history = ? AND message = ?)"""
# A message that was never indexed needs no mark. The number of a deleted message may be given again, so even a new message may have one
# that counts as indexed.
MARK_STALE = """INSERT OR IGNORE INTO stale_message (history, id) SELECT history, id FROM message
WHERE history = ? AND id = ? AND number <= (SELECT upto FROM indexed)"""
# For many messages, one statement takes half as long as one for each. For a few it takes much longer.
MANY_MESSAGES = 50
MARK_ALL_STALE = """INSERT OR IGNORE INTO stale_message (history, id) SELECT history, id FROM message
WHERE history = ? AND id IN (SELECT value FROM json_each(?)) AND number <= (SELECT upto FROM indexed)"""
# This is true if the next message that is inserted gets a number beyond those that were indexed.
IS_NEXT_UNINDEXED = "SELECT (SELECT upto FROM indexed) <= (SELECT coalesce(max(number), 0) FROM message)"
DELETE_HISTORY = (
    *(
        f"DELETE FROM {table} WHERE history = ?"
        for table in ("growth", "part", "message", "diff", "todo", "stale_message")
    ),
    f"DELETE FROM chain WHERE number > ?1 << {CHAIN_SHIFT} AND number < (?1 + 1) << {CHAIN_SHIFT}",
    "DELETE FROM history WHERE number = ?",
)


class Upserts(NamedTuple):
    """Rows to insert or replace. Those of messages, parts, diffs and todos are by session.

    Their order does not matter: no event that writes one kind of row reads or removes another.
    """

    projects: list[tuple[str, bytes]]
    sessions: list[SessionRow]
    messages: Mapping[SessionID, MessageColumns]
    parts: Mapping[SessionID, PartColumns]
    diffs: dict[SessionID, bytes]
    todos: dict[SessionID, bytes]


class _Gathered:
    """What events put since the last removal or growth. Messages and parts are lists of values and of documents, by session."""

    def __init__(self) -> None:
        self.projects: list[tuple[str, bytes]] = []
        self.sessions: list[SessionRow] = []
        self.messages: defaultdict[SessionID, tuple[list[AnyMessage], list[bytes]]] = defaultdict(_make_lists)
        self.parts: defaultdict[SessionID, tuple[list[AnyPart], list[bytes]]] = defaultdict(_make_lists)
        self.diffs: dict[SessionID, bytes] = {}
        self.todos: dict[SessionID, bytes] = {}

    def to_steps(self) -> list[Upserts]:
        """Return one step; none if nothing was put."""
        check_file_names("session", self.messages.keys() | self.parts.keys())
        rows = Upserts(
            self.projects,
            self.sessions,
            {id: to_message_columns(*found) for id, found in self.messages.items()},
            {id: to_part_columns(*found) for id, found in self.parts.items()},
            self.diffs,
            self.todos,
        )
        return [rows] if any(rows) else []


def _make_lists() -> tuple[list[Any], list[bytes]]:
    return [], []


class ChainStep(NamedTuple):
    """What the chains of sessions record of the steps before. It is the last step of every plan that changes more than growth."""

    changes: Mapping[SessionID, ChainedChanges]


WriteStep = Upserts | PartGrew | PartRemoved | MessageRemoved | SessionDeleted | ChainStep


def plan_events(events: Iterable[Durable]) -> list[WriteStep]:
    """Encode the documents of events, and gather them between removals and growth (pure).

    Raise `InvalidIdError` for an id that no store could use.
    """
    events = list(events)
    documents = encode_documents(events)
    steps = _plan_rows(events, documents)
    changes = collect_changes(events, documents)
    return [*steps, ChainStep(changes)] if changes else steps


def _plan_rows(events: Iterable[Durable], documents: Iterable[bytes]) -> list[WriteStep]:
    steps: list[WriteStep] = []
    found = _Gathered()
    for event, raw in zip(events, documents, strict=True):
        # These two are by far the most frequent. A `match` would call `isinstance`, which takes as long as encoding if it returns False.
        if type(event) is PartUpdated:
            part = event.part
            values, raws = found.parts[part.session_id]
            values.append(part)
            raws.append(raw)
            continue
        if type(event) is MessageUpdated:
            message = event.info
            infos, raws = found.messages[message.session_id]
            infos.append(message)
            raws.append(raw)
            continue
        match event:
            case SessionUpdated(info=session) | SessionCreated(info=session):
                found.sessions.append(to_session_row(session, raw))
            case ProjectUpdated(info=project):
                found.projects.append((check_file_name("project", project.id), raw))
            case SessionDiffed(session_id=id):
                _check_ids(session=id)
                found.diffs[id] = raw
            case TodoUpdated(session_id=id):
                _check_ids(session=id)
                found.todos[id] = raw
            case PartGrew() | PartRemoved() | MessageRemoved() | SessionDeleted():
                if _changes_something(event):
                    steps += [*found.to_steps(), event]
                    found = _Gathered()
    return [*steps, *found.to_steps()]


def _changes_something(event: PartGrew | PartRemoved | MessageRemoved | SessionDeleted) -> bool:
    """Check the ids of an event. Return False for growth that changes nothing (see `grow_part`)."""
    match event:
        case PartGrew(session_id=session, message_id=message, part_id=part):
            _check_ids(session=session, message=message, part=part)
            return event.field == "text" and bool(event.delta)
        case PartRemoved(session_id=session, message_id=message, part_id=part):
            _check_ids(session=session, message=message, part=part)
        case MessageRemoved(session_id=session, message_id=message):
            _check_ids(session=session, message=message)
        case SessionDeleted(info=info):
            _check_ids(session=info.id)
    return True


def _check_ids(**ids: str) -> None:
    for kind, id in ids.items():
        check_file_name(kind, id)


def is_growth(steps: Iterable[WriteStep]) -> bool:
    """Return True if a plan only lets parts grow. The text is written once more when a part is complete."""
    return all(type(step) is PartGrew for step in steps)


class EventWriter:
    """Carries out plans in a transaction of the caller. `now` (ms) is the time of new histories.

    `position` is the last one that it added to the change log, 0 if it added nothing.
    """

    def __init__(self, connection: apsw.Connection, now: int) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._execute_many = connection.executemany
        self._now = now
        self.position = 0
        self._histories: dict[str, int] = {}  # those that were looked up

    def write(self, steps: Iterable[WriteStep]) -> None:
        for step in steps:
            match step:
                case ChainStep(changes=changes):
                    for session, changed in changes.items():
                        self.extend_chain(session, changed)
                case Upserts():
                    self._upsert(step)
                case PartGrew():
                    self._grow(step)
                case PartRemoved(session_id=session, message_id=message, part_id=part):
                    self._remove_part(session, message, part)
                case MessageRemoved(session_id=session, message_id=message):
                    self._remove_message(session, message)
                case SessionDeleted(info=session):
                    self.delete_session(session.id)

    def extend_chain(self, session: SessionID, changes: ChainedChanges, *, repair: bool = False) -> None:
        """Record what was changed in a session."""
        history = self._make_history(session)
        body = encode_entry(changes, now=self._now, repair=repair)
        start = history << CHAIN_SHIFT
        heads = select(self._connection, SELECT_HEAD, (start, (history + 1) << CHAIN_SHIFT))
        number, before = heads[0] if heads else (start, get_root(session))
        self._execute(INSERT_ENTRY, (number + 1, link(before, body), body))
        self.position = log_entry(self._connection, number + 1)

    def put_session(self, row: SessionRow) -> None:
        self._execute(UPDATE_SESSION, row)
        if not self._connection.changes():
            self._execute(UPSERT_SESSION, row)

    def delete_session(self, id: SessionID) -> None:
        """Delete a session with everything that belongs to it."""
        self.position = log_deletion(self._connection, id) or self.position
        self._execute("DELETE FROM session WHERE id = ?", (id,))
        history = self.find_history(id)
        if history is not None:
            self.delete_history(history)

    def delete_history(self, history: int) -> None:
        self._histories.clear()
        for statement in DELETE_HISTORY:
            self._execute(statement, (history,))

    def find_history(self, session: str) -> int | None:
        if session not in self._histories:
            found = find_history(self._connection, session)
            if found is None:
                return None
            self._histories[session] = found
        return self._histories[session]

    def _make_history(self, session: SessionID) -> int:
        found = self.find_history(session)
        if found is None:
            [(found,)] = select(self._connection, INSERT_HISTORY, (session, self._now))
            self._histories[session] = found
        return found

    def _upsert(self, rows: Upserts) -> None:
        if rows.projects:
            self._execute_many(UPSERT_PROJECT, rows.projects)
            for id, _ in rows.projects:
                self.position = log_change(self._connection, "project", id)
        for row in rows.sessions:
            self.put_session(row)
        for session in dict.fromkeys((*rows.messages, *rows.parts)):
            self._upsert_messages(session, rows.messages.get(session), rows.parts.get(session))
        for session, document in rows.diffs.items():
            self._execute(UPSERT_DIFF, (self._make_history(session), document))
        for session, document in rows.todos.items():
            self._execute(UPSERT_TODO, (self._make_history(session), document))

    def _upsert_messages(
        self, session: SessionID, messages: MessageColumns | None, parts: PartColumns | None
    ) -> None:
        known = self.find_history(session)
        history = self._make_history(session) if known is None else known
        needs_marks = known is not None or select(self._connection, IS_NEXT_UNINDEXED) != [(1,)]
        if messages is not None:
            self._insert(UPSERT_SOME_MESSAGES, UPSERT_MESSAGE, messages, history)
        if parts is not None:
            if known is not None and select(self._connection, SELECT_ANY_GROWTH, (known,)):
                # A part that is put anew has no old growth.
                keys = zip(repeat(known), repeat(known), parts.messages, parts.ids, strict=False)
                self._execute_many(DELETE_GROWTH, keys)
            self._insert(UPSERT_SOME_PARTS, UPSERT_PART, parts, history)
        if needs_marks:
            changed = {*(messages.ids if messages else ()), *(parts.messages if parts else ())}
            self._mark_stale(history, changed)

    def _insert(self, some: str, one: str, columns: MessageColumns | PartColumns, history: int) -> None:
        """Insert rows: `some` at a time as long as there are as many, the others `one` by one."""
        # They are made when they are needed, by `zip`: a list of thousands would have the garbage collector look at all of them.
        rows = zip(repeat(history), *columns, strict=False)
        values = chain.from_iterable(rows)
        for _ in range(len(columns.ids) // ROWS_AT_ONCE):
            self._execute(some, tuple(islice(values, ROWS_AT_ONCE * (len(columns) + 1))))
        self._execute_many(one, rows)

    def _mark_stale(self, history: int, messages: set[str]) -> None:
        if len(messages) < MANY_MESSAGES:
            self._execute_many(MARK_STALE, [(history, id) for id in messages])
        else:
            self._execute(MARK_ALL_STALE, (history, json.dumps(list(messages))))

    def _remove_part(self, session: SessionID, message: str, part: str) -> None:
        history = self.find_history(session)
        if history is not None:
            self._execute(DELETE_GROWTH, (history, history, message, part))
            self._execute(
                "DELETE FROM part WHERE history = ? AND message = ? AND id = ?", (history, message, part)
            )
            self._execute(MARK_STALE, (history, message))

    def _remove_message(self, session: SessionID, message: str) -> None:
        history = self.find_history(session)
        if history is not None:
            self._execute(DELETE_GROWTH_OF_MESSAGE, (history, history, message))
            self._execute("DELETE FROM part WHERE history = ? AND message = ?", (history, message))
            self._execute("DELETE FROM message WHERE history = ? AND id = ?", (history, message))

    def _grow(self, event: PartGrew) -> None:
        """Store growth as a row of its own, if it changes the text (see `grow_part`)."""
        history = self.find_history(event.session_id)
        key = history, event.message_id, event.part_id
        for part, length in () if history is None else select(self._connection, SELECT_LENGTH, key):
            if event.offset != length:
                if not 0 <= event.offset < length:
                    return  # a gap
                if self._read_text(history, part).startswith(event.delta, event.offset):
                    return  # applied before
            grown = event.offset + len(event.delta)
            self._execute(INSERT_GROWTH, (history, part, event.offset, grown, to_bytes(event.delta)))
            self._execute(MARK_STALE, (history, event.message_id))
            self.position = log_growth(self._connection, part)

    def _read_text(self, history: int | None, number: int) -> str:
        [(document,)] = select(self._connection, "SELECT document FROM part WHERE number = ?", (number,))
        part: AnyPart = decode(document, AnyPart)
        assert isinstance(part, TextPart | ReasoningPart)
        return fold_growth(part.text, select(self._connection, SELECT_GROWTH, (history, number)))


def find_history(connection: apsw.Connection, session: str) -> int | None:
    """Return the number of a session's history, None if the session has none."""
    for (number,) in select(connection, SELECT_HISTORY, (session,)):
        return int(number)
    return None


def fold_growth(text: str, growth: Iterable[tuple[int, bytes]]) -> str:
    """Return a text with its growth, which is in the order in which it was stored."""
    for start, delta in growth:
        text = text[:start] + to_text(delta)
    return text
