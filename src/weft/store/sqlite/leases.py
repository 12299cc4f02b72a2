"""Leases as rows. Whether their holder lives is seen by a lock on a file, which the system releases when a process dies."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from threading import Lock

import apsw

from weft.errors import LeaseLostError, SessionBusyError, StoreError
from weft.host.files import is_locked, make_directory, try_lock
from weft.host.now import now
from weft.model.ids import SessionID, check_file_name
from weft.store.lease import LeaseToken
from weft.store.rows import to_bytes, to_text
from weft.store.sqlite.change_log import log_change
from weft.store.sqlite.connection import select

HOLDER_SUFFIX = ".holder"
YOUNG_MS = 60_000
SELECT_LEASE = "SELECT generation, owner, holder FROM lease WHERE session = ?"
# A session without a document and without messages is gone, and so is its lease.
SELECT_GONE = """SELECT lease.session FROM lease WHERE lease.session = ?
AND NOT EXISTS (SELECT 1 FROM session WHERE session.id = lease.session)
AND NOT EXISTS (SELECT 1 FROM history JOIN message ON message.history = history.number
                WHERE history.session = lease.session AND history.bundle IS NULL)"""


class LeaseHolder:
    """The lock file of one open store. It shows that a process uses the database, and which leases are held by a living one."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lock = ExitStack()
        self._creating = Lock()
        self.name = ""

    def create(self) -> str:
        """Create the lock file, unless it exists, and return its name."""
        with self._creating:
            if not self.name:
                make_directory(self._directory)
                remove_dead_holders(self._directory)
                name = f"{os.getpid()}-{os.urandom(6).hex()}{HOLDER_SUFFIX}"
                if not self._lock.enter_context(try_lock(f"{self._directory}/{name}")):
                    raise StoreError(f"{self._directory}/{name} is locked by another process")
                self.name = name
            return self.name

    def close(self) -> None:
        with self._creating:
            if self.name:
                with suppress(OSError):
                    os.unlink(f"{self._directory}/{self.name}")
                self._lock.close()
                self.name = ""


def list_holders(directory: str) -> list[str]:
    """Return the names of all lock files, of living and dead processes."""
    try:
        return sorted(name for name in os.listdir(directory) if name.endswith(HOLDER_SUFFIX))
    except FileNotFoundError:
        return []


def remove_dead_holders(directory: str) -> None:
    """Remove the lock files of dead processes. A missing file means the same as one that nobody locks."""
    for name in list_holders(directory):
        with suppress(OSError):
            # A new file may belong to a process that is about to lock it. An old one is tested with a shared lock: a moment's
            # exclusive one would make a dead process appear alive.
            is_old = now() - os.stat(f"{directory}/{name}").st_mtime * 1000 > YOUNG_MS
            if is_old and not is_alive(directory, name):
                os.unlink(f"{directory}/{name}")


def is_alive(directory: str, holder: str) -> bool:
    return is_locked(f"{directory}/{holder}")


def take_lease(
    connection: apsw.Connection, directory: str, session: SessionID, owner: str, holder: str
) -> LeaseToken:
    """Take the lease of a session. Raise `SessionBusyError` if a living process holds it."""
    check_file_name("session", session)
    for _, known, other in select(connection, SELECT_LEASE, (session,)):
        if is_alive(directory, other):
            raise SessionBusyError(session, to_text(known))
        connection.execute("DELETE FROM lease WHERE session = ?", (session,))
    connection.execute(
        "INSERT INTO lease (session, owner, holder) VALUES (?, ?, ?)", (session, to_bytes(owner), holder)
    )
    return LeaseToken(session, connection.last_insert_rowid())


def give_back(connection: apsw.Connection, token: LeaseToken) -> int:
    """Give back a lease. Return the position of that in the change log, 0 if it was taken over."""
    connection.execute("DELETE FROM lease WHERE generation = ?", (token.generation,))
    return log_change(connection, "ended", token.session) if connection.changes() else 0


def check_leases(connection: apsw.Connection, leases: Iterable[LeaseToken]) -> None:
    """Raise `LeaseLostError` if one of the leases was given back or taken over."""
    for token in leases:
        rows = select(connection, SELECT_LEASE, (token.session,))
        if not rows or rows[0][0] != token.generation:
            raise LeaseLostError(token.session, to_text(rows[0][1]) if rows else "")


def find_holder(connection: apsw.Connection, directory: str, session: SessionID) -> str | None:
    """Return the owner of a session's lease, None if nobody holds it."""
    rows: Sequence[tuple[int, bytes, str]] = select(connection, SELECT_LEASE, (session,))
    return next((to_text(owner) for _, owner, holder in rows if is_alive(directory, holder)), None)


def list_leased(connection: apsw.Connection, directory: str, *, alive: bool) -> list[SessionID]:
    """Return the sessions whose holder lives, or those whose holder died, sorted."""
    rows = select(connection, "SELECT session, holder FROM lease ORDER BY session")
    return [SessionID(session) for session, holder in rows if is_alive(directory, holder) is alive]


def list_gone(connection: apsw.Connection, sessions: Iterable[SessionID]) -> Iterator[SessionID]:
    """Yield those of the leased sessions that no longer exist."""
    for id in sessions:
        for (session,) in select(connection, SELECT_GONE, (id,)):
            yield SessionID(session)


def drop_dead_lease(connection: apsw.Connection, directory: str, session: SessionID) -> bool:
    """Remove the lease of a dead process. Return False if a living one holds it."""
    for _, _, holder in select(connection, SELECT_LEASE, (session,)):
        if is_alive(directory, holder):
            return False
        connection.execute("DELETE FROM lease WHERE session = ?", (session,))
    return True
