"""Restore files as decided, one by one, so that a crash leaves something to finish or roll back."""

import os
import stat
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.errors import ConflictError, RestoreFailedError, SnapshotMissingError, StoreError
from weft.host.files import Disk, Stamp, read_bytes, share_locked, try_locked, write_atomic
from weft.model.diff import FileFate, Patch, Uncovered
from weft.model.ids import SessionID
from weft.snapshot.contract import Plan, Restoration
from weft.snapshot.decide import CHANGED, Side, Standing, Step, Unknown, Verdict, decide, emptied
from weft.snapshot.directory import Beneath, MovedError, TooLargeError
from weft.snapshot.entry import EXECUTABLE, FILE, Entry, is_same, parents, shown
from weft.snapshot.ledger import Link, to_states
from weft.snapshot.objects import Objects, pin
from weft.snapshot.place import Place

LIMIT: Final = 256 << 20
AT_ONCE: Final = 64
LARGER: Final = "it is larger than anything that is kept"
UNREADABLE: Final = "it cannot be read"
FAILED: Final = "it could not be written"
LOST: Final = "what it was like cannot be read any more"
UNTOLD: Final = "nothing was kept of it"
UNSETTLED: Final = "an earlier attempt could be neither finished nor taken back yet"


class Intent(Struct, frozen=True, kw_only=True):
    """What is about to change, written before anything does; enough to go on, and to go back."""

    session: SessionID
    note: str
    steps: tuple[Step, ...]
    emptied: tuple[bytes, ...]
    made: tuple[bytes, ...]
    restoration: Restoration


class Restorer:
    def __init__(self, place: Place, beneath: Beneath, objects: Objects, max_file_bytes: int) -> None:
        self._place = place
        self._beneath = beneath
        self._objects = objects
        self._limit = max_file_bytes

    def preview(self, plan: Plan) -> Restoration:
        try:
            _, verdicts = self._verdicts(plan)
            fates = self._fates(plan, verdicts)
        except SnapshotMissingError as error:
            fates = tuple(FileFate(file=file, fate="missing", reason=LOST) for file in sorted(error.files))
        return Restoration(session=plan.session, fates=fates, note=plan.note)

    @contextmanager
    def restoring(self, plan: Plan) -> Generator[Restoration]:
        """The files are restored in the body, and stay so if it does not raise.

        Raise `RestoreFailedError` if a file cannot be written. Then all are as they were or, as long as that cannot be
        written either, the intent stays, to be settled by `recover`.
        """
        with self._alone() as mine, share_locked(self._place.lock):
            if not mine:
                raise ConflictError("directory", self._place.root, "is being restored by another process")
            self._refuse_unsettled()
            intent = self._begin(plan)
            if intent is None:
                yield self.preview(plan)
                return
            failed = self._go(intent.steps, intent.emptied)
            if unwritten := _unwritten(failed):
                raise self._give_up(intent, unwritten)
            try:
                yield _corrected(intent.restoration, self._told(failed))
            except BaseException:
                self._settle(self._go_back(intent))
                raise
            self._settle({})

    def _begin(self, plan: Plan) -> Intent | None:
        """Write down what is about to change; None if nothing is."""
        try:
            intent = self._prepare(plan)
            if intent is not None:
                self._write_intent(intent)
        except OSError as error:
            raise StoreError(
                f"what files are like cannot be kept ({error.strerror or error}); nothing was changed",
                hint="free some space and try again",
            ) from error
        return intent

    def _refuse_unsettled(self) -> None:
        """Raise `RestoreFailedError` if an earlier restoring could be neither finished nor taken back."""
        intent = self._find_intent()
        if intent is not None:
            files = [self._shown(step.path) for step in intent.steps]
            raise RestoreFailedError(UNSETTLED, files=files, left=files)

    def _give_up(self, intent: Intent, unwritten: Mapping[bytes, str]) -> RestoreFailedError:
        """Put the other files as they were, too, and return what to raise."""
        left = self._go_back(intent)
        self._settle(left)
        return RestoreFailedError(
            unwritten[min(unwritten)],
            files=[self._shown(path) for path in sorted(unwritten)],
            left=[self._shown(path) for path in sorted(_unwritten(left))],
        )

    def _settle(self, failed: Mapping[bytes, str]) -> None:
        """Forget the intent, unless something of it is still to be written."""
        if not _unwritten(failed):
            Disk().remove(self._place.intent)

    def recover(self, *, finish: bool) -> Restoration | None:
        """Settle what a dead process began. None if there is nothing, or its process lives."""
        with self._alone() as mine:
            intent = self._find_intent() if mine else None
            if intent is None:
                return None
            for step in intent.steps:
                self._beneath.sweep(step.path)
            failed = self._go(intent.steps, intent.emptied) if finish else self._go_back(intent)
            self._settle(failed)
            return _corrected(intent.restoration, self._told(failed))

    def interrupted(self) -> tuple[SessionID, str] | None:
        """The session and the note of a restoring that a dead process began."""
        if not os.path.exists(self._place.intent):
            return None
        with self._alone() as mine:
            intent = self._find_intent() if mine else None
            return None if intent is None else (intent.session, intent.note)

    # --- deciding ---

    def _prepare(self, plan: Plan) -> Intent | None:
        """None if there is nothing to do. `SnapshotMissingError` if anything is not to be had."""
        sides, verdicts = self._verdicts(plan)
        missing = [self._shown(each.path) for each in verdicts if each.fate == "missing"]
        if missing:
            raise SnapshotMissingError(f"what {missing[0]} was like cannot be read any more", files=missing)
        steps = tuple(each.step for each in verdicts if each.step is not None)
        if not steps:
            return None
        self._save(steps)
        gone = emptied(sides, steps)
        before, after = to_states(self._links(steps, frozenset(gone)))
        undo = Patch(
            hash=self._objects.write_state(before),
            until=self._objects.write_state(after),
            files=tuple(self._shown(step.path) for step in steps),
        )
        pin(self._place, plan.session, (undo.hash, undo.until))
        made = sorted(after.dirs - before.dirs, key=lambda path: (-path.count(b"/"), path))
        return Intent(
            session=plan.session,
            note=plan.note,
            steps=steps,
            emptied=tuple(gone),
            made=tuple(made),
            restoration=Restoration(
                session=plan.session, fates=self._fates(plan, verdicts), undo=undo, note=plan.note
            ),
        )

    def _verdicts(self, plan: Plan) -> tuple[list[Side], list[Verdict]]:
        sides = [self._side(patch) for patch in plan.patches]
        paths = {path for side in sides for path in side.paths}
        if plan.files is not None:
            wanted = set(plan.files)
            paths = {path for path in paths if self._shown(path) in wanted}
        standing = {path: self._standing(path) for path in paths}
        verdicts = decide(sides, standing, set(self._others(paths)))
        goals = {each.step.goal.oid for each in verdicts if each.step is not None and each.step.goal}
        lost = self._objects.unreadable(goals)
        return sides, [_lost(each, lost) for each in verdicts]

    def _side(self, patch: Patch) -> Side:
        try:
            return Side(
                before=self._objects.read_state(patch.hash), after=self._objects.read_state(patch.until)
            )
        except SnapshotMissingError as error:
            raise SnapshotMissingError(error.reason, files=patch.files) from error

    def _standing(self, path: bytes) -> Standing:
        found = self._beneath.look(path)
        if found is None or stat.S_ISDIR(found.st_mode):
            return None
        try:
            return self._beneath.read(path, limit=self._limit)[0]
        except TooLargeError:
            return Unknown(reason=LARGER)
        except OSError:
            return Unknown(reason=UNREADABLE)

    def _others(self, paths: set[bytes]) -> Iterator[bytes]:
        """What stands where these files, or the directories they lie in, would have to stand."""
        ups = {up for path in paths for up in parents(path)} - paths
        for up in ups:
            found = self._beneath.look(up)
            if found is not None and not stat.S_ISDIR(found.st_mode):
                yield up
        for path in paths:
            if self._beneath.is_directory(path):
                yield from (each for each in self._beneath.files_in(path) if each not in paths)

    def _save(self, steps: Iterable[Step]) -> None:
        """Have what is about to be replaced, whatever it takes: the way back must not depend on older snapshots."""
        for step in steps:
            if step.found is None:
                continue
            try:
                content = self._beneath.read(step.path, limit=self._limit)[1]
            except (OSError, TooLargeError):
                continue  # it is not what it was found to be, and will be left alone
            self._objects.write(content, always=True)

    def _links(self, steps: Iterable[Step], gone: frozenset[bytes]) -> list[Link]:
        links = []
        for step in steps:
            had = self._beneath.existing(step.path)
            has = had - gone if step.goal is None else {*had, *parents(step.path)}
            links.append(Link(step.path, step.found, step.goal, 0, tuple(sorted(had)), tuple(sorted(has))))
        return links

    # --- doing ---

    def _go(self, steps: Sequence[Step], gone: Sequence[bytes]) -> dict[bytes, str]:
        """Carry out what is not carried out yet. Gives the files that were left alone, and why."""
        failed: dict[bytes, str] = {}
        for step in sorted((each for each in steps if each.goal is None), key=lambda each: each.path)[::-1]:
            failed.update(self._take(step, b""))
        for directory in gone:
            self._beneath.prune(directory)
        writes = sorted((each for each in steps if each.goal is not None), key=lambda each: each.path)
        for at in range(0, len(writes), AT_ONCE):
            some = writes[at : at + AT_ONCE]
            contents = dict(self._objects.read({each.goal.oid for each in some if each.goal is not None}))
            for step in some:
                content = contents.get(step.goal.oid) if step.goal is not None else None
                failed.update({step.path: LOST} if content is None else self._take(step, content))
        return failed

    def _go_back(self, intent: Intent) -> dict[bytes, str]:
        """Put the files as they were found. Each that is done may make room for the next, so it is tried while it helps."""
        back = [Step(step.path, step.goal, step.found) for step in intent.steps]
        failed = self._go(back, intent.made)
        while again := [step for step in back if step.path in _unwritten(failed)]:
            now = self._go(again, intent.made)
            if len(_unwritten(now)) == len(again):
                break
            failed = {path: reason for path, reason in failed.items() if reason == CHANGED} | now
        return failed

    def _take(self, step: Step, content: bytes) -> dict[bytes, str]:
        """One step, if the file is what it was found to be. Done already is fine."""
        try:
            found, stamp = self._now(step.path)
            if is_same(found, step.goal) and _permitted(found, step.goal):
                return {}
            if not is_same(found, step.found):
                return {step.path: CHANGED}
            if step.goal is None:
                self._beneath.unlink(step.path, stamp)
            else:
                self._beneath.write(step.path, step.goal, content, stamp)
        except (MovedError, TooLargeError):
            return {step.path: CHANGED}
        except OSError as error:
            return {step.path: f"{FAILED} ({error.strerror or error})"}
        return {}

    def _now(self, path: bytes) -> tuple[Entry | None, Stamp | None]:
        found = self._beneath.look(path)
        if found is None:
            return None, None
        if stat.S_ISDIR(found.st_mode):
            # Written over, it would fail; and an empty one that nobody claimed is somebody's.
            raise MovedError
        entry, _, stamp = self._beneath.read(path, limit=self._limit)
        return entry, stamp

    # --- telling and remembering ---

    def _fates(self, plan: Plan, verdicts: Iterable[Verdict]) -> tuple[FileFate, ...]:
        told = {
            self._shown(each.path): FileFate(file=self._shown(each.path), fate=each.fate, reason=each.reason)
            for each in verdicts
        }
        for each in (each for patch in plan.patches for each in patch.uncovered):
            if plan.files is None or each.file in plan.files:
                told.setdefault(each.file, _uncovered(each))
        for file in plan.files or ():
            told.setdefault(file, FileFate(file=file, fate="uncovered", reason=UNTOLD))
        return tuple(told[file] for file in sorted(told))

    def _told(self, failed: Mapping[bytes, str]) -> dict[str, str]:
        return {self._shown(path): reason for path, reason in failed.items()}

    def _shown(self, path: bytes) -> str:
        return shown(self._beneath.absolute(path))

    @contextmanager
    def _alone(self) -> Generator[bool]:
        with try_locked(self._place.restore_lock) as mine:
            yield mine

    def _write_intent(self, intent: Intent) -> None:
        path = self._place.intent
        write_atomic(path, msgspec.json.encode(intent), temp=f"{path}~", flush=True)

    def _find_intent(self) -> Intent | None:
        with suppress(FileNotFoundError, msgspec.DecodeError):
            raw = read_bytes(self._place.intent, limit=LIMIT)
            return msgspec.json.decode(raw, type=Intent)
        return None


def _unwritten(failed: Mapping[bytes, str]) -> dict[bytes, str]:
    """Return the files that should have been written and could not be. A file that a person changed is theirs."""
    return {path: reason for path, reason in failed.items() if reason != CHANGED}


def _permitted(found: Entry | None, goal: Entry | None) -> bool:
    return found is None or goal is None or found.is_link or found.permissions == goal.permissions


def _lost(verdict: Verdict, lost: set[str]) -> Verdict:
    goal = verdict.step.goal if verdict.step is not None else None
    if goal is None or goal.oid not in lost:
        return verdict
    return Verdict(path=verdict.path, fate="missing", reason=LOST)


def _uncovered(each: Uncovered) -> FileFate:
    return FileFate(file=each.file, fate="uncovered", reason=each.reason)


def _corrected(restoration: Restoration, failed: Mapping[str, str]) -> Restoration:
    """Told as it came out: what was left alone in the end was kept."""
    fates = tuple(
        FileFate(file=each.file, fate="kept", reason=failed[each.file]) if each.file in failed else each
        for each in restoration.fates
    )
    return replace(restoration, fates=fates)


class Permissions:
    """What is remembered: the usual ones, and whose are others."""

    def __init__(self, beneath: Beneath) -> None:
        self._beneath = beneath
        self._usual = {False: 0o644, True: 0o755}
        self._others: dict[bytes, int] = {}

    def learn(self, entries: Mapping[bytes, Entry]) -> None:
        """See all files once: of one that is removed they could not be asked any more."""
        seen: dict[bytes, int] = {}
        for path, entry in entries.items():
            if not entry.is_link and (found := self._ask(path)) is not None:
                seen[path] = found
        for executable in (False, True):
            counted = Counter(each for each in seen.values() if bool(each & EXECUTABLE) == executable)
            for usual, _ in counted.most_common(1):
                self._usual[executable] = usual
        self._others = {
            path: each for path, each in seen.items() if each != self._usual[bool(each & EXECUTABLE)]
        }

    def put_in(self, path: bytes, old: Entry | None, new: Entry | None) -> tuple[Entry | None, Entry | None]:
        """Both entries with all nine bits: those of now, before as after, unless it is gone."""
        if old is not None and not old.is_link:
            executable = bool(old.mode & EXECUTABLE)
            known = self._others.get(path, self._usual[executable])
            old = Entry(FILE | known, old.oid) if bool(known & EXECUTABLE) == executable else old
        found = self._ask(path) if new is not None and not new.is_link else None
        if new is not None and found is not None:
            new = Entry(FILE | found, new.oid)
            self._others[path] = found
            if old is not None and not old.is_link and old.mode & EXECUTABLE == new.mode & EXECUTABLE:
                old = Entry(new.mode, old.oid)
        return old, new

    def _ask(self, path: bytes) -> int | None:
        try:
            found = os.lstat(self._beneath.absolute(path))
        except OSError:
            return None
        return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) else None
