"""Sweeping the store of objects: what no session, no process at work and no open restoring needs goes. Calls block."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import GitError
from weft.host.files import Disk, read_bytes, try_locked
from weft.host.git import Plumbing
from weft.model.ids import SessionID
from weft.snapshot.index import Listing
from weft.snapshot.objects import Objects, list_pins, list_sessions, measure, release, sweep_temps
from weft.snapshot.place import Place, list_places

SECONDS: Final = 600.0
LIMIT: Final = 256 << 20
GRACE_MS: Final = 2 * 60 * 60 * 1000
IDLE_MS: Final = 30 * 24 * 60 * 60 * 1000
LOOSE_AT_MOST: Final = 1000

_NAME: Final = re.compile(rb"\b[0-9a-f]{40}\b")


class Swept(Struct, frozen=True, kw_only=True):
    """What was swept, or would be, for one directory: the bytes before and after, and the sessions let go, and why.

    `skipped` says why nothing was done.
    """

    root: str
    before: int
    after: int
    released: tuple[tuple[SessionID, str], ...] = ()
    skipped: str = ""


class Sweep(Struct, frozen=True, kw_only=True):
    """How to sweep: `is_alive` knows the sessions that are still there; `now` is in ms.

    With a `budget` the sessions pinned longest ago are let go until what is left fits: they can no longer be undone.
    Without one, nothing that a living session needs goes.
    """

    is_alive: Callable[[SessionID], bool]
    now: int
    budget: int | None = None
    dry_run: bool = False
    grace_ms: int = GRACE_MS


def sweep_all(base: str, environ: Mapping[str, str], how: Sweep) -> list[Swept]:
    """All directories that have snapshots below `base`."""
    return [sweep(place, environ, how) for place in list_places(base)]


def sweep(place: Place, environ: Mapping[str, str], how: Sweep) -> Swept:
    size = measure(place.objects)
    nothing = Swept(root=place.root, before=size, after=size)
    with try_locked(place.lock) as mine:
        if not mine:
            return replace(nothing, skipped="it is being written to")
        try:
            return _Sweeping(place, environ, how).sweep(size)
        except (GitError, OSError) as error:
            return replace(nothing, skipped=str(error))


class _Sweeping:
    def __init__(self, place: Place, environ: Mapping[str, str], how: Sweep) -> None:
        self._place = place
        self._how = how
        self._plumbing = Plumbing(environ, place.git_dir, place.home)
        self._objects = Objects(place, self._plumbing, 0)
        self._listing = Listing(self._plumbing, self._objects, SECONDS)

    def sweep(self, size: int) -> Swept:
        sizes = self._sizes()
        sessions = {each: self._pinned(each) for each in self._oldest_first()}
        gone = [each for each in sessions if not self._how.is_alive(each)]
        released = [(each, "it is gone") for each in gone]
        living = [each for each in sessions if each not in gone]
        index = set() if self._is_idle() else self._indexed([self._place.index])
        busy = self._indexed(self._live_files("index")) | self._noted()
        keep = busy.union(index, *(sessions[each] for each in living))
        if self._how.budget is not None and _weigh(sizes, keep) > self._how.budget:
            index = set()  # it costs only time to have it again
            keep = busy.union(*(sessions[each] for each in living))
            while living and _weigh(sizes, keep) > self._how.budget:
                released.append((living.pop(0), "there was no room"))
                keep = busy.union(*(sessions[each] for each in living))
        if self._how.dry_run:
            after = _weigh(sizes, keep)
        else:
            self._let_go([each for each, _ in released], with_index=not index)
            self._remove(keep, sizes)
            after = measure(self._place.objects)
        return Swept(root=self._place.root, before=size, after=after, released=tuple(released))

    # --- what is needed ---

    def _oldest_first(self) -> list[SessionID]:
        return sorted(list_sessions(self._place), key=lambda each: _changed(f"{self._place.pins}/{each}"))

    def _pinned(self, session: SessionID) -> set[str]:
        """All that the trees of a session lead to. One that cannot be read leads nowhere."""
        found: set[str] = set()
        for tree in list_pins(self._place, session):
            with suppress(ValueError):
                found |= self._objects.names_in(tree)
        return found

    def _indexed(self, indexes: Iterable[str]) -> set[str]:
        return {entry.oid for index in indexes for entry in self._listing.entries(index).values()}

    def _noted(self) -> set[str]:
        """What the notes of processes at work, and of restorings, name."""
        found: set[str] = set()
        for path in (*self._live_files(".json"), self._place.intent):
            with suppress(FileNotFoundError):
                found |= {name.decode() for name in _NAME.findall(read_bytes(path, limit=LIMIT))}
        return found

    def _live_files(self, ending: str) -> list[str]:
        return [
            f"{where}/{name}"
            for where, _, names in os.walk(self._place.live)
            for name in names
            if name.endswith(ending)
        ]

    def _is_idle(self) -> bool:
        """Whether nobody will miss what the last process knew of the files."""
        changed = _changed(self._place.index)
        return not os.path.isdir(self._place.root) or changed < self._how.now - IDLE_MS

    # --- removing ---

    def _let_go(self, sessions: Iterable[SessionID], *, with_index: bool) -> None:
        for session in sessions:
            release(self._place, session)
        if with_index:
            Disk().remove(self._place.index)

    def _remove(self, keep: Collection[str], sizes: Mapping[str, int]) -> None:
        sweep_temps(self._place, older_than=lambda found: self._is_old(found.st_mtime_ns // 1_000_000))
        loose = self._loose()
        for oid, path in loose.items():
            if oid not in keep and self._is_old(_changed(path)):
                Disk().remove(path)
        packs = [each for each in self._packs() if self._is_old(_changed(each))]
        packed = {oid for pack in packs for oid in self._names_in_pack(pack)}
        left = [oid for oid in loose if oid in keep]
        if not packed <= set(keep) or (left and len(left) > LOOSE_AT_MOST):
            self._repack([oid for oid in sizes if oid in keep and (oid in packed or oid in loose)], packs)

    def _repack(self, oids: Collection[str], packs: Iterable[str]) -> None:
        """Put what is needed into one pack, and only then remove those it was in."""
        new = ""
        if oids:
            asked = ["pack-objects", "-q", "--window=5", f"{self._place.objects}/pack/pack"]
            names = "".join(f"{oid}\n" for oid in oids).encode()
            new = self._plumbing.run(asked, input=names, seconds=SECONDS).decode().strip()
        for pack in packs:
            if not new or not pack.endswith(f"-{new}.pack"):
                for ending in (".idx", ".rev", ".pack"):
                    Disk().remove(pack.removesuffix(".pack") + ending)
        self._plumbing.run(["prune-packed", "-q"], seconds=SECONDS)

    def _sizes(self) -> dict[str, int]:
        """Every object that is ours, and what it takes up."""
        asked = ["cat-file", "--batch-all-objects", "--unordered"]
        asked.append("--batch-check=%(objectname) %(objectsize:disk)")
        lines = self._plumbing.run(asked, seconds=SECONDS).split(b"\n")[:-1]
        return {name.decode(): int(size) for name, size in (line.split() for line in lines)}

    def _loose(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for first in os.listdir(self._place.objects):
            if len(first) == 2:  # noqa: PLR2004  as git cuts names
                directory = f"{self._place.objects}/{first}"
                found |= {first + rest: f"{directory}/{rest}" for rest in os.listdir(directory)}
        return found

    def _packs(self) -> list[str]:
        directory = f"{self._place.objects}/pack"
        return [f"{directory}/{name}" for name in os.listdir(directory) if name.endswith(".pack")]

    def _names_in_pack(self, pack: str) -> list[str]:
        raw = read_bytes(pack.removesuffix(".pack") + ".idx", limit=LIMIT)
        lines = self._plumbing.run(["show-index"], input=raw, seconds=SECONDS).splitlines()
        return [line.split()[1].decode() for line in lines]

    def _is_old(self, changed: int) -> bool:
        return changed <= self._how.now - self._how.grace_ms


def _weigh(sizes: Mapping[str, int], keep: Collection[str]) -> int:
    return sum(size for oid, size in sizes.items() if oid in keep)


def _changed(path: str) -> int:
    """When it was last changed, in ms; 0 if it is not there."""
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except OSError:
        return 0
