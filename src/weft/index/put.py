"""Putting sessions and messages into the index, and taking them out. Whoever calls holds a transaction."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from weft.index.driver import Database
from weft.index.entry import Entry, clean, to_whole_numbers
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.session import Session
from weft.model.wire import encode

Stamp = tuple[int, int, int]
Place = tuple[ProjectID, SessionID]

UNSURE: Stamp = (0, 0, 0)  # matches none: such a document is read again

SESSION = """INSERT INTO session (project, id, parent, created, updated, mtime, size, inode, settled, document)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?)
ON CONFLICT (project, id) DO UPDATE SET parent = excluded.parent, created = excluded.created,
updated = excluded.updated, mtime = excluded.mtime, size = excluded.size, inode = excluded.inode, document = excluded.document RETURNING number"""
MESSAGE = """INSERT INTO message (session, id, created, open, provider, model, input, output, reasoning, cache_read,
cache_write, nano, atto, priced, counted) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number"""
SETTLE = """UPDATE session SET settled = NOT EXISTS
(SELECT 1 FROM message WHERE message.session = session.number AND message.open) WHERE number = ?"""
MESSAGES = """SELECT message.id FROM message JOIN session ON session.number = message.session
WHERE session.project = ? AND session.id = ?"""
CHANGED = "INSERT INTO shelf VALUES (?, 1) ON CONFLICT (project) DO UPDATE SET behind = behind + 1"
MAX_COUNT = 2**53


class Found(NamedTuple):
    """A session as it was read, and the stamp its document had before that."""

    session: Session
    stamp: Stamp
    entries: Sequence[Entry]


def put_whole(database: Database, found: Found) -> None:
    """A session with all its messages: what the index had of it goes."""
    number = _put_session(database, found.session, found.stamp)
    drop_messages(database, number)
    _put_messages(database, number, found.entries)


def put_some(database: Database, found: Found, gone: Iterable[MessageID]) -> None:
    """A session with some of its messages; others are gone, the rest stay as they are."""
    number = _put_session(database, found.session, found.stamp)
    drop_messages(database, number, gone)
    _put_messages(database, number, found.entries)


def list_messages(database: Database, place: Place) -> set[MessageID]:
    return {MessageID(id) for (id,) in database.rows(MESSAGES, *place)}


def list_places(database: Database, id: SessionID) -> list[Place]:
    return [
        (ProjectID(project), id)
        for (project,) in database.rows("SELECT project FROM session WHERE id = ?", id)
    ]


def _put_session(database: Database, session: Session, stamp: Stamp) -> int:
    """Its document, and the state of the file that it was read from. Gives its number."""
    parent = None if session.parent_id is None else clean(session.parent_id)
    ((number,),) = database.rows(
        SESSION, session.project_id, session.id, parent, session.time.created, session.time.updated,
        *stamp, encode(session),
    )  # fmt: skip
    database.run(CHANGED, session.project_id)
    database.run("DELETE FROM words WHERE rowid = ?", number * 2)
    database.run(
        "INSERT INTO words (rowid, title, said, done) VALUES (?, ?, '', '')", number * 2, clean(session.title)
    )
    return int(number)


def _put_messages(database: Database, session: int, entries: Iterable[Entry]) -> None:
    for entry in entries:
        _drop(
            database,
            database.rows("SELECT number FROM message WHERE session = ? AND id = ?", session, entry.id),
        )
        number = _put_message(database, session, entry)
        database.run(
            "INSERT INTO words (rowid, title, said, done) VALUES (?, '', ?, ?)",
            number * 2 + 1, entry.said, entry.done,
        )  # fmt: skip
        calls = [(number, tool, calls, failed) for tool, (calls, failed) in entry.calls.items()]
        database.run_many("INSERT INTO call (message, tool, calls, failed) VALUES (?, ?, ?, ?)", calls)
    database.run(SETTLE, session)


def _put_message(database: Database, session: int, entry: Entry) -> int:
    spent = entry.spent
    tokens = (spent.input, spent.output, spent.reasoning, spent.cache_read, spent.cache_write)
    bounded = [max(-MAX_COUNT, min(count, MAX_COUNT)) for count in tokens]
    ((number,),) = database.rows(
        MESSAGE, session, entry.id, entry.created, entry.open, clean(entry.provider), clean(entry.model),
        *bounded, *to_whole_numbers(spent.cost), spent.priced, spent.counted,
    )  # fmt: skip
    return int(number)


def drop_messages(database: Database, session: int, ids: Iterable[MessageID] | None = None) -> None:
    """These, or all of them."""
    if ids is None:
        _drop(database, database.rows("SELECT number FROM message WHERE session = ?", session))
        return
    for id in ids:
        _drop(database, database.rows("SELECT number FROM message WHERE session = ? AND id = ?", session, id))


def drop_session(database: Database, place: Place) -> None:
    for (number,) in database.rows("SELECT number FROM session WHERE project = ? AND id = ?", *place):
        drop_messages(database, number)
        database.run("DELETE FROM words WHERE rowid = ?", number * 2)
        database.run("DELETE FROM session WHERE number = ?", number)


def _drop(database: Database, numbers: list[tuple[int, ...]]) -> None:
    if numbers:
        database.run_many("DELETE FROM words WHERE rowid = ?", [(number * 2 + 1,) for (number,) in numbers])
        database.run_many("DELETE FROM call WHERE message = ?", numbers)
        database.run_many("DELETE FROM message WHERE number = ?", numbers)
