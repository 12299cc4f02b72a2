"""The file of an index: where it lies, how it is opened, and how a bad one is done away with.

Whoever writes holds a lock beside it, so that no other writer is at work when a bad file is removed: a journal that
one left behind would be taken for that of the next. Readers hold nothing. The journal is of the kind that is rolled
back: with the other kind, reading would write files, and a list must write none.
"""

import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress

from weft.errors import IndexFailedError
from weft.host.files import locked, make_directory
from weft.index.driver import Database, connect
from weft.index.shelf import key_of

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
