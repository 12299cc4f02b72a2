"""The database that holds sessions as tables. It is filled from a store, and only what changed is read again.

`refresh_from_reader` blocks, for commands. `refresh_from_store` is for an `Api`.
"""

import asyncio
import hashlib
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

from weft.dataset.tables import (
    COSTS,
    EVENTS,
    STORED_TABLES,
    Column,
    Kind,
    Row,
    SessionRows,
    Table,
    to_permission_row,
    to_session_rows,
    to_storable,
)
from weft.errors import IndexFailedError
from weft.host.files import make_directory
from weft.model.ids import GLOBAL_PROJECT, ProjectID, SessionID
from weft.model.message import MessageWithParts
from weft.model.session import SessionInfo
from weft.model.wire import encode
from weft.permission.audit import read_line
from weft.permission.storage import RECORDS, log_key
from weft.store.contract import Store
from weft.store.reader import StoreReader

# Called with how many sessions were read, and how many there are to read.
Progress = Callable[[int, int], None]

# It is part of the file's name: a version that stores other columns starts a new file.
DATASET_VERSION: Final = 1
_FILE_NAME: Final = re.compile(r"dataset-[0-9a-f]{16}\.v([0-9]{1,9})\.db(?:-journal|-wal|-shm)?")
IN_MEMORY: Final = ":memory:"
CANNOT_WRITE: Final = ("readonly", "unable to open", "disk I/O error", "disk is full")
MAX_BLAME_RESULTS: Final = 2000
BLAME_BATCH: Final = 500
BUSY_SECONDS: Final = 10.0
# A step may take this long without a change of its session.
RECENT_MS: Final = 10 * 60 * 1000
_SQL_TYPES: Final[dict[Kind, str]] = {
    "text": "TEXT",
    "integer": "INTEGER",
    "time": "INTEGER",
    "decimal": "TEXT COLLATE decimal",
    "json": "TEXT",
    "boolean": "INTEGER",
}
# What is stored beside the audit logs.
_NOT_LOGS: Final = frozenset({"requests", "grants", "end"})
_EXACT: Final = Context(prec=200)
_OF_A_SESSION: Final = ("prompts", "steps", "calls", "files", "marks")
_COSTS_SQL: Final = """
SELECT session_id, id AS step_id, created AS time, strftime('%Y-%m-%d', created / 1000, 'unixepoch') AS day,
  agent, provider_id, model_id, cost, priced, input_tokens, output_tokens, reasoning_tokens,
  cache_read_tokens, cache_write_tokens FROM stored_steps WHERE NOT copied AND {scope}"""
_EVENTS_SQL: Final = """
SELECT created AS time, id AS session_id, 'session.created' AS kind, id, title AS detail FROM stored_sessions WHERE {sessions}
UNION ALL SELECT created, session_id, 'prompt', id, agent FROM stored_prompts WHERE NOT copied AND {scope}
UNION ALL SELECT created, session_id, 'step.started', id, provider_id || '/' || model_id FROM stored_steps WHERE NOT copied AND {scope}
UNION ALL SELECT completed, session_id, 'step.ended', id, coalesce(error, finish, '') FROM stored_steps
  WHERE NOT copied AND completed IS NOT NULL AND {scope}
UNION ALL SELECT started, session_id, 'call.started', id, tool FROM stored_calls WHERE NOT copied AND started IS NOT NULL AND {scope}
UNION ALL SELECT ended, session_id, 'call.ended', id, tool || ': ' || status FROM stored_calls
  WHERE NOT copied AND ended IS NOT NULL AND {scope}
UNION ALL SELECT time, session_id, 'file.changed', part_id, path FROM stored_files WHERE NOT copied AND {scope}
UNION ALL SELECT time, session_id, kind, id, detail FROM stored_marks WHERE {scope}
UNION ALL SELECT time, session_id, 'permission', request_id, permission || ': ' || decision FROM stored_permissions WHERE {permissions}
ORDER BY 1"""


def dataset_path(cache: str, address: str) -> str:
    """Return the path of the database for the store at an address."""
    name = hashlib.sha256(os.fsencode(address)).hexdigest()[:16]
    return os.path.join(cache, "weft", f"dataset-{name}.v{DATASET_VERSION}.db")


class Dataset:
    """Sessions as tables in a SQLite file, or in memory. It can be removed at any time: the store has everything.

    Fill it with `find_stale`, `put_session`, `keep_only` and `put_permissions`, then query `connection` within `use`. Several
    threads and processes may use it. Every method raises `IndexFailedError` if the file cannot be used.
    """

    def __init__(self, path: str = IN_MEMORY) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._open: sqlite3.Connection | None = None

    def close(self) -> None:
        with self._lock:
            if self._open is not None:
                self._open.close()
                self._open = None

    # --- filling ---

    def find_stale(
        self, sessions: Iterable[SessionInfo], running: Collection[SessionID] = ()
    ) -> list[SessionInfo]:
        """Return the sessions that changed since they were put here, and those that are running, which change all the time."""
        with self.use() as connection:
            known = dict(connection.execute("SELECT id, mark FROM session_marks"))
        return [each for each in sessions if each.id in running or known.get(each.id) != _make_mark(each)]

    def put_session(self, session: SessionInfo, history: Sequence[MessageWithParts]) -> None:
        """Replace the rows of a session."""
        rows = to_session_rows(session, history)
        with self._change() as connection:
            _remove_session(connection, session.id)
            _insert(connection, rows)
            connection.execute(
                "INSERT INTO session_marks (id, project_id, mark) VALUES (?, ?, ?)",
                (session.id, session.project_id, _make_mark(session)),
            )

    def keep_only(self, ids: Collection[SessionID], project: ProjectID | None = None) -> None:
        """Remove the sessions that are not among these: of one project, or of all."""
        with self._change() as connection:
            where, values = ("", ()) if project is None else (" WHERE project_id = ?", (project,))
            known = [id for (id,) in connection.execute(f"SELECT id FROM session_marks{where}", values)]
            for id in set(known) - set(ids):
                _remove_session(connection, id)

    def is_current_log(self, project: ProjectID, lines: Sequence[bytes]) -> bool:
        with self.use() as connection:
            found = connection.execute("SELECT mark FROM log_marks WHERE project_id = ?", (project,))
            return bool(found.fetchone() == (_mark_log(lines),))

    def put_permissions(self, project: ProjectID, lines: Sequence[bytes]) -> None:
        """Replace the decisions of a project with those in its audit log."""
        if self.is_current_log(project, lines):
            return
        records = [record for line in lines if (record := read_line(line)) is not None]
        with self._change() as connection:
            connection.execute("DELETE FROM stored_permissions WHERE project_id = ?", (project,))
            rows = [to_permission_row(project, record.entry) for record in records]
            _insert_rows(connection, "permissions", rows)
            connection.execute(
                "INSERT OR REPLACE INTO log_marks (project_id, mark) VALUES (?, ?)",
                (project, _mark_log(lines)),
            )

    # --- results that are kept ---

    def find_blame(self, keys: Sequence[str]) -> tuple[str, bytes] | None:
        """Return the last of the keys that a result is kept for, and the result."""
        with self.use() as connection:
            for start in range(len(keys), 0, -BLAME_BATCH):
                batch = keys[max(0, start - BLAME_BATCH) : start]
                places = ", ".join("?" * len(batch))
                sql = f"SELECT key, value FROM blame_results WHERE key IN ({places})"
                found: dict[str, bytes] = dict(connection.execute(sql, batch))
                if found:
                    key = next(each for each in reversed(batch) if each in found)
                    return key, found[key]
        return None

    def put_blame(self, key: str, value: bytes) -> None:
        """Keep a result. The oldest results make room for it."""
        with self._change() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO blame_results (key, value) VALUES (?, ?)", (key, value)
            )
            connection.execute(
                "DELETE FROM blame_results WHERE rowid <= (SELECT max(rowid) FROM blame_results) - ?",
                (MAX_BLAME_RESULTS,),
            )

    # --- using ---

    @contextmanager
    def use(self) -> Generator[sqlite3.Connection]:
        """Yield the connection to this thread alone."""
        with self._lock:
            try:
                if self._open is None:
                    self._open = self._connect()
                yield self._open
            except sqlite3.DatabaseError as error:
                raise IndexFailedError(str(error)) from error

    @contextmanager
    def _change(self) -> Generator[sqlite3.Connection]:
        with self.use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def _connect(self) -> sqlite3.Connection:
        """Open the file. If it cannot be written, everything is read into memory each time."""
        if self._path == IN_MEMORY:
            return _prepare(IN_MEMORY)
        try:
            make_directory(os.path.dirname(self._path))
            self._make_private_file()
            return self._prepare_file()
        except OSError:
            return _prepare(IN_MEMORY)
        except sqlite3.OperationalError as error:
            if any(words in str(error) for words in CANNOT_WRITE):
                return _prepare(IN_MEMORY)
            raise

    def _prepare_file(self) -> sqlite3.Connection:
        try:
            return _prepare(self._path)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # the file is damaged
            for name in (self._path, f"{self._path}-journal"):
                with suppress(FileNotFoundError):
                    os.unlink(name)
            self._make_private_file()
            return _prepare(self._path)

    def _make_private_file(self) -> None:
        # SQLite would make it readable for everybody, and sessions are private.
        if not os.path.exists(self._path):
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600))
            _remove_other_versions(self._path)


def _remove_other_versions(path: str) -> None:
    """Remove the files of other versions from the directory of a new one. Whoever still has one of them open can go on."""
    directory, name = os.path.split(path)
    if not _FILE_NAME.fullmatch(name):
        return
    for other in sorted(os.listdir(directory)):  # each database before what SQLite keeps beside it
        found = _FILE_NAME.fullmatch(other)
        if found is not None and int(found[1]) != DATASET_VERSION:
            with suppress(OSError):
                os.unlink(os.path.join(directory, other))


def _prepare(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.create_collation("decimal", _compare_decimals)
        connection.create_aggregate("decimal_sum", 1, DecimalSum)
        connection.execute("PRAGMA journal_mode = TRUNCATE")
        connection.execute("PRAGMA synchronous = OFF")  # what is lost is read again from the store
        connection.execute("BEGIN IMMEDIATE")
        for statement in _list_statements():
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _list_statements() -> list[str]:
    tables = [
        f"CREATE TABLE IF NOT EXISTS stored_{table.name} ({_declare(table.columns)})"
        for table in STORED_TABLES
    ]
    return [
        *tables,
        "CREATE TABLE IF NOT EXISTS stored_marks (session_id TEXT, time INTEGER, kind TEXT, id TEXT, detail TEXT)",
        "CREATE TABLE IF NOT EXISTS session_marks (id TEXT PRIMARY KEY, project_id TEXT, mark TEXT)",
        "CREATE TABLE IF NOT EXISTS blame_results (key TEXT UNIQUE, value BLOB)",
        "CREATE TABLE IF NOT EXISTS log_marks (project_id TEXT PRIMARY KEY, mark TEXT)",
        "CREATE INDEX IF NOT EXISTS sessions_by_id ON stored_sessions (id)",
        "CREATE INDEX IF NOT EXISTS steps_by_id ON stored_steps (id)",
        "CREATE INDEX IF NOT EXISTS prompts_by_id ON stored_prompts (id)",
        "CREATE INDEX IF NOT EXISTS files_by_path ON stored_files (path)",
        *(
            f"CREATE INDEX IF NOT EXISTS {name}_by_session ON stored_{name} (session_id)"
            for name in _OF_A_SESSION
        ),
    ]


def _declare(columns: Sequence[Column]) -> str:
    return ", ".join(f"{column.name} {_SQL_TYPES[column.kind]}" for column in columns)


def make_views(connection: sqlite3.Connection, project: ProjectID | None) -> None:
    """Create the documented views over the sessions of one project, or of all, for this connection alone."""
    quoted = "" if project is None else "'" + project.replace("'", "''") + "'"
    of_project = "1" if project is None else f"project_id = {quoted}"
    scope = "1" if project is None else f"session_id IN (SELECT id FROM stored_sessions WHERE {of_project})"
    decisions = "1" if project is None else f"({of_project} OR {scope})"
    bodies = {
        COSTS.name: _COSTS_SQL.format(scope=scope),
        EVENTS.name: _EVENTS_SQL.format(scope=scope, sessions=of_project, permissions=decisions),
    }
    for table in STORED_TABLES:
        where = {"sessions": of_project, "permissions": decisions}.get(table.name, scope)
        bodies[table.name] = f"SELECT {_list_names(table)} FROM stored_{table.name} WHERE {where}"
    for name, body in bodies.items():
        connection.execute(f"DROP VIEW IF EXISTS temp.{name}")
        connection.execute(f"CREATE TEMP VIEW {name} AS {body}")


def _list_names(table: Table) -> str:
    return ", ".join(column.name for column in table.columns)


def _insert(connection: sqlite3.Connection, rows: SessionRows) -> None:
    _insert_rows(connection, "sessions", [rows.session])
    for name in _OF_A_SESSION:
        _insert_rows(connection, name, getattr(rows, name))


def _insert_rows(connection: sqlite3.Connection, name: str, rows: Sequence[Row]) -> None:
    if rows:
        places = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO stored_{name} VALUES ({places})", map(to_storable, rows))


def _remove_session(connection: sqlite3.Connection, id: str) -> None:
    for name in _OF_A_SESSION:
        connection.execute(f"DELETE FROM stored_{name} WHERE session_id = ?", (id,))
    connection.execute("DELETE FROM stored_sessions WHERE id = ?", (id,))
    connection.execute("DELETE FROM session_marks WHERE id = ?", (id,))


def _make_mark(session: SessionInfo) -> str:
    return hashlib.sha256(encode(session)).hexdigest()


def _mark_log(lines: Sequence[bytes]) -> str:
    return f"{len(lines)} {hashlib.sha256(lines[-1] if lines else b'').hexdigest()}"


# --- bringing it up to date ---


def refresh_from_reader(
    dataset: Dataset,
    reader: StoreReader,
    project: ProjectID | None,
    progress: Progress = lambda _done, _total: None,
) -> None:
    """Read what changed since the last time, of one project or of all."""
    sessions = reader.list_sessions(project)
    dataset.keep_only([session.id for session in sessions], project)
    stale = dataset.find_stale(sessions, reader.list_running())
    for number, session in enumerate(stale):
        progress(number, len(stale))
        dataset.put_session(session, reader.list_messages(session.id))
    for log in reader.list_logs((RECORDS,)):
        if (found := _find_logged_project(log)) is not None and _is_selected_log(found, project):
            dataset.put_permissions(found, reader.read_log(log_key(found)))


async def refresh_from_store(dataset: Dataset, store: Store, project: ProjectID | None, *, now: int) -> None:
    """Read what changed since the last time, of one project or of all. A session that changed a moment ago may be running."""
    sessions = await store.list_sessions(project)
    await asyncio.to_thread(dataset.keep_only, [session.id for session in sessions], project)
    recent = {session.id for session in sessions if session.time.updated > now - RECENT_MS}
    for session in await asyncio.to_thread(dataset.find_stale, sessions, recent):
        history = await store.list_messages(session.id)
        await asyncio.to_thread(dataset.put_session, session, history)
    for log in await store.list_logs((RECORDS,)):
        if (found := _find_logged_project(log)) is not None and _is_selected_log(found, project):
            lines = await store.read_log(log_key(found))
            await asyncio.to_thread(dataset.put_permissions, found, lines)


def _find_logged_project(log: tuple[str, ...]) -> ProjectID | None:
    """Return the project whose audit log this is, None if it is another record."""
    match log:
        case (_, name) if name not in _NOT_LOGS:
            return ProjectID(name)
        case _:
            return None


def _is_selected_log(found: ProjectID, project: ProjectID | None) -> bool:
    """Return True for the log of a project. Directories without a project have a log each, and share the project `global`."""
    return project in (None, found) or (project == GLOBAL_PROJECT and found.startswith(f"{GLOBAL_PROJECT}-"))


# --- exact numbers ---


class DecimalSum:
    """The SQL function `decimal_sum`: the exact sum of decimals that are stored as text."""

    def __init__(self) -> None:
        self._total: Decimal | None = None

    def step(self, value: object) -> None:
        if value is not None:
            self._total = _EXACT.add(self._total or Decimal(0), Decimal(str(value)))

    def finalize(self) -> Any:
        return format(self._total or Decimal(0), "f")


def _compare_decimals(one: str, other: str) -> int:
    left, right = _get_decimal_key(one), _get_decimal_key(other)
    return (left > right) - (left < right)


def _get_decimal_key(text: str) -> tuple[bool, Decimal, str]:
    """Return a sort key: numbers by their value, then all other texts."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return True, Decimal(0), text
    return (False, number, "") if number.is_finite() else (True, Decimal(0), text)
