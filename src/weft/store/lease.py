"""Leases in files: who runs a session, told by a lock that dies with its holder.

The file stays behind when a holder dies. That is how its session is known to have been left in the middle of something.
"""

import os
from contextlib import ExitStack, suppress

from weft.errors import InvalidIdError, SessionBusyError
from weft.host.files import (
    Disk,
    is_locked,
    make_directory,
    read_bytes,
    try_locked,
    wait_a_moment,
    write_atomic,
)
from weft.model.ids import SessionID, file_name
from weft.store.layout import Layout

OWNER = ".owner"
OWNER_LIMIT = 4096
ATTEMPTS = 3


class Lease:
    """Held from when it is made until `leave`."""

    def __init__(self, layout: Layout, session: SessionID, owner: str) -> None:
        self._path = layout.run(session)
        self._owner = owner_path(self._path)
        self._held = ExitStack()
        make_directory(layout.runs)
        if not self._take():
            raise SessionBusyError(session, find_owner(self._path))
        try:
            write_atomic(self._owner, owner.encode(), temp=f"{self._owner}~")
        except OSError:
            self._held.close()
            raise

    def _take(self) -> bool:
        # Somebody who only looks whether it is free has it for a moment.
        for _ in range(ATTEMPTS):
            if self._held.enter_context(try_locked(self._path)):
                return True
            wait_a_moment()
        return False

    def leave(self) -> None:
        """Give it back. The files go first: without them nobody takes the session for abandoned."""
        with suppress(OSError):
            Disk().remove(self._owner)
            Disk().remove(self._path)
        self._held.close()


def find_holder(layout: Layout, session: SessionID) -> str | None:
    """Return who holds the lease of a session, None if nobody does."""
    path = layout.run(session)
    for _ in range(ATTEMPTS):  # somebody who only looks has it for a moment
        if not os.path.exists(path) or not is_locked(path):
            return None
        wait_a_moment()
    return find_owner(path)


def find_owner(path: str) -> str:
    try:
        return read_bytes(owner_path(path), limit=OWNER_LIMIT).decode(errors="replace")
    except OSError:
        return ""


def owner_path(path: str) -> str:
    return f"{path}{OWNER}"


def list_abandoned(layout: Layout) -> list[SessionID]:
    """Sessions whose holder is gone without having given the lease back. What is no lease is passed over."""
    try:
        names = sorted(os.listdir(layout.runs))
    except FileNotFoundError:
        return []
    return [SessionID(name) for name in names if _is_abandoned(f"{layout.runs}/{name}", name)]


def _is_abandoned(path: str, name: str) -> bool:
    if name.endswith((OWNER, "~")) or not os.path.isfile(path):
        return False
    try:
        file_name("session", name)
    except InvalidIdError:
        return False
    return not is_locked(path)


def drop_abandoned(layout: Layout, session: SessionID) -> bool:
    """Remove what a dead holder left of its lease. Return False if somebody holds it by now."""
    path, disk = layout.run(session), Disk()
    with try_locked(path) as mine:
        if mine:
            disk.remove(owner_path(path))
            disk.remove(path)
        return mine
