"""Find what a dead process had changed and not reported. Calls block."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from msgspec import Struct

from weft.errors import GitError
from weft.host.files import Disk, try_locked
from weft.host.now import now
from weft.model.diff import Patch
from weft.model.ids import SessionID
from weft.snapshot.ledger import Ledger, Link, load
from weft.snapshot.objects import sweep_temps
from weft.snapshot.works import Refused, Works

HOUR_NS: Final = 60 * 60 * 1_000_000_000
CONTESTED: Final = "two sessions ran commands when their process died"
UNSEEN: Final = "its process died, and the files could not be looked through"
NOTE: Final = ".json"


class Found(Struct, frozen=True, kw_only=True):
    session: SessionID
    patches: tuple[Patch, ...]


def list_dead(works: Works, own: str) -> list[str]:
    """The directories that other processes left, living ones among them."""
    with suppress(FileNotFoundError):
        names = sorted(os.listdir(works.place.live))
        return [f"{works.place.live}/{name}" for name in names if name != own]
    return []


@contextmanager
def rescuing(works: Works, directory: str) -> Generator[list[Found]]:
    """What a dead process knew. Its notes are gone when the body is left without an error."""
    with try_locked(f"{directory}/lock") as dead:
        if not dead:
            yield []
            return
        yield _read(works, directory)
        Disk().remove(directory)


def sweep(works: Works) -> None:
    """Remove what was half written an hour ago or more."""
    if os.path.isdir(works.place.objects):
        old = now() * 1_000_000 - HOUR_NS
        sweep_temps(works.place, older_than=lambda found: found.st_mtime_ns < old)


def _read(works: Works, directory: str) -> list[Found]:
    names = sorted(name for name in os.listdir(directory) if name.endswith(NOTE))
    ledgers = [ledger for name in names if (ledger := load(f"{directory}/{name}")) is not None]
    _see_all(works, [each for each in ledgers if _may_have_changed_any(each)], f"{directory}/index")
    for ledger in ledgers:
        _see_some(works, ledger)
    found = [
        Found(
            session=each.session,
            patches=(*each.taken, *works.patches(each.session, each.links, each.uncovered)),
        )
        for each in ledgers
    ]
    return [each for each in found if each.patches]


def _may_have_changed_any(ledger: Ledger) -> bool:
    return any(each.files is None for each in ledger.opened.values())


def _see_all(works: Works, ledgers: list[Ledger], index: str) -> None:
    """Compare all files with what the dead process had seen before the command it ran."""
    if not ledgers or not os.path.exists(index):
        return
    try:
        works.make()
        works.ask_around()
        scanned = works.scan(scanner=works.scanner_at(index))
    except (GitError, OSError):
        for ledger in ledgers:
            ledger.uncovered[b""] = UNSEEN
        return
    for change in scanned.changes:
        for ledger in ledgers:
            if len(ledgers) > 1:
                ledger.uncovered[change.path] = CONTESTED
            else:
                began = min(each.began for each in ledger.opened.values() if each.files is None)
                had, has = tuple(sorted(change.had)), tuple(sorted(change.has))
                ledger.add(Link(change.path, change.before, change.after, _after(ledger), had, has), began)


def _see_some(works: Works, ledger: Ledger) -> None:
    for opened in list(ledger.opened.values()):
        for link in opened.files or ():
            found = works.keep(link.path)
            if isinstance(found, Refused):
                ledger.uncovered[link.path] = found.reason
            else:
                has = tuple(sorted(works.beneath.existing(link.path)))
                ledger.add(Link(link.path, link.before, found, _after(ledger), link.had, has), opened.began)


def _after(ledger: Ledger) -> int:
    return max((each.at for each in ledger.links), default=0) + 1
