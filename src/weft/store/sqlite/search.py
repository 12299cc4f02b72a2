"""Full-text search and statistics of a SQLite store, by an index in the same file that follows the changes."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import apsw

from weft.errors import DamagedStoreError, StoreError
from weft.model.ids import MessageID, ProjectID
from weft.model.message import MessageWithParts
from weft.model.search import Hit, ToolUse
from weft.model.session import SessionInfo
from weft.model.wire import decode, decode_many
from weft.store.rows import to_integer
from weft.store.search import (
    MATCH_END,
    MATCH_START,
    IndexEntry,
    clean_text,
    to_entry,
    to_hit,
    to_nano_and_atto,
)
from weft.store.sqlite.connection import SqlRow, connect, select, translate_errors, write_transaction
from weft.store.sqlite.database import DatabaseFile, StepProgress
from weft.store.sqlite.messages import MessageRows, build_messages, select_some_messages
from weft.store.statistics import HOUR_MS, SessionRange, StatisticsQuery, UsageRow

# A batch holds the write lock while its text is split into words, so it must be small.
MESSAGES_PER_BATCH = 64
TEXT_PER_BATCH = 400_000
TITLES_PER_BATCH = 500
# The rows of titles come after those of messages (see the schema).
FIRST_TITLE = 1 << 40
MAX_TOKEN_COUNT = 2**53

SNIPPET_WORDS = 20
# A match in a title counts most, and one in the conversation more than one in a tool's output.
RANK_FUNCTION = "bm25(6.0, 2.0, 1.0)"
# If more rows match, only the newest of them are ranked: ranking all rows with a common word takes too long.
MAX_RANKED = 5000

COUNT_STALE = """SELECT (SELECT count(*) FROM stale_message) + (SELECT count(*) FROM stale_title)
+ (SELECT count(*) FROM message WHERE number > (SELECT upto FROM indexed))"""
SELECT_NEW_MESSAGES = """SELECT number, history, id FROM message WHERE number > (SELECT upto FROM indexed)
ORDER BY number LIMIT ?"""
INSERT_STALE_MESSAGE = "INSERT OR IGNORE INTO stale_message (history, id) VALUES (?, ?)"
SELECT_STALE_TITLES = """SELECT stale_title.session, session.document FROM stale_title
JOIN session ON session.number = stale_title.session LIMIT ?"""
SELECT_STALE_MESSAGES = """SELECT stale_message.history, stale_message.id, message.number FROM stale_message
LEFT JOIN message ON message.history = stale_message.history AND message.id = stale_message.id LIMIT ?"""
DELETE_STALE_MESSAGE = "DELETE FROM stale_message WHERE history = ? AND id = ?"
INSERT_WORDS = "INSERT INTO words (rowid, title, said, done) VALUES (?, ?, ?, ?)"
INSERT_USAGE = """INSERT INTO usage (message, history, created, provider, model, input, output, reasoning, cache_read,
cache_write, nano, atto, priced, counted) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
INSERT_CALL = "INSERT INTO call (message, tool, calls, failed) VALUES (?, ?, ?, ?)"

# The rowid of the newest match that is not ranked, none if all are.
SELECT_NEWEST_UNRANKED = (
    f"SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET {MAX_RANKED}"
)
SELECT_MATCHES = f"""SELECT words.rowid, session.number, session.document, history.number, message.id, message.created
FROM words
LEFT JOIN message ON message.number = words.rowid
LEFT JOIN history ON history.number = message.history AND history.bundle IS NULL
JOIN session ON session.number = CASE WHEN words.rowid > {FIRST_TITLE} THEN words.rowid - {FIRST_TITLE}
ELSE (SELECT number FROM session AS owner WHERE owner.id = history.session) END
WHERE words MATCH ? AND rank MATCH '{RANK_FUNCTION}' AND words.rowid > ? AND (? IS NULL OR session.project = ?)
ORDER BY rank"""
CREATE_SNIPPETS = (
    "CREATE VIRTUAL TABLE words USING fts5 (title, said, done, tokenize = 'unicode61 remove_diacritics 2')"
)
SELECT_SNIPPETS = (
    f"SELECT rowid, snippet(words, -1, ?, ?, '…', {SNIPPET_WORDS}) FROM words WHERE words MATCH ?"
)

# A message older than its session was copied by a fork, and its cost counts in the original session.
FROM_USAGE = """FROM session JOIN history ON history.session = session.id AND history.bundle IS NULL
JOIN usage ON usage.history = history.number"""
OF_QUERY = """WHERE usage.created >= session.created AND usage.created >= ? AND (? IS NULL OR session.project = ?)
AND (? IS NULL OR session.id IN (SELECT value FROM json_each(?)))"""
SELECT_USAGE = f"""SELECT history.number, session.project, usage.created / {HOUR_MS}, provider, model, count(*), sum(input),
sum(output), sum(reasoning), sum(cache_read), sum(cache_write), sum(nano), sum(atto), min(priced), min(counted)
{FROM_USAGE} {OF_QUERY} GROUP BY history.number, 3, provider, model"""
SELECT_CALLS = f"""SELECT tool, sum(calls), sum(failed) {FROM_USAGE} JOIN call ON call.message = usage.message {OF_QUERY}
GROUP BY tool ORDER BY sum(calls) DESC, tool"""
SELECT_SESSIONS = """SELECT count(*), min(created), max(updated) FROM session
WHERE updated >= ? AND (? IS NULL OR project = ?) AND (? IS NULL OR id IN (SELECT value FROM json_each(?)))"""


# --- keeping the index up to date ---


def count_stale(connection: apsw.Connection) -> int:
    [(count,)] = select(connection, COUNT_STALE)
    return int(count)


def index_batch(connection: apsw.Connection) -> int:
    """Index some of what changed, in the transaction of the caller. Return how much it was, 0 if nothing is left."""
    return _index_titles(connection) or _index_messages(connection)


def _index_titles(connection: apsw.Connection) -> int:
    rows = select(connection, SELECT_STALE_TITLES, (TITLES_PER_BATCH,))
    sessions = decode_many([document for _, document in rows], SessionInfo)
    for (number, _), session in zip(rows, sessions, strict=True):
        title = session.title if isinstance(session, SessionInfo) else ""  # unreadable sessions are not found
        _put_words(connection, FIRST_TITLE + number, title=clean_text(title))
        connection.execute("DELETE FROM stale_title WHERE session = ?", (number,))
    return len(rows)


def _index_messages(connection: apsw.Connection) -> int:
    rows = select(connection, SELECT_STALE_MESSAGES, (MESSAGES_PER_BATCH,))
    if not rows and _mark_new_messages(connection):
        rows = select(connection, SELECT_STALE_MESSAGES, (MESSAGES_PER_BATCH,))
    histories: dict[int, dict[str, int | None]] = {}
    for history, id, number in rows:
        histories.setdefault(history, {})[id] = number
    count = length = 0
    for history, numbers in histories.items():
        for message in _read_messages(connection, history, [id for id, number in numbers.items() if number]):
            if length > TEXT_PER_BATCH:
                return count  # the rest stays marked
            entry, number = to_entry(message), numbers.pop(message.info.id)
            assert number is not None
            _put_message(connection, history, number, entry)
            connection.execute(DELETE_STALE_MESSAGE, (history, entry.id))
            count, length = count + 1, length + len(entry.said) + len(entry.done)
        # What is left does not exist, or cannot be read.
        for id in numbers:
            connection.execute(DELETE_STALE_MESSAGE, (history, id))
            count += 1
    return count


def _mark_new_messages(connection: apsw.Connection) -> bool:
    """Mark some messages that were never indexed as stale, so that later batches index those that the current one leaves out.

    Return False if there are none.
    """
    new = select(connection, SELECT_NEW_MESSAGES, (MESSAGES_PER_BATCH,))
    if new:
        connection.executemany(INSERT_STALE_MESSAGE, [(history, id) for _, history, id in new])
        connection.execute("UPDATE indexed SET upto = ?", (new[-1][0],))
    return bool(new)


def _read_messages(connection: apsw.Connection, history: int, ids: list[str]) -> list[MessageWithParts]:
    rows = select_some_messages(connection, history, ids)
    return build_messages("", rows, lambda _kind, _id, _error: None)


def _put_message(connection: apsw.Connection, history: int, number: int, entry: IndexEntry) -> None:
    _put_words(connection, number, said=entry.said, done=entry.done)
    connection.execute("DELETE FROM usage WHERE message = ?", (number,))
    connection.execute("DELETE FROM call WHERE message = ?", (number,))
    spent = entry.spent
    tokens = (spent.input, spent.output, spent.reasoning, spent.cache_read, spent.cache_write)
    bounded = [max(-MAX_TOKEN_COUNT, min(count, MAX_TOKEN_COUNT)) for count in tokens]
    connection.execute(
        INSERT_USAGE,
        (
            number, history, to_integer(entry.created), clean_text(entry.provider), clean_text(entry.model), *bounded,
            *to_nano_and_atto(spent.cost), spent.priced, spent.counted,
        ),
    )  # fmt: skip
    calls = [(number, tool, calls, failed) for tool, (calls, failed) in entry.calls.items()]
    connection.executemany(INSERT_CALL, calls)


def _put_words(
    connection: apsw.Connection, row: int, *, title: str = "", said: str = "", done: str = ""
) -> None:
    connection.execute("DELETE FROM words WHERE rowid = ?", (row,))
    connection.execute(INSERT_WORDS, (row, title, said, done))


def update_index_now(file: DatabaseFile, progress: StepProgress) -> None:
    """Bring the index up to date, for a command without an event loop. If the database cannot be written, leave it as it is."""
    if not file.exists():
        return
    try:
        _update_index(file, progress)
    except StoreError as error:
        if isinstance(error, DamagedStoreError):
            raise


def _update_index(file: DatabaseFile, progress: StepProgress) -> None:
    file.prepare()
    connection = file.connect_for_writing()
    try:
        with translate_errors(file.path, connection):
            select(connection, "PRAGMA synchronous = NORMAL")
            total, done = count_stale(connection), 0
            while done < total:
                with write_transaction(connection):
                    done += index_batch(connection) or total
                progress(min(done, total), total)
    finally:
        connection.close()


# --- searching ---


class SessionMatch(NamedTuple):
    """The best match of a session: its document, and the rows of the message, if it is not the title."""

    row: int
    document: bytes
    message: str | None
    created: int | None
    rows: MessageRows | None


def list_matches(
    connection: apsw.Connection, query: str, limit: int, project: ProjectID | None
) -> list[SessionMatch]:
    """Return the best match of each session that contains all words, best first."""
    unranked = next((row for (row,) in connection.execute(SELECT_NEWEST_UNRANKED, (query,))), -1)
    best: dict[int, SessionMatch] = {}
    for row, session, document, history, message, created in _iterate(
        connection, SELECT_MATCHES, (query, unranked, project, project)
    ):
        if session not in best:
            rows = None if message is None else select_some_messages(connection, history, [message])
            best[session] = SessionMatch(row, document, message, created, rows)
            if len(best) == limit:
                break
    return list(best.values())


def _iterate(connection: apsw.Connection, sql: str, values: tuple[Any, ...]) -> Iterator[SqlRow]:
    """Yield rows as they are found: after the first few, the rest is not needed."""
    yield from connection.execute(sql, values)


def to_hits(query: str, matches: list[SessionMatch]) -> list[Hit]:
    """Return what to show of matches."""
    snippets = _make_snippets(query, [(match.row, *_get_texts(match)) for match in matches])
    return [
        to_hit(
            decode(match.document, SessionInfo),
            None if match.message is None else MessageID(match.message),
            match.created,
            snippets.get(match.row, ""),
        )
        for match in matches
    ]


def _get_texts(match: SessionMatch) -> tuple[str, str, str]:
    """Return the text of a match as it was indexed: title, said, done."""
    if match.rows is None:
        return clean_text(decode(match.document, SessionInfo).title), "", ""
    for message in build_messages("", match.rows, lambda _kind, _id, _error: None):
        entry = to_entry(message)
        return "", entry.said, entry.done
    return "", "", ""


def _make_snippets(query: str, texts: list[tuple[int, str, str, str]]) -> dict[int, str]:
    """Return the part of each text around the match, with marks. The index itself keeps no text to show."""
    memory = connect(":memory:", writes=True)
    try:
        memory.execute(CREATE_SNIPPETS)
        memory.executemany(INSERT_WORDS, texts)
        return dict(select(memory, SELECT_SNIPPETS, (MATCH_START, MATCH_END, query)))
    finally:
        memory.close()


class UsageRows(NamedTuple):
    """What `build_figures` needs."""

    usage: list[UsageRow]
    sessions: SessionRange
    tools: list[ToolUse]


def select_usage(connection: apsw.Connection, query: StatisticsQuery) -> UsageRows:
    """Select what figures are built from."""
    only = None if query.sessions is None else json.dumps(sorted(query.sessions))
    values = (to_integer(query.since), query.project, query.project, only, only)
    [(sessions, first, last)] = select(connection, SELECT_SESSIONS, values)
    return UsageRows(
        [UsageRow(*row) for row in select(connection, SELECT_USAGE, values)],
        SessionRange(sessions, first, last),
        [
            ToolUse(name=tool, calls=calls, failed=failed)
            for tool, calls, failed in select(connection, SELECT_CALLS, values)
        ],
    )
