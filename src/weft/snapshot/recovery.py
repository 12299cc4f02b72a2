"""Recover the changes that a dead process recorded but did not report. Every function blocks."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from weft.errors import GitError
from weft.host.files import Disk, try_lock
from weft.model.diff import Patch
from weft.model.ids import SessionID
from weft.snapshot.ledger import ChangeLedger, RecordedChange, load_ledger
from weft.snapshot.location import SnapshotLocation
from weft.snapshot.tracker import FileTracker, RefusedFile

CONTESTED_BY_CRASH: Final = "two sessions ran commands when their process died"
NOT_SCANNED: Final = "its process died, and the files could not be scanned"
LEDGER_SUFFIX: Final = ".json"


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


def _recover_ledgers(tracker: FileTracker, directory: str) -> list[RecoveredLedger]:
    names = sorted(name for name in os.listdir(directory) if name.endswith(LEDGER_SUFFIX))
    ledgers = [ledger for name in names if (ledger := load_ledger(f"{directory}/{name}")) is not None]
    for ledger in ledgers:
        if blind := next((call.blind for call in ledger.opened.values() if call.blind), ""):
            ledger.uncovered[b""] = blind
    _scan_all(tracker, [ledger for ledger in ledgers if _may_have_changed_any(ledger)], f"{directory}/index")
    for ledger in ledgers:
        _scan_announced(tracker, ledger)
    recovered = [
        RecoveredLedger(
            session=ledger.session,
            patches=(*ledger.taken, *tracker.make_patches(ledger.session, ledger.links, ledger.uncovered)),
            call=next(iter(ledger.calls)) if len(ledger.calls) == 1 else "",
        )
        for ledger in ledgers
    ]
    return [ledger for ledger in recovered if ledger.patches]


def _may_have_changed_any(ledger: ChangeLedger) -> bool:
    return any(call.files is None and not call.blind for call in ledger.opened.values())


def _scan_all(tracker: FileTracker, ledgers: list[ChangeLedger], index: str) -> None:
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
    for change in scanned.changes:
        for ledger in ledgers:
            if len(ledgers) > 1:
                ledger.uncovered[change.path] = CONTESTED_BY_CRASH
            else:
                began = min(
                    each.began for each in ledger.opened.values() if each.files is None and not each.blind
                )
                had, has = tuple(sorted(change.had)), tuple(sorted(change.has))
                ledger.add(
                    RecordedChange(change.path, change.before, change.after, _next_number(ledger), had, has),
                    began,
                )


def _scan_announced(tracker: FileTracker, ledger: ChangeLedger) -> None:
    for opened in list(ledger.opened.values()):
        for change in opened.files or ():
            current = tracker.store_file(change.path)
            if isinstance(current, RefusedFile):
                ledger.uncovered[change.path] = current.reason
            else:
                has = tuple(sorted(tracker.files.list_existing_parents(change.path)))
                ledger.add(
                    RecordedChange(
                        change.path, change.before, current, _next_number(ledger), change.had, has
                    ),
                    opened.began,
                )


def _next_number(ledger: ChangeLedger) -> int:
    return max((change.at for change in ledger.links), default=0) + 1
