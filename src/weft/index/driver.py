"""SQLite by way of apsw, which brings a new one along; else Python's own, whatever age that has.

Late imports: a list that needs no index must not pay for a database, and either driver will do.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from weft.errors import IndexFailedError

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
