"""Writer: carries out a plan, all or nothing, whether the disk fails or the process dies."""

import os
from collections.abc import Iterable
from contextlib import suppress

from weft.host.files import Disk, read_file
from weft.store.batch import Extension, Plan
from weft.store.documents import LIMIT
from weft.store.guard import Guard
from weft.store.layout import Layout
from weft.store.redo import Note, Pointer, Step, take, to_bytes


class UndoFailedError(OSError):
    """A batch could neither be finished nor taken back. Its note says how to finish it."""


class Writer:
    """Whoever calls it holds the locks. `flush` is for what must be on the disk itself before anybody is told."""

    def __init__(self, layout: Layout, disk: Disk, guard: Guard) -> None:
        self._layout = layout
        self._disk = disk
        self._guard = guard
        self._unflushed: dict[str, dict[str, None]] = {}

    def write(self, plan: Plan, locks: tuple[str, ...], *, flush: bool) -> None:
        touched = self._extend(plan.extension) if plan.extension else self._replace(plan, locks, flush=flush)
        if flush:
            # What belongs to a promise was written before it as well as with it.
            before = [path for lock in locks for path in self._unflushed.pop(lock, ())]
            self._flush([*before, *touched])
        else:
            for lock in locks:
                self._unflushed.setdefault(lock, {}).update(dict.fromkeys(touched))
        self._tidy(plan)

    def _extend(self, extension: Extension) -> list[str]:
        self._disk.extend(extension.path, extension.at, extension.raw)
        return [extension.path, os.path.dirname(extension.path)]

    def _replace(self, plan: Plan, locks: tuple[str, ...], *, flush: bool) -> list[str]:
        """Write aside, note, rename, forget the note. Gives back what a flush is to flush."""
        steps, contents = self._steps(plan, locks)
        note: Note | None = None
        try:
            for temp, raw in contents.items():
                self._disk.prepare(temp, raw, flush=flush)
            before = {path: _find(path) for path in plan.puts}
            if len(steps) > 1:
                note = self._note(steps, locks, flush=flush)
            touched = self._take_all(steps, before, flush=flush)
        except UndoFailedError:
            raise  # the note and what it needs stay
        except OSError:
            if note is not None:
                self._guard.forget(note)
            self._remove(contents)
            raise
        if note is not None:
            self._guard.forget(note)
        self._remove(self._layout.absolute(step.target) for step in steps if step.way == "out")
        return touched

    def _steps(self, plan: Plan, locks: tuple[str, ...]) -> tuple[list[Step], dict[str, bytes]]:
        """The renames that make up the plan, and what has to be written aside for them."""
        token = os.urandom(6).hex()
        ways = [("out", path) for path in plan.clears]
        ways += [("in", path) for path in plan.puts]
        ways += [("out", path) for path in plan.drops]
        steps: list[Step] = []
        contents: dict[str, bytes] = {}
        for number, (way, path) in enumerate(ways):
            aside = self._layout.temp(locks[0], f"{token}.{number}")
            here, there = self._layout.relative(path), self._layout.relative(aside)
            steps.append(Step("in", there, here) if way == "in" else Step("out", here, there))
            if way == "in":
                contents[aside] = plan.puts[path]
        return steps, contents

    def _note(self, steps: list[Step], locks: tuple[str, ...], *, flush: bool) -> Note:
        note = Note(locks=locks, steps=tuple(steps))
        first, *others = (self._layout.redo(lock) for lock in locks)
        try:
            # Whoever takes any of the locks must find the note, so that is seen to before it says anything.
            for path in others:
                self._disk.prepare(path, to_bytes(Pointer(see=locks[0])), flush=flush)
            self._disk.prepare(first, to_bytes(note), flush=flush)
            if flush:
                self._disk.flush(self._layout.temps)
                self._disk.flush(self._layout.redos)
        except OSError:
            self._remove((first, *others))
            raise
        return note

    def _take_all(self, steps: list[Step], before: dict[str, bytes | None], *, flush: bool) -> list[str]:
        touched: list[str] = []
        taken: list[Step] = []
        try:
            for step in steps:
                made = take(step, self._disk, self._layout.root)
                taken.append(step)
                touched += _touched(step, self._layout.root, made, flushed=flush)
        except OSError:
            self._undo(taken, before)
            raise
        return touched

    def _undo(self, taken: list[Step], before: dict[str, bytes | None]) -> None:
        """Rename back. Should that fail too, the note is still there, and the next to come finishes the batch."""
        try:
            for step in reversed(taken):
                self._undo_step(step, before)
        except OSError as error:
            raise UndoFailedError(*error.args) from error

    def _undo_step(self, step: Step, before: dict[str, bytes | None]) -> None:
        source, target = self._layout.absolute(step.source), self._layout.absolute(step.target)
        if step.way == "out":
            self._disk.prune(source)
        self._disk.move(target, source)
        old = before.get(target) if step.way == "in" else None
        if old is not None:
            self._disk.prepare(f"{source}.old", old)
            self._disk.move(f"{source}.old", target)

    def _flush(self, paths: Iterable[str]) -> None:
        for path in dict.fromkeys(paths):
            self._disk.flush(path)

    def _tidy(self, plan: Plan) -> None:
        """Remove what counts for nothing and the directories left empty. That it fails hurts nobody."""
        self._remove(plan.tidy)
        for path in (*plan.tidy, *plan.drops, *plan.clears):
            self._disk.prune(os.path.dirname(path))

    def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            with suppress(OSError):
                self._disk.remove(path)


def _touched(step: Step, root: str, made: list[str], *, flushed: bool) -> list[str]:
    """The directories whose entries changed, and the file itself if it was not flushed when it was written."""
    directories = [os.path.dirname(path) for path in made]
    if step.way == "out":
        return [*directories, os.path.dirname(f"{root}/{step.source}")]
    target = f"{root}/{step.target}"
    return [*directories, os.path.dirname(target), *([] if flushed else [target])]


def _find(path: str) -> bytes | None:
    try:
        return read_file(path, limit=LIMIT)[0]
    except FileNotFoundError:
        return None
