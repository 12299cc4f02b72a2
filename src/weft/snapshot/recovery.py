"""Recover the changes that a dead process recorded but did not report. Every function blocks."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from msgspec import Struct

from weft.errors import GitError
from weft.host.files import Disk, read_bytes, try_lock
from weft.model.diff import Patch
from weft.model.ids import SessionID
from weft.snapshot.directory import SafeDirectory
from weft.snapshot.entry import is_same, list_parents
from weft.snapshot.ledger import MAX_LEDGER_BYTES, ChangeLedger, RecordedChange, load_ledger
from weft.snapshot.location import SnapshotLocation
from weft.snapshot.tracker import REMOVED_FILE, WITNESS_FILE, FileTracker, RefusedFile

CONTESTED_BY_CRASH: Final = "two sessions ran commands when their process died"
CHANGED_AFTER_DEATH: Final = "it changed when weft died or later, so the change may be yours"
DEATH_NOT_SEEN: Final = "it is not known when weft died, so the change may be yours"
NOT_SCANNED: Final = "its process died, and the files could not be scanned"
LEDGER_SUFFIX: Final = ".json"
# A witness may have to list the files of a large project.
WITNESS_SECONDS: Final = 60.0
MAX_NAMED_FILES: Final = 100


class RecoveredLedger(Struct, frozen=True, kw_only=True):
    """The patches of one session that a dead process left, and the call that made them, if there was only one."""

    session: SessionID
    patches: tuple[Patch, ...]
    call: str = ""


@contextmanager
def recover_process(tracker: FileTracker, directory: str) -> Generator[list[RecoveredLedger]]:
    """Yield what a dead process left, and remove its directory if the body succeeds. Yield nothing if it is alive."""
    with try_lock(f"{directory}/lock") as dead:
        if not dead:
            yield []
            return
        yield _recover_ledgers(tracker, directory)
        Disk().remove(directory)


def forget_processes(place: SnapshotLocation) -> None:
    """Remove what dead processes recorded but did not report: the files that it is about have been replaced since."""
    try:
        names = os.listdir(place.live)
    except FileNotFoundError:
        return
    for name in names:
        with try_lock(f"{place.live}/{name}/lock") as dead:
            if dead:
                Disk().remove(f"{place.live}/{name}")


class LastSign(Struct, frozen=True, kw_only=True):
    """When a process was last alive (ns), 0 if that is not known, and which files were removed by then, None if nobody listed them."""

    time: int = 0
    removed: frozenset[bytes] | None = None


def _recover_ledgers(tracker: FileTracker, directory: str) -> list[RecoveredLedger]:
    names = sorted(name for name in os.listdir(directory) if name.endswith(LEDGER_SUFFIX))
    ledgers = [ledger for name in names if (ledger := load_ledger(f"{directory}/{name}")) is not None]
    for ledger in ledgers:
        if blind := next((call.blind for call in ledger.opened.values() if call.blind), ""):
            ledger.uncovered[b""] = blind
    sign = _read_last_sign(tracker, directory) if any(ledger.opened for ledger in ledgers) else LastSign()
    _scan_all(
        tracker, [ledger for ledger in ledgers if _may_have_changed_any(ledger)], f"{directory}/index", sign
    )
    for ledger in ledgers:
        _scan_announced(tracker, ledger, sign)
    recovered = [
        RecoveredLedger(
            session=ledger.session,
            patches=(*ledger.taken, *tracker.make_patches(ledger.session, ledger.links, ledger.uncovered)),
            call=next(iter(ledger.calls)) if len(ledger.calls) == 1 else "",
        )
        for ledger in ledgers
    ]
    return [ledger for ledger in recovered if ledger.patches]


def _read_last_sign(tracker: FileTracker, directory: str) -> LastSign:
    """Wait for the witness of a dead process, and return what it noted."""
    witness = f"{directory}/{WITNESS_FILE}"
    # The times of a network file system come from another machine. An older weft had no witness.
    if tracker.scanner.is_remote or not os.path.exists(witness):
        return LastSign()
    with try_lock(witness, seconds=WITNESS_SECONDS) as is_done:
        if not is_done:
            return LastSign()
    removed = None
    with suppress(FileNotFoundError):
        names = read_bytes(f"{directory}/{REMOVED_FILE}", limit=MAX_LEDGER_BYTES)
        removed = frozenset(names.split(b"\0")[:-1])
    # Programs can set the time of modification of a file, but not that of its last change.
    return LastSign(time=os.stat(witness).st_ctime_ns, removed=removed)


def _may_have_changed_any(ledger: ChangeLedger) -> bool:
    return any(call.files is None and not call.blind for call in ledger.opened.values())


def _scan_all(tracker: FileTracker, ledgers: list[ChangeLedger], index: str, sign: LastSign) -> None:
    """Compare all files with the last scan of the dead process, which preceded the command it ran."""
    # A project without files has no index. Nor has one whose files were never scanned, which would all seem new.
    if not ledgers or not (os.path.exists(index) or all(ledger.calls for ledger in ledgers)):
        return
    try:
        tracker.make()
        tracker.read_user_repository()
        scanned = tracker.scan(scanner=tracker.make_scanner(index))
    except (GitError, OSError):
        for ledger in ledgers:
            ledger.uncovered[b""] = NOT_SCANNED
        return
    if len(ledgers) > 1:
        for ledger in ledgers:
            ledger.uncovered.update({change.path: CONTESTED_BY_CRASH for change in scanned.changes})
        return
    [ledger] = ledgers
    began = min(each.began for each in ledger.opened.values() if each.files is None and not each.blind)
    changes = [
        RecordedChange(
            each.path, each.before, each.after, 0, tuple(sorted(each.had)), tuple(sorted(each.has))
        )
        for each in scanned.changes
    ]
    _attribute(tracker, ledger, began, changes, sign)


def _scan_announced(tracker: FileTracker, ledger: ChangeLedger, sign: LastSign) -> None:
    # Nobody listed which of these files were removed: git ignores some of them.
    sign = LastSign(time=sign.time)
    for opened in list(ledger.opened.values()):
        changes = []
        for change in opened.files or ():
            current = tracker.store_file(change.path)
            if isinstance(current, RefusedFile):
                ledger.uncovered[change.path] = current.reason
            else:
                has = tuple(sorted(tracker.files.list_existing_parents(change.path)))
                changes.append(RecordedChange(change.path, change.before, current, 0, change.had, has))
        _attribute(tracker, ledger, opened.began, changes, sign)


def _attribute(
    tracker: FileTracker, ledger: ChangeLedger, began: int, changes: Sequence[RecordedChange], sign: LastSign
) -> None:
    """Add the changes of a call that began at `began`. Those that may be the person's are uncovered."""
    doubtful = _list_doubtful(tracker.files, changes, sign)
    reason = CHANGED_AFTER_DEATH if sign.time else DEATH_NOT_SEEN
    named = sorted(doubtful)[:MAX_NAMED_FILES]
    ledger.uncovered.update(dict.fromkeys(named, reason))
    if len(named) < len(doubtful):
        ledger.uncovered[b""] = format_unnamed(len(doubtful) - len(named))
    for change in changes:
        if change.path not in doubtful:
            at = max((each.at for each in ledger.links), default=0) + 1
            ledger.add(
                RecordedChange(change.path, change.before, change.after, at, change.had, change.has), began
            )


def format_unnamed(count: int) -> str:
    """Say of the whole project how many more of its files are in doubt than were named."""
    return f"{count} more of its files may have changed after weft died, so these changes may be yours"


# --- whose change it is ---


def _list_doubtful(files: SafeDirectory, changes: Sequence[RecordedChange], sign: LastSign) -> set[bytes]:
    """Return the files that somebody may have changed after the process died, and those that may hold what is missing there."""
    real = [change for change in changes if not is_same(change.before, change.after)]
    doubtful = {change.path for change in real if _is_later(files, change, sign)}
    # If it is not known who removed a file, each new one may be that file under another name.
    may_be_moved = sign.removed is None and any(
        change.after is None and change.path in doubtful for change in real
    )
    while True:
        kept = {change.before.oid for change in real if change.path in doubtful and change.before is not None}
        holders = {
            change.path
            for change in real
            if change.after is not None
            and (change.after.oid in kept or (may_be_moved and change.before is None))
        }
        if holders <= doubtful:
            return doubtful
        doubtful |= holders


def _is_later(files: SafeDirectory, change: RecordedChange, sign: LastSign) -> bool:
    """Return True if a file may have changed after the last sign of life.

    Writing and moving a file set its change time. Moving a directory sets that of the directory alone, and removing a file that of its
    directory.
    """
    parents = list(list_parents(change.path))
    if change.after is not None:
        new_parents = (parent for parent in parents if parent not in change.had)
        times = [_find_change_time(files, path) for path in (change.path, *new_parents)]
        return any(time is None or time >= sign.time for time in times)
    if sign.removed is not None:
        return change.path not in sign.removed
    nearest = (_find_change_time(files, path) for path in (change.path, *reversed(parents), b"."))
    return next((time for time in nearest if time is not None), sign.time) >= sign.time


def _find_change_time(files: SafeDirectory, path: bytes) -> int | None:
    with suppress(OSError):
        status = files.find_status(path)
        return None if status is None else status.st_ctime_ns
    return None
