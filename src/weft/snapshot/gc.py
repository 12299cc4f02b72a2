"""Collect garbage in the snapshot repository: remove objects that nothing refers to. Every function blocks."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import GitError
from weft.host.files import Disk, read_bytes, try_lock
from weft.host.git import Plumbing
from weft.model.ids import SessionID
from weft.snapshot.index import GitListing
from weft.snapshot.location import SnapshotLocation, list_locations
from weft.snapshot.objects import (
    ObjectStore,
    list_pins,
    list_sessions,
    measure_files,
    release_session,
    remove_temps,
)

GIT_SECONDS: Final = 600.0
MAX_LEDGER_BYTES: Final = 256 << 20
GRACE_MS: Final = 2 * 60 * 60 * 1000
IDLE_MS: Final = 30 * 24 * 60 * 60 * 1000
MAX_LOOSE_OBJECTS: Final = 1000

_OBJECT_NAME: Final = re.compile(rb"\b[0-9a-f]{40}\b")


class GcResult(Struct, frozen=True, kw_only=True):
    """What was removed, or would be, for one directory: its size before and after, and the released sessions with the reason.

    `skipped` says why nothing was done.
    """

    root: str
    before: int
    after: int
    released: tuple[tuple[SessionID, str], ...] = ()
    skipped: str = ""


class GcOptions(Struct, frozen=True, kw_only=True):
    """`is_alive` tells whether a session still exists; `now` is in ms.

    With a `budget` in bytes, the sessions with the oldest pins are released until the rest fits. They can no longer be undone.
    Without one, everything that an existing session needs is kept.
    """

    is_alive: Callable[[SessionID], bool]
    now: int
    budget: int | None = None
    dry_run: bool = False
    grace_ms: int = GRACE_MS


def collect_all(base: str, environ: Mapping[str, str], options: GcOptions) -> list[GcResult]:
    """Collect garbage for all directories that have snapshots below `base`."""
    return [collect_garbage(place, environ, options) for place in list_locations(base)]


def collect_garbage(place: SnapshotLocation, environ: Mapping[str, str], options: GcOptions) -> GcResult:
    """Collect garbage for one directory. Do nothing if a process is writing to its snapshots."""
    size = measure_files(place.objects)
    nothing = GcResult(root=place.root, before=size, after=size)
    with try_lock(place.lock) as mine:
        if not mine:
            return replace(nothing, skipped="it is being written to")
        try:
            return _Collector(place, environ, options).collect(size)
        except (GitError, OSError) as error:
            return replace(nothing, skipped=str(error))


class _Collector:
    """Collects the garbage of one location. The caller holds its lock."""

    def __init__(self, place: SnapshotLocation, environ: Mapping[str, str], options: GcOptions) -> None:
        self._place = place
        self._options = options
        self._plumbing = Plumbing(environ, place.git_dir, place.directory)
        self._objects = ObjectStore(place, self._plumbing, 0)
        self._listing = GitListing(self._plumbing, self._objects, GIT_SECONDS)

    def collect(self, size: int) -> GcResult:
        sizes = self._list_sizes()
        sessions = {session: self._list_pinned(session) for session in self._list_oldest_first()}
        removed = [session for session in sessions if not self._options.is_alive(session)]
        released = [(session, "it is gone") for session in removed]
        living = [session for session in sessions if session not in removed]
        index = set() if self._is_idle() else self._list_indexed([self._place.index])
        busy = self._list_indexed(self._list_live_files("index")) | self._list_noted()
        keep = busy.union(index, *(sessions[session] for session in living))
        if self._options.budget is not None and _sum_sizes(sizes, keep) > self._options.budget:
            index = set()  # the next process can build it again
            keep = busy.union(*(sessions[session] for session in living))
            while living and _sum_sizes(sizes, keep) > self._options.budget:
                released.append((living.pop(0), "the budget was exceeded"))
                keep = busy.union(*(sessions[session] for session in living))
        if self._options.dry_run:
            after = _sum_sizes(sizes, keep)
        else:
            self._release([session for session, _ in released], with_index=not index)
            self._remove(keep, sizes)
            after = measure_files(self._place.objects)
        return GcResult(root=self._place.root, before=size, after=after, released=tuple(released))

    # --- objects in use ---

    def _list_oldest_first(self) -> list[SessionID]:
        return sorted(
            list_sessions(self._place), key=lambda session: _find_change_time(f"{self._place.pins}/{session}")
        )

    def _list_pinned(self, session: SessionID) -> set[str]:
        """Return all objects reachable from the pins of a session. Unreadable trees are ignored."""
        found: set[str] = set()
        for tree in list_pins(self._place, session):
            with suppress(ValueError):
                found |= self._objects.list_reachable(tree)
        return found

    def _list_indexed(self, indexes: Iterable[str]) -> set[str]:
        return {entry.oid for index in indexes for entry in self._listing.list_entries(index).values()}

    def _list_noted(self) -> set[str]:
        """Return the objects that ledgers of running processes and open restores name."""
        found: set[str] = set()
        for path in (*self._list_live_files(".json"), self._place.intent):
            with suppress(FileNotFoundError):
                found |= {
                    name.decode() for name in _OBJECT_NAME.findall(read_bytes(path, limit=MAX_LEDGER_BYTES))
                }
        return found

    def _list_live_files(self, ending: str) -> list[str]:
        return [
            f"{where}/{name}"
            for where, _, names in os.walk(self._place.live)
            for name in names
            if name.endswith(ending)
        ]

    def _is_idle(self) -> bool:
        """Return True if the index of the last process is not worth keeping."""
        changed = _find_change_time(self._place.index)
        return not os.path.isdir(self._place.root) or changed < self._options.now - IDLE_MS

    # --- removing ---

    def _release(self, sessions: Iterable[SessionID], *, with_index: bool) -> None:
        for session in sessions:
            release_session(self._place, session)
        if with_index:
            Disk().remove(self._place.index)

    def _remove(self, keep: Collection[str], sizes: Mapping[str, int]) -> None:
        remove_temps(self._place, older_than=lambda status: self._is_old(status.st_mtime_ns // 1_000_000))
        loose = self._list_loose()
        for oid, path in loose.items():
            if oid not in keep and self._is_old(_find_change_time(path)):
                Disk().remove(path)
        packs = [each for each in self._list_packs() if self._is_old(_find_change_time(each))]
        packed = {oid for pack in packs for oid in self._list_packed(pack)}
        kept_loose = [oid for oid in loose if oid in keep]
        if not packed <= set(keep) or (kept_loose and len(kept_loose) > MAX_LOOSE_OBJECTS):
            self._repack([oid for oid in sizes if oid in keep and (oid in packed or oid in loose)], packs)

    def _repack(self, oids: Collection[str], packs: Iterable[str]) -> None:
        """Put the needed objects into one pack, and then remove the packs they were in."""
        new = ""
        if oids:
            command = ["pack-objects", "-q", "--window=5", f"{self._place.objects}/pack/pack"]
            names = "".join(f"{oid}\n" for oid in oids).encode()
            new = self._plumbing.run(command, input=names, seconds=GIT_SECONDS).decode().strip()
        for pack in packs:
            if not new or not pack.endswith(f"-{new}.pack"):
                for ending in (".idx", ".rev", ".pack"):
                    Disk().remove(pack.removesuffix(".pack") + ending)
        self._plumbing.run(["prune-packed", "-q"], seconds=GIT_SECONDS)

    def _list_sizes(self) -> dict[str, int]:
        """Return all our objects with their size on disk."""
        command = ["cat-file", "--batch-all-objects", "--unordered"]
        command.append("--batch-check=%(objectname) %(objectsize:disk)")
        lines = self._plumbing.run(command, seconds=GIT_SECONDS).split(b"\n")[:-1]
        return {name.decode(): int(size) for name, size in (line.split() for line in lines)}

    def _list_loose(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for first in os.listdir(self._place.objects):
            if len(first) == 2:  # noqa: PLR2004  git's directories are named by two hex digits
                directory = f"{self._place.objects}/{first}"
                found |= {first + rest: f"{directory}/{rest}" for rest in os.listdir(directory)}
        return found

    def _list_packs(self) -> list[str]:
        directory = f"{self._place.objects}/pack"
        return [f"{directory}/{name}" for name in os.listdir(directory) if name.endswith(".pack")]

    def _list_packed(self, pack: str) -> list[str]:
        raw = read_bytes(pack.removesuffix(".pack") + ".idx", limit=MAX_LEDGER_BYTES)
        lines = self._plumbing.run(["show-index"], input=raw, seconds=GIT_SECONDS).splitlines()
        return [line.split()[1].decode() for line in lines]

    def _is_old(self, changed: int) -> bool:
        return changed <= self._options.now - self._options.grace_ms


def _sum_sizes(sizes: Mapping[str, int], keep: Collection[str]) -> int:
    return sum(size for oid, size in sizes.items() if oid in keep)


def _find_change_time(path: str) -> int:
    """Return when a file was last changed, in ms; 0 if it does not exist."""
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except OSError:
        return 0
