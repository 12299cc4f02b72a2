"""Connect to a SQLite database: the library it takes, the settings, waiting for other writers, and errors."""

import errno
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any, NamedTuple

import apsw

from weft.errors import DamagedStoreError, StoreError
from weft.host.files import wait_randomly
from weft.host.mounts import MOUNTS_FILE

# In older versions, two connections that write and check-point at once can corrupt the database ("WAL-reset bug").
MIN_LIBRARY = (3, 51, 3)
# A plain timeout lets unlucky processes wait for seconds. Short random pauses are faster and fairer.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.0005, 0.003
LONGEST_COUNTED = 0.1
BUSY_SECONDS = 30.0
# A log of changes (WAL) that was emptied keeps this many bytes of its file.
JOURNAL_BYTES = 16 << 20
# Moving the log into the database takes as long as some commits, so it waits for a pause. Each page is moved once, however often
# it was written before: short pauses between the steps of a run would write the same pages again and again.
IDLE_SECONDS = 2.0
WRITER_CACHE_KIB = 4 << 10
# A large transaction stays in memory up to this many pages (32 MB) until it is committed.
WRITER_SPILL_PAGES = 8 << 10
READER_CACHE_KIB = 8 << 10

SqlRow = tuple[Any, ...]

# A database with its log needs more than this to change at all.
ROOM_BYTES = 128 << 10
NO_SPACE = "free some space and try again; nothing needs a restart"
NOT_WRITABLE = "reading still works; to write, change the permissions or point --store at another place"
OTHER_PLACE = "point --store at a place that you may write to"
ERRNO_HINTS = {
    errno.ENOSPC: NO_SPACE,
    errno.EDQUOT: NO_SPACE,
    errno.EFBIG: NO_SPACE,
    errno.EROFS: NOT_WRITABLE,
    errno.EACCES: NOT_WRITABLE,
    errno.ENOLCK: "this file system has no locks; point --store at a local one",
}


class SqliteOptions(NamedTuple):
    """How to connect. Tests pass another version of the library, another file layer of SQLite, shorter waits, or another list of mounts."""

    library: str = apsw.sqlite_lib_version()
    vfs: str = ""
    busy_seconds: float = BUSY_SECONDS
    idle_seconds: float = IDLE_SECONDS
    mounts: str = MOUNTS_FILE


DEFAULT_OPTIONS = SqliteOptions()


def check_library(version: str) -> None:
    """Raise `StoreError` if this version of SQLite can corrupt a database that several processes use."""
    if tuple(int(number) for number in version.split(".")[:3]) < MIN_LIBRARY:
        needed = ".".join(map(str, MIN_LIBRARY))
        raise StoreError(
            f"SQLite {version} can corrupt a database that several processes use; a store needs {needed} or later",
            hint=f"pip install 'apsw>={needed}', which includes its own SQLite; or use a file store",
        )


def connect(
    path: str,
    options: SqliteOptions = DEFAULT_OPTIONS,
    *,
    writes: bool = False,
    create: bool = False,
    immutable: bool = False,
) -> apsw.Connection:
    """Connect to a database. Without `create` it must exist; without `writes` its content cannot be changed.

    `immutable` reads a database in a directory that we may not write to. Nobody may change it meanwhile.
    """
    check_library(options.library)
    # Readers open it for writing too, so that whoever closes last can remove the WAL files.
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    if immutable:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(
        to_uri(path) + "?immutable=1" if immutable else path, flags=flags, vfs=options.vfs or None
    )
    connection.set_busy_handler(BusyWait(options.busy_seconds))
    if not writes:
        select(connection, "PRAGMA query_only = ON")
        select(connection, f"PRAGMA cache_size = -{READER_CACHE_KIB}")
    return connection


def to_uri(path: str) -> str:
    return "file:" + path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def prepare_writing(connection: apsw.Connection, path: str) -> None:
    """Set up a connection that writes. Raise `StoreError` if the database cannot have a write-ahead log."""
    if select(connection, "PRAGMA journal_mode = WAL") != [("wal",)]:
        raise StoreError(
            f"{path} cannot be used by several processes at once: this place allows no write-ahead log",
            hint="put the database on a local disk, or use a file store",
        )
    select(connection, f"PRAGMA journal_size_limit = {JOURNAL_BYTES}")
    # What is written lies close together. With a larger cache, each commit would ask the system for new memory.
    select(connection, f"PRAGMA cache_size = -{WRITER_CACHE_KIB}")
    select(connection, f"PRAGMA cache_spill = {WRITER_SPILL_PAGES}")
    # The writer moves the log into the database when it is idle, so that no commit has to wait for that.
    select(connection, "PRAGMA wal_autocheckpoint = 0")


def select(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[SqlRow]:
    """Run a statement and return all its rows. Reading all rows ends the statement's transaction."""
    rows: list[SqlRow] = connection.execute(sql, values).fetchall()
    return rows


@contextmanager
def write_transaction(connection: apsw.Connection) -> Generator[None]:
    """Run the body in a transaction that begins with the write lock. If it raises, nothing is changed."""
    # A transaction that began by reading would fail at once if somebody else wrote meanwhile.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class BusyWait:
    """Waits while another process writes: for random moments, until they add up to so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waited = 0.0

    def __call__(self, attempts: int) -> bool:
        """Wait a moment and return True, or return False after too many. `attempts` counts the calls before this one."""
        if attempts == 0:
            self._waited = 0.0
        elif self._waited > self._seconds:
            return False
        began = monotonic()
        wait_randomly(SHORTEST_PAUSE, LONGEST_PAUSE)
        # While a machine sleeps or stalls, no process writes, so most of that time does not count.
        self._waited += min(monotonic() - began, LONGEST_COUNTED)
        return True


@contextmanager
def translate_errors(path: str, connection: apsw.Connection | None = None) -> Generator[None]:
    """Turn errors of SQLite and of the system into a `StoreError` that says what to do."""
    try:
        yield
    except apsw.Error as error:
        number = 0
        if connection is not None and isinstance(error, apsw.IOError | apsw.CantOpenError):
            number = connection.system_errno
        raise make_store_error(error, path, number) from error
    except OSError as error:
        raise StoreError(
            f"the store cannot use {error.filename or path}: {error.strerror or error}",
            hint=ERRNO_HINTS.get(error.errno or 0, OTHER_PLACE),
        ) from error


def find_place_fault(path: str) -> int:
    """Return the system's error number for a directory that cannot take changes, 0 if it can.

    SQLite often reports another error: if it may not create its log, it says that there is none.
    """
    directory = os.path.dirname(path)
    try:
        found = os.statvfs(directory)
    except OSError as error:
        return error.errno or 0
    if found.f_flag & os.ST_RDONLY:
        return errno.EROFS
    if not os.access(directory, os.W_OK):
        return errno.EACCES
    return errno.ENOSPC if found.f_bavail * found.f_frsize < ROOM_BYTES else 0


def make_store_error(error: apsw.Error, path: str, number: int = 0) -> StoreError:
    """Make the error for a person, after a look at the disk. `number` is the system's error number, 0 if there is none."""
    if number not in ERRNO_HINTS and isinstance(error, apsw.IOError | apsw.CantOpenError):
        number = find_place_fault(path) or number
    match error:
        case apsw.BusyError() | apsw.LockedError():
            reason, hint = (
                "another process has been writing for too long",
                "try again; if it lasts, end the process that uses the database",
            )
        case apsw.FullError():
            reason, hint = "the disk is full", NO_SPACE
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            reason, hint = "it cannot be written", NOT_WRITABLE
        case apsw.NotADBError() | apsw.CorruptError():
            return DamagedStoreError(path, str(error))
        case apsw.CantOpenError():
            reason = os.strerror(number) if number else "it cannot be opened"
            hint = ERRNO_HINTS.get(number, "check that the directory exists and that you may use it")
        case apsw.IOError():
            reason, hint = os.strerror(number) if number else str(error), ERRNO_HINTS.get(number, "")
        case _:
            reason, hint = str(error) or type(error).__name__, ""
    return StoreError(f"the database {path} cannot be used: {reason}", hint=hint)
