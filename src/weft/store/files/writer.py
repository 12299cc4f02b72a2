"""Carry out a write plan, all or nothing, even if the disk fails or the process dies."""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from weft.host.files import Disk, read_file
from weft.host.now import now as read_clock
from weft.model.ids import SessionID
from weft.store.files.batch import GrowthAppend, WritePlan
from weft.store.files.chain import ChainAppend, ChainFiles, PlannedEntry
from weft.store.files.creation_order import is_reordered, note_changes
from weft.store.files.documents import LIMIT
from weft.store.files.layout import Layout
from weft.store.files.lock import (
    NotePointer,
    RenameStep,
    SessionLocks,
    WriteAheadNote,
    apply_rename,
    encode_note,
)

# From this many documents on, one sync of the whole file system is cheaper than one for each file.
FLUSH_ALL_FROM = 100


class RollbackFailedError(OSError):
    """A batch could neither be finished nor rolled back. Its write-ahead note stays, so that the next writer finishes it."""


class BatchWriter:
    """Writes plans. The caller holds the locks. `flush` syncs to disk before returning."""

    def __init__(self, layout: Layout, disk: Disk, locks: SessionLocks) -> None:
        self._layout = layout
        self._disk = disk
        self._locks = locks
        self._chains = ChainFiles(layout, disk)
        self._unflushed: dict[str, dict[str, None]] = {}

    def write(self, plan: WritePlan, locks: tuple[str, ...], *, flush: bool, repair: bool = False) -> None:
        """Write a plan, and what it changes into the chains of its sessions. A `repair` is named as such there."""
        if plan.extension:
            touched = self._extend(plan.extension)
        else:
            touched = self._replace(plan, locks, flush=flush, repair=repair)
        for lock in locks:
            waiting = self._unflushed.setdefault(lock, {})
            for path in plan.puts if flush else ():
                waiting.pop(path, None)  # it was flushed before its rename
            waiting.update(dict.fromkeys(touched))
        if flush:
            self.flush_locks(locks)
        self._tidy(plan)

    def forget_chain(self, session: SessionID) -> None:
        """Forget what is known of the chain of a session that was removed."""
        self._chains.forget(session)

    def has_unflushed(self, lock: str) -> bool:
        return bool(self._unflushed.get(lock))

    def flush_locks(self, locks: Sequence[str]) -> None:
        """Flush all that was written under these locks. What a failing disk refuses is tried again the next time."""
        self._flush(path for lock in locks for path in self._unflushed.get(lock, ()))
        for lock in locks:
            self._unflushed.pop(lock, None)

    def _extend(self, extension: GrowthAppend) -> list[str]:
        self._disk.extend(extension.path, extension.at, extension.raw)
        return [extension.path, os.path.dirname(extension.path)]

    def _replace(self, plan: WritePlan, locks: tuple[str, ...], *, flush: bool, repair: bool) -> list[str]:
        """Write temporary files, save a write-ahead note, extend chains, rename, delete the note. A plan of one rename needs no note.

        Return the paths that still need a flush.
        """
        steps, contents = self._to_steps(plan, locks)
        now = read_clock()
        entries = [
            self._chains.plan(session, changes, now=now, repair=repair)
            for session, changes in plan.chained.items()
        ]
        reordered = self._list_reordered(plan)
        asides = [self._layout.absolute(step.source) for step in steps if step.way == "in"]
        note: WriteAheadNote | None = None
        try:
            is_atomic = _is_atomic(plan, steps, locks)
            flushed = set(contents) if flush else self._list_replacing(steps, locks)
            self._prepare(contents, flushed, whole=flush, noted=flush and not is_atomic)
            before: dict[str, bytes | None] = {}
            if not is_atomic:
                before = {path: _find(path) for path in plan.puts if os.path.dirname(path) not in plan.fresh}
                appends = tuple(self._chains.to_append(entry) for entry in entries)
                note = self._write_note(steps, appends, locks, flush=flush)
            touched = [path for entry in entries for path in self._chains.write(entry, head=flush)]
            touched += self._apply_all(steps, before, flush=flush, flushed=flushed)
        except RollbackFailedError:
            raise  # keep the note and the files it needs
        except OSError:
            self._take_back(entries)
            if note is not None:
                self._locks.forget(note)
                if flush:
                    self._flush_taken_back()
            self._remove(asides)
            raise
        if note is not None:
            self._locks.forget(note)
        for entry in entries:
            self._chains.note_written(entry)
        note_changes(self._layout, reordered)
        self._remove(self._layout.absolute(step.target) for step in steps if step.way == "out")
        return touched

    def _take_back(self, entries: Iterable[PlannedEntry]) -> None:
        for entry in entries:
            with suppress(OSError):
                self._chains.take_back(entry)

    def _list_reordered(self, plan: WritePlan) -> list[str]:
        """Return the documents whose entries in the creation order are wrong after this write."""
        relative, sessions = self._layout.relative, f"{self._layout.collection('session')}/"
        replaced = [
            path
            for path, raw in plan.puts.items()
            if path.startswith(sessions) and is_reordered(self._layout, path, raw)
        ]
        return [relative(path) for path in (*plan.drops, *plan.moves, *replaced) if path.startswith(sessions)]

    def _list_replacing(self, steps: list[RenameStep], locks: tuple[str, ...]) -> set[str]:
        """Return the temporary files that replace a document which was flushed to the disk.

        They must be flushed before they are renamed: a power cut could keep the rename, lose their bytes, and so destroy the document.
        """
        return {
            self._layout.absolute(step.source)
            for step in steps
            if step.way == "in"
            and not any(self._layout.absolute(step.target) in self._unflushed.get(lock, ()) for lock in locks)
            and os.path.lexists(self._layout.absolute(step.target))
        }

    def _prepare(self, contents: dict[str, bytes], flushed: set[str], *, whole: bool, noted: bool) -> None:
        """Write temporary files, and flush those of `flushed`.

        `whole` also flushes the new directories that hold some of them, and `noted` the one that holds the others: a note that is
        on the disk itself must not name files that are not.
        """
        if len(contents) > FLUSH_ALL_FROM:
            self._disk.prepare_many(list(contents.items()))
        else:
            for temp, raw in contents.items():
                self._disk.prepare(temp, raw)
        if len(flushed) > FLUSH_ALL_FROM:
            self._disk.flush_all()
            return
        directories = {os.path.dirname(temp) for temp in contents} - {self._layout.temps} if whole else set()
        if noted:
            directories.add(self._layout.temps)
        self._flush([*(temp for temp in contents if temp in flushed), *sorted(directories)])

    def _to_steps(self, plan: WritePlan, locks: tuple[str, ...]) -> tuple[list[RenameStep], dict[str, bytes]]:
        """Return the renames that make up the plan, and the contents of the temporary files they need."""
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
        steps = [RenameStep("out", relative(path), relative(aside(path))) for path in plan.clears]
        steps += [RenameStep("stay", relative(path), relative(target)) for path, target in plan.moves.items()]
        steps += [RenameStep("in", relative(aside(path)), relative(path)) for path in whole]
        steps += [RenameStep("out", relative(path), relative(aside(path))) for path in plan.drops]
        return steps, contents

    def _write_note(
        self, steps: list[RenameStep], chains: tuple[ChainAppend, ...], locks: tuple[str, ...], *, flush: bool
    ) -> WriteAheadNote:
        note = WriteAheadNote(locks=locks, steps=tuple(steps), chains=chains)
        first, *others = (self._layout.note(lock) for lock in locks)
        try:
            # The pointers come first: whoever takes any of the locks must find the note.
            for path in others:
                self._disk.prepare(path, encode_note(NotePointer(see=locks[0])), flush=flush)
            self._disk.prepare(first, encode_note(note), flush=flush)
            if flush:
                self._disk.flush(self._layout.notes)
        except OSError:
            self._take_back_note((first, *others))
            if flush:
                self._flush_taken_back()
            raise
        return note

    def _take_back_note(self, paths: Iterable[str]) -> None:
        """Remove a note that could not be written. If that fails too, raise: the next writer may find a complete note, and finish the batch."""
        try:
            for path in paths:
                self._disk.remove(path)
        except OSError as error:
            raise RollbackFailedError(*error.args) from error

    def _flush_taken_back(self) -> None:
        """Flush the removal of a note. Otherwise a power cut could bring back a write that was reported as failed."""
        with suppress(OSError):
            self._disk.flush(self._layout.notes)

    def _apply_all(
        self, steps: list[RenameStep], before: dict[str, bytes | None], *, flush: bool, flushed: set[str]
    ) -> list[str]:
        touched: list[str] = []
        taken: list[RenameStep] = []
        try:
            for step in steps:
                made = apply_rename(step, self._disk, self._layout.root)
                taken.append(step)
                is_flushed = flush or self._layout.absolute(step.source) in flushed
                touched += _list_touched(step, self._layout.root, made, flushed=is_flushed)
        except OSError:
            self._roll_back(taken, before)
            raise
        return touched

    def _roll_back(self, taken: list[RenameStep], before: dict[str, bytes | None]) -> None:
        """Rename everything back. If that fails, the note stays and the next writer finishes the batch."""
        try:
            for step in reversed(taken):
                self._roll_back_step(step, before)
        except OSError as error:
            raise RollbackFailedError(*error.args) from error

    def _roll_back_step(self, step: RenameStep, before: dict[str, bytes | None]) -> None:
        source, target = self._layout.absolute(step.source), self._layout.absolute(step.target)
        old = before.get(target) if step.way == "in" else None
        if old is not None:
            # This is written before anything is moved, so that a full disk leaves the document in its place. It is flushed, because
            # a power cut after the rename could otherwise leave an empty file instead of the document.
            self._disk.prepare(f"{source}.old", old, flush=True)
        if step.way != "in":
            self._disk.prune(source)
        self._disk.move(target, source)
        if old is not None:
            self._disk.move(f"{source}.old", target)

    def _flush(self, paths: Iterable[str]) -> None:
        self._disk.flush_many(list(dict.fromkeys(paths)))

    def _tidy(self, plan: WritePlan) -> None:
        """Remove files without effect and empty directories. Failures are ignored."""
        self._remove(plan.tidy)
        gone = (*plan.tidy, *plan.drops, *plan.clears, *plan.moves)
        for directory in dict.fromkeys(os.path.dirname(path) for path in gone):
            self._disk.prune(directory)

    def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            with suppress(OSError):
                self._disk.remove(path)


def _is_atomic(plan: WritePlan, steps: list[RenameStep], locks: tuple[str, ...]) -> bool:
    """Return True if a plan needs no note: it is one rename, and the entry of the chain names the temporary file that it moves."""
    if not steps:
        return len(plan.chained) < 2  # noqa: PLR2004  one entry is one write
    if not plan.chained:
        return len(steps) == 1
    changes = [change for each in plan.chained.values() for change in each.changes]
    return len(steps) == len(changes) == len(locks) == 1 and steps[0].way == "in"


def _list_touched(step: RenameStep, root: str, made: list[str], *, flushed: bool) -> list[str]:
    """Return the directories whose entries changed, and the file itself if it was not flushed when it was written."""
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
