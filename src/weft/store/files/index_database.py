"""The database of the search index of a tree: its connection, location, and replacing a broken file."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from weft.errors import IndexFailedError
from weft.host.files import hold_lock, make_directory
from weft.store.files.layout import hash_key

if TYPE_CHECKING:
    import apsw

BUSY_TIMEOUT_MS = 10_000

IndexRow = tuple[Any, ...]
SqlValues = Sequence[str | bytes | int | None]


class IndexDatabase:
    """A connection that raises `IndexFailedError` for every error of the driver."""

    def __init__(self, connection: apsw.Connection, driver_error: type[Exception]) -> None:
        self._connection = connection
        self._driver_error = driver_error

    def rows(self, sql: str, *values: str | bytes | int | None) -> list[IndexRow]:
        """Run a statement and return all rows."""
        with self._translate_errors():
            return list(self._connection.execute(sql, values).fetchall())

    def iterate(self, sql: str, *values: str | bytes | int | None) -> Iterator[IndexRow]:
        """Yield rows as they are found."""
        with self._translate_errors():
            yield from self._connection.execute(sql, values)

    def run(self, sql: str, *values: str | bytes | int | None) -> None:
        with self._translate_errors():
            self._connection.execute(sql, values).fetchall()

    def run_many(self, sql: str, rows: Iterable[SqlValues]) -> None:
        with self._translate_errors():
            self._connection.executemany(sql, rows)

    @contextmanager
    def open_transaction(self) -> Generator[None]:
        """Run the body in one transaction."""
        self.run("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with suppress(self._driver_error):
                self._connection.execute("ROLLBACK", ())
            raise
        self.run("COMMIT")

    def close(self) -> None:
        with suppress(self._driver_error):
            self._connection.close()

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except self._driver_error as error:
            raise IndexFailedError(str(error) or type(error).__name__, broken=_is_broken(error)) from error
        except UnicodeDecodeError as error:
            raise IndexFailedError(str(error), broken=True) from error


def connect(path: str, *, writes: bool = False) -> IndexDatabase:
    """Open a database. Without `writes` it must exist, and no files are created next to it."""
    import apsw  # noqa: PLC0415  slow to import, and a run without an index needs none

    flags = apsw.SQLITE_OPEN_URI | (
        apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if writes else apsw.SQLITE_OPEN_READONLY
    )
    try:
        database = IndexDatabase(apsw.Connection(_to_uri(path, writes=writes), flags=flags), apsw.Error)
    except apsw.Error as error:
        raise IndexFailedError(str(error), broken=False) from error
    database.run(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return database


def _to_uri(path: str, *, writes: bool) -> str:
    if path == ":memory:":
        return path
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{quoted}?mode={'rwc' if writes else 'ro'}"


def _is_broken(error: Exception) -> bool:
    """Return True if the file itself is bad, and not just busy, full or inaccessible."""
    message = f"{type(error).__name__} {error}".lower()
    return any(
        word in message for word in ("corrupt", "malformed", "not a database", "notadb", "no such", "fts5")
    )


INDEX_VERSION = 3


def index_path(cache: str, root: str) -> str:
    """Return the path of the index for a store. Each version of the format has its own file."""
    return os.path.join(cache, "weft", f"sessions-{hash_key(os.path.realpath(root))}.v{INDEX_VERSION}.db")


@contextmanager
def open_for_reading(path: str, root: str) -> Generator[IndexDatabase]:
    """Open the index to read it. Raise `IndexFailedError` if there is none."""
    if not os.path.exists(path):
        raise IndexFailedError("it does not exist", broken=False)
    database = connect(path)
    try:
        _check_root(database, root)
        yield database
    finally:
        database.close()


@contextmanager
def open_for_writing(path: str, root: str) -> Generator[IndexDatabase]:
    """Open the index to change it, in one transaction. Create it if it is missing, and replace a broken file."""
    with _lock_index(path):
        database = _open_or_replace(path, root)
        try:
            with database.open_transaction():
                yield database
        finally:
            database.close()


def discard_index(path: str) -> None:
    """Remove a broken index. The next writer creates a new one."""
    with _lock_index(path):
        _remove(path)


@contextmanager
def _lock_index(path: str) -> Generator[None]:
    with ExitStack() as stack:
        try:
            make_directory(os.path.dirname(path))
            stack.enter_context(hold_lock(f"{path}.lock"))
        except OSError as error:
            raise IndexFailedError(error.strerror or str(error), broken=False) from error
        yield


def _open_or_replace(path: str, root: str) -> IndexDatabase:
    try:
        return _open_checked(path, root)
    except IndexFailedError as error:
        if not error.broken:
            raise
    _remove(path)
    return _open_checked(path, root)


def _open_checked(path: str, root: str) -> IndexDatabase:
    if not os.path.exists(path):
        # Create the file first: SQLite would make it readable for everybody, and sessions are private.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    database = connect(path, writes=True)
    try:
        database.run("PRAGMA journal_mode = TRUNCATE")
        database.run("PRAGMA synchronous = NORMAL")
        if not database.rows("SELECT name FROM sqlite_master LIMIT 1"):
            create_tables(database, root)
        _check_root(database, root)
    except BaseException:
        database.close()
        raise
    return database


def create_tables(database: IndexDatabase, root: str) -> None:
    """Create the tables of a new database."""
    with database.open_transaction():
        for statement in _read_schema():
            database.run(statement)
        database.run("INSERT INTO root (path) VALUES (?)", _escape(root))


def _check_root(database: IndexDatabase, root: str) -> None:
    """Raise `IndexFailedError` if the index belongs to another store."""
    rows = database.rows("SELECT path FROM root")
    if rows != [(_escape(root),)]:
        raise IndexFailedError(f"it belongs to {rows}", broken=True)


def _escape(root: str) -> str:
    return os.fsencode(os.path.realpath(root)).decode(errors="backslashreplace")


def _read_schema() -> list[str]:
    with open(os.path.join(os.path.dirname(__file__), "sql", "index.sql"), encoding="utf-8") as file:
        return [statement for statement in file.read().split(";\n") if statement.strip()]


def _remove(path: str) -> None:
    for name in (f"{path}-journal", path):
        with suppress(FileNotFoundError):
            os.unlink(name)


@contextmanager
def open_in_memory(root: str) -> Generator[IndexDatabase]:
    """Open an index in memory. It is private and temporary."""
    database = connect(":memory:", writes=True)
    try:
        create_tables(database, root)
        yield database
    finally:
        database.close()
