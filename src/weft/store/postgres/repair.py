"""Repair a Postgres store: the `StoreRepairer` of a database. Originals go into the table `backup` first.

Each repair is one statement, which saves a row and replaces or removes it, unless somebody changed it meanwhile.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from weft.errors import NotFoundError, StoreError
from weft.host.clock import SystemClock
from weft.host.processes import describe_process
from weft.model.diff import FileDiff, cap_diffs, is_capped
from weft.model.event import SessionCreated
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AnyMessage
from weft.model.session import SessionInfo
from weft.model.wire import encode
from weft.store.chain import (
    ChainedChanges,
    Change,
    digest_document,
    encode_entry,
    make_removal,
    message_key,
    part_key,
)
from weft.store.contract import SessionEditor
from weft.store.findings import LargeDocument, Leftover, LeftoverFailure, RemovedLeftovers, SetAside
from weft.store.postgres.batch import DIFF
from weft.store.postgres.documents import DETAIL_TYPES, PostgresDocuments
from weft.store.postgres.event_log import PostgresLog
from weft.store.postgres.lease import LeaseKeeper
from weft.store.postgres.reader import PostgresReader
from weft.store.postgres.store import PostgresStore, make_revision
from weft.store.repair_documents import rebuild_session, shrink_message
from weft.store.rows import to_ascii
from weft.store.sizes import ProgressCallback

# A smaller document cannot contain a diff that exceeds the bounds.
SUSPECT_BYTES = 64 << 10

SELECT_SUSPECTS = """SELECT 'message', session, id, document FROM {schema}.message WHERE octet_length(document) > $1
UNION ALL SELECT 'detail', session, kind, document FROM {schema}.detail
WHERE octet_length(document) > $1 AND kind = 'diff' ORDER BY 1, 2, 3"""
# $1 is the name of the backup, the key follows.
_SAVE = "INSERT INTO {schema}.backup (name, place, document) SELECT $1, concat_ws('/', %s), %s FROM %s"
# A repair is an entry of the session's chain too: $2 is the session, and the body of the entry is the value after the key.
_CHAIN = "{schema}.extend_chains(NULL, ARRAY[$2::text], ARRAY[%s::bytea])"
REPLACE_MESSAGE = f"""WITH replaced AS (UPDATE {{schema}}.message SET document = $5, changed = clock_timestamp()
WHERE session = $2 AND id = $3 AND document = $4 RETURNING 1)
{_SAVE % ("'message', $2::text, $3::text", "$4", "replaced")} RETURNING {_CHAIN % "$6"}"""
REPLACE_DETAIL = f"""WITH replaced AS (UPDATE {{schema}}.detail SET document = $5, changed = clock_timestamp()
WHERE session = $2 AND kind = $3 AND document = $4 RETURNING 1)
{_SAVE % ("'detail', $2::text, $3::text", "$4", "replaced")} RETURNING {_CHAIN % "$6"}"""
SAVE_SESSION = f"""{_SAVE % ("'session', id", "document", "{schema}.session")} WHERE id = $2 RETURNING 1"""

_MOVE_PARTS = f"""parts AS (DELETE FROM {{schema}}.part WHERE %s RETURNING session, message, id, document),
grown AS (DELETE FROM {{schema}}.growth WHERE %s RETURNING session, message, part, number, delta),
saved_parts AS ({_SAVE % ("'part', session, message, id", "document", "parts")}),
saved_growth AS ({_SAVE % ("'growth', session, message, part, number", "delta", "grown")})"""
_THESE = "session = $2 AND message = $3"
MOVE_MESSAGE = f"""WITH gone AS (DELETE FROM {{schema}}.message WHERE session = $2 AND id = $3 RETURNING document),
{_MOVE_PARTS % (_THESE, _THESE)}, marks AS (DELETE FROM {{schema}}.entry WHERE {_THESE})
{_SAVE % ("'message', $2::text, $3::text", "document", "gone")} RETURNING {_CHAIN % "$4"}"""
MOVE_PART = f"""WITH {_MOVE_PARTS % (f"{_THESE} AND id = $4", f"{_THESE} AND part = $4")}
SELECT {_CHAIN % "$5"} FROM parts"""
MOVE_ROW = {
    "project": f"""WITH gone AS (DELETE FROM {{schema}}.project WHERE id = $2 RETURNING document)
{_SAVE % ("'project', $2::text", "document", "gone")} RETURNING 1""",
    "session": f"""WITH gone AS (DELETE FROM {{schema}}.session WHERE id = $2 RETURNING document)
{_SAVE % ("'session', $2::text", "document", "gone")} RETURNING 1""",
    "detail": f"""WITH gone AS (DELETE FROM {{schema}}.detail WHERE session = $2 AND kind = $3 RETURNING document)
{_SAVE % ("'detail', $2::text, $3::text", "document", "gone")} RETURNING {_CHAIN % "$4"}""",
}

# Leftovers are removed if they still are leftovers: nobody changed them since $2, and what they belonged to is still gone.
_SESSION_GONE = "NOT EXISTS (SELECT FROM {schema}.session WHERE id = $3)"
_MESSAGE_GONE = """(NOT EXISTS (SELECT FROM {schema}.session WHERE id = $3)
OR NOT EXISTS (SELECT FROM {schema}.message WHERE session = $3 AND id = $4))"""
_UNCHANGED = """NOT EXISTS (SELECT FROM {schema}.%s AS newer
WHERE newer.session = $3 %s AND newer.changed >= to_timestamp($2::double precision / 1000))"""
REMOVE_LEFTOVER = {
    "message": f"""WITH gone AS (DELETE FROM {{schema}}.message
WHERE session = $3 AND {_SESSION_GONE} AND {_UNCHANGED % ("message", "")} RETURNING session, id, document)
{_SAVE % ("'message', session, id", "document", "gone")} RETURNING 1""",
    "part": f"""WITH {
        _MOVE_PARTS
        % (
            f"session = $3 AND message = $4 AND {_MESSAGE_GONE} AND {_UNCHANGED % ('part', 'AND newer.message = $4')}",
            f"session = $3 AND message = $4 AND {_MESSAGE_GONE} AND {_UNCHANGED % ('part', 'AND newer.message = $4')}",
        )
    } SELECT 1 FROM parts""",
    "detail": f"""WITH gone AS (DELETE FROM {{schema}}.detail WHERE session = $3 AND kind = $4 AND {_SESSION_GONE}
AND {_UNCHANGED % ("detail", "AND newer.kind = $4")} RETURNING session, kind, document)
{_SAVE % ("'detail', session, kind", "document", "gone")} RETURNING 1""",
}
REMOVE_GROWTH = """DELETE FROM {schema}.growth WHERE session = $1 AND message = $2 AND part = $3
AND NOT EXISTS (SELECT FROM {schema}.part WHERE session = $1 AND message = $2 AND id = $3) RETURNING 1"""
REMOVE_BACKUP = "DELETE FROM {schema}.backup WHERE name = $1 RETURNING 1"
DROP_INDEX = """WITH entries AS (DELETE FROM {schema}.entry), calls AS (DELETE FROM {schema}.call)
INSERT INTO {schema}.dirty (session, message, revision)
SELECT session, id, $1::bigint FROM {schema}.message UNION ALL SELECT id, '', $1 FROM {schema}.session
ON CONFLICT (session, message) DO UPDATE SET revision = excluded.revision"""
DROP_LEASE = """DELETE FROM {schema}.lease
WHERE session = $1 AND (till IS NULL OR till < clock_timestamp()) RETURNING 1"""
SELECT_HELD = "SELECT 1 FROM {schema}.lease WHERE session = $1"


class LargeRow(NamedTuple):
    """A document whose diffs contain whole files, and the smaller document that replaces it."""

    table: str
    session: str
    id: str
    raw: bytes
    shrunk: bytes
    digest: str

    @property
    def where(self) -> str:
        return f"{self.table}/{self.session}/{self.id}"


async def read_large(documents: PostgresDocuments, on_progress: ProgressCallback) -> list[LargeRow]:
    """Return the documents whose diffs exceed the bounds."""
    found: list[LargeRow] = []
    for number, (table, session, id, raw) in enumerate(
        await documents.database.fetch(SELECT_SUSPECTS, SUSPECT_BYTES)
    ):
        on_progress(number)
        shrunk = _shrink(documents, table, f"{table}/{session}/{id}", raw)
        if shrunk is not None:
            found.append(LargeRow(table, session, id, raw, encode(shrunk), digest_document(shrunk)))
    return found


def _shrink(documents: PostgresDocuments, table: str, where: str, raw: bytes) -> Any:
    """Return the smaller document, None if it is small enough or cannot be read."""
    if table == "message":
        info = documents.decode(where, raw, AnyMessage)
        return None if info is None else shrink_message(info)
    diffs: tuple[FileDiff, ...] | None = documents.decode(where, raw, DETAIL_TYPES[DIFF])
    return None if diffs is None or is_capped(diffs) else cap_diffs(diffs)


class PostgresRepairer:
    """Repairs one store."""

    def __init__(self, reader: PostgresReader, label: str, now: int) -> None:
        self._reader = reader
        self._name = f"{label}-{now}"
        self._now = now
        self._has_backup = False

    @property
    def backup(self) -> str:
        return f"backup/{self._name}" if self._has_backup else ""

    def _change(self, sql: str, *values: Any, saves: bool = True) -> bool:
        """Run a statement that returns a row for each row that it changed. Return False if there was none."""
        given = (self._name, *values) if saves else values
        changed = bool(self._reader.run(lambda documents: documents.database.fetch(sql, *given)))
        self._has_backup = self._has_backup or (changed and saves)
        return changed

    def remove_leftovers(self, leftovers: Iterable[Leftover], *, before: int) -> RemovedLeftovers:
        removed: list[Leftover] = []
        failed: list[LeftoverFailure] = []
        for each in leftovers:
            try:
                if self._remove(each, before):
                    removed.append(each)
            except StoreError as error:
                failed.append(LeftoverFailure(where=each.where, reason=str(error)))
        backup = self.backup if any(each.keeping for each in removed) else ""
        return RemovedLeftovers(removed=tuple(removed), backup=backup, failed=tuple(failed))

    def _remove(self, leftover: Leftover, before: int) -> bool:
        table, *key = leftover.where.split("/")
        match leftover.kind:
            case "message" | "part" | "diff" | "todo":
                return self._change(REMOVE_LEFTOVER[table], float(before), *key)
            case "growth":
                return self._change(REMOVE_GROWTH, *key, saves=False)
            case "lease":
                return self._change(DROP_LEASE, *key, saves=False)
            case "backup":
                return self._change(REMOVE_BACKUP, *key, saves=False)
            case "temp" | "redo" | "lock" | "chain" | "tool-output":
                return False  # a database has none

    def shrink_large(self, *, on_progress: ProgressCallback = lambda _: None) -> list[LargeDocument]:
        shrunk: list[LargeDocument] = []
        for row in self._reader.run(lambda documents: read_large(documents, on_progress)):
            replace = REPLACE_MESSAGE if row.table == "message" else REPLACE_DETAIL
            key = message_key(MessageID(row.id)) if row.table == "message" else row.id
            entry = self._encode(ChainedChanges({key: Change(key, row.digest)}))
            if self._change(replace, row.session, row.id, row.raw, row.shrunk, entry):
                shrunk.append(LargeDocument(where=row.where, bytes=len(row.raw), after=len(row.shrunk)))
        return shrunk

    def finish_write(self, where: str) -> bool:
        del where
        return True  # a database leaves no write unfinished

    def set_aside(self, where: str) -> SetAside | None:
        match where.split("/"):
            case ["session", id]:
                if not self._change(MOVE_ROW["session"], id):
                    return None
                return SetAside(rebuilt_from=self.rebuild_session(SessionID(id)))
            case ["message", session, id]:
                entry = self._encode(make_removal(message_key(MessageID(id))))
                return SetAside(with_parts=True) if self._change(MOVE_MESSAGE, session, id, entry) else None
            case ["part", session, message, id]:
                entry = self._encode(make_removal(part_key(MessageID(message), PartID(id))))
                return SetAside() if self._change(MOVE_PART, session, message, id, entry) else None
            case ["detail", session, kind]:
                entry = self._encode(make_removal(kind))
                return SetAside() if self._change(MOVE_ROW["detail"], session, kind, entry) else None
            case ["project", id]:
                return SetAside() if self._change(MOVE_ROW["project"], id) else None
            case _:
                return None

    def _encode(self, changes: ChainedChanges) -> bytes:
        return encode_entry(changes, now=self._now, repair=True)

    def rebuild_session(self, id: SessionID) -> int | None:
        async def rebuild(documents: PostgresDocuments) -> int | None:
            store = _to_store(documents)
            rows = await documents.database.fetch(
                "SELECT 1 FROM {schema}.session WHERE id = $1", to_ascii(id)
            )
            if rows:
                return None
            messages = await documents.list_messages(id)
            session = rebuild_session(id, messages, await documents.list_projects())
            if session is not None:
                await store.apply(SessionCreated(info=session))
            return len(messages)

        return self._reader.run(rebuild)

    def edit_session(self, id: SessionID, editor: SessionEditor) -> SessionInfo | None:
        if not self._change(SAVE_SESSION, to_ascii(id)):
            return None
        try:
            return self._reader.run(lambda documents: _to_store(documents).edit(id, editor))
        except NotFoundError:
            return None  # removed meanwhile

    def drop_index(self) -> None:
        self._change(DROP_INDEX, make_revision(), saves=False)

    def drop_lease(self, session: SessionID) -> bool:
        self._change(DROP_LEASE, to_ascii(session), saves=False)
        return not self._change(SELECT_HELD, to_ascii(session), saves=False)


def _to_store(documents: PostgresDocuments) -> PostgresStore:
    """Return a store that writes, and takes no leases."""
    database, clock = documents.database, SystemClock()
    return PostgresStore(
        database, LeaseKeeper(database, clock), PostgresLog(database, clock, writer=describe_process())
    )
