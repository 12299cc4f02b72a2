"""The search database: the SQLite driver, where the file lies, and how a broken one is replaced."""

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Protocol

from weft.errors import IndexFailedError
from weft.host.files import locked, make_directory
from weft.search.list_cache import key_of

PATIENCE_MS = 10_000
SOUND = (3, 51, 3)  # older ones may spoil a database that several processes use

Row = tuple[Any, ...]
Values = Sequence[str | bytes | int | None]


class Cursor(Protocol):
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """What the two drivers have in common."""

    def execute(self, sql: str, values: Values = ..., /) -> Cursor: ...
    def executemany(self, sql: str, rows: Iterable[Values], /) -> Cursor: ...
    def close(self) -> None: ...


class Database:
    """A connection whose faults are all `IndexFailedError`."""

    def __init__(self, connection: Connection, faults: tuple[type[Exception], ...]) -> None:
        self._connection = connection
        self._faults = faults

    def rows(self, sql: str, *values: str | bytes | int | None) -> list[Row]:
        with self._told():
            return list(self._connection.execute(sql, values).fetchall())

    def each(self, sql: str, *values: str | bytes | int | None) -> Iterator[Row]:
        """One row after the other, as they are found."""
        with self._told():
            yield from self._connection.execute(sql, values)

    def run(self, sql: str, *values: str | bytes | int | None) -> None:
        with self._told():
            self._connection.execute(sql, values).fetchall()

    def run_many(self, sql: str, rows: Iterable[Values]) -> None:
        with self._told():
            self._connection.executemany(sql, rows)

    @contextmanager
    def writing(self) -> Generator[None]:
        """All of it, or none."""
        self.run("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with suppress(*self._faults):
                self._connection.execute("ROLLBACK", ())
            raise
        self.run("COMMIT")

    def close(self) -> None:
        with suppress(*self._faults):
            self._connection.close()

    @contextmanager
    def _told(self) -> Generator[None]:
        try:
            yield
        except self._faults as fault:
            raise IndexFailedError(str(fault) or type(fault).__name__, broken=_is_broken(fault)) from fault
        except UnicodeDecodeError as fault:
            raise IndexFailedError(str(fault), broken=True) from fault


def connect(path: str, *, writes: bool = False) -> Database:
    """A database by its path. One that is only read must be there, and no file beside it is made."""
    try:
        import apsw  # noqa: PLC0415
    except ImportError:
        return _connect_to_pythons(path, writes=writes)
    flags = apsw.SQLITE_OPEN_URI | (
        apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if writes else apsw.SQLITE_OPEN_READONLY
    )
    try:
        database = Database(apsw.Connection(_address(path, writes=writes), flags=flags), (apsw.Error,))
    except apsw.Error as fault:
        raise IndexFailedError(str(fault), broken=False) from fault
    return _patient(database)


def _connect_to_pythons(path: str, *, writes: bool) -> Database:
    import sqlite3  # noqa: PLC0415

    try:
        connection = sqlite3.connect(
            _address(path, writes=writes), uri=True, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as fault:
        raise IndexFailedError(str(fault), broken=False) from fault
    return _patient(Database(connection, (sqlite3.Error,)))


def doubt() -> str:
    """What is to be said against the SQLite in use; nothing if it is sound."""
    try:
        import apsw  # noqa: F401, PLC0415
    except ImportError:
        import sqlite3  # noqa: PLC0415

        if sqlite3.sqlite_version_info < SOUND:
            return f"SQLite {sqlite3.sqlite_version} is old; install apsw, which brings a sound one"
    return ""


def _patient(database: Database) -> Database:
    database.run(f"PRAGMA busy_timeout = {PATIENCE_MS}")
    return database


def _address(path: str, *, writes: bool) -> str:
    if path == ":memory:":
        return path
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{quoted}?mode={'rwc' if writes else 'ro'}"


def _is_broken(fault: Exception) -> bool:
    """Whether the file itself is bad, as opposed to busy, full or out of reach."""
    said = f"{type(fault).__name__} {fault}".lower()
    return any(
        word in said for word in ("corrupt", "malformed", "not a database", "notadb", "no such", "fts5")
    )


VERSION = 2


def index_path(cache: str, root: str) -> str:
    """Where the index of the store at this root lies. Another version has another file: neither spoils the other's."""
    return os.path.join(cache, "weft", f"sessions-{key_of(os.path.realpath(root))}.v{VERSION}.db")


@contextmanager
def reading(path: str, root: str) -> Generator[Database]:
    """The index, to look things up in. There may be none."""
    if not os.path.exists(path):
        raise IndexFailedError("there is none", broken=False)
    database = connect(path)
    try:
        _check(database, root)
        yield database
    finally:
        database.close()


@contextmanager
def writing(path: str, root: str) -> Generator[Database]:
    """The index, to change it; made if there is none, and made anew if the file is bad."""
    with _held(path):
        database = _open(path, root)
        try:
            with database.writing():
                yield database
        finally:
            database.close()


def discard(path: str) -> None:
    """Do away with an index whose file is bad. The next to write makes a new one."""
    with _held(path):
        _remove(path)


@contextmanager
def _held(path: str) -> Generator[None]:
    with ExitStack() as held:
        try:
            make_directory(os.path.dirname(path))
            held.enter_context(locked(f"{path}.lock"))
        except OSError as error:
            raise IndexFailedError(error.strerror or str(error), broken=False) from error
        yield


def _open(path: str, root: str) -> Database:
    try:
        return _opened(path, root)
    except IndexFailedError as error:
        if not error.broken:
            raise
    _remove(path)
    return _opened(path, root)


def _opened(path: str, root: str) -> Database:
    if not os.path.exists(path):
        # Before there is anything to lock: SQLite would make it for all to read, and sessions are private.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    database = connect(path, writes=True)
    try:
        database.run("PRAGMA journal_mode = TRUNCATE")
        database.run("PRAGMA synchronous = NORMAL")
        if not database.rows("SELECT name FROM sqlite_master LIMIT 1"):
            furnish(database, root)
        _check(database, root)
    except BaseException:
        database.close()
        raise
    return database


def furnish(database: Database, root: str) -> None:
    """Give a new database its tables."""
    with database.writing():
        for statement in _schema():
            database.run(statement)
        database.run("INSERT INTO root (path) VALUES (?)", _printable(root))


def _check(database: Database, root: str) -> None:
    found = database.rows("SELECT path FROM root")
    if found != [(_printable(root),)]:
        raise IndexFailedError(f"it is that of {found}", broken=True)


def _printable(root: str) -> str:
    return os.fsencode(os.path.realpath(root)).decode(errors="backslashreplace")


def _schema() -> list[str]:
    with open(os.path.join(os.path.dirname(__file__), "sql", "schema.sql"), encoding="utf-8") as file:
        return [statement for statement in file.read().split(";\n") if statement.strip()]


def _remove(path: str) -> None:
    for each in (f"{path}-journal", path):
        with suppress(FileNotFoundError):
            os.unlink(each)
