"""Repair a SQLite store, and back up first what a repair replaces. The `StoreRepairer` of SQLite."""

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import apsw

from weft.errors import DocumentError, StoreError
from weft.host.files import Disk, hold_lock, is_locked, write_atomic
from weft.model.ids import ProjectID, SessionID
from weft.model.project import Project
from weft.model.session import SessionInfo
from weft.model.wire import decode, decode_many, encode
from weft.store.chain import SESSION_KEY, ChainedChanges, Change, digest_document, make_removal
from weft.store.contract import SessionEditor
from weft.store.findings import LargeDocument, Leftover, LeftoverFailure, RemovedLeftovers, SetAside
from weft.store.repair_documents import rebuild_session
from weft.store.rows import to_session_row
from weft.store.sizes import ProgressCallback
from weft.store.sqlite.connection import (
    SqlRow,
    connect,
    select,
    translate_errors,
    write_transaction,
)
from weft.store.sqlite.database import DatabaseFile, remove_database
from weft.store.sqlite.events import MARK_STALE, EventWriter, find_history
from weft.store.sqlite.inventory import TYPES, list_large, shrink_document
from weft.store.sqlite.leases import drop_dead_lease, is_alive, list_holders
from weft.store.sqlite.messages import build_messages, select_messages
from weft.store.sqlite.reader import SqliteReader, to_place

# The tables that are copied from a damaged database. The rest is derived from them.
SALVAGED = (
    "project", "session", "history", "message", "part", "growth", "diff", "todo", "chain", "bundle", "trashed_session",
    "value", "log", "log_line",
)  # fmt: skip


class SqliteRepairer:
    """Repairs one database. Documents are saved as files next to it first, in a directory named by `label` and `now` (ms)."""

    def __init__(self, file: DatabaseFile, label: str, now: int) -> None:
        self._file = file
        self._now = now
        self._directory = f"{file.backups}/{label}-{now}"

    @property
    def backup(self) -> str:
        return self._directory if os.path.isdir(self._directory) else ""

    # --- leftovers ---

    def remove_leftovers(self, leftovers: Iterable[Leftover], *, before: int) -> RemovedLeftovers:
        """Remove leftovers, and give freed space back to the system."""
        removed: list[Leftover] = []
        failed: list[LeftoverFailure] = []
        for each in leftovers:
            try:
                if self._remove(each, before):
                    removed.append(each)
            except StoreError as error:
                failed.append(LeftoverFailure(where=each.where, reason=str(error)))
            except OSError as error:
                failed.append(LeftoverFailure(where=each.where, reason=error.strerror or str(error)))
        if self._file.exists():
            self._give_back_space()
        kept = any(each.keeping for each in removed)
        return RemovedLeftovers(
            removed=tuple(removed), backup=self._directory if kept else "", failed=tuple(failed)
        )

    def _remove(self, leftover: Leftover, before: int) -> bool:
        """Remove a leftover. Return False if it is in use after all."""
        match leftover.kind:
            case "message" | "part" | "diff" | "todo":
                with self._writing() as connection:
                    return self._remove_rows(connection, leftover, before)
            case "lock":
                if is_locked(leftover.where):
                    return False
                os.unlink(leftover.where)
                return True
            case "temp":
                return self.finish_write(leftover.where)
            case "backup":
                Disk().remove(leftover.where)
                return True
            case "growth" | "redo" | "lease" | "chain" | "tool-output":
                return False  # a database has none

    def _remove_rows(self, connection: apsw.Connection, leftover: Leftover, before: int) -> bool:
        history = find_history(connection, leftover.session)
        if history is None or _is_in_use(connection, history, leftover, before):
            return False
        condition, values = "history = ?", list[Any]([history])
        if leftover.message:
            condition, values = "history = ? AND message = ?", [history, leftover.message]
        for id, document in _select_documents(connection, leftover.kind, condition, values):
            self._save(leftover.kind, f"{leftover.session}{id}", document)
        if leftover.kind == "part":
            connection.execute(
                f"DELETE FROM growth WHERE part IN (SELECT number FROM part WHERE {condition})", values
            )
        connection.execute(f"DELETE FROM {leftover.kind} WHERE {condition}", values)
        _drop_empty_history(connection, history)
        return True

    def _give_back_space(self) -> None:
        connection = self._file.connect_for_writing()
        try:
            with translate_errors(self._file.path, connection):
                select(connection, "PRAGMA incremental_vacuum")
                select(connection, "PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            connection.close()

    def finish_write(self, where: str) -> bool:
        if where == f"{self._file.path}-new":
            with hold_lock(f"{self._file.locks}/create"):  # whoever creates the database holds it
                remove_database(where)
        return not os.path.lexists(where)

    # --- single documents ---

    def shrink_large(self, *, on_progress: ProgressCallback = lambda _: None) -> list[LargeDocument]:
        reader = SqliteReader(self._file)
        try:
            places = [large for large, _ in list_large(reader, on_progress)]
        finally:
            reader.close()
        shrunk: list[LargeDocument] = []
        for each in places:
            with self._writing() as connection:
                history = find_history(connection, each.session)
                condition, values = "history = ?", list[Any]([history])
                if each.kind == "message":
                    condition, values = "history = ? AND id = ?", [history, each.id.rpartition("/")[2]]
                for _, document in _select_documents(connection, each.kind, condition, values):
                    small = shrink_document(each._replace(document=document))
                    if small is not None:
                        self._save(each.kind, each.id, document)
                        connection.execute(
                            f"UPDATE {each.kind} SET document = ? WHERE {condition}", [small, *values]
                        )
                        key = f"message/{values[-1]}" if each.kind == "message" else each.kind
                        change = Change(key, digest_document(decode(small, TYPES[each.kind])))
                        EventWriter(connection, self._now).extend_chain(
                            SessionID(each.session), ChainedChanges({key: change}), repair=True
                        )
                        where = to_place(self._file.path, each.kind, each.id)
                        shrunk.append(LargeDocument(where=where, bytes=len(document), after=len(small)))
        return shrunk

    def set_aside(self, where: str) -> SetAside | None:
        if where == self._file.path:
            return self._set_database_aside()
        kind, _, id = where.removeprefix(f"{self._file.path}#").partition("/")
        match kind, id.split("/"):
            case "session", [session]:
                with self._writing() as connection:
                    return self._set_session_aside(connection, SessionID(session))
            case "message", [session, message]:
                with self._writing() as connection:
                    saved = self._set_rows_aside(connection, "message", session, "id = ?", message)
                    self._set_rows_aside(connection, "part", session, "message = ?", message)
                    return SetAside(with_parts=True) if saved else None
            case "part", [session, message, part]:
                with self._writing() as connection:
                    saved = self._set_rows_aside(
                        connection, "part", session, "message = ? AND id = ?", message, part
                    )
                    connection.execute(MARK_STALE, (find_history(connection, session), message))
                    return SetAside() if saved else None
            case "diff" | "todo", [session]:
                with self._writing() as connection:
                    return SetAside() if self._set_rows_aside(connection, kind, session, "true") else None
            case "project", [project]:
                with self._writing() as connection:
                    return self._set_row_aside(connection, "project", "id", project, project)
            case "value", words:
                key = "".join(f"{word}\x00" for word in words).encode()
                with self._writing() as connection:
                    return self._set_row_aside(connection, "value", "key", key, id)
            case _:
                return None

    def _set_session_aside(self, connection: apsw.Connection, id: SessionID) -> SetAside | None:
        rows = select(connection, "SELECT project, document FROM session WHERE id = ?", (id,))
        if not rows or _is_readable(rows[0][1]):
            return None
        project, document = rows[0]
        self._save("session", id, document)
        connection.execute("DELETE FROM session WHERE id = ?", (id,))
        return SetAside(rebuilt_from=self._rebuild(connection, id, ProjectID(project)))

    def _set_rows_aside(
        self, connection: apsw.Connection, kind: str, session: str, condition: str, *values: str
    ) -> bool:
        """Save and delete rows of a session. Return False if there are none."""
        history = find_history(connection, session)
        condition, bound = f"history = ? AND {condition}", [history, *values]
        found = _select_documents(connection, kind, condition, bound)
        for id, document in found:
            self._save(kind, f"{session}{id}", document)
        connection.execute(f"DELETE FROM {kind} WHERE {condition}", bound)
        if found:
            removed = make_removal(*(f"{kind}{id}" for id, _ in found))
            EventWriter(connection, self._now).extend_chain(SessionID(session), removed, repair=True)
        return bool(found)

    def _set_row_aside(
        self, connection: apsw.Connection, table: str, column: str, key: str | bytes, id: str
    ) -> SetAside | None:
        rows = select(connection, f"SELECT document FROM {table} WHERE {column} = ?", (key,))
        for (document,) in rows:
            self._save(table, id, document)
        connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (key,))
        return SetAside() if rows else None

    def rebuild_session(self, id: SessionID) -> int | None:
        with self._writing() as connection:
            if select(connection, "SELECT 1 FROM session WHERE id = ?", (id,)):
                return None
            return self._rebuild(connection, id)

    def _rebuild(self, connection: apsw.Connection, id: SessionID, project: ProjectID | None = None) -> int:
        rows = select_messages(connection, id, last=None, before=None)
        messages = build_messages(id, rows, lambda _kind, _id, _error: None)
        documents = [document for (document,) in select(connection, "SELECT document FROM project")]
        projects = [each for each in decode_many(documents, Project) if isinstance(each, Project)]
        session = rebuild_session(id, messages, projects, project=project)
        if session is not None:
            _put_session(connection, session, self._now)
        return len(messages)

    def edit_session(self, id: SessionID, editor: SessionEditor) -> SessionInfo | None:
        with self._writing() as connection:
            for (document,) in select(connection, "SELECT document FROM session WHERE id = ?", (id,)):
                edited = editor(decode(document, SessionInfo, where=to_place(self._file.path, "session", id)))
                self._save("session", id, document)
                _put_session(connection, edited, self._now)
                return edited
        return None

    def drop_index(self) -> None:
        with self._writing() as connection:
            connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
            connection.execute("DELETE FROM usage")
            connection.execute("DELETE FROM call")
            connection.execute("DELETE FROM stale_message")
            connection.execute("UPDATE indexed SET upto = 0")
            connection.execute("INSERT OR IGNORE INTO stale_title SELECT number FROM session")

    def drop_lease(self, session: SessionID) -> bool:
        with self._writing() as connection:
            return drop_dead_lease(connection, self._file.locks, session)

    # --- the whole file ---

    def _set_database_aside(self) -> SetAside:
        """Move the damaged file aside, and copy what can still be read into a new one.

        Raise `StoreError` if a living process uses the file: it would go on writing where nobody reads.
        """
        if any(is_alive(self._file.locks, name) for name in list_holders(self._file.locks)):
            raise StoreError(
                f"a running process uses {self._file.path}", hint="end every weft that uses this store first"
            )
        with translate_errors(self._file.path):
            aside = self._file.move_aside(self._now)
        self._file.prepare()
        new = self._file.connect_for_writing()
        try:
            with translate_errors(self._file.path, new), _open_damaged(aside) as old:
                if old is not None:
                    for table in SALVAGED:
                        with write_transaction(new):
                            _salvage_table(old, new, table)
                [(sessions,)] = select(new, "SELECT count(*) FROM session")
        finally:
            new.close()
        return SetAside(place=aside, salvaged=sessions)

    # --- writing ---

    @contextmanager
    def _writing(self) -> Generator[apsw.Connection]:
        """Yield a connection with the write lock. What is done with it takes effect at the end, all or nothing."""
        connection = self._file.connect_for_writing()
        try:
            with translate_errors(self._file.path, connection), write_transaction(connection):
                yield connection
        finally:
            connection.close()

    def _save(self, kind: str, id: str, document: bytes) -> None:
        """Save a document in the backup, on the disk itself."""
        path, number = f"{self._directory}/{kind}/{id}", 0
        while os.path.lexists(f"{path}~{number}.json" if number else f"{path}.json"):
            number += 1
        target = f"{path}~{number}.json" if number else f"{path}.json"
        write_atomic(target, document, temp=f"{target}.temp", flush=True)


def _put_session(connection: apsw.Connection, session: SessionInfo, now: int) -> None:
    writer, key = EventWriter(connection, now), SESSION_KEY
    writer.put_session(to_session_row(session, encode(session)))
    changes = ChainedChanges({key: Change(key, digest_document(session))})
    writer.extend_chain(session.id, changes, repair=True)


def _is_readable(document: bytes) -> bool:
    try:
        decode(document, SessionInfo)
    except DocumentError:
        return False
    return True


def _is_in_use(connection: apsw.Connection, history: int, leftover: Leftover, before: int) -> bool:
    """Return True if the owner of the leftover exists again, or a message came since `before` (ms)."""
    if leftover.message:
        sql = "SELECT 1 FROM message WHERE history = ? AND id = ?"
        return bool(select(connection, sql, (history, leftover.message)))
    sql = "SELECT 1 FROM session WHERE id = ? UNION ALL SELECT 1 FROM message WHERE history = ? AND created >= ?"
    return bool(select(connection, sql, (leftover.session, history, before)))


def _select_documents(
    connection: apsw.Connection, kind: str, condition: str, values: Sequence[Any]
) -> list[SqlRow]:
    """Return the rest of the id after the session, and the document, of rows of a kind."""
    id = {"message": "'/' || id", "part": "'/' || message || '/' || id"}.get(kind, "''")
    return select(connection, f"SELECT {id}, document FROM {kind} WHERE {condition}", values)


def _drop_empty_history(connection: apsw.Connection, history: int) -> None:
    tables = ("message", "part", "diff", "todo")
    if not any(
        select(connection, f"SELECT 1 FROM {t} WHERE history = ? LIMIT 1", (history,)) for t in tables
    ):
        EventWriter(connection, 0).delete_history(history)


@contextmanager
def _open_damaged(path: str) -> Generator[apsw.Connection | None]:
    """Open a damaged database to read what is left of it. Yield None if that is nothing."""
    connection: apsw.Connection | None = None
    with suppress(apsw.Error):
        connection = connect(path, writes=True)
        # Without the first setting, SQLite reads nothing of a file that was cut off. Other settings would already read something.
        select(connection, "PRAGMA writable_schema = ON")
        select(connection, "PRAGMA query_only = ON")
        select(connection, "SELECT count(*) FROM sqlite_master")
    try:
        yield connection
    finally:
        if connection is not None:
            connection.close()


def _salvage_table(old: apsw.Connection, new: apsw.Connection, table: str) -> None:
    """Copy the rows of a table from its beginning up to the damage, and from its end back to it."""
    columns = [name for _, name, *_ in select(new, f"PRAGMA table_info({table})")]
    names = ", ".join(dict.fromkeys(["rowid", *columns]))
    marks = ", ".join("?" for _ in names.split(", "))
    insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})"
    for order in ("", " DESC"):
        rows = _read_until_damage(old, f"SELECT {names} FROM {table} NOT INDEXED ORDER BY rowid{order}")
        new.executemany(insert, rows)


def _read_until_damage(connection: apsw.Connection, sql: str) -> Iterator[SqlRow]:
    with suppress(apsw.Error):
        yield from connection.execute(sql)
