"""Add sessions and messages to the search index, and update it from the store."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from weft.errors import IndexFailedError
from weft.host.files import Stamp
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import (
    AnyPart,
    CompletedState,
    ErrorState,
    FilePart,
    ReasoningPart,
    SubtaskPart,
    TextPart,
    ToolPart,
)
from weft.model.session import Session
from weft.model.spending import Spent
from weft.model.wire import encode
from weft.search.database import IndexDatabase, discard_index, open_for_reading, open_for_writing

MAX_TEXT_LENGTH = 1_000_000
NANO = 10**9
# They surround a match in a snippet.
MATCH_START, MATCH_END = "\x02", "\x03"
# SQLite stops at NUL, the next two surround matches, and lone surrogates cannot be encoded.
_FORBIDDEN_CHARACTERS = re.compile("[\x00\x02\x03\ud800-\udfff]")
MAX_NANO = 2**62


class IndexEntry(Struct, frozen=True, kw_only=True):
    """A message in the index. `said` is the text of the conversation, `done` that of reasoning and tool calls."""

    id: MessageID
    created: int
    open: bool
    provider: str
    model: str
    spent: Spent
    said: str
    done: str
    calls: dict[str, tuple[int, int]]


def to_entry(message: MessageWithParts) -> IndexEntry:
    """Return what the index stores of a message."""
    info = message.info
    answer = info if isinstance(info, AssistantMessage) else None
    said: list[str] = []
    done: list[str] = []
    for part in message.parts:
        (said if _is_conversation(part) else done).extend(_list_texts(part))
    return IndexEntry(
        id=info.id,
        created=info.time.created,
        open=answer is not None and answer.time.completed is None,
        provider=answer.provider_id if answer else "",
        model=answer.model_id if answer else "",
        spent=_to_spent(answer) if answer else Spent(),
        said=clean_text("\n".join(said)),
        done=clean_text("\n".join(done)),
        calls=_count_calls(message.parts),
    )


def clean_text(text: str) -> str:
    """Return a text that SQLite can store: bounded, and without forbidden characters."""
    return _FORBIDDEN_CHARACTERS.sub(" ", text[:MAX_TEXT_LENGTH])


def to_nano_and_atto(dollars: Decimal) -> tuple[int, int]:
    """Return billionths of a dollar, and billionths of those for the rest, rounded."""
    atto = int((dollars * NANO * NANO).to_integral_value())
    nano, rest = divmod(atto, NANO)
    return max(-MAX_NANO, min(nano, MAX_NANO)), rest


def to_dollars(nano: int, atto: int) -> Decimal:
    return (Decimal(nano) + Decimal(atto) / NANO) / NANO


def _to_spent(answer: AssistantMessage) -> Spent:
    tokens = answer.tokens
    return Spent(
        cost=answer.cost,
        input=tokens.input,
        output=tokens.output,
        reasoning=tokens.reasoning,
        cache_read=tokens.cache.read,
        cache_write=tokens.cache.write,
        priced=answer.priced,
        counted=answer.counted,
    )


def _is_conversation(part: AnyPart) -> bool:
    return isinstance(part, SubtaskPart) or (isinstance(part, TextPart) and not part.synthetic)


def _list_texts(part: AnyPart) -> Iterator[str]:
    match part:
        case TextPart(text=text) | ReasoningPart(text=text):
            yield text
        case FilePart(filename=name):
            yield name or ""
        case SubtaskPart(prompt=prompt, description=description):
            yield from (description, prompt)
        case ToolPart(tool=tool, state=state):
            yield tool
            yield from _list_strings(state.input)
            if isinstance(state, CompletedState):
                yield from (state.title, state.output)
            if isinstance(state, ErrorState):
                yield state.error
        case _:
            pass


def _list_strings(value: Any) -> Iterator[str]:
    """Yield every string in the input of a call, at any depth."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            pending.extend(reversed(item.values()))
        elif isinstance(item, list | tuple):
            pending.extend(reversed(item))


def _count_calls(parts: tuple[AnyPart, ...]) -> dict[str, tuple[int, int]]:
    """Count the calls of each tool, and how many of them failed."""
    counts: dict[str, tuple[int, int]] = {}
    for part in parts:
        if isinstance(part, ToolPart):
            name = clean_text(part.tool)
            calls, failed = counts.get(name, (0, 0))
            counts[name] = calls + 1, failed + isinstance(part.state, ErrorState)
    return counts


SessionKey = tuple[ProjectID, SessionID]

# It equals no real stamp, so the document is read again.
UNKNOWN_STAMP: Stamp = (0, 0, 0)

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
COUNT_CHANGED_SESSION = (
    "INSERT INTO shelf VALUES (?, 1) ON CONFLICT (project) DO UPDATE SET behind = behind + 1"
)
MAX_TOKEN_COUNT = 2**53


class StampedSession(NamedTuple):
    """A session as it was read, and the stamp of its document before that."""

    session: Session
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


def _upsert_session(database: IndexDatabase, session: Session, stamp: Stamp) -> int:
    """Store the session document and the stamp of its file. Return the number of the row."""
    parent = None if session.parent_id is None else clean_text(session.parent_id)
    ((number,),) = database.rows(
        UPSERT_SESSION, session.project_id, session.id, parent, session.time.created, session.time.updated,
        *stamp, encode(session),
    )  # fmt: skip
    database.run(COUNT_CHANGED_SESSION, session.project_id)
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
        INSERT_MESSAGE, session, entry.id, entry.created, entry.open, clean_text(entry.provider), clean_text(entry.model),
        *bounded, *to_nano_and_atto(spent.cost), spent.priced, spent.counted,
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


IndexProgress = Callable[[int, int], None]


def ignore_progress(_done: int, _total: int) -> None:
    """Report nothing."""


def refresh_index(file: IndexFile, source: IndexSource, progress: IndexProgress = ignore_progress) -> bool:
    """Update the index, and replace a broken file once. Return True if anything had changed."""
    try:
        return _refresh(file, source, progress)
    except IndexFailedError as error:
        if not error.broken:
            raise
    discard_index(file.path)
    return _refresh(file, source, progress)


def _refresh(file: IndexFile, source: IndexSource, progress: IndexProgress) -> bool:
    indexed, stamps = _list_current_stamps(file), source.list_stamps()
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
    return bool(removed or stale)


def replace_sessions(
    database: IndexDatabase, sessions: Iterable[tuple[SessionKey, StampedSession | None]]
) -> None:
    for key, stamped in sessions:
        if stamped is None:
            drop_session(database, key)
        else:
            replace_session(database, stamped)


def _list_current_stamps(file: IndexFile) -> dict[SessionKey, Stamp]:
    """Return the stamps of the sessions in the index; none if there is no index yet."""
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


# Fewer sessions are read from their files about as fast as from a cache.
MIN_CACHED_SESSIONS = 500
# Changed sessions are read from their files. For fewer, that is cheaper than writing the cache again.
MIN_CHANGED_SESSIONS = 50

SELECT_STALE_PROJECTS = f"""SELECT shelf.project FROM shelf JOIN session ON session.project = shelf.project
GROUP BY shelf.project HAVING count(*) >= {MIN_CACHED_SESSIONS} AND shelf.behind > max({MIN_CHANGED_SESSIONS}, count(*) / 100)"""
# Oldest first; sessions of the same time in the order of a list that is read from files.
SELECT_DOCUMENTS = """SELECT id, mtime, size, inode, document FROM session
WHERE project = ? ORDER BY created, id DESC"""


def list_stale_caches(database: IndexDatabase) -> list[ProjectID]:
    """Return the large projects in which many sessions changed since their list cache was written."""
    return [ProjectID(project) for (project,) in database.rows(SELECT_STALE_PROJECTS)]


def list_documents(database: IndexDatabase, project: ProjectID) -> Iterator[tuple[str, Stamp, bytes]]:
    for id, mtime, size, inode, document in database.iterate(SELECT_DOCUMENTS, project):
        yield id, (mtime, size, inode), document


def mark_cached(database: IndexDatabase, projects: Iterable[ProjectID]) -> None:
    """Note that the list caches of these projects were written."""
    for project in projects:
        database.run("UPDATE shelf SET behind = 0 WHERE project = ?", project)
