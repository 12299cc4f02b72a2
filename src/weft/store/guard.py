"""Guard: who may write, who may read meanwhile, and finishing what a dead writer began.

A lock is a file that a process holds, so a dead process holds none. Whoever takes a lock first looks for the note of
a batch that was cut short, and finishes it: nobody ever works on half a batch.
"""

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from typing import TypeVar

from weft.host.files import Disk, leave_mark, locked, mark_of, share_locked, try_locked
from weft.store.layout import TEMP_MARK, Layout
from weft.store.redo import Note, Pointer, find_note, take

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
