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

MAX_TEXT = 1_000_000
NANO = 10**9
BEFORE, AFTER = "\x02", "\x03"  # marks around a match
_FORBIDDEN = re.compile("[\x00\x02\x03\ud800-\udfff]")  # SQLite stops at NUL; our marks; lone surrogates
MAX_NANO = 2**62


class IndexEntry(Struct, frozen=True, kw_only=True):
    """A message in the index. `said` is the conversation, `done` are thoughts, tool inputs and outputs."""

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
    info = message.info
    answer = info if isinstance(info, AssistantMessage) else None
    said: list[str] = []
    done: list[str] = []
    for part in message.parts:
        (said if _is_said(part) else done).extend(_list_texts(part))
    return IndexEntry(
        id=info.id,
        created=info.time.created,
        open=answer is not None and answer.time.completed is None,
        provider=answer.provider_id if answer else "",
        model=answer.model_id if answer else "",
        spent=_to_cost(answer) if answer else Spent(),
        said=clean("\n".join(said)),
        done=clean("\n".join(done)),
        calls=_count_calls(message.parts),
    )


def clean(text: str) -> str:
    return _FORBIDDEN.sub(" ", text[:MAX_TEXT])


def to_whole_numbers(dollars: Decimal) -> tuple[int, int]:
    """Return billionths of a dollar, and billionths of those. The rest is rounded."""
    atto = int((dollars * NANO * NANO).to_integral_value())
    nano, rest = divmod(atto, NANO)
    return max(-MAX_NANO, min(nano, MAX_NANO)), rest


def to_dollars(nano: int, atto: int) -> Decimal:
    return (Decimal(nano) + Decimal(atto) / NANO) / NANO


def _to_cost(answer: AssistantMessage) -> Spent:
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


def _is_said(part: AnyPart) -> bool:
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
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting.extend(reversed(each.values()))
        elif isinstance(each, list | tuple):
            waiting.extend(reversed(each))


def _count_calls(parts: tuple[AnyPart, ...]) -> dict[str, tuple[int, int]]:
    """Count the calls of each tool, and how many of them failed."""
    found: dict[str, tuple[int, int]] = {}
    for part in parts:
        if isinstance(part, ToolPart):
            name = clean(part.tool)
            calls, failed = found.get(name, (0, 0))
            found[name] = calls + 1, failed + isinstance(part.state, ErrorState)
    return found


SessionKey = tuple[ProjectID, SessionID]

UNSURE: Stamp = (0, 0, 0)  # equals no real stamp, so the document is read again

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


class StampedSession(NamedTuple):
    """A session as it was read, and the stamp of its document before that."""

    session: Session
    stamp: Stamp
    entries: Sequence[IndexEntry]


def put_whole(database: IndexDatabase, found: StampedSession) -> None:
    """Replace a session and all its messages in the index."""
    number = _put_session(database, found.session, found.stamp)
    drop_messages(database, number)
    _put_messages(database, number, found.entries)


def put_some(database: IndexDatabase, found: StampedSession, gone: Iterable[MessageID]) -> None:
    """Put a session and some of its messages into the index, and drop those that are `gone`."""
    number = _put_session(database, found.session, found.stamp)
    drop_messages(database, number, gone)
    _put_messages(database, number, found.entries)


def list_messages(database: IndexDatabase, key: SessionKey) -> set[MessageID]:
    return {MessageID(id) for (id,) in database.rows(MESSAGES, *key)}


def list_keys(database: IndexDatabase, id: SessionID) -> list[SessionKey]:
    return [
        (ProjectID(project), id)
        for (project,) in database.rows("SELECT project FROM session WHERE id = ?", id)
    ]


def _put_session(database: IndexDatabase, session: Session, stamp: Stamp) -> int:
    """Store the session document and the stamp of its file. Return the number of the row."""
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


def _put_messages(database: IndexDatabase, session: int, entries: Iterable[IndexEntry]) -> None:
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


def _put_message(database: IndexDatabase, session: int, entry: IndexEntry) -> int:
    spent = entry.spent
    tokens = (spent.input, spent.output, spent.reasoning, spent.cache_read, spent.cache_write)
    bounded = [max(-MAX_COUNT, min(count, MAX_COUNT)) for count in tokens]
    ((number,),) = database.rows(
        MESSAGE, session, entry.id, entry.created, entry.open, clean(entry.provider), clean(entry.model),
        *bounded, *to_whole_numbers(spent.cost), spent.priced, spent.counted,
    )  # fmt: skip
    return int(number)


def drop_messages(database: IndexDatabase, session: int, ids: Iterable[MessageID] | None = None) -> None:
    """Drop these messages, or all of them."""
    if ids is None:
        _drop(database, database.rows("SELECT number FROM message WHERE session = ?", session))
        return
    for id in ids:
        _drop(database, database.rows("SELECT number FROM message WHERE session = ? AND id = ?", session, id))


def drop_session(database: IndexDatabase, key: SessionKey) -> None:
    for (number,) in database.rows("SELECT number FROM session WHERE project = ? AND id = ?", *key):
        drop_messages(database, number)
        database.run("DELETE FROM words WHERE rowid = ?", number * 2)
        database.run("DELETE FROM session WHERE number = ?", number)


def _drop(database: IndexDatabase, numbers: list[tuple[int, ...]]) -> None:
    if numbers:
        database.run_many("DELETE FROM words WHERE rowid = ?", [(number * 2 + 1,) for (number,) in numbers])
        database.run_many("DELETE FROM call WHERE message = ?", numbers)
        database.run_many("DELETE FROM message WHERE number = ?", numbers)


BATCH = 64


class IndexSource(Protocol):
    """Where the index reads sessions. `read` returns None for a session that no longer exists."""

    def list_stamps(self) -> Mapping[SessionKey, Stamp]: ...

    def read(self, key: SessionKey) -> StampedSession | None: ...


class IndexFile(NamedTuple):
    """The index of the store at `root`, in the file at `path`."""

    path: str
    root: str


IndexProgress = Callable[[int, int], None]


def ignore_progress(_done: int, _of: int) -> None:
    pass


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
    known, stamps = _list_current_stamps(file), source.list_stamps()
    gone = [key for key in known if key not in stamps]
    stale = [key for key, stamp in stamps.items() if known.get(key) != stamp]
    waiting, done = iter(stale), 0
    if gone:
        with open_for_writing(*file) as database:
            for key in gone:
                drop_session(database, key)
    while batch := list(islice(waiting, BATCH)):
        found = [(key, source.read(key)) for key in batch]
        with open_for_writing(*file) as database:
            put_all(database, found)
        done += len(batch)
        progress(done, len(stale))
    return bool(gone or stale)


def put_all(database: IndexDatabase, found: Iterable[tuple[SessionKey, StampedSession | None]]) -> None:
    for key, each in found:
        if each is None:
            drop_session(database, key)
        else:
            put_whole(database, each)


def _list_current_stamps(file: IndexFile) -> dict[SessionKey, Stamp]:
    """Return the stamps of the sessions in the index; none if there is no index yet."""
    try:
        with open_for_reading(*file) as database:
            rows = database.rows("SELECT project, id, mtime, size, inode FROM session WHERE settled")
            rest = database.rows("SELECT project, id FROM session WHERE NOT settled")
    except IndexFailedError as error:
        if error.broken:
            raise
        return {}
    unsettled = dict.fromkeys(((project, id) for project, id in rest), UNSURE)
    return {**unsettled, **{(project, id): (mtime, size, inode) for project, id, mtime, size, inode in rows}}


# Fewer sessions than this are read from their files about as fast.
MANY_SESSIONS = 500
# Changed sessions are read from their files. Up to this many, that is cheaper than writing the cache again.
MANY_CHANGES = 50

BEHIND = f"""SELECT shelf.project FROM shelf JOIN session ON session.project = shelf.project
GROUP BY shelf.project HAVING count(*) >= {MANY_SESSIONS} AND shelf.behind > max({MANY_CHANGES}, count(*) / 100)"""
# Oldest first; sessions of the same time in the order of a list that is read from files.
DOCUMENTS = """SELECT id, mtime, size, inode, document FROM session
WHERE project = ? ORDER BY created, id DESC"""


def list_stale_caches(database: IndexDatabase) -> list[ProjectID]:
    return [ProjectID(project) for (project,) in database.rows(BEHIND)]


def list_documents(database: IndexDatabase, project: ProjectID) -> Iterator[tuple[str, Stamp, bytes]]:
    for id, mtime, size, inode, document in database.iterate(DOCUMENTS, project):
        yield id, (mtime, size, inode), document


def mark_cached(database: IndexDatabase, projects: Iterable[ProjectID]) -> None:
    for project in projects:
        database.run("UPDATE shelf SET behind = 0 WHERE project = ?", project)
