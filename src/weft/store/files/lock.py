"""Locks, leases and write-ahead notes: exclude other writers and runs, and finish the writes of dead processes."""

import os
import zlib
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from typing import Literal, TypeVar

import msgspec

from weft.errors import DocumentError, InvalidIdError, LeaseLostError, SessionBusyError
from weft.host.files import (
    Disk,
    hold_lock,
    is_locked,
    make_directory,
    read_bytes,
    read_file,
    read_mark,
    share_lock,
    try_lock,
    wait_briefly,
    write_mark,
)
from weft.model.ids import SessionID, check_file_name
from weft.model.wire import decode, encode
from weft.store.files.chain import ChainAppend, drop_unapplied, write_append
from weft.store.files.creation_order import note_changes
from weft.store.files.documents import LIMIT
from weft.store.files.layout import SESSION_LOCK_PREFIX, TEMP_MARK, Layout
from weft.store.lease import LeaseToken

# --- write-ahead notes ---


class RenameStep(msgspec.Struct, frozen=True, array_like=True):
    """A rename: `in` moves a new file into place, `out` a removed file to a temporary name, and `stay` a file to a new place."""

    way: Literal["in", "out", "stay"]
    source: str
    target: str


class WriteAheadNote(msgspec.Struct, frozen=True):
    """The renames of one batch (paths relative to the root), the entries that it adds to chains, and the locks that must be held
    to carry them out."""

    locks: tuple[str, ...]
    steps: tuple[RenameStep, ...]
    chains: tuple[ChainAppend, ...] = ()


class NotePointer(msgspec.Struct, frozen=True):
    """Says that the note of a batch that needs this lock is stored under another lock."""

    see: str


def encode_note(note: WriteAheadNote | NotePointer) -> bytes:
    raw = encode(note)
    return b"%08x " % zlib.crc32(raw) + raw


def find_note(path: str) -> WriteAheadNote | NotePointer | None:
    """Return the note at a path, None if there is none or it is incomplete."""
    try:
        raw, _ = read_file(path, limit=LIMIT)
    except FileNotFoundError:
        return None
    check, _, body = raw.partition(b" ")
    if check != b"%08x" % zlib.crc32(body):
        return None
    try:
        return decode(body, NotePointer) if body.startswith(b'{"see"') else decode(body, WriteAheadNote)
    except DocumentError:
        return None


def apply_rename(step: RenameStep, disk: Disk, root: str) -> list[str]:
    """Carry out a rename unless it was done before. Return the directories that were created."""
    source, target = f"{root}/{step.source}", f"{root}/{step.target}"
    taken = step.way != "in" and os.path.lexists(target)
    return disk.move(source, target) if not taken and os.path.lexists(source) else []


# --- locks ---

T = TypeVar("T")

ATTEMPTS = 3

MarkCallback = Callable[[str, bytes, bytes], None]


def ignore_mark(lock: str, before: bytes, mark: bytes) -> None:
    """Ignore the mark, for users without a cache."""
    del lock, before, mark


class SessionLocks:
    """Takes locks and recovers unfinished writes.

    Every holder of a lock first leaves a mark in it, so that a reader can tell whether anybody has written since its last
    read. `on_mark` is called for our own marks with the lock, the mark before and the new mark.
    """

    def __init__(self, layout: Layout, disk: Disk, on_mark: MarkCallback = ignore_mark) -> None:
        self._layout = layout
        self._disk = disk
        self._on_mark = on_mark

    @contextmanager
    def writing(self, locks: Iterable[str]) -> Generator[tuple[str, ...]]:
        """Hold these locks, with no unfinished batch under any of them. Yield all locks that are held."""
        wanted = tuple(sorted(set(locks)))
        while True:
            with ExitStack() as held:
                for name in wanted:  # sorted, so that two writers cannot deadlock
                    fd = held.enter_context(hold_lock(self._layout.lock(name)))
                    before = read_mark(fd)
                    self._on_mark(name, before, write_mark(fd))
                missing = self._finish(wanted)
                if not missing:
                    yield wanted
                    return
            wanted = tuple(sorted({*wanted, *missing}))

    def reading(self, lock: str, read: Callable[[bytes | None], T]) -> T:
        """Return the result of `read`, which runs while no batch under this lock is unfinished.

        `read` is passed the mark of the last writer, None if it is uncertain.
        """
        path = self._layout.lock(lock)
        for _ in range(ATTEMPTS):
            with share_lock(path) as shared:
                if self._is_noted(lock):
                    break
                found = read(None if shared is None else read_mark(shared))
                # Without a lock file there was no writer. If there is one now, a writer may have come meanwhile.
                if shared is not None or not os.path.exists(path):
                    return found
        with suppress(OSError), self.writing([lock]):
            return read(None)
        return read(None)  # on a read-only disk nothing can be finished: read what there is

    def recover(self) -> None:
        """Finish the batches of dead writers and remove their temporary files. Skip those whose lock somebody holds.

        One failure does not stop the rest. The first `OSError` is raised at the end.
        """
        errors: list[OSError] = []
        for name in _list_names(self._layout.notes):
            with _collect(errors):
                self._try_finish(name)
        for name in _list_names(self._layout.temps):
            with _collect(errors):
                self._remove_temp(name)
        if errors:
            raise errors[0]

    def _remove_temp(self, temp: str) -> None:
        lock, _, _ = temp.partition(TEMP_MARK)
        if self._try_finish(lock):
            with try_lock(self._layout.lock(lock)) as mine:
                if mine and not self._is_noted(lock):
                    if lock.startswith(SESSION_LOCK_PREFIX):
                        session = SessionID(lock.removeprefix(SESSION_LOCK_PREFIX))
                        drop_unapplied(self._layout, self._disk, session)
                    self._disk.remove(f"{self._layout.temps}/{temp}")

    def has_unfinished(self) -> bool:
        return bool(_list_names(self._layout.notes))

    def _try_finish(self, lock: str) -> bool:
        with try_lock(self._layout.lock(lock)) as mine:
            if not mine:
                return False
        with self.writing([lock]):
            return True

    def _is_noted(self, lock: str) -> bool:
        return os.path.exists(self._layout.note(lock))

    def _finish(self, held: tuple[str, ...]) -> set[str]:
        """Carry out the notes under the held locks. Return further locks that are needed first."""
        missing: set[str] = set()
        for name in held:
            if self._is_noted(name):
                note = self._find_note(name)
                if note is None:
                    self._disk.remove(self._layout.note(name))
                elif set(note.locks) <= set(held):
                    self._carry_out(note)
                else:
                    missing.update(note.locks)
        return missing

    def _find_note(self, lock: str) -> WriteAheadNote | None:
        found = find_note(self._layout.note(lock))
        if isinstance(found, NotePointer):
            found = find_note(self._layout.note(found.see))
        return found if isinstance(found, WriteAheadNote) and lock in found.locks else None

    def _carry_out(self, note: WriteAheadNote) -> None:
        for lock in note.locks:
            self._on_mark(lock, b"", b"")  # cached data is stale, whoever began this batch
        for append in note.chains:
            write_append(self._layout, self._disk, append)
        for step in note.steps:
            apply_rename(step, self._disk, self._layout.root)
        # Its writer flushed some of it at most, and later writes that are flushed rely on all of it.
        self._disk.flush_all()
        self.forget(note)
        note_changes(self._layout, (step.target if step.way == "in" else step.source for step in note.steps))
        for step in note.steps:
            if step.way == "out":
                self._disk.remove(self._layout.absolute(step.target))

    def forget(self, note: WriteAheadNote) -> None:
        """Delete a note before the pointers to it: a pointer without a note has no effect."""
        for lock in note.locks:
            self._disk.remove(self._layout.note(lock))


@contextmanager
def _collect(errors: list[OSError]) -> Generator[None]:
    try:
        yield
    except OSError as error:
        errors.append(error)


def _list_names(directory: str) -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(os.listdir(directory))
    return []


# --- leases ---

OWNER = ".owner"
OWNER_LIMIT = 4096
GENERATION_BYTES = 7


class Lease:
    """Marks a session as running, from construction until `leave`. Raises `SessionBusyError` if somebody else holds it."""

    def __init__(self, layout: Layout, disk: Disk, session: SessionID, owner: str) -> None:
        self._disk = disk
        self._path = layout.lease(session)
        self._owner = owner_path(self._path)
        self._held = ExitStack()
        make_directory(layout.leases)
        is_abandoned = os.path.exists(self._path)
        if not self._take():
            raise SessionBusyError(session, find_owner(self._path))
        self.token = LeaseToken(session, int.from_bytes(os.urandom(GENERATION_BYTES)))
        try:
            disk.extend(self._path, 0, _encode_generation(self.token))
            disk.prepare(f"{self._owner}~", owner.encode())
            disk.move(f"{self._owner}~", self._owner)
            if is_abandoned:
                # Its holder died. Its last writes may not be flushed yet, and later ones rely on them.
                disk.flush_all()
        except OSError:
            self._held.close()
            raise

    def _take(self) -> bool:
        # A process that only checks whether the lease is free holds it for a moment.
        for _ in range(ATTEMPTS):
            if self._held.enter_context(try_lock(self._path)):
                return True
            wait_briefly()
        return False

    def leave(self) -> None:
        """Release the lease. Remove the files first, so that nobody takes the session for abandoned.

        If somebody took over the lease meanwhile, the files are theirs, and stay.
        """
        with suppress(OSError):
            if read_bytes(self._path, limit=OWNER_LIMIT) == _encode_generation(self.token):
                self._disk.remove(self._owner)
                self._disk.remove(self._path)
        self._held.close()

    def abandon(self) -> None:
        """Release the lease and leave its files, so that the next process that takes it treats us as dead."""
        self._held.close()


def check_lease(layout: Layout, token: LeaseToken) -> None:
    """Raise `LeaseLostError` if the lease was given back, or somebody removed its file and took it."""
    path = layout.lease(token.session)
    try:
        found = read_bytes(path, limit=OWNER_LIMIT)
    except FileNotFoundError:
        found = b""
    if found != _encode_generation(token):
        raise LeaseLostError(token.session, find_owner(path))


def _encode_generation(token: LeaseToken) -> bytes:
    return b"%d" % token.generation


def find_holder(layout: Layout, session: SessionID) -> str | None:
    """Return the holder of a session's lease, None if nobody holds it."""
    path = layout.lease(session)
    for _ in range(ATTEMPTS):  # a process that only checks holds the lock for a moment
        if not os.path.exists(path) or not is_locked(path):
            return None
        wait_briefly()
    return find_owner(path)


def find_owner(path: str) -> str:
    try:
        return read_bytes(owner_path(path), limit=OWNER_LIMIT).decode(errors="replace")
    except OSError:
        return ""


def owner_path(path: str) -> str:
    return f"{path}{OWNER}"


def list_leased(layout: Layout) -> set[SessionID]:
    """Return the sessions that have a lease, held or abandoned."""
    try:
        names = os.listdir(layout.leases)
    except OSError:
        return set()
    return {SessionID(name) for name in names if not name.endswith((OWNER, "~"))}


def list_abandoned(layout: Layout) -> list[SessionID]:
    """Return the sessions whose holder died without releasing the lease. Other files are ignored."""
    try:
        names = sorted(os.listdir(layout.leases))
    except FileNotFoundError:
        return []
    return [SessionID(name) for name in names if _is_abandoned(f"{layout.leases}/{name}", name)]


def _is_abandoned(path: str, name: str) -> bool:
    if name.endswith((OWNER, "~")) or not os.path.isfile(path):
        return False
    try:
        check_file_name("session", name)
    except InvalidIdError:
        return False
    return not is_locked(path)


def drop_abandoned(layout: Layout, disk: Disk, session: SessionID) -> bool:
    """Remove the lease of a dead holder. Return False if somebody holds it now."""
    path = layout.lease(session)
    with try_lock(path) as mine:
        if mine:
            disk.remove(owner_path(path))
            disk.remove(path)
        return mine
