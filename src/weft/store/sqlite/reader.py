"""Read a SQLite store without an event loop: the `StoreReader` of SQLite."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import apsw

from weft.errors import DocumentError, InvalidInputError, NotFoundError, UnreadableError
from weft.model.damage import Damage
from weft.model.ids import MessageID, ProjectID, SessionID, check_file_name
from weft.model.session import SessionInfo
from weft.model.wire import decode_many, parse
from weft.store.rows import SqlDialect, build_session_query
from weft.store.sqlite.connection import SqlRow, connect, select, translate_errors
from weft.store.sqlite.database import (
    DatabaseFile,
    StepProgress,
    ignore_progress,
    is_temporary,
    list_migrations,
)

if TYPE_CHECKING:  # a list of sessions reads no message
    from weft.host.files import Stamp
    from weft.model.diff import FileDiff
    from weft.model.message import MessageWithParts
    from weft.model.project import Project
    from weft.model.search import Figures, Hit
    from weft.model.session import Todo, TrashBundle
    from weft.model.session_query import SessionQuery
    from weft.model.transfer import SessionExport
    from weft.store.chain import ChainLines
    from weft.store.statistics import StatisticsQuery

T = TypeVar("T")
Key = tuple[str, ...]

DIALECT = SqlDialect(
    placeholder=lambda _: "?", contains=lambda column, value: f"instr({column}, {value}) > 0"
)
SELECT_MESSAGE_IDS = """SELECT message.id FROM message JOIN history ON history.number = message.history
WHERE history.session = ? AND history.bundle IS NULL ORDER BY message.created, message.position, message.id"""
SELECT_LINES = """SELECT log_line.line FROM log_line JOIN log ON log.number = log_line.log
WHERE log.key = ? ORDER BY log_line.number"""
SELECT_BUNDLES = """SELECT bundle.id, bundle.time, trashed_session.document FROM bundle
JOIN trashed_session ON trashed_session.bundle = bundle.id ORDER BY bundle.time, bundle.id, trashed_session.position"""

SELECT_ANY_STALE = """SELECT 1 FROM stale_message UNION ALL SELECT 1 FROM stale_title
UNION ALL SELECT 1 FROM message WHERE number > (SELECT upto FROM indexed) LIMIT 1"""


class SqliteReader:
    """Reads one database through a connection of its own, which is opened when it is first needed.

    Unreadable documents are skipped and reported by `problems`. One thread at a time may use a reader.
    """

    def __init__(self, file: DatabaseFile) -> None:
        self.file = file
        self._connection: apsw.Connection | None = None
        self._is_placeholder = False
        self._problems: dict[str, Damage] = {}

    @property
    def address(self) -> str:
        return self.file.path

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def connected(self) -> Generator[apsw.Connection]:
        """Yield the connection. Each statement sees what was committed before it."""
        connection = self._connect()
        with translate_errors(self.file.path, connection):
            try:
                yield connection
            finally:
                if self._is_placeholder or is_temporary(connection):
                    self.close()

    @contextmanager
    def reading(self) -> Generator[apsw.Connection]:
        """Yield the connection in a transaction, so that all that is read is of one moment. Keep it short."""
        with self.connected() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("COMMIT")

    def rows(self, sql: str, *values: Any) -> list[SqlRow]:
        with self.connected() as connection:
            return select(connection, sql, values)

    def _connect(self) -> apsw.Connection:
        if self._connection is None:
            self._is_placeholder = not self.file.exists()
            if self._is_placeholder:
                # An empty store: reading creates nothing.
                self._connection = connect(":memory:", writes=True)
                for migration in list_migrations():
                    self._connection.execute(migration.sql)
            else:
                self.file.check_place()
                self.file.check_owner()
                self._connection = self.file.connect_for_reading()
        return self._connection

    # --- projects and sessions ---

    def list_projects(self) -> list[Project]:
        from weft.model.project import Project  # noqa: PLC0415  a list of sessions needs none

        found: list[Project] = self.decode("project", self.rows("SELECT id, document FROM project"), Project)
        return sorted(found, key=lambda project: (project.time.created, project.id))

    def find_project(self, id: ProjectID) -> Project | None:
        from weft.model.project import Project  # noqa: PLC0415  a list of sessions needs none

        rows = self.rows("SELECT id, document FROM project WHERE id = ?", check_file_name("project", id))
        return next(iter(self.decode("project", rows, Project)), None)

    def list_sessions(self, project: ProjectID | None = None) -> list[SessionInfo]:
        order = "ORDER BY created, id DESC"
        if project is None:
            rows = self.rows(f"SELECT id, document FROM session {order}")
        else:
            check_file_name("project", project)
            rows = self.rows(f"SELECT id, document FROM session WHERE project = ? {order}", project)
        return self.decode("session", rows, SessionInfo)

    def query_sessions(self, query: SessionQuery) -> list[SessionInfo]:
        built = build_session_query(query, DIALECT)
        rows = self.rows(f"SELECT id, document FROM session {built.sql}", *built.values)
        return self.decode("session", rows, SessionInfo)

    def find_session(self, id: SessionID) -> SessionInfo | None:
        rows = self.rows("SELECT id, document FROM session WHERE id = ?", check_file_name("session", id))
        return next(iter(self.decode("session", rows, SessionInfo)), None)

    def find_session_in(self, project: ProjectID, id: SessionID) -> SessionInfo | None:
        session = self.find_session(id)
        return session if session is not None and session.project_id == project else None

    def get_session(self, id: SessionID) -> SessionInfo:
        """Return a session. Raise `NotFoundError`, or `UnreadableError` if its document cannot be read."""
        rows = self.rows("SELECT id, document FROM session WHERE id = ?", check_file_name("session", id))
        if not rows:
            raise NotFoundError("session", id)
        found: list[SessionInfo] = self.decode("session", rows, SessionInfo)
        if not found:
            raise UnreadableError("session", id)
        return found[0]

    # --- messages ---

    def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        from weft.store.sqlite.messages import build_messages, select_messages  # noqa: PLC0415  a list of sessions reads none

        check_file_name("session", session)
        with self.reading() as connection:
            rows = select_messages(connection, session, last=last, before=before)
        return build_messages(session, rows, self.note_damage)

    def read_chain(self, session: SessionID) -> ChainLines:
        """Return the chain of a session."""
        from weft.store.chain import ChainLines, to_line  # noqa: PLC0415  a list of sessions needs none
        from weft.store.sqlite.events import CHAIN_SHIFT  # noqa: PLC0415  a list of sessions needs none

        sql = f"""SELECT hash, body FROM history
        JOIN chain ON chain.number > history.number << {CHAIN_SHIFT} AND chain.number < (history.number + 1) << {CHAIN_SHIFT}
        WHERE history.session = ? AND history.bundle IS NULL ORDER BY chain.number"""
        rows = self.rows(sql, check_file_name("session", session))
        return ChainLines([to_line(hash, body) for hash, body in rows])

    def list_message_ids(self, session: SessionID) -> list[MessageID]:
        check_file_name("session", session)
        return [MessageID(id) for (id,) in self.rows(SELECT_MESSAGE_IDS, session)]

    def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None:
        from weft.store.sqlite.messages import build_messages, select_message  # noqa: PLC0415  a list of sessions reads none

        check_file_name("session", session)
        with self.reading() as connection:
            rows = select_message(connection, session, id)
        return next(iter(build_messages(session, rows, self.note_damage)), None)

    def list_diff(self, session: SessionID) -> list[FileDiff]:
        from weft.model.diff import FileDiff  # noqa: PLC0415  a list of sessions reads none

        return self._list_record("diff", session, tuple[FileDiff, ...])

    def list_todos(self, session: SessionID) -> list[Todo]:
        from weft.model.session import Todo  # noqa: PLC0415  a list of sessions reads none

        return self._list_record("todo", session, tuple[Todo, ...])

    def _list_record(self, table: str, session: SessionID, kind: type[tuple[T, ...]]) -> list[T]:
        check_file_name("session", session)
        sql = f"""SELECT history.session, {table}.document FROM {table} JOIN history ON history.number = {table}.history
        WHERE history.session = ? AND history.bundle IS NULL"""
        found: list[tuple[T, ...]] = self.decode(table, self.rows(sql, session), kind)
        return list(found[0]) if found else []

    # --- trash, values, logs, leases ---

    def list_trash(self) -> list[TrashBundle]:
        from weft.model.session import TrashBundle  # noqa: PLC0415  few commands need it

        bundles: dict[tuple[str, int], list[bytes]] = {}
        for id, time, document in self.rows(SELECT_BUNDLES):
            bundles.setdefault((id, time), []).append(document)
        found: list[TrashBundle] = []
        for (id, time), documents in bundles.items():
            sessions = self.decode("trash", [(id, document) for document in documents], SessionInfo)
            # A part of a bundle cannot be restored, and nobody knows whose a session is that cannot be read.
            if len(sessions) == len(documents):
                found.append(TrashBundle(id=id, time=time, sessions=tuple(sessions)))
        return found

    def read_bundle(self, bundle: str) -> list[SessionExport]:
        """Return the sessions of a bundle with all that belongs to them. Raise `NotFoundError` if there is no such bundle."""
        from weft.model.diff import FileDiff  # noqa: PLC0415  few commands need it
        from weft.model.session import Todo  # noqa: PLC0415  few commands need it
        from weft.model.transfer import SessionExport  # noqa: PLC0415  few commands need it
        from weft.store.sqlite.messages import build_messages, select_history  # noqa: PLC0415  few commands need it

        found = next((each for each in self.list_trash() if each.id == bundle), None)
        if found is None:
            raise NotFoundError("bundle in the trash", bundle)
        histories: dict[str, int] = dict(
            self.rows("SELECT session, number FROM history WHERE bundle = ?", bundle)
        )
        exports: list[SessionExport] = []
        for session in found.sessions:
            history = histories.get(session.id)
            with self.reading() as connection:
                rows = select_history(connection, history)
            exports.append(
                SessionExport(
                    info=session,
                    messages=tuple(build_messages(session.id, rows, self.note_damage)),
                    diff=tuple(self._list_trashed("diff", history, tuple[FileDiff, ...])),
                    todos=tuple(self._list_trashed("todo", history, tuple[Todo, ...])),
                )
            )
        return exports

    def _list_trashed(self, table: str, history: int | None, kind: type[tuple[T, ...]]) -> list[T]:
        rows = self.rows(f"SELECT history, document FROM {table} WHERE history = ?", history)
        found: list[tuple[T, ...]] = self.decode(table, rows, kind)
        return list(found[0]) if found else []

    def list_running(self) -> set[SessionID]:
        from weft.store.sqlite.leases import list_leased  # noqa: PLC0415  few commands need it

        with self.reading() as connection:
            return set(list_leased(connection, self.file.locks, alive=True))

    def find_holder(self, session: SessionID) -> str | None:
        """Return the owner of a session's lease, None if nobody holds it."""
        from weft.store.sqlite.leases import find_holder  # noqa: PLC0415  few commands need it

        check_file_name("session", session)
        with self.reading() as connection:
            return find_holder(connection, self.file.locks, session)

    def find_value(self, key: Key) -> Any:
        for (document,) in self.rows("SELECT document FROM value WHERE key = ?", to_key_bytes(key)):
            try:
                return parse(document)
            except DocumentError as error:
                self.note_damage("value", "/".join(key), error)
        return None

    def list_keys(self, prefix: Key = ()) -> list[Key]:
        return self._list_keys("value", prefix)

    def read_log(self, log: Key) -> list[bytes]:
        return [line for (line,) in self.rows(SELECT_LINES, to_key_bytes(log))]

    def list_logs(self, prefix: Key = ()) -> list[Key]:
        return self._list_keys("log", prefix)

    def _list_keys(self, table: str, prefix: Key) -> list[Key]:
        if not prefix:
            rows = self.rows(f"SELECT key FROM {table}")
        else:
            start = to_key_bytes(prefix)
            rows = self.rows(
                f"SELECT key FROM {table} WHERE key >= ? AND key < ?", start, start[:-1] + b"\x01"
            )
        return sorted(tuple(raw[:-1].decode().split("\x00")) for (raw,) in rows)

    # --- searching ---

    def search(
        self,
        words: str,
        *,
        limit: int,
        project: ProjectID | None = None,
        progress: StepProgress = ignore_progress,
    ) -> list[Hit]:
        """Return the best match of each session that contains all words, best first. Update the index first, if we may."""
        from weft.store.sqlite.search import update_index_now  # noqa: PLC0415  few commands need it

        update_index_now(self.file, progress)
        return self.search_index(words, limit=limit, project=project)

    def search_index(self, words: str, *, limit: int, project: ProjectID | None) -> list[Hit]:
        """Search in what was indexed before."""
        from weft.store.search import to_match_query  # noqa: PLC0415  few commands need it
        from weft.store.sqlite.search import list_matches, to_hits  # noqa: PLC0415  few commands need it

        if project is not None:
            check_file_name("project", project)
        query = to_match_query(words)
        if not query or limit < 1:
            return []
        with self.reading() as connection:
            matches = list_matches(connection, query, limit, project)
        return to_hits(query, matches)

    def figures(self, query: StatisticsQuery, *, progress: StepProgress = ignore_progress) -> Figures:
        """Return statistics of sessions. Update the index first, if we may."""
        from weft.store.sqlite.search import update_index_now  # noqa: PLC0415  few commands need it

        update_index_now(self.file, progress)
        return self.select_figures(query)

    def select_figures(self, query: StatisticsQuery) -> Figures:
        """Return statistics of what was indexed before."""
        from weft.store.sqlite.search import select_usage  # noqa: PLC0415  few commands need it
        from weft.store.statistics import build_figures  # noqa: PLC0415  few commands need it

        with self.reading() as connection:
            rows = select_usage(connection, query)
        return build_figures(query, *rows)

    def has_stale(self) -> bool:
        """Return True if something changed since it was indexed."""
        return bool(self.rows(SELECT_ANY_STALE))

    # --- stamps, problems ---

    def list_stamps(self, project: ProjectID | None = None) -> dict[tuple[ProjectID, SessionID], Stamp]:
        sql = "SELECT project, id, updated, document FROM session"
        rows = self.rows(sql) if project is None else self.rows(f"{sql} WHERE project = ?", project)
        return {(ProjectID(home), SessionID(id)): _to_stamp(updated, raw) for home, id, updated, raw in rows}

    def find_sure_stamp(self, project: ProjectID, id: SessionID) -> Stamp | None:
        sql = "SELECT updated, document FROM session WHERE project = ? AND id = ?"
        return next((_to_stamp(*row) for row in self.rows(sql, project, id)), None)

    def find_opencode_database(self) -> str | None:
        return None  # OpenCode knows nothing of this database, and stores no sessions next to it

    def problems(self) -> list[Damage]:
        return list(self._problems.values())

    def take_problems(self) -> list[Damage]:
        """Return the problems since the last call."""
        found, self._problems = list(self._problems.values()), {}
        return found

    def decode(self, kind: str, rows: list[SqlRow], type: Any) -> list[Any]:
        """Decode the documents in rows of id and document. Leave out those that are unreadable, and note them."""
        found = decode_many([document for _, document in rows], type)
        if not any(isinstance(each, DocumentError) for each in found):
            return found
        for (id, _), each in zip(rows, found, strict=True):
            if isinstance(each, DocumentError):
                self.note_damage(kind, id, each)
        return [each for each in found if not isinstance(each, DocumentError)]

    def note_damage(self, kind: str, id: str, error: DocumentError) -> None:
        where = to_place(self.file.path, kind, id)
        self._problems[where] = Damage(where=where, reason=error.reason)


def open_sqlite_reader(path: str) -> SqliteReader:
    """Open the database at a path for reading. Upgrade an older one first; read a missing one as an empty store."""
    file = DatabaseFile(path)
    if file.exists() and not file.check_version(file.check_owner().version):
        file.prepare()
    return SqliteReader(file)


def to_place(path: str, kind: str, id: str) -> str:
    """Return the place of a document, for people and for repairs."""
    return f"{path}#{kind}/{id}"


def to_key_bytes(key: Key) -> bytes:
    """Return a key as it is stored. Raise `InvalidInputError` if it is not one."""
    if not key:
        raise InvalidInputError("key", "it is empty")
    return b"".join(check_file_name("key", word).encode() + b"\x00" for word in key)


def _to_stamp(updated: int, document: bytes) -> Stamp:
    return updated, len(document), crc32(document)
