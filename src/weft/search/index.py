"""Put sessions and messages into the search index, and bring it up to date with the store."""

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
from weft.search.database import Database, discard, reading, writing

LONGEST = 1_000_000
NANO = 10**9
BEFORE, AFTER = "\x02", "\x03"  # around what is found
_UNSPEAKABLE = re.compile("[\x00\x02\x03\ud800-\udfff]")  # what SQLite stops at, our marks, half characters
MAX_NANO = 2**62


class Entry(Struct, frozen=True, kw_only=True):
    """`said` is what person and model said, `done` what was thought, read and done."""

    id: MessageID
    created: int
    open: bool
    provider: str
    model: str
    spent: Spent
    said: str
    done: str
    calls: dict[str, tuple[int, int]]


def to_entry(message: MessageWithParts) -> Entry:
    info = message.info
    answer = info if isinstance(info, AssistantMessage) else None
    said: list[str] = []
    done: list[str] = []
    for part in message.parts:
        (said if _is_said(part) else done).extend(_words(part))
    return Entry(
        id=info.id,
        created=info.time.created,
        open=answer is not None and answer.time.completed is None,
        provider=answer.provider_id if answer else "",
        model=answer.model_id if answer else "",
        spent=_spent(answer) if answer else Spent(),
        said=clean("\n".join(said)),
        done=clean("\n".join(done)),
        calls=_calls(message.parts),
    )


def clean(text: str) -> str:
    return _UNSPEAKABLE.sub(" ", text[:LONGEST])


def to_whole_numbers(dollars: Decimal) -> tuple[int, int]:
    """Billionths of a dollar, and billionths of those; what is smaller still is rounded."""
    atto = int((dollars * NANO * NANO).to_integral_value())
    nano, rest = divmod(atto, NANO)
    return max(-MAX_NANO, min(nano, MAX_NANO)), rest


def to_dollars(nano: int, atto: int) -> Decimal:
    return (Decimal(nano) + Decimal(atto) / NANO) / NANO


def _spent(answer: AssistantMessage) -> Spent:
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


def _words(part: AnyPart) -> Iterator[str]:
    match part:
        case TextPart(text=text) | ReasoningPart(text=text):
            yield text
        case FilePart(filename=name):
            yield name or ""
        case SubtaskPart(prompt=prompt, description=description):
            yield from (description, prompt)
        case ToolPart(tool=tool, state=state):
            yield tool
            yield from _strings(state.input)
            if isinstance(state, CompletedState):
                yield from (state.title, state.output)
            if isinstance(state, ErrorState):
                yield state.error
        case _:
            pass


def _strings(value: Any) -> Iterator[str]:
    """Every string in the input of a call, however deep."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting.extend(reversed(each.values()))
        elif isinstance(each, list | tuple):
            waiting.extend(reversed(each))


def _calls(parts: tuple[AnyPart, ...]) -> dict[str, tuple[int, int]]:
    """How often each tool was called, and how often in vain."""
    found: dict[str, tuple[int, int]] = {}
    for part in parts:
        if isinstance(part, ToolPart):
            name = clean(part.tool)
            calls, failed = found.get(name, (0, 0))
            found[name] = calls + 1, failed + isinstance(part.state, ErrorState)
    return found


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


BATCH = 64


class Source(Protocol):
    """Where sessions are read from. `read` leaves out what is no longer there."""

    def stamps(self) -> Mapping[Place, Stamp]: ...

    def read(self, place: Place) -> Found | None: ...


class File(NamedTuple):
    """The index of the store at `root`, in the file at `path`."""

    path: str
    root: str


Progress = Callable[[int, int], None]


def quiet(_done: int, _of: int) -> None:
    pass


def refresh(file: File, source: Source, progress: Progress = quiet) -> bool:
    """Bring it up to date; a bad file is made anew, once. Says whether anything had changed."""
    try:
        return _refresh(file, source, progress)
    except IndexFailedError as error:
        if not error.broken:
            raise
    discard(file.path)
    return _refresh(file, source, progress)


def _refresh(file: File, source: Source, progress: Progress) -> bool:
    known, stamps = _known(file), source.stamps()
    gone = [place for place in known if place not in stamps]
    stale = [place for place, stamp in stamps.items() if known.get(place) != stamp]
    waiting, done = iter(stale), 0
    if gone:
        with writing(*file) as database:
            for place in gone:
                drop_session(database, place)
    while batch := list(islice(waiting, BATCH)):
        found = [(place, source.read(place)) for place in batch]
        with writing(*file) as database:
            put_all(database, found)
        done += len(batch)
        progress(done, len(stale))
    return bool(gone or stale)


def put_all(database: Database, found: Iterable[tuple[Place, Found | None]]) -> None:
    for place, each in found:
        if each is None:
            drop_session(database, place)
        else:
            put_whole(database, each)


def _known(file: File) -> dict[Place, Stamp]:
    """The stamps that are up to date; none if there is no index yet."""
    try:
        with reading(*file) as database:
            rows = database.rows("SELECT project, id, mtime, size, inode FROM session WHERE settled")
            rest = database.rows("SELECT project, id FROM session WHERE NOT settled")
    except IndexFailedError as error:
        if error.broken:
            raise
        return {}
    unsettled = dict.fromkeys(((project, id) for project, id in rest), UNSURE)
    return {**unsettled, **{(project, id): (mtime, size, inode) for project, id, mtime, size, inode in rows}}


# Fewer sessions than this are read from their files about as fast.
MANY = 500
# What changed is read from its file: a few of them cost a list less than a shelf costs whoever writes it.
SOME = 50

BEHIND = f"""SELECT shelf.project FROM shelf JOIN session ON session.project = shelf.project
GROUP BY shelf.project HAVING count(*) >= {MANY} AND shelf.behind > max({SOME}, count(*) / 100)"""
# Oldest first, and those of one time as they stand in a list that is read from files.
DOCUMENTS = """SELECT id, mtime, size, inode, document FROM session
WHERE project = ? ORDER BY created, id DESC"""


def list_behind(database: Database) -> list[ProjectID]:
    return [ProjectID(project) for (project,) in database.rows(BEHIND)]


def list_documents(database: Database, project: ProjectID) -> Iterator[tuple[str, Stamp, bytes]]:
    for id, mtime, size, inode, document in database.each(DOCUMENTS, project):
        yield id, (mtime, size, inode), document


def note_shelved(database: Database, projects: Iterable[ProjectID]) -> None:
    for project in projects:
        database.run("UPDATE shelf SET behind = 0 WHERE project = ?", project)
