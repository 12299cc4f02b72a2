"""Restore files as decided, so that a crash leaves an intent to finish or roll back."""

import os
import stat
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.errors import ConflictError, RestoreFailedError, SnapshotMissingError, StoreError
from weft.host.files import Disk, Stamp, read_bytes, share_lock, try_lock, write_atomic
from weft.model.diff import FileFate, Patch
from weft.model.ids import SessionID
from weft.snapshot.contract import Restoration, RestorePlan
from weft.snapshot.decide import (
    CHANGED_SINCE,
    CurrentState,
    FileDecision,
    PatchSides,
    RestoreStep,
    UnknownState,
    decide_restore,
    list_emptied,
)
from weft.snapshot.directory import FileTooLargeError, SafeDirectory, UnexpectedStateError
from weft.snapshot.entry import FileEntry, format_path, is_same, list_parents
from weft.snapshot.ledger import RecordedChange, to_states
from weft.snapshot.location import SnapshotLocation
from weft.snapshot.objects import ObjectStore, pin_trees

MAX_INTENT_BYTES: Final = 256 << 20
BATCH_SIZE: Final = 64
# How long an undo waits for another one in the same directory.
LOCK_SECONDS: Final = 30.0
TOO_LARGE: Final = "it exceeds the size limit of snapshots"
UNREADABLE: Final = "it cannot be read"
WRITE_FAILED: Final = "it could not be written"
CONTENT_LOST: Final = "its earlier content cannot be read any more"
NOT_TRACKED: Final = "it was not tracked"
EARLIER_UNFINISHED: Final = "an earlier restore could be neither finished nor rolled back yet"


class RestoreIntent(Struct, frozen=True, kw_only=True):
    """Everything that is about to change, written beforehand. It suffices to finish the restore or to roll it back."""

    session: SessionID
    note: str
    steps: tuple[RestoreStep, ...]
    emptied: tuple[bytes, ...]
    made: tuple[bytes, ...]
    restoration: Restoration


class Restorer:
    """Carries out restore plans. Every method blocks."""

    def __init__(
        self, place: SnapshotLocation, files: SafeDirectory, objects: ObjectStore, max_file_bytes: int
    ) -> None:
        self._place = place
        self._files = files
        self._objects = objects
        self._limit = max_file_bytes

    def preview(self, plan: RestorePlan) -> Restoration:
        try:
            _, decisions = self._decide(plan)
            fates = self._to_fates(plan, decisions)
        except SnapshotMissingError as error:
            fates = tuple(
                FileFate(file=file, fate="missing", reason=CONTENT_LOST) for file in sorted(error.files)
            )
        return Restoration(session=plan.session, fates=fates, note=plan.note)

    @contextmanager
    def restoring(self, plan: RestorePlan) -> Generator[Restoration]:
        """Restore the files for the body, and keep them so if it does not raise.

        Raise `RestoreFailedError` if a file cannot be written. All files are then as before. If they cannot be put back
        either, the intent stays for `recover`, and the next call raises this error, too. `SnapshotMissingError`, `StoreError` (the
        current files cannot be saved) and `ConflictError` (another undo goes on for too long) are raised before anything is changed.
        """
        with try_lock(self._place.restore_lock, seconds=LOCK_SECONDS) as mine, share_lock(self._place.lock):
            if not mine:
                raise ConflictError("directory", self._place.root, "is being restored by another undo")
            self._refuse_unfinished()
            intent = self._begin(plan)
            if intent is None:
                yield self.preview(plan)
                return
            failed = self._apply(intent.steps, intent.emptied)
            if unwritten := _list_unwritten(failed):
                raise self._give_up(intent, unwritten)
            try:
                yield _correct_result(intent.restoration, self._format_paths(failed))
            except BaseException:
                self._close_intent(self._roll_back(intent))
                raise
            self._close_intent({})

    def _begin(self, plan: RestorePlan) -> RestoreIntent | None:
        """Write the intent. Return None if there is nothing to change."""
        try:
            intent = self._prepare(plan)
            if intent is not None:
                self._write_intent(intent)
        except OSError as error:
            raise StoreError(
                f"the current files cannot be saved ({error.strerror or error}); nothing was changed",
                hint="free some space and try again",
            ) from error
        return intent

    def _refuse_unfinished(self) -> None:
        """Raise `RestoreFailedError` if an earlier restore is neither finished nor rolled back."""
        intent = self._find_intent()
        if intent is not None:
            files = [self._format_path(step.path) for step in intent.steps]
            raise RestoreFailedError(EARLIER_UNFINISHED, files=files, left=files)

    def _give_up(self, intent: RestoreIntent, unwritten: Mapping[bytes, str]) -> RestoreFailedError:
        """Roll back, and return the error to raise."""
        left = self._roll_back(intent)
        self._close_intent(left)
        return RestoreFailedError(
            unwritten[min(unwritten)],
            files=[self._format_path(path) for path in sorted(unwritten)],
            left=[self._format_path(path) for path in sorted(_list_unwritten(left))],
        )

    def _close_intent(self, failed: Mapping[bytes, str]) -> None:
        """Delete the intent, unless some files are still to be written."""
        if not _list_unwritten(failed):
            Disk().remove(self._place.intent)

    def recover(self, *, finish: bool) -> Restoration | None:
        """Finish or roll back the restore of a dead process. Return None if there is none, or its process is alive."""
        with try_lock(self._place.restore_lock) as mine:
            intent = self._find_intent() if mine else None
            if intent is None:
                return None
            for step in intent.steps:
                self._files.remove_temps(step.path)
            failed = self._apply(intent.steps, intent.emptied) if finish else self._roll_back(intent)
            self._close_intent(failed)
            return _correct_result(intent.restoration, self._format_paths(failed))

    def find_interrupted(self) -> tuple[SessionID, str] | None:
        """Return session and note of a restore that a dead process began."""
        if not os.path.exists(self._place.intent):
            return None
        with try_lock(self._place.restore_lock) as mine:
            intent = self._find_intent() if mine else None
            return None if intent is None else (intent.session, intent.note)

    # --- deciding ---

    def _prepare(self, plan: RestorePlan) -> RestoreIntent | None:
        """Return None if there is nothing to do. Raise `SnapshotMissingError` if a content is missing."""
        sides, decisions = self._decide(plan)
        missing = [self._format_path(decision.path) for decision in decisions if decision.fate == "missing"]
        if missing:
            raise SnapshotMissingError(
                f"the earlier content of {missing[0]} cannot be read any more", files=missing
            )
        steps = tuple(decision.step for decision in decisions if decision.step is not None)
        if not steps:
            return None
        self._store_current(steps)
        emptied = list_emptied(sides, steps)
        before, after = to_states(self._to_changes(steps, frozenset(emptied)))
        undo = Patch(
            before=self._objects.write_state(before),
            after=self._objects.write_state(after),
            files=tuple(self._format_path(step.path) for step in steps),
        )
        pin_trees(self._place, plan.session, (undo.before, undo.after))
        made = sorted(after.dirs - before.dirs, key=lambda path: (-path.count(b"/"), path))
        return RestoreIntent(
            session=plan.session,
            note=plan.note,
            steps=steps,
            emptied=tuple(emptied),
            made=tuple(made),
            restoration=Restoration(
                session=plan.session, fates=self._to_fates(plan, decisions), undo=undo, note=plan.note
            ),
        )

    def _decide(self, plan: RestorePlan) -> tuple[list[PatchSides], list[FileDecision]]:
        sides = [self._read_sides(patch) for patch in plan.patches]
        paths = {path for side in sides for path in side.paths}
        if plan.files is not None:
            selected = set(plan.files)
            paths = {path for path in paths if self._format_path(path) in selected}
        current = {path: self._read_state(path) for path in paths}
        decisions = decide_restore(sides, current, set(self._list_blocking(paths)))
        goals = {
            decision.step.goal.oid
            for decision in decisions
            if decision.step is not None and decision.step.goal
        }
        lost = self._objects.find_unreadable(goals)
        return sides, [_mark_lost(decision, lost) for decision in decisions]

    def _read_sides(self, patch: Patch) -> PatchSides:
        try:
            return PatchSides(
                before=self._objects.read_state(patch.before), after=self._objects.read_state(patch.after)
            )
        except SnapshotMissingError as error:
            raise SnapshotMissingError(error.reason, files=patch.files) from error

    def _read_state(self, path: bytes) -> CurrentState:
        status = self._files.find_status(path)
        if status is None or stat.S_ISDIR(status.st_mode):
            return None
        try:
            return self._files.read(path, limit=self._limit)[0]
        except FileTooLargeError:
            return UnknownState(reason=TOO_LARGE)
        except OSError:
            return UnknownState(reason=UNREADABLE)

    def _list_blocking(self, paths: set[bytes]) -> Iterator[bytes]:
        """Yield existing files that are in the place of these files or of their directories."""
        parents = {parent for path in paths for parent in list_parents(path)} - paths
        for parent in parents:
            status = self._files.find_status(parent)
            if status is not None and not stat.S_ISDIR(status.st_mode):
                yield parent
        for path in paths:
            if self._files.is_directory(path):
                yield from (each for each in self._files.list_files(path) if each not in paths)

    def _store_current(self, steps: Iterable[RestoreStep]) -> None:
        """Store the contents that are about to be replaced, even if the space for snapshots is used up.

        Rolling back must not depend on older snapshots.
        """
        for step in steps:
            if step.found is None:
                continue
            try:
                content = self._files.read(step.path, limit=self._limit)[1]
            except (OSError, FileTooLargeError):
                continue  # it changed since it was found, so it will be left alone
            self._objects.write(content, always=True)

    def _to_changes(self, steps: Iterable[RestoreStep], emptied: frozenset[bytes]) -> list[RecordedChange]:
        changes = []
        for step in steps:
            had = self._files.list_existing_parents(step.path)
            has = had - emptied if step.goal is None else {*had, *list_parents(step.path)}
            changes.append(
                RecordedChange(step.path, step.found, step.goal, 0, tuple(sorted(had)), tuple(sorted(has)))
            )
        return changes

    # --- doing ---

    def _apply(self, steps: Sequence[RestoreStep], emptied: Sequence[bytes]) -> dict[bytes, str]:
        """Carry out the steps that are not done yet. Return the files that were not changed, with the reason."""
        failed: dict[bytes, str] = {}
        for step in sorted((each for each in steps if each.goal is None), key=lambda each: each.path)[::-1]:
            failed.update(self._apply_step(step, b""))
        for directory in emptied:
            self._files.prune(directory)
        writes = sorted((each for each in steps if each.goal is not None), key=lambda each: each.path)
        for start in range(0, len(writes), BATCH_SIZE):
            batch = writes[start : start + BATCH_SIZE]
            contents = dict(self._objects.read({each.goal.oid for each in batch if each.goal is not None}))
            for step in batch:
                content = contents.get(step.goal.oid) if step.goal is not None else None
                failed.update(
                    {step.path: CONTENT_LOST} if content is None else self._apply_step(step, content)
                )
        return failed

    def _roll_back(self, intent: RestoreIntent) -> dict[bytes, str]:
        """Put the files back as they were found. Repeat while it helps, because one file may free space for the next."""
        reverse_steps = [RestoreStep(step.path, step.goal, step.found) for step in intent.steps]
        failed = self._apply(reverse_steps, intent.made)
        while failed_steps := [step for step in reverse_steps if step.path in _list_unwritten(failed)]:
            still_failed = self._apply(failed_steps, intent.made)
            if len(_list_unwritten(still_failed)) == len(failed_steps):
                break
            failed = {
                path: reason for path, reason in failed.items() if reason == CHANGED_SINCE
            } | still_failed
        return failed

    def _apply_step(self, step: RestoreStep, content: bytes) -> dict[bytes, str]:
        """Carry out one step if the file is as it was found. Do nothing if it is done already."""
        try:
            found, stamp = self._read_current(step.path)
            if is_same(found, step.goal) and _has_same_permissions(found, step.goal):
                return {}
            if not is_same(found, step.found):
                return {step.path: CHANGED_SINCE}
            if step.goal is None:
                self._files.unlink(step.path, stamp)
            else:
                self._files.write(step.path, step.goal, content, stamp)
        except (UnexpectedStateError, FileTooLargeError):
            return {step.path: CHANGED_SINCE}
        except OSError as error:
            return {step.path: f"{WRITE_FAILED} ({error.strerror or error})"}
        return {}

    def _read_current(self, path: bytes) -> tuple[FileEntry | None, Stamp | None]:
        status = self._files.find_status(path)
        if status is None:
            return None, None
        if stat.S_ISDIR(status.st_mode):
            # A directory cannot be replaced by a file, and an empty one may belong to the user.
            raise UnexpectedStateError
        entry, _, stamp = self._files.read(path, limit=self._limit)
        return entry, stamp

    # --- reporting and storing ---

    def _to_fates(self, plan: RestorePlan, decisions: Iterable[FileDecision]) -> tuple[FileFate, ...]:
        fates = {
            self._format_path(each.path): FileFate(
                file=self._format_path(each.path), fate=each.fate, reason=each.reason
            )
            for each in decisions
        }
        for each in (each for patch in plan.patches for each in patch.uncovered):
            if plan.files is None or each.file in plan.files:
                fates.setdefault(each.file, FileFate(file=each.file, fate="uncovered", reason=each.reason))
        for file in plan.files or ():
            fates.setdefault(file, FileFate(file=file, fate="uncovered", reason=NOT_TRACKED))
        return tuple(fates[file] for file in sorted(fates))

    def _format_paths(self, failed: Mapping[bytes, str]) -> dict[str, str]:
        return {self._format_path(path): reason for path, reason in failed.items()}

    def _format_path(self, path: bytes) -> str:
        return format_path(self._files.absolute(path))

    def _write_intent(self, intent: RestoreIntent) -> None:
        path = self._place.intent
        write_atomic(path, msgspec.json.encode(intent), temp=f"{path}~", flush=True)

    def _find_intent(self) -> RestoreIntent | None:
        with suppress(FileNotFoundError, msgspec.DecodeError):
            raw = read_bytes(self._place.intent, limit=MAX_INTENT_BYTES)
            return msgspec.json.decode(raw, type=RestoreIntent)
        return None


def _list_unwritten(failed: Mapping[bytes, str]) -> dict[bytes, str]:
    """Return the files that could not be written. A file that the user changed is not one of them."""
    return {path: reason for path, reason in failed.items() if reason != CHANGED_SINCE}


def _has_same_permissions(found: FileEntry | None, goal: FileEntry | None) -> bool:
    return found is None or goal is None or found.is_link or found.permissions == goal.permissions


def _mark_lost(decision: FileDecision, lost: set[str]) -> FileDecision:
    goal = decision.step.goal if decision.step is not None else None
    if goal is None or goal.oid not in lost:
        return decision
    return FileDecision(path=decision.path, fate="missing", reason=CONTENT_LOST)


def _correct_result(restoration: Restoration, failed: Mapping[str, str]) -> Restoration:
    """Mark files that were not changed in the end as kept."""
    fates = tuple(
        FileFate(file=each.file, fate="kept", reason=failed[each.file]) if each.file in failed else each
        for each in restoration.fates
    )
    return replace(restoration, fates=fates)
