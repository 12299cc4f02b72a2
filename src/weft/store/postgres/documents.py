"""Read what a Postgres store holds. Each call is one statement, which sees one state of the database.

This holds for cached transcripts, too: the statement that fetches the entries that the chain has gained also fetches the messages that
they name.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from weft.errors import DocumentError, InvalidInputError, NotFoundError, UnreadableError
from weft.model.damage import Damage
from weft.model.diff import FileDiff
from weft.model.event import PartGrew
from weft.model.ids import MessageID, PartID, ProjectID, SessionID, check_file_name
from weft.model.message import (
    AnyMessage,
    MessageWithParts,
    message_sort_key,
    replace_messages,
    sort_parts,
)
from weft.model.part import AnyPart
from weft.model.project import Project
from weft.model.session import SessionInfo, Todo, TrashBundle
from weft.model.session_query import SessionQuery
from weft.model.transcript import grow_part
from weft.model.transfer import SessionExport
from weft.model.wire import decode, decode_many, parse
from weft.store.chain import ChainLines, to_line
from weft.store.contract import Key
from weft.store.postgres.batch import DIFF, TODO
from weft.store.postgres.connection import Database
from weft.store.postgres.lease import SELECT_OWNER
from weft.store.rows import SqlDialect, build_session_query, to_ascii, to_integer, to_text
from weft.store.transcript_cache import CachedTranscript, ChainHead, TranscriptCache, list_changed_messages

T = TypeVar("T")

# More rows are decoded in a thread, so that the event loop goes on meanwhile.
MAX_INLINE_ROWS = 2_000
PAGE_ROWS = 500

DIALECT = SqlDialect(
    placeholder=lambda number: f"${number}",
    contains=lambda column, value: f"position({value} in {column}) > 0",
)

# A row of a message, of a part, of growth, or of the message before which a page ends.
MESSAGE_ROW, PART_ROW, GROWTH_ROW, END_ROW = range(4)
# Rows of a chain: the number and the hash of an entry, and the number and the body.
HASH_ROW, BODY_ROW = 10, 11
# The ids of messages in the body of an entry (see `message_key`, `part_key` and `check_file_name`).
NAMED_MESSAGE = r'"(?:message|part)/([0-9A-Za-z][0-9A-Za-z_.-]*)'

SELECT_MESSAGES = f"""SELECT {MESSAGE_ROW}, session, id, NULL, 0, 0, document FROM {{schema}}.message WHERE session = $1
UNION ALL SELECT {PART_ROW}, session, message, id, 0, 0, document FROM {{schema}}.part WHERE session = $1
UNION ALL SELECT {GROWTH_ROW}, session, message, part, number, position, delta FROM {{schema}}.growth WHERE session = $1"""
SELECT_TRASHED = f"""SELECT {MESSAGE_ROW}, session, id, NULL, 0, 0, document FROM {{schema}}.trashed_message WHERE bundle = $1
UNION ALL SELECT {PART_ROW}, session, message, id, 0, 0, document FROM {{schema}}.trashed_part WHERE bundle = $1
UNION ALL SELECT {GROWTH_ROW}, session, message, part, number, position, delta FROM {{schema}}.trashed_growth WHERE bundle = $1"""
SELECT_TRASHED_DETAILS = "SELECT session, kind, document FROM {schema}.trashed_detail WHERE bundle = $1"
SELECT_THEIR_PARTS = f"""SELECT {MESSAGE_ROW}, session, id, NULL, 0, 0, document FROM chosen
UNION ALL SELECT {PART_ROW}, part.session, part.message, part.id, 0, 0, part.document
FROM chosen JOIN {{schema}}.part ON part.session = chosen.session AND part.message = chosen.id
UNION ALL SELECT {GROWTH_ROW}, growth.session, growth.message, part, growth.number, growth.position, growth.delta
FROM chosen JOIN {{schema}}.growth ON growth.session = chosen.session AND growth.message = chosen.id"""
SELECT_LAST_MESSAGES = f"""WITH chosen AS (SELECT session, id, document FROM {{schema}}.message WHERE session = $1
ORDER BY created DESC, number DESC, id DESC LIMIT $2)
{SELECT_THEIR_PARTS}"""
SELECT_EARLIER_MESSAGES = f"""WITH ending AS (SELECT created, number, id FROM {{schema}}.message WHERE session = $1 AND id = $3),
chosen AS (SELECT session, id, document FROM {{schema}}.message WHERE session = $1
AND (created, number, id) < (SELECT created, number, id FROM ending)
ORDER BY created DESC, number DESC, id DESC LIMIT $2)
{SELECT_THEIR_PARTS}
UNION ALL SELECT {END_ROW}, $1, id, NULL, 0, 0, NULL FROM ending"""
SELECT_SOME_MESSAGES = f"""WITH chosen AS (SELECT message.session, message.id, message.document
FROM unnest($1::text[], $2::text[]) AS wanted (session, id) JOIN {{schema}}.message USING (session, id))
{SELECT_THEIR_PARTS}"""
SELECT_MESSAGES_AND_HEAD = f"""{SELECT_MESSAGES}
UNION ALL (SELECT {HASH_ROW}, session, NULL, NULL, number, 0, hash FROM {{schema}}.chain WHERE session = $1
ORDER BY number DESC LIMIT 1)"""
SELECT_CHANGED_MESSAGES = f"""WITH gained AS MATERIALIZED (
SELECT session, number, hash, body FROM {{schema}}.chain WHERE session = $1 AND number >= $3),
named AS (SELECT (regexp_matches(encode(body, 'escape'), '{NAMED_MESSAGE}', 'g'))[1] AS id FROM gained WHERE number > $3),
chosen AS (SELECT session, id, document FROM {{schema}}.message WHERE session = $1 AND id = ANY (
$2::text[] || ARRAY(SELECT message FROM {{schema}}.growth WHERE session = $1) || ARRAY(SELECT DISTINCT id FROM named)))
{SELECT_THEIR_PARTS}
UNION ALL SELECT {HASH_ROW}, session, NULL, NULL, number, 0, hash FROM gained
UNION ALL SELECT {BODY_ROW}, session, NULL, NULL, number, 0, body FROM gained WHERE number > $3"""

SELECT_ABANDONED = """SELECT session FROM {schema}.lease WHERE till < clock_timestamp() AND (
EXISTS (SELECT FROM {schema}.session WHERE id = lease.session)
OR EXISTS (SELECT FROM {schema}.message WHERE message.session = lease.session)) ORDER BY session"""
SELECT_LOG = """SELECT line FROM {schema}.log JOIN {schema}.log_line ON log_line.log = log.id
WHERE name = $1 ORDER BY number"""

# Every table with documents: the type of the documents, and the columns that are the key.
DOCUMENT_TABLES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "project": (Project, ("id",)),
    "session": (SessionInfo, ("id",)),
    "message": (AnyMessage, ("session", "id")),
    "part": (AnyPart, ("session", "message", "id")),
    "detail": (Any, ("session", "kind")),
    "bundle": (TrashBundle, ("id",)),
}
DETAIL_TYPES: dict[str, Any] = {DIFF: tuple[FileDiff, ...], TODO: tuple[Todo, ...]}


class PostgresDocuments:
    """Reads documents. One that cannot be read is left out, reported to `damaged` once, and named by `problems`."""

    def __init__(self, database: Database, damaged: Callable[[Damage], None] | None = None) -> None:
        self.database = database
        self._damaged = damaged
        self._loop = asyncio.get_running_loop()
        self._problems: dict[str, Damage] = {}
        self._reported: set[str] = set()

    async def list_projects(self) -> list[Project]:
        rows = await self.database.fetch("SELECT id, document FROM {schema}.project ORDER BY created, id")
        return [project for _, project in self._decode_all("project", rows, Project)]

    async def find_project(self, id: ProjectID) -> Project | None:
        raw = await self.database.fetch_value(
            "SELECT document FROM {schema}.project WHERE id = $1", to_ascii(id)
        )
        return None if raw is None else self.decode(f"project/{id}", raw, Project)

    async def list_sessions(self, project: ProjectID | None = None) -> list[SessionInfo]:
        """Return sessions by time of creation, and those of one millisecond in the reverse order of their ids."""
        rows = await self.database.fetch(
            "SELECT id, document FROM {schema}.session WHERE $1::text IS NULL OR project = $1 ORDER BY created, id DESC",
            None if project is None else to_ascii(project),
        )
        return [session for _, session in self._decode_all("session", rows, SessionInfo)]

    async def query_sessions(self, query: SessionQuery) -> list[SessionInfo]:
        text = build_session_query(query, DIALECT)
        rows = await self.database.fetch(
            f"SELECT id, document FROM {{schema}}.session {text.sql}", *text.values
        )
        return [session for _, session in self._decode_all("session", rows, SessionInfo)]

    async def find_session(self, id: SessionID) -> SessionInfo | None:
        raw = await self.database.fetch_value(
            "SELECT document FROM {schema}.session WHERE id = $1", to_ascii(id)
        )
        return None if raw is None else self.decode(f"session/{id}", raw, SessionInfo)

    async def get_session(self, id: SessionID) -> SessionInfo:
        raw = await self.database.fetch_value(
            "SELECT document FROM {schema}.session WHERE id = $1", to_ascii(id)
        )
        return self.decode_session(id, raw)

    def decode_session(self, id: SessionID, raw: bytes | None) -> SessionInfo:
        if raw is None:
            raise NotFoundError("session", id)
        session: SessionInfo | None = self.decode(f"session/{id}", raw, SessionInfo)
        if session is None:
            raise UnreadableError("session", id)
        return session

    async def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        key, limit = to_ascii(session), None if last is None else to_integer(max(0, last))
        if before is not None:
            rows = await self.database.fetch(SELECT_EARLIER_MESSAGES, key, limit, to_ascii(before))
            if not any(row[0] == END_ROW for row in rows):
                raise NotFoundError("message", before)
        elif limit is not None:
            rows = await self.database.fetch(SELECT_LAST_MESSAGES, key, limit)
        else:
            rows = await self.database.fetch(SELECT_MESSAGES, key)
        return await self.decode_messages(rows)

    async def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None:
        return next(iter(await self.find_messages([(session, id)])), None)

    async def find_messages(self, keys: Iterable[tuple[str, str]]) -> list[MessageWithParts]:
        """Return those of these messages that exist. A key is a session and a message of it."""
        wanted = [(to_ascii(session), to_ascii(id)) for session, id in keys]
        rows = await self.database.fetch(
            SELECT_SOME_MESSAGES, [session for session, _ in wanted], [id for _, id in wanted]
        )
        return await self.decode_messages(rows)

    async def list_message_ids(self, session: SessionID) -> list[MessageID]:
        rows = await self.database.fetch(
            "SELECT id FROM {schema}.message WHERE session = $1 ORDER BY id", to_ascii(session)
        )
        return [MessageID(id) for (id,) in rows]

    async def list_diff(self, session: SessionID) -> list[FileDiff]:
        return list(await self._find_detail(session, DIFF))

    async def list_todos(self, session: SessionID) -> list[Todo]:
        return list(await self._find_detail(session, TODO))

    async def _find_detail(self, session: SessionID, kind: str) -> tuple[Any, ...]:
        raw = await self.database.fetch_value(
            "SELECT document FROM {schema}.detail WHERE session = $1 AND kind = $2", to_ascii(session), kind
        )
        if raw is None:
            return ()
        return self.decode(f"detail/{session}/{kind}", raw, DETAIL_TYPES[kind]) or ()

    async def read_chain(self, session: SessionID) -> ChainLines:
        rows = await self.database.fetch(
            "SELECT hash, body FROM {schema}.chain WHERE session = $1 ORDER BY number", to_ascii(session)
        )
        return ChainLines([to_line(hash, body) for hash, body in rows])

    async def list_trash(self) -> list[TrashBundle]:
        rows = await self.database.fetch("SELECT id, document FROM {schema}.bundle ORDER BY time, id")
        return [bundle for _, bundle in self._decode_all("bundle", rows, TrashBundle)]

    async def read_bundle(self, bundle: str) -> list[SessionExport]:
        """Return the sessions of a bundle with all that belongs to them. Raise `NotFoundError` if there is no such bundle."""
        trashed = next((each for each in await self.list_trash() if each.id == bundle), None)
        if trashed is None:
            raise NotFoundError("bundle in the trash", bundle)
        messages: defaultdict[str, list[MessageWithParts]] = defaultdict(list)
        for message in await self.decode_messages(await self.database.fetch(SELECT_TRASHED, bundle)):
            messages[message.info.session_id].append(message)
        details: dict[tuple[str, str], Any] = {
            (session, kind): self.decode(f"detail/{session}/{kind}", raw, DETAIL_TYPES[kind]) or ()
            for session, kind, raw in await self.database.fetch(SELECT_TRASHED_DETAILS, bundle)
        }
        return [
            SessionExport(
                info=session,
                messages=tuple(messages[session.id]),
                diff=details.get((session.id, DIFF), ()),
                todos=details.get((session.id, TODO), ()),
            )
            for session in trashed.sessions
        ]

    async def find_value(self, key: Key) -> Any:
        raw = await self.database.fetch_value(
            "SELECT document FROM {schema}.value WHERE key = $1", check_key("key", key)
        )
        return None if raw is None else self.parse_value(key, raw)

    def parse_value(self, key: Key, raw: bytes) -> Any:
        return self.decode(f"value/{'/'.join(key)}", raw, Any)

    async def list_keys(self, prefix: Key = ()) -> list[Key]:
        return await self._list_names("key", "value", prefix)

    async def read_log(self, log: Key) -> list[bytes]:
        return [line for (line,) in await self.database.fetch(SELECT_LOG, check_key("log", log))]

    async def list_logs(self, prefix: Key = ()) -> list[Key]:
        return await self._list_names("name", "log", prefix)

    async def _list_names(self, column: str, table: str, prefix: Key) -> list[Key]:
        words = [to_ascii(word) for word in prefix]
        rows = await self.database.fetch(
            f"SELECT {column} FROM {{schema}}.{table} WHERE {column} >= $1 AND {column}[1:$2] = $1 ORDER BY 1",
            words,
            len(words),
        )
        return [tuple(name) for (name,) in rows]

    async def find_holder(self, session: SessionID) -> str | None:
        owner = await self.database.fetch_value(SELECT_OWNER, to_ascii(session))
        return None if owner is None else to_text(owner)

    async def list_abandoned(self) -> list[SessionID]:
        return [SessionID(id) for (id,) in await self.database.fetch(SELECT_ABANDONED)]

    async def list_running(self) -> set[SessionID]:
        rows = await self.database.fetch("SELECT session FROM {schema}.lease WHERE till >= clock_timestamp()")
        return {SessionID(id) for (id,) in rows}

    async def damage(self) -> list[Damage]:
        """Read every document, and return those that cannot be read."""
        self._problems.clear()
        for table, (kind, key) in DOCUMENT_TABLES.items():
            async for rows in self.read_table(table, key):
                for row in rows:
                    wanted = DETAIL_TYPES.get(row[1], Any) if table == "detail" else kind
                    self.decode("/".join((table, *row[:-1])), row[-1], wanted)
        return self.problems()

    def problems(self) -> list[Damage]:
        return sorted(self._problems.values(), key=lambda damage: damage.where)

    async def read_table(self, table: str, key: Sequence[str]) -> AsyncIterator[list[Any]]:
        """Yield the key and the document of every row, page by page."""
        columns = ", ".join(key)
        begin = f"({columns}) > ({', '.join(f'${number}' for number in range(2, len(key) + 2))})"
        after = [""] * len(key)
        while True:
            rows = await self.database.fetch(
                f"SELECT {columns}, document FROM {{schema}}.{table} WHERE {begin} ORDER BY {columns} LIMIT $1",
                PAGE_ROWS,
                *after,
            )
            if not rows:
                return
            yield rows
            after = list(rows[-1][: len(key)])

    # --- decoding ---

    def decode(self, where: str, raw: bytes, kind: Any) -> Any:
        """Return a document, None if it cannot be read."""
        try:
            return parse(raw, where=where) if kind is Any else decode(raw, kind, where=where)
        except DocumentError as error:
            self._report(where, error)
            return None

    def _report(self, where: str, error: DocumentError) -> None:
        self._problems[where] = Damage(where=where, reason=error.reason)
        if self._damaged is not None and where not in self._reported:
            self._reported.add(where)
            # Decoding may happen in a thread, and whoever is told lives in the loop.
            self._loop.call_soon_threadsafe(self._damaged, self._problems[where])

    def _decode_all(
        self, table: str, rows: Sequence[Sequence[Any]], kind: Any
    ) -> Iterator[tuple[Sequence[Any], Any]]:
        """Yield the key and the document of each row that can be read. The document is the last column."""
        for row, found in zip(rows, decode_many([row[-1] for row in rows], kind), strict=True):
            if isinstance(found, DocumentError):
                self._report("/".join((table, *row[:-1])), found)
            else:
                yield row[:-1], found

    async def decode_messages(self, rows: list[Any]) -> list[MessageWithParts]:
        """Return the messages of these rows, sorted."""
        if len(rows) <= MAX_INLINE_ROWS:
            return self._build_messages(rows)
        return await asyncio.to_thread(self._build_messages, rows)

    def _build_messages(self, rows: list[Any]) -> list[MessageWithParts]:
        found = [(session, message, body) for kind, session, message, *_, body in rows if kind == MESSAGE_ROW]
        pieces = [
            (session, message, part, body)
            for kind, session, message, part, *_, body in rows
            if kind == PART_ROW
        ]
        parts: defaultdict[tuple[str, str], dict[str, AnyPart]] = defaultdict(dict)
        for (session, message, part), document in self._decode_all("part", pieces, AnyPart):
            parts[session, message][part] = document
        growths = (row[1:] for row in rows if row[0] == GROWTH_ROW)
        for session, message, part, _, position, delta in sorted(growths, key=lambda row: row[3]):
            grown = parts[session, message]
            if part in grown:
                grown[part] = grow_part(grown[part], _to_growth(position, delta))
        infos = sorted(
            (info for _, info in self._decode_all("message", found, AnyMessage)), key=message_sort_key
        )
        return [
            MessageWithParts(info=info, parts=sort_parts(parts[info.session_id, info.id].values(), info))
            for info in infos
        ]


def _to_growth(position: int, delta: bytes) -> PartGrew:
    return PartGrew(
        session_id=SessionID(""),
        message_id=MessageID(""),
        part_id=PartID(""),
        field="text",
        delta=to_text(delta),
        offset=position,
    )


def check_key(kind: str, key: Key) -> list[str]:
    """Return the words of a key of a value or log. Raise `InvalidInputError` if it is not valid."""
    if not key:
        raise InvalidInputError(kind, "it is empty")
    return [check_file_name(kind, word) for word in key]


# --- cached transcripts ---


async def list_cached_messages(
    documents: PostgresDocuments, cache: TranscriptCache, session: SessionID
) -> list[MessageWithParts]:
    """Return all messages of a session, oldest first. Those that did not change are the same objects as before."""
    known = cache.find(session)
    found = None if known is None else await _fetch_changes(documents, session, known)
    if found is None:
        known, wanted = None, set[str]()
        rows = await documents.database.fetch(SELECT_MESSAGES_AND_HEAD, to_ascii(session))
        head = next((ChainHead(row[4], row[6]) for row in rows if row[0] == HASH_ROW), None)
    else:
        head, wanted, rows = found
    messages = await documents.decode_messages(rows)
    # The next reading has to find damage again.
    is_kept = head is not None and _is_complete(rows, messages)
    growing = frozenset[str](row[2] for row in rows if row[0] == GROWTH_ROW)
    size = sum(len(row[6]) for row in rows if row[0] in {MESSAGE_ROW, PART_ROW})
    if known is not None:
        messages = replace_messages(known.messages, wanted | growing, messages)
        size += known.size
    cache.put(session, CachedTranscript(head, tuple(messages), growing, size) if head and is_kept else None)
    return messages


async def _fetch_changes(
    documents: PostgresDocuments, session: SessionID, known: CachedTranscript
) -> tuple[ChainHead, set[str], list[Any]] | None:
    """Return the newest entry of the chain, the ids of the messages that may have changed since they were cached, and their rows.

    Return None if nothing that is cached can be used.
    """
    number, hash = known.head
    rows = await documents.database.fetch(
        SELECT_CHANGED_MESSAGES, to_ascii(session), sorted(known.growing), number
    )
    hashes = {row[4]: row[6] for row in rows if row[0] == HASH_ROW}
    if hashes.get(number) != hash:
        return None  # the session was deleted and made again
    changed = list_changed_messages(row[6] for row in rows if row[0] == BODY_ROW)
    if changed is None:
        return None
    newest = max(hashes)
    return ChainHead(newest, hashes[newest]), changed | known.growing, rows


def _is_complete(rows: list[Any], messages: list[MessageWithParts]) -> bool:
    """Return True if each row of a message or a part could be read, and belongs to a message."""
    count = sum(1 + len(message.parts) for message in messages)
    return count == sum(row[0] in {MESSAGE_ROW, PART_ROW} for row in rows)
