"""Maintenance of a Postgres store: the `StoreMaintenance` of a database.

A place is the name of a table and the key of a row in it: `message/ses_1/msg_1`.
"""

import re
from collections.abc import AsyncIterator, Iterator
from functools import cached_property
from typing import Any

from weft.model.damage import Damage
from weft.model.ids import MessageID, SessionID
from weft.model.wire import encode
from weft.store.chain import ChainLines
from weft.store.findings import GC_LABEL, AbandonedLease, DocumentFault, LargeDocument, Leftover
from weft.store.postgres.documents import DOCUMENT_TABLES, PostgresDocuments
from weft.store.postgres.migration import find_version, get_newest_version
from weft.store.postgres.reader import PostgresReader, require_schema, upgrade_schema
from weft.store.postgres.repair import PostgresRepairer, read_large
from weft.store.sizes import ProgressCallback, SizeCounter

DAY_MS = 24 * 60 * 60 * 1000
BACKUP_RETENTION_MS = 30 * DAY_MS
# Times beyond this one are too late for Postgres.
MAX_TIME_MS = 1 << 52

# For each kind: the table, the expression for the size of a row, and the column of the session that it belongs to, "" for none.
_SIZES: dict[str, tuple[str, str, str]] = {
    "project": ("project", "pg_column_size(document)", ""),
    "session": ("session", "pg_column_size(document)", "id"),
    "message": ("message", "pg_column_size(document)", "session"),
    "part": ("part", "pg_column_size(document)", "session"),
    "growth": ("growth", "pg_column_size(delta)", "session"),
    "diff": ("detail WHERE kind = 'diff'", "pg_column_size(document)", "session"),
    "todo": ("detail WHERE kind = 'todo'", "pg_column_size(document)", "session"),
    "kept": ("value", "pg_column_size(document)", ""),
    "log": ("log_line", "pg_column_size(line)", ""),
    "chain": ("chain", "pg_column_size(body) + pg_column_size(hash)", "session"),
    "index": ("entry", "pg_column_size(words)", "session"),
    "backups": ("backup", "pg_column_size(document)", ""),
    "trash": (
        """(SELECT document FROM {schema}.bundle UNION ALL SELECT document FROM {schema}.trashed_session
UNION ALL SELECT document FROM {schema}.trashed_message UNION ALL SELECT document FROM {schema}.trashed_part
UNION ALL SELECT delta FROM {schema}.trashed_growth UNION ALL SELECT document FROM {schema}.trashed_detail) AS trashed""",
        "pg_column_size(document)",
        "",
    ),
}
# The rest of all tables: their own indexes, keys, headers of rows, and free space.
OVERHEAD = "overhead"
SELECT_TOTAL = """SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
WHERE relnamespace = to_regnamespace($1) AND relkind = 'r'"""

_NO_SESSION = "NOT EXISTS (SELECT FROM {schema}.session WHERE session.id = %s.session)"
_NO_MESSAGE = """NOT EXISTS (SELECT FROM {schema}.message
WHERE message.session = %s.session AND message.id = %s.message)"""
_OLD = "HAVING max(changed) < to_timestamp($1::double precision / 1000)"

SELECT_LOST_MESSAGES = f"""SELECT session, sum(pg_column_size(document)) FROM {{schema}}.message
WHERE {_NO_SESSION % "message"} GROUP BY session {_OLD} ORDER BY session"""
SELECT_LOST_PARTS = f"""SELECT session, message, sum(pg_column_size(document)),
{_NO_MESSAGE % ("part", "part")}
FROM {{schema}}.part WHERE {_NO_SESSION % "part"} OR {_NO_MESSAGE % ("part", "part")}
GROUP BY session, message {_OLD} ORDER BY session, message"""
SELECT_LOST_DETAILS = f"""SELECT session, kind, sum(pg_column_size(document)) FROM {{schema}}.detail
WHERE {_NO_SESSION % "detail"} GROUP BY session, kind {_OLD} ORDER BY kind, session"""
SELECT_LOST_GROWTH = f"""SELECT session, message, part, sum(pg_column_size(delta)) FROM {{schema}}.growth
WHERE NOT EXISTS (SELECT FROM {{schema}}.part
WHERE part.session = growth.session AND part.message = growth.message AND part.id = growth.part)
GROUP BY session, message, part {_OLD} ORDER BY session, message, part"""
SELECT_LOST_LEASES = f"""SELECT session, pg_column_size(lease.*) FROM {{schema}}.lease
WHERE (till IS NULL OR till < clock_timestamp()) AND changed < to_timestamp($1::double precision / 1000)
AND {_NO_SESSION % "lease"} AND NOT EXISTS (SELECT FROM {{schema}}.message WHERE message.session = lease.session)
ORDER BY session"""
SELECT_BACKUPS = (
    """SELECT name, sum(pg_column_size(document)) FROM {schema}.backup GROUP BY name ORDER BY name"""
)

SELECT_ORPHANS = f"""SELECT DISTINCT 1, session, 'its session is gone, but its messages exist'
FROM {{schema}}.message WHERE {_NO_SESSION % "message"}
UNION ALL SELECT 2, session, 'its session is gone, but its ' || kind || ' exists'
FROM {{schema}}.detail WHERE {_NO_SESSION % "detail"}
UNION ALL SELECT DISTINCT 3, message, 'the message is gone, but its parts exist'
FROM {{schema}}.part WHERE {_NO_MESSAGE % ("part", "part")}
ORDER BY 1, 2, 3"""
SELECT_ABANDONED_LEASES = f"""SELECT session, {_NO_SESSION % "lease"}
AND NOT EXISTS (SELECT FROM {{schema}}.message WHERE message.session = lease.session)
FROM {{schema}}.lease WHERE till < clock_timestamp() ORDER BY session"""
SELECT_GROWN = "SELECT DISTINCT session, message, part FROM {schema}.growth"
SELECT_UNLABELLED = """SELECT DISTINCT bundle FROM {schema}.trashed_session
WHERE NOT EXISTS (SELECT FROM {schema}.bundle WHERE id = trashed_session.bundle) ORDER BY 1"""


class PostgresMaintenance:
    """Inspects one store."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.reader = PostgresReader(url, prepare=require_schema)

    @cached_property
    def _session_ids(self) -> dict[str, None]:
        rows = self._fetch("SELECT id FROM {schema}.session ORDER BY id")
        return dict.fromkeys(id for (id,) in rows)

    def _fetch(self, sql: str, *values: Any) -> list[Any]:
        return self.reader.run(lambda documents: documents.database.fetch(sql, *values))

    def check_format(self) -> None:
        self.reader.run(lambda documents: find_version(documents.database))

    def is_outdated(self) -> bool:
        version = self.reader.run(lambda documents: find_version(documents.database))
        return version is not None and version < get_newest_version()

    def upgrade(self) -> None:
        upgrading = PostgresReader(self.url, prepare=upgrade_schema)
        try:
            upgrading.list_running()
        finally:
            upgrading.close()

    def list_session_ids(self) -> list[SessionID]:
        return [SessionID(id) for id in self._session_ids]

    def has_session(self, id: str) -> bool:
        return id in self._session_ids

    def measure(self, counter: SizeCounter) -> None:
        counted = 0
        for kind, (table, size, owner) in _SIZES.items():
            for session, project, bytes, rows in self._fetch(_to_size_query(table, size, owner)):
                belongs = project or (session if kind == "project" else "")
                name = "" if kind == "project" else session
                counter.add(bytes, kind=kind, project=belongs or "", session=name or "", files=rows)
                counted += bytes
        [(total,)] = self._fetch(SELECT_TOTAL, self.reader.schema)
        counter.add(max(0, total - counted), kind=OVERHEAD)

    def find_damage(self) -> list[DocumentFault]:
        found = self.reader.run(lambda documents: documents.damage())
        return [DocumentFault(kind="unreadable", where=each.where, reason=each.reason) for each in found]

    def find_misplaced(self, session: SessionID) -> list[DocumentFault]:
        del session
        return []  # rows are found by their keys, which are written with the document

    def list_chains(self) -> list[SessionID]:
        if self.is_outdated():
            return []
        rows = self._fetch("SELECT DISTINCT session FROM {schema}.chain ORDER BY 1")
        return [SessionID(id) for (id,) in rows]

    def read_chain(self, session: SessionID) -> ChainLines:
        if self.is_outdated():
            return ChainLines([])
        return self.reader.run(lambda documents: documents.read_chain(session))

    def find_orphans(self) -> list[DocumentFault]:
        return [
            DocumentFault(kind="orphan", where=where, reason=reason)
            for _, where, reason in self._fetch(SELECT_ORPHANS)
        ]

    def find_leftovers(self, *, before: int) -> list[Leftover]:
        at = min(before, MAX_TIME_MS)
        return [
            *(
                Leftover(
                    kind="message",
                    where=f"message/{session}",
                    reason=_gone_session(session),
                    bytes=bytes,
                    session=session,
                    keeping=True,
                )
                for session, bytes in self._fetch(SELECT_LOST_MESSAGES, at)
            ),
            *(_to_lost_parts(*row) for row in self._fetch(SELECT_LOST_PARTS, at)),
            *(
                Leftover(
                    kind="diff" if kind == "diff" else "todo",
                    where=f"detail/{session}/{kind}",
                    reason=_gone_session(session),
                    bytes=bytes,
                    session=session,
                    keeping=True,
                )
                for session, kind, bytes in self._fetch(SELECT_LOST_DETAILS, at)
            ),
            *(
                Leftover(
                    kind="growth",
                    where=f"growth/{session}/{message}/{part}",
                    reason="the part it belongs to is gone",
                    bytes=bytes,
                    session=session,
                )
                for session, message, part, bytes in self._fetch(SELECT_LOST_GROWTH, at)
            ),
            *(
                Leftover(kind="lease", where=f"lease/{session}", reason=_gone_session(session), bytes=bytes)
                for session, bytes in self._fetch(SELECT_LOST_LEASES, at)
            ),
            *_list_old_backups(self._fetch(SELECT_BACKUPS), before),
        ]

    def find_large(self, *, on_progress: ProgressCallback = lambda _: None) -> list[LargeDocument]:
        large = self.reader.run(lambda documents: read_large(documents, on_progress))
        return [LargeDocument(where=each.where, bytes=len(each.raw)) for each in large]

    def find_in_parts(self, pattern: str, *, on_progress: ProgressCallback = lambda _: None) -> set[str]:
        matcher = re.compile(pattern.encode())

        async def search(documents: PostgresDocuments) -> set[str]:
            found: set[str] = set()
            number = 0
            async for raw in _read_parts(documents):
                found.update(match.group().decode() for match in matcher.finditer(raw))
                number += 1
            on_progress(number)
            return found

        return self.reader.run(search)

    def list_abandoned(self) -> list[AbandonedLease]:
        return [
            AbandonedLease(session=SessionID(session), where=f"lease/{session}", is_orphan=is_orphan)
            for session, is_orphan in self._fetch(SELECT_ABANDONED_LEASES)
        ]

    def list_broken_bundles(self) -> list[str]:
        known = {bundle.id for bundle in self.reader.list_trash()}
        labelled = (id for (id,) in self._fetch("SELECT id FROM {schema}.bundle ORDER BY id"))
        names = [
            *(id for id in labelled if id not in known),
            *(id for (id,) in self._fetch(SELECT_UNLABELLED)),
        ]
        return [f"bundle/{name}" for name in names]

    def check_index(self) -> Damage | None:
        return None  # the database keeps it in order

    def find_better_store(self) -> str:
        return ""

    def make_repairer(self, label: str, *, now: int) -> PostgresRepairer:
        return PostgresRepairer(self.reader, label, now)


def _to_size_query(table: str, size: str, owner: str) -> str:
    """Return a query for session, project, bytes and number of rows. Rows of a session that does not exist belong to none."""
    if not owner:
        name = "id" if table == "project" else "''"
        return f"""SELECT {name}, NULL, coalesce(sum({size}), 0)::bigint, count(*)
FROM {table if table.startswith("(") else f"{{schema}}.{table}"} GROUP BY 1"""
    return f"""SELECT session.id, session.project, sum(rows.bytes)::bigint, sum(rows.rows)::bigint
FROM (SELECT {owner} AS owner, sum({size}) AS bytes, count(*) AS rows FROM {{schema}}.{table} GROUP BY 1) AS rows
LEFT JOIN {{schema}}.session ON session.id = rows.owner GROUP BY 1, 2"""


def _gone_session(session: str) -> str:
    return f"its session {session} is gone"


def _to_lost_parts(session: str, message: str, bytes: int, is_message_gone: bool) -> Leftover:
    return Leftover(
        kind="part",
        where=f"part/{session}/{message}",
        reason=f"its message {message} is gone" if is_message_gone else _gone_session(session),
        bytes=bytes,
        session=session,
        message=message if is_message_gone else "",
        keeping=True,
    )


def _list_old_backups(rows: list[Any], before: int) -> Iterator[Leftover]:
    for name, bytes in rows:
        label, _, at = name.partition("-")
        if label == GC_LABEL and at.isdecimal() and int(at) < before - BACKUP_RETENTION_MS:
            yield Leftover(
                kind="backup", where=f"backup/{name}", reason="collected more than a month ago", bytes=bytes
            )


async def _read_parts(documents: PostgresDocuments) -> AsyncIterator[bytes]:
    """Yield the document of every part. One that has grown comes a second time, with its growth."""
    async for rows in documents.read_table("part", DOCUMENT_TABLES["part"][1]):
        for row in rows:
            yield row[-1]
    grown = {(session, message) for session, message, _ in await documents.database.fetch(SELECT_GROWN)}
    for session, message in sorted(grown):
        found = await documents.find_message(SessionID(session), MessageID(message))
        for part in found.parts if found is not None else ():
            yield encode(part)
