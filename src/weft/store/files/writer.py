"""Carry out a batch, all or nothing, even if the disk fails or the process dies."""

import os
from collections.abc import Iterable
from contextlib import suppress

from weft.host.files import Disk, read_file
from weft.store.files.batch import Extension, Plan
from weft.store.files.documents import LIMIT
from weft.store.files.layout import Layout
from weft.store.files.lock import Guard, Note, Pointer, Step, take, to_bytes

# From so many documents on, having everything on the disk at once costs less than one after the other.
MANY = 100


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
            # What belongs to a promise was written before it as well as with it. What has just been put was flushed aside.
            before = [
                path for lock in locks for path in self._unflushed.pop(lock, ()) if path not in plan.puts
            ]
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
        asides = [self._layout.absolute(step.source) for step in steps if step.way == "in"]
        note: Note | None = None
        try:
            self._prepare(contents, flush=flush)
            before: dict[str, bytes | None] = {}
            if len(steps) > 1:  # a single one is taken or not, and there is nothing to take back
                before = {path: _find(path) for path in plan.puts if os.path.dirname(path) not in plan.fresh}
                note = self._note(steps, locks, flush=flush)
            touched = self._take_all(steps, before, flush=flush)
        except UndoFailedError:
            raise  # the note and what it needs stay
        except OSError:
            if note is not None:
                self._guard.forget(note)
            self._remove(asides)
            raise
        if note is not None:
            self._guard.forget(note)
        self._remove(self._layout.absolute(step.target) for step in steps if step.way == "out")
        return touched

    def _prepare(self, contents: dict[str, bytes], *, flush: bool) -> None:
        if len(contents) > MANY:
            self._disk.prepare_many(list(contents.items()))
            if flush:
                self._disk.flush_all()
            return
        for temp, raw in contents.items():
            self._disk.prepare(temp, raw, flush=flush)
        if flush:
            self._flush(
                os.path.dirname(temp) for temp in contents if "/" in temp[len(self._layout.temps) + 1 :]
            )

    def _steps(self, plan: Plan, locks: tuple[str, ...]) -> tuple[list[Step], dict[str, bytes]]:
        """The renames that make up the plan, and what has to be written aside for them."""
        token, relative = os.urandom(6).hex(), self._layout.relative
        asides: dict[str, str] = {}

        def aside(path: str) -> str:
            return asides.setdefault(path, self._layout.temp(locks[0], f"{token}.{len(asides)}"))

        contents: dict[str, bytes] = {}
        whole: dict[str, None] = {}
        for path, raw in plan.puts.items():
            directory, _, name = path.rpartition("/")
            if directory in plan.fresh:
                whole[directory] = None
                contents[f"{aside(directory)}/{name}"] = raw
            else:
                whole[path] = None
                contents[aside(path)] = raw
        steps = [Step("out", relative(path), relative(aside(path))) for path in plan.clears]
        steps += [Step("stay", relative(path), relative(target)) for path, target in plan.moves.items()]
        steps += [Step("in", relative(aside(path)), relative(path)) for path in whole]
        steps += [Step("out", relative(path), relative(aside(path))) for path in plan.drops]
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
        if step.way != "in":
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
        gone = (*plan.tidy, *plan.drops, *plan.clears, *plan.moves)
        for directory in dict.fromkeys(os.path.dirname(path) for path in gone):
            self._disk.prune(directory)

    def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            with suppress(OSError):
                self._disk.remove(path)


def _touched(step: Step, root: str, made: list[str], *, flushed: bool) -> list[str]:
    """The directories whose entries changed, and the file itself if it was not flushed when it was written."""
    directories = [os.path.dirname(path) for path in made]
    source, target = f"{root}/{step.source}", f"{root}/{step.target}"
    match step.way:
        case "out":
            return [*directories, os.path.dirname(source)]
        case "stay":
            return [*directories, os.path.dirname(source), os.path.dirname(target)]
        case "in":
            return [*directories, os.path.dirname(target), *([] if flushed else [target])]


def _find(path: str) -> bytes | None:
    try:
        return read_file(path, limit=LIMIT)[0]
    except FileNotFoundError:
        return None
