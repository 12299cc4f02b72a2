"""Locks and leases of sessions in files: who may write, who runs a session, and finishing what a dead writer began."""

import os
import zlib
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from typing import Literal, TypeVar

import msgspec

from weft.errors import DocumentError, InvalidIdError, SessionBusyError
from weft.host.files import (
    Disk,
    is_locked,
    leave_mark,
    locked,
    make_directory,
    mark_of,
    read_bytes,
    read_file,
    share_locked,
    try_locked,
    wait_a_moment,
    write_atomic,
)
from weft.model.ids import SessionID, file_name
from weft.model.wire import decode, encode
from weft.store.files.documents import LIMIT
from weft.store.files.layout import TEMP_MARK, Layout


class Step(msgspec.Struct, frozen=True, array_like=True):
    """A rename: `in`to place of what was written aside, `out` of the way of what is to go, or to where it is to `stay`."""

    way: Literal["in", "out", "stay"]
    source: str
    target: str


class Note(msgspec.Struct, frozen=True):
    """The steps of one batch (paths below the root), and the locks that must be held to take them."""

    locks: tuple[str, ...]
    steps: tuple[Step, ...]


class Pointer(msgspec.Struct, frozen=True):
    """A batch that needs this lock too has its note under another."""

    see: str


def to_bytes(note: Note | Pointer) -> bytes:
    raw = encode(note)
    return b"%08x " % zlib.crc32(raw) + raw


def find_note(path: str) -> Note | Pointer | None:
    """The note, if there is one and it is whole."""
    try:
        raw, _ = read_file(path, limit=LIMIT)
    except FileNotFoundError:
        return None
    check, _, body = raw.partition(b" ")
    if check != b"%08x" % zlib.crc32(body):
        return None
    try:
        return decode(body, Pointer) if body.startswith(b'{"see"') else decode(body, Note)
    except DocumentError:
        return None


def take(step: Step, disk: Disk, root: str) -> list[str]:
    """Take a step, if it has not been taken. Gives back the directories that had to be made."""
    source, target = f"{root}/{step.source}", f"{root}/{step.target}"
    taken = step.way != "in" and os.path.lexists(target)
    return disk.move(source, target) if not taken and os.path.lexists(source) else []


T = TypeVar("T")

ATTEMPTS = 3

Marked = Callable[[str, bytes, bytes], None]


def nobody_told(lock: str, before: bytes, mark: bytes) -> None:
    """For who remembers nothing."""
    del lock, before, mark


class Guard:
    """Every holder of a lock leaves a mark in it before anything else, so that a reader can tell whether anybody has
    written since it last looked. `marked` is told of our own: under which lock, in place of which mark."""

    def __init__(self, layout: Layout, disk: Disk, marked: Marked = nobody_told) -> None:
        self._layout = layout
        self._disk = disk
        self._marked = marked

    @contextmanager
    def writing(self, locks: Iterable[str]) -> Generator[tuple[str, ...]]:
        """Hold these locks, with nothing left half done under any of them. Gives back those that are held."""
        wanted = tuple(sorted(set(locks)))
        while True:
            with ExitStack() as held:
                for name in wanted:  # everybody takes them in the same order, so nobody waits in a circle
                    fd = held.enter_context(locked(self._layout.lock(name)))
                    before = mark_of(fd)
                    self._marked(name, before, leave_mark(fd))
                missing = self._finish(wanted)
                if not missing:
                    yield wanted
                    return
            wanted = tuple(sorted({*wanted, *missing}))

    def reading(self, lock: str, read: Callable[[bytes | None], T]) -> T:
        """What `read` gives, with no batch under this lock half done while it reads. It is handed the mark of who
        wrote last; None when nothing is sure."""
        path = self._layout.lock(lock)
        for _ in range(ATTEMPTS):
            with share_locked(path) as shared:
                if self._is_noted(lock):
                    break
                found = read(None if shared is None else mark_of(shared))
                # Without a lock file there was no writer; if there is one now, one may have come meanwhile.
                if shared is not None or not os.path.exists(path):
                    return found
        with suppress(OSError), self.writing([lock]):
            return read(None)
        return read(None)  # nothing can be finished where nothing can be written: read what there is

    def recover(self) -> None:
        """Finish what dead writers began, and sweep away what they were writing. Waits for nobody.

        What cannot be finished holds up nothing else; the first `OSError` is raised once the rest is done.
        """
        errors: list[OSError] = []
        for name in _names(self._layout.redos):
            with _collected(errors):
                self._visit(name)
        for name in _names(self._layout.temps):
            with _collected(errors):
                self._sweep(name)
        if errors:
            raise errors[0]

    def _sweep(self, temp: str) -> None:
        lock, _, _ = temp.partition(TEMP_MARK)
        if self._visit(lock):
            with try_locked(self._layout.lock(lock)) as mine:
                if mine and not self._is_noted(lock):
                    self._disk.remove(f"{self._layout.temps}/{temp}")

    def has_leftovers(self) -> bool:
        return bool(_names(self._layout.redos))

    def _visit(self, lock: str) -> bool:
        with try_locked(self._layout.lock(lock)) as mine:
            if not mine:
                return False
        with self.writing([lock]):
            return True

    def _is_noted(self, lock: str) -> bool:
        return os.path.exists(self._layout.redo(lock))

    def _finish(self, held: tuple[str, ...]) -> set[str]:
        """Carry out the notes under the locks held. Gives back the further locks that it takes."""
        missing: set[str] = set()
        for name in held:
            if self._is_noted(name):
                note = self._note(name)
                if note is None:
                    self._disk.remove(self._layout.redo(name))
                elif set(note.locks) <= set(held):
                    self._carry_out(note)
                else:
                    missing.update(note.locks)
        return missing

    def _note(self, lock: str) -> Note | None:
        found = find_note(self._layout.redo(lock))
        if isinstance(found, Pointer):
            found = find_note(self._layout.redo(found.see))
        return found if isinstance(found, Note) and lock in found.locks else None

    def _carry_out(self, note: Note) -> None:
        for lock in note.locks:
            self._marked(lock, b"", b"")  # what is known of it no longer holds, whoever began this
        for step in note.steps:
            take(step, self._disk, self._layout.root)
        self.forget(note)
        for step in note.steps:
            if step.way == "out":
                self._disk.remove(self._layout.absolute(step.target))

    def forget(self, note: Note) -> None:
        """The note first: what points to it means nothing without it."""
        for lock in note.locks:
            self._disk.remove(self._layout.redo(lock))


@contextmanager
def _collected(errors: list[OSError]) -> Generator[None]:
    try:
        yield
    except OSError as error:
        errors.append(error)


def _names(directory: str) -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(os.listdir(directory))
    return []


OWNER = ".owner"
OWNER_LIMIT = 4096


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
