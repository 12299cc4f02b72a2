"""Inspect a SQLite store: its size, damage, and what nothing refers to. The `StoreMaintenance` of SQLite."""

import os
import re
from collections.abc import Iterator
from functools import cached_property

from weft.errors import DamagedStoreError, DocumentError, StoreError
from weft.host.now import now
from weft.model.damage import Damage
from weft.model.ids import PER_MS, SessionID, unwrap
from weft.model.session import SessionInfo
from weft.model.wire import decode_many
from weft.store.chain import ChainLines
from weft.store.findings import GC_LABEL, AbandonedLease, DocumentFault, LargeDocument, Leftover
from weft.store.sizes import ProgressCallback, SizeCounter, walk_files
from weft.store.sqlite.connection import SqlRow
from weft.store.sqlite.database import DatabaseFile
from weft.store.sqlite.inventory import SELECT_KINDS, find_damage, iterate_documents, list_large
from weft.store.sqlite.leases import is_alive, list_gone, list_holders, list_leased
from weft.store.sqlite.reader import SqliteReader, to_place
from weft.store.sqlite.repair import SqliteRepairer

BACKUP_RETENTION_MS = 30 * 24 * 60 * 60 * 1000
MAX_FAULTS = 20
KIND_NAMES = {"value": "kept"}

# Messages, diffs and todos whose session has no document, and parts whose message does not exist, with sizes and times.
SELECT_LOST = """SELECT '{kind}', history.session, '', sum(length({kind}.document)), max(history.since, {time})
FROM {kind} JOIN history ON history.number = {kind}.history
WHERE history.bundle IS NULL AND NOT EXISTS (SELECT 1 FROM session WHERE session.id = history.session)
GROUP BY history.number ORDER BY history.session"""
SELECT_LOST_PARTS = """SELECT history.session, part.message, sum(length(part.document)), max(part.id), history.since
FROM part JOIN history ON history.number = part.history
WHERE history.bundle IS NULL
AND NOT EXISTS (SELECT 1 FROM message WHERE message.history = part.history AND message.id = part.message)
GROUP BY part.history, part.message ORDER BY history.session, part.message"""
SELECT_PARTS_OF_LOST = """SELECT sum(length(part.document)) FROM part JOIN history ON history.number = part.history
WHERE history.session = ? AND history.bundle IS NULL"""


class SqliteMaintenance:
    """Inspects one database."""

    def __init__(self, path: str) -> None:
        self._file = DatabaseFile(path)
        self.reader = SqliteReader(self._file)
        self.url = f"sqlite:{self._file.path}"

    def check_format(self) -> None:
        self.is_outdated()

    def is_outdated(self) -> bool:
        if not self._file.exists() or self._damage is not None:
            return False
        [(version,)] = self.reader.rows("PRAGMA user_version")
        return not self._file.check_version(version)

    def upgrade(self) -> None:
        if self._file.exists():
            self._file.prepare()

    @cached_property
    def _damage(self) -> DamagedStoreError | None:
        """Why nothing in the file can be read; None if something can."""
        try:
            self.reader.rows("SELECT count(*) FROM sqlite_master")
        except DamagedStoreError as error:
            return error
        return None

    @cached_property
    def _ids(self) -> dict[str, None]:
        rows = [] if self._damage else self.reader.rows("SELECT id FROM session ORDER BY id")
        return dict.fromkeys(id for (id,) in rows)

    def list_session_ids(self) -> list[SessionID]:
        return [SessionID(id) for id in self._ids]

    def has_session(self, id: str) -> bool:
        return id in self._ids

    def measure(self, counter: SizeCounter) -> None:
        files = self._file.list_files()
        total = sum(os.stat(path).st_size for path in files)
        documents = 0
        for batch in () if self._damage else iterate_documents(self.reader, *SELECT_KINDS):
            for each in batch:
                counter.add(
                    len(each.document),
                    kind=KIND_NAMES.get(each.kind, each.kind),
                    project=each.project,
                    session=each.session if each.session in self._ids else "",
                )
                documents += len(each.document)
        if files:
            # Keys, indexes, and space that was freed and not given back yet.
            counter.add(max(0, total - documents), kind="index")
        for kind, place in (("backups", self._file.backups), ("housekeeping", self._file.locks)):
            for file in walk_files(place):
                counter.add(file.size, kind=kind)

    def find_damage(self) -> list[DocumentFault]:
        if self._damage is not None:
            return [DocumentFault(kind="unreadable", where=self._file.path, reason=self._damage.reason)]
        try:
            found = [reason for (reason,) in self.reader.rows(f"PRAGMA integrity_check({MAX_FAULTS})")]
        except DamagedStoreError as error:
            found = [error.reason]
        if found not in ([], ["ok"]):
            return [
                DocumentFault(kind="unreadable", where=self._file.path, reason="; ".join(map(str, found)))
            ]
        return [
            DocumentFault(kind="unreadable", where=damage.where, reason=damage.reason)
            for damage in find_damage(self.reader)
        ]

    def find_misplaced(self, session: SessionID) -> list[DocumentFault]:
        del session
        return []  # a row is found by its key alone

    def list_chains(self) -> list[SessionID]:
        sql = """SELECT session FROM history WHERE bundle IS NULL
        AND EXISTS (
            SELECT 1 FROM chain WHERE chain.number > history.number << 32 AND chain.number < (history.number + 1) << 32
        ) ORDER BY session"""
        return [SessionID(id) for (id,) in self.reader.rows(sql)] if self._has_chains else []

    def read_chain(self, session: SessionID) -> ChainLines:
        return self.reader.read_chain(session) if self._has_chains else ChainLines([])

    @cached_property
    def _has_chains(self) -> bool:
        return self._damage is None and not self.is_outdated()

    def find_orphans(self) -> list[DocumentFault]:
        names = {"message": "messages", "diff": "diff", "todo": "todos"}
        orphans = [
            (session, f"its session is gone, but its {names[kind]} exist")
            for kind, session, _, _, _ in self._list_lost()
        ]
        orphans += [
            (message, "the message is gone, but its parts exist")
            for _, message, _, _, _ in self._list_lost_parts()
        ]
        return [DocumentFault(kind="orphan", where=where, reason=reason) for where, reason in orphans]

    def find_leftovers(self, *, before: int) -> list[Leftover]:
        return [
            *self._find_lost_records(before),
            *self._find_lost_parts(before),
            *self._find_unfinished(before),
            *self._find_holders(before),
            *self._find_backups(before),
        ]

    def _list_lost(self) -> list[SqlRow]:
        if self._damage:
            return []
        times = {"message": "max(message.created)", "diff": "0", "todo": "0"}
        return [
            row
            for kind, time in times.items()
            for row in self.reader.rows(SELECT_LOST.format(kind=kind, time=time))
        ]

    def _list_lost_parts(self) -> list[SqlRow]:
        return [] if self._damage else self.reader.rows(SELECT_LOST_PARTS)

    def _find_lost_records(self, before: int) -> Iterator[Leftover]:
        for kind, session, _, size, changed in self._list_lost():
            if changed >= before:
                continue
            reason = f"its session {session} is gone"
            place = to_place(self._file.path, kind, session)
            yield Leftover(kind=kind, where=place, reason=reason, bytes=size, session=session, keeping=True)
            if kind == "message":
                [(parts,)] = self.reader.rows(SELECT_PARTS_OF_LOST, session)
                yield Leftover(
                    kind="part",
                    where=to_place(self._file.path, "part", session),
                    reason=reason,
                    bytes=parts or 0,
                    session=session,
                    keeping=True,
                )

    def _find_lost_parts(self, before: int) -> Iterator[Leftover]:
        for session, message, size, newest, since in self._list_lost_parts():
            # A part has no time of its own, but its id has.
            if max(unwrap(newest, now()) // PER_MS, since) < before:
                yield Leftover(
                    kind="part",
                    where=to_place(self._file.path, "part", f"{session}/{message}"),
                    reason=f"its message {message} is gone",
                    bytes=size,
                    session=session,
                    message=message,
                    keeping=True,
                )

    def _find_unfinished(self, before: int) -> Iterator[Leftover]:
        path = f"{self._file.path}-new"
        if os.path.exists(path) and _get_time(path) < before:
            yield Leftover(
                kind="temp",
                where=path,
                reason="a process ended while it created the database",
                bytes=os.stat(path).st_size,
            )

    def _find_holders(self, before: int) -> Iterator[Leftover]:
        for name in list_holders(self._file.locks):
            path = f"{self._file.locks}/{name}"
            if not is_alive(self._file.locks, name) and _get_time(path) < before:
                yield Leftover(
                    kind="lock", where=path, reason="its process ended", bytes=os.stat(path).st_size
                )

    def _find_backups(self, before: int) -> Iterator[Leftover]:
        """Yield backups of earlier garbage collections that are old enough to go."""
        try:
            names = sorted(os.listdir(self._file.backups))
        except FileNotFoundError:
            return
        for name in names:
            label, _, at = name.partition("-")
            if label == GC_LABEL and at.isdecimal() and int(at) < before - BACKUP_RETENTION_MS:
                path = f"{self._file.backups}/{name}"
                yield Leftover(
                    kind="backup",
                    where=path,
                    reason="collected more than a month ago",
                    bytes=sum(file.size for file in walk_files(path)),
                )

    def find_large(self, *, on_progress: ProgressCallback = lambda _: None) -> list[LargeDocument]:
        return [
            LargeDocument(where=to_place(self._file.path, each.kind, each.id), bytes=len(each.document))
            for each, _ in ([] if self._damage else list_large(self.reader, on_progress))
        ]

    def find_in_parts(self, pattern: str, *, on_progress: ProgressCallback = lambda _: None) -> set[str]:
        if self._damage:
            raise StoreError(str(self._damage), hint=self._damage.hint)
        matcher, found, seen = re.compile(pattern.encode()), set[str](), 0
        for documents in iterate_documents(self.reader, "part"):
            for each in documents:
                found.update(match.group().decode() for match in matcher.finditer(each.document))
            seen += len(documents)
            on_progress(seen)
        for (delta,) in self.reader.rows("SELECT delta FROM growth"):
            found.update(match.group().decode() for match in matcher.finditer(delta))
        return found

    def list_abandoned(self) -> list[AbandonedLease]:
        if self._damage:
            return []
        with self.reader.reading() as connection:
            abandoned = list_leased(connection, self._file.locks, alive=False)
            gone = set(list_gone(connection, abandoned))
        return [
            AbandonedLease(session=id, where=to_place(self._file.path, "lease", id), is_orphan=id in gone)
            for id in abandoned
        ]

    def list_broken_bundles(self) -> list[str]:
        if self._damage:
            return []
        rows = self.reader.rows("SELECT bundle, document FROM trashed_session")
        sessions = decode_many([document for _, document in rows], SessionInfo)
        broken = {id for (id, _), each in zip(rows, sessions, strict=True) if isinstance(each, DocumentError)}
        return [to_place(self._file.path, "bundle", id) for id in sorted(broken)]

    def check_index(self) -> Damage | None:
        if not self._file.exists() or self._damage is not None:
            return None
        try:
            self.reader.rows("SELECT rowid FROM words WHERE words MATCH 'a' LIMIT 1")
        except StoreError as error:
            return Damage(where=f"{self._file.path}: words", reason=str(error))
        return None

    def find_better_store(self) -> str:
        return ""

    def make_repairer(self, label: str, *, now: int) -> SqliteRepairer:
        return SqliteRepairer(self._file, label, now)


def _get_time(path: str) -> int:
    return int(os.stat(path).st_mtime * 1000)
