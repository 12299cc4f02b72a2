"""Add sessions and messages to the search index of a file store, and update the index from the stored documents."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from weft.errors import IndexFailedError
from weft.host.files import Stamp
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.session import SessionInfo
from weft.model.wire import encode
from weft.store.files.index_database import IndexDatabase, discard_index, open_for_reading, open_for_writing
from weft.store.rows import to_integer
from weft.store.search import IndexEntry, IndexProgress, clean_text, to_nano_and_atto

SessionKey = tuple[ProjectID, SessionID]

# It equals no real stamp, so the document is read again.
UNKNOWN_STAMP: Stamp = (0, 0, 0)

# The table `words` has a row for each session and each message. `number` being that of its row in the other table, a session has the
# row id `number * 2`, and a message `number * 2 + 1`.
UPSERT_SESSION = """INSERT INTO session (project, id, parent, created, updated, mtime, size, inode, settled, document)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?)
ON CONFLICT (project, id) DO UPDATE SET parent = excluded.parent, created = excluded.created,
updated = excluded.updated, mtime = excluded.mtime, size = excluded.size, inode = excluded.inode, document = excluded.document RETURNING number"""
INSERT_MESSAGE = """INSERT INTO message (session, id, created, open, provider, model, input, output, reasoning, cache_read,
cache_write, nano, atto, priced, counted) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number"""
UPDATE_SETTLED = """UPDATE session SET settled = NOT EXISTS
(SELECT 1 FROM message WHERE message.session = session.number AND message.open) WHERE number = ?"""
SELECT_MESSAGE_IDS = """SELECT message.id FROM message JOIN session ON session.number = message.session
WHERE session.project = ? AND session.id = ?"""
MAX_TOKEN_COUNT = 2**53


class StampedSession(NamedTuple):
    """A session as it was read, and the stamp of its document before that."""

    session: SessionInfo
    stamp: Stamp
    entries: Sequence[IndexEntry]


def replace_session(database: IndexDatabase, stamped: StampedSession) -> None:
    """Replace a session and all its messages in the index."""
    number = _upsert_session(database, stamped.session, stamped.stamp)
    drop_messages(database, number)
    _replace_messages(database, number, stamped.entries)


def update_session(database: IndexDatabase, stamped: StampedSession, removed: Iterable[MessageID]) -> None:
    """Put a session and some of its messages into the index, and drop those that were `removed`."""
    number = _upsert_session(database, stamped.session, stamped.stamp)
    drop_messages(database, number, removed)
    _replace_messages(database, number, stamped.entries)


def list_messages(database: IndexDatabase, key: SessionKey) -> set[MessageID]:
    return {MessageID(id) for (id,) in database.rows(SELECT_MESSAGE_IDS, *key)}


def list_keys(database: IndexDatabase, id: SessionID) -> list[SessionKey]:
    return [
        (ProjectID(project), id)
        for (project,) in database.rows("SELECT project FROM session WHERE id = ?", id)
    ]


def _upsert_session(database: IndexDatabase, session: SessionInfo, stamp: Stamp) -> int:
    """Store the session document and the stamp of its file. Return the number of the row."""
    parent = None if session.parent_id is None else clean_text(session.parent_id)
    ((number,),) = database.rows(
        UPSERT_SESSION, session.project_id, session.id, parent, to_integer(session.time.created),
        to_integer(session.time.updated), *stamp, encode(session),
    )  # fmt: skip
    database.run("DELETE FROM words WHERE rowid = ?", number * 2)
    database.run(
        "INSERT INTO words (rowid, title, said, done) VALUES (?, ?, '', '')",
        number * 2,
        clean_text(session.title),
    )
    return int(number)


def _replace_messages(database: IndexDatabase, session: int, entries: Iterable[IndexEntry]) -> None:
    for entry in entries:
        _drop_message_rows(
            database,
            database.rows("SELECT number FROM message WHERE session = ? AND id = ?", session, entry.id),
        )
        number = _insert_message(database, session, entry)
        database.run(
            "INSERT INTO words (rowid, title, said, done) VALUES (?, '', ?, ?)",
            number * 2 + 1, entry.said, entry.done,
        )  # fmt: skip
        calls = [(number, tool, calls, failed) for tool, (calls, failed) in entry.calls.items()]
        database.run_many("INSERT INTO call (message, tool, calls, failed) VALUES (?, ?, ?, ?)", calls)
    database.run(UPDATE_SETTLED, session)


def _insert_message(database: IndexDatabase, session: int, entry: IndexEntry) -> int:
    spent = entry.spent
    tokens = (spent.input, spent.output, spent.reasoning, spent.cache_read, spent.cache_write)
    bounded = [max(-MAX_TOKEN_COUNT, min(count, MAX_TOKEN_COUNT)) for count in tokens]
    ((number,),) = database.rows(
        INSERT_MESSAGE, session, entry.id, to_integer(entry.created), entry.open, clean_text(entry.provider),
        clean_text(entry.model), *bounded, *to_nano_and_atto(spent.cost), spent.priced, spent.counted,
    )  # fmt: skip
    return int(number)


def drop_messages(database: IndexDatabase, session: int, ids: Iterable[MessageID] | None = None) -> None:
    """Drop these messages, or all of them."""
    if ids is None:
        _drop_message_rows(database, database.rows("SELECT number FROM message WHERE session = ?", session))
        return
    for id in ids:
        _drop_message_rows(
            database, database.rows("SELECT number FROM message WHERE session = ? AND id = ?", session, id)
        )


def drop_session(database: IndexDatabase, key: SessionKey) -> None:
    for (number,) in database.rows("SELECT number FROM session WHERE project = ? AND id = ?", *key):
        drop_messages(database, number)
        database.run("DELETE FROM words WHERE rowid = ?", number * 2)
        database.run("DELETE FROM session WHERE number = ?", number)


def _drop_message_rows(database: IndexDatabase, numbers: list[tuple[int, ...]]) -> None:
    if numbers:
        database.run_many("DELETE FROM words WHERE rowid = ?", [(number * 2 + 1,) for (number,) in numbers])
        database.run_many("DELETE FROM call WHERE message = ?", numbers)
        database.run_many("DELETE FROM message WHERE number = ?", numbers)


SESSIONS_PER_BATCH = 64


class IndexSource(Protocol):
    """Where the index reads sessions. `read` returns None for a session that no longer exists."""

    def list_stamps(self) -> Mapping[SessionKey, Stamp]: ...

    def read(self, key: SessionKey) -> StampedSession | None: ...


class IndexFile(NamedTuple):
    """The index of the store at `root`, in the file at `path`."""

    path: str
    root: str


def refresh_index(file: IndexFile, source: IndexSource, progress: IndexProgress) -> None:
    """Update the index, and replace a broken file once."""
    try:
        _refresh(file, source, progress)
        return
    except IndexFailedError as error:
        if not error.broken:
            raise
    discard_index(file.path)
    _refresh(file, source, progress)


def _refresh(file: IndexFile, source: IndexSource, progress: IndexProgress) -> None:
    indexed, stamps = _list_indexed_stamps(file), source.list_stamps()
    removed = [key for key in indexed if key not in stamps]
    stale = [key for key, stamp in stamps.items() if indexed.get(key) != stamp]
    keys, done = iter(stale), 0
    if removed:
        with open_for_writing(*file) as database:
            for key in removed:
                drop_session(database, key)
    while batch := list(islice(keys, SESSIONS_PER_BATCH)):
        sessions = [(key, source.read(key)) for key in batch]
        with open_for_writing(*file) as database:
            replace_sessions(database, sessions)
        done += len(batch)
        progress(done, len(stale))


def replace_sessions(
    database: IndexDatabase, sessions: Iterable[tuple[SessionKey, StampedSession | None]]
) -> None:
    for key, stamped in sessions:
        if stamped is None:
            drop_session(database, key)
        else:
            replace_session(database, stamped)


def _list_indexed_stamps(file: IndexFile) -> dict[SessionKey, Stamp]:
    """Return the stamps of the sessions in the index; none if there is no index yet.

    A session that has a message under way gets `UNKNOWN_STAMP`, so that it is read again.
    """
    try:
        with open_for_reading(*file) as database:
            rows = database.rows("SELECT project, id, mtime, size, inode FROM session WHERE settled")
            unsettled_rows = database.rows("SELECT project, id FROM session WHERE NOT settled")
    except IndexFailedError as error:
        if error.broken:
            raise
        return {}
    unsettled = dict.fromkeys(((project, id) for project, id in unsettled_rows), UNKNOWN_STAMP)
    return {**unsettled, **{(project, id): (mtime, size, inode) for project, id, mtime, size, inode in rows}}
