"""The file of a SQLite store: where it may be, whose it is, how it is created and upgraded, and the files next to it."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import apsw

from weft.errors import DamagedStoreError, NewerFormatError, StoreError
from weft.host.files import FILE_MODE, Disk, hold_lock, make_directory
from weft.host.mounts import find_network_file_system
from weft.store.sqlite.connection import (
    DEFAULT_OPTIONS,
    SqliteOptions,
    check_library,
    connect,
    prepare_writing,
    select,
    translate_errors,
    write_transaction,
)

# "weft" in ASCII, in the header of the file.
APPLICATION_ID = 0x77656674
HEADER_BYTES = 100
MAGIC = b"SQLite format 3\x00"

StepProgress = Callable[[int, int], None]


class SqliteMigration(NamedTuple):
    """A step to the next version of the schema. Its number is the version that it leads to."""

    number: int
    sql: str


class DatabaseHeader(NamedTuple):
    """What the first bytes of a file say: whose it is, and the version of its schema."""

    application_id: int
    version: int


def ignore_progress(_done: int, _total: int) -> None:
    """Report nothing."""


SCHEMA_DIRECTORY = os.path.join(os.path.dirname(__file__), "schema")


def list_migrations() -> list[SqliteMigration]:
    """Return all steps, in order."""
    steps: list[SqliteMigration] = []
    for name in _list_schema_files():
        with open(os.path.join(SCHEMA_DIRECTORY, name), encoding="utf-8") as file:
            steps.append(SqliteMigration(_parse_number(name), file.read()))
    return steps


def _list_schema_files() -> list[str]:
    return sorted(name for name in os.listdir(SCHEMA_DIRECTORY) if name.endswith(".sql"))


def _parse_number(name: str) -> int:
    return int(name.partition("_")[0])


def _find_latest() -> int:
    return _parse_number(_list_schema_files()[-1])


class DatabaseFile:
    """The database at a path. Nothing is created or changed before `prepare`."""

    def __init__(
        self,
        path: str,
        options: SqliteOptions = DEFAULT_OPTIONS,
        *,
        migrations: Sequence[SqliteMigration] | None = None,
    ) -> None:
        check_library(options.library)
        self.path = os.path.realpath(path)
        self.options = options
        self.locks = f"{self.path}-locks"
        self.backups = f"{self.path}-backup"
        self._given_migrations = migrations

    def exists(self) -> bool:
        """Return True if there is anything at the path. An empty file counts as nothing."""
        with translate_errors(self.path):
            try:
                return os.stat(self.path).st_size > 0
            except FileNotFoundError:
                return False

    def check_owner(self) -> DatabaseHeader:
        """Return the header of an existing file. Raise `StoreError` if the file is not one of ours. Nothing is touched."""
        with translate_errors(self.path), open(self.path, "rb") as file:
            header = file.read(HEADER_BYTES)
        if not header.startswith(MAGIC) or len(header) < HEADER_BYTES:
            if not os.path.isdir(self.locks):
                # Nobody ever used it as a store, so no repair may move it.
                raise StoreError(
                    f"{self.path} is not a SQLite database",
                    hint="choose another file for --store; one that does not exist is created",
                )
            raise DamagedStoreError(self.path, "it is not a SQLite database")
        found = DatabaseHeader(
            application_id=int.from_bytes(header[68:72]), version=int.from_bytes(header[60:64])
        )
        if found.application_id != APPLICATION_ID:
            raise StoreError(
                f"{self.path} is a database of another program",
                hint="choose another file for --store; weft storage migrate and weft import copy sessions from elsewhere",
            )
        return found

    def check_version(self, version: int) -> bool:
        """Return True if the schema is up to date. Raise `NewerFormatError` if a later version of weft wrote it."""
        given = self._given_migrations
        latest = _find_latest() if given is None else given[-1].number
        if version > latest:
            raise NewerFormatError(self.path, version, latest)
        return version == latest

    def check_place(self) -> None:
        """Raise `StoreError` if the path is on a network file system."""
        # Where the system does not say, `PRAGMA journal_mode` is the other check.
        if kind := find_network_file_system(self.path, self.options.mounts):
            raise StoreError(
                f"{self.path} is on a network file system ({kind}), where SQLite databases get corrupted",
                hint="put the database on a local disk, or use a file store: --store file:<path>",
            )

    def prepare(self, progress: StepProgress = ignore_progress) -> None:
        """Create the database if there is none, and upgrade an older one. Leave one that is up to date alone."""
        self.check_place()
        if not self.exists():
            with translate_errors(self.path):
                self._create(progress)
        elif not self.check_version(self.check_owner().version):
            with translate_errors(self.path), hold_lock(f"{self.locks}/upgrade"):
                connection = connect(self.path, self.options, writes=True)
                try:
                    self._migrate(connection, progress)
                finally:
                    connection.close()

    def _create(self, progress: StepProgress) -> None:
        """Build the database next to its place and move it there, so that nobody ever sees half of one."""
        make_directory(os.path.dirname(self.path))
        with hold_lock(f"{self.locks}/create"):
            if self.exists():
                return
            if has_content(f"{self.path}-wal"):
                # SQLite would take the changes in it for changes of the new database.
                raise StoreError(
                    f"{self.path} is gone, but the log of its last changes is still there ({self.path}-wal)",
                    hint="put the database back next to it, or move the log elsewhere to begin anew",
                )
            temp = f"{self.path}-new"
            remove_database(temp)
            # Create the file first: SQLite would make it readable for everybody, and sessions are private.
            os.close(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
            try:
                connection = connect(temp, self.options, writes=True)
                try:
                    with translate_errors(self.path, connection):
                        # It has to be set before the first table: then freed space can be given back later.
                        select(connection, "PRAGMA auto_vacuum = INCREMENTAL")
                        select(connection, f"PRAGMA application_id = {APPLICATION_ID}")
                        prepare_writing(connection, self.path)
                        self._migrate(connection, progress)
                        # Only the file itself is moved, so nothing may be left in its log. Closing would hide a full disk.
                        select(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
                finally:
                    connection.close()
                os.replace(temp, self.path)
                Disk().flush(os.path.dirname(self.path))
            except BaseException:
                remove_database(temp)
                raise

    def _migrate(self, connection: apsw.Connection, progress: StepProgress) -> None:
        """Take the steps that are missing. Each is a transaction: after a crash, the next opening continues there."""
        steps = list_migrations() if self._given_migrations is None else self._given_migrations
        for done, step in enumerate(steps):
            with write_transaction(connection):
                if get_version(connection) < step.number:
                    connection.execute(step.sql)
                    select(connection, f"PRAGMA user_version = {step.number}")
            progress(done + 1, len(steps))

    def connect_for_writing(self) -> apsw.Connection:
        """Connect to the prepared database to change it. Raise `StoreError` if that is not possible."""
        with translate_errors(self.path):
            connection = connect(self.path, self.options, writes=True)
        try:
            with translate_errors(self.path, connection):
                prepare_writing(connection, self.path)
        except StoreError:
            connection.close()
            raise
        return connection

    def connect_for_reading(self) -> apsw.Connection:
        """Connect to read. The connection is for one use (see `is_temporary`) if we cannot write to the directory."""
        with translate_errors(self.path):
            try:
                connection = connect(self.path, self.options)
                version = get_version(connection)
            except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError):  # the last one if the disk is full
                if has_content(f"{self.path}-wal"):
                    raise
                # Without its log the database is whole, and no other file is needed to read it.
                connection = connect(self.path, self.options, immutable=True)
                version = get_version(connection)
        self.check_version(version)
        return connection

    def list_files(self) -> list[str]:
        """Return the files that are the database: itself and its log."""
        return [path for path in (self.path, f"{self.path}-wal") if os.path.exists(path)]

    def move_aside(self, now: int) -> str:
        """Move the files of a damaged database to new names. Return the new path of the database."""
        aside = f"{self.path}.damaged-{now}"
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                os.rename(self.path + suffix, aside + suffix)
        with suppress(FileNotFoundError):
            os.unlink(f"{self.path}-shm")  # it is rebuilt from the log
        return aside


def get_version(connection: apsw.Connection) -> int:
    [(version,)] = select(connection, "PRAGMA user_version")
    return int(version)


def remove_database(path: str) -> None:
    """Remove a database with the files next to it."""
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(path + suffix)


def has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def is_temporary(connection: apsw.Connection) -> bool:
    """Return True if the connection does not see later changes of the file."""
    return not connection.open_flags & apsw.SQLITE_OPEN_READWRITE
