"""Keep a git index of a directory's files, and find what changed since the last scan. Calls block."""

import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from weft.errors import GitError
from weft.host.files import Disk, Stamp, stamp_of
from weft.host.git import Plumbing
from weft.host.private_files import find_birth_time
from weft.model.diff import Tree
from weft.snapshot.directory import CachedLookup, SafeDirectory, find_stat
from weft.snapshot.entry import FileEntry, is_same, list_parents
from weft.snapshot.objects import ObjectStore, SnapshotsFullError
from weft.snapshot.restore import FilePermissions


def take_copy(source: str, target: str) -> None:
    """Hard-link or copy a file to a new name. Do nothing if the file does not exist."""
    with suppress(FileNotFoundError):
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without hard links
            shutil.copy2(source, target)


def publish(source: str, target: str) -> None:
    """Replace a file by a copy of another one, atomically."""
    temp = f"{target}.{os.path.basename(os.path.dirname(source))}~"
    Disk().remove(temp)
    take_copy(source, temp)
    with suppress(FileNotFoundError):
        os.replace(temp, target)


# From this many on, listing all files is cheaper than naming some.
MAX_NAMED: Final = 300


class IndexDifference(Struct, frozen=True, kw_only=True):
    """The difference between an index and the directory.

    `known` are changed files that the index has, `new` files that it lacks, `bare` directories without indexed files,
    `nested` directories that are repositories.
    """

    known: frozenset[bytes]
    new: frozenset[bytes]
    bare: frozenset[bytes]
    nested: frozenset[bytes]

    @property
    def files(self) -> list[bytes]:
        return sorted(self.known | self.new)


class GitListing:
    """Runs `git ls-files`. `ignoring` are options for ignore rules besides the `.gitignore` files."""

    def __init__(self, plumbing: Plumbing, objects: ObjectStore, seconds: float) -> None:
        self._plumbing = plumbing
        self._objects = objects
        self._seconds = seconds
        self.settings: tuple[str, ...] = ()
        self.ignoring: tuple[str, ...] = ()

    def find_differences(self, index: str, root: bytes) -> IndexDifference:
        tagged = _split(
            self._list_files(index, "-t", "-m", "-d", "-o", "--directory", *self._list_exclude_options())
        )
        known = frozenset(line[2:] for line in tagged if line[:1] in b"CR")
        others = [line[2:] for line in tagged if line[:1] == b"?"]
        # Git does not report a directory in the place of an indexed file, because its name is known.
        swapped = {path for path in known if _is_directory(os.path.join(root, path))}
        bare = frozenset(other[:-1] for other in others if other.endswith(b"/")) | swapped
        nested = {path for path in bare if os.path.lexists(os.path.join(root, path, b".git"))}
        deeper = self._list_in_bare(index, bare - nested)
        nested.update(path[:-1] for path in deeper if path.endswith(b"/"))
        new = {path for path in (*others, *deeper) if not path.endswith(b"/")}
        return IndexDifference(known=known, new=frozenset(new), bare=bare - nested, nested=frozenset(nested))

    def list_entries(self, index: str, paths: Collection[bytes] | None = None) -> dict[bytes, FileEntry]:
        """Return the entries of an index, all or those of these paths."""
        if not os.path.exists(index):
            return {}
        named = _to_arguments(paths) if paths is not None else None
        found = {}
        for line in _split(self._list_files(index, "-s", *(() if named is None else ("--", *named)))):
            facts, _, path = line.partition(b"\t")
            mode, oid, _ = facts.split(b" ")
            found[path] = FileEntry(int(mode, 8), oid.decode())
        if paths is None or named is not None:
            return found
        return {path: found[path] for path in paths if path in found}

    def _list_in_bare(self, index: str, bare: Collection[bytes]) -> list[bytes]:
        if not bare:
            return []
        named = _to_arguments(bare)
        return _split(
            self._list_files(index, "-o", *self._list_exclude_options(), *(("--", *named) if named else ()))
        )

    def _list_exclude_options(self) -> tuple[str, ...]:
        return ("--exclude-standard", *self.ignoring)

    def _list_files(self, index: str, *args: str) -> bytes:
        asked = [*self.settings, "ls-files", "-z", *args]
        return self._plumbing.run(asked, index=index, borrow=self._objects.borrow, seconds=self._seconds)


def _to_arguments(paths: Collection[bytes]) -> Sequence[str] | None:
    """Return the paths as arguments; None if there are too many."""
    return [os.fsdecode(path) for path in paths] if len(paths) <= MAX_NAMED else None


def _is_directory(path: bytes) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _split(said: bytes) -> list[bytes]:
    return said.split(b"\0")[:-1]


def list_directories(root: bytes, bare: Collection[bytes], *, at_most: int) -> Iterator[bytes]:
    """Yield these directories and all below them, at most `at_most`. Links are not followed."""
    todo = list(bare)
    while todo and at_most:
        path = todo.pop()
        at_most -= 1
        yield path
        try:
            with os.scandir(os.path.join(root, path)) as found:
                todo += [path + b"/" + each.name for each in found if each.is_dir(follow_symlinks=False)]
        except OSError:
            continue


SECONDS: Final = 600.0
MAX_ROUNDS: Final = 3
MAX_REFUSALS: Final = 50

TOO_LARGE: Final = "it exceeds the size limit for one file"
UNREADABLE: Final = "it cannot be read"
KEEPS_CHANGING: Final = "it kept changing while it was read"
NO_ROOM: Final = "the space for snapshots is used up"

# Files that are not stored: the reason, and a stamp that tells later whether the file changed.
Refusals = dict[bytes, tuple[str, Stamp | int | None]]


class IndexUpdater:
    """Adds files to an index and stores their contents."""

    def __init__(
        self, files: SafeDirectory, objects: ObjectStore, plumbing: Plumbing, listing: GitListing
    ) -> None:
        self._files = files
        self._objects = objects
        self._plumbing = plumbing
        self._listing = listing
        self.max_file_bytes = 0

    def update(
        self, index: str, paths: list[bytes], known: Refusals
    ) -> tuple[dict[bytes, FileEntry], Refusals]:
        """Add these paths to the index. Return the entries it has of them now, and the refused ones with the reason."""
        temp = f"{index}.new"
        for left in (temp, f"{temp}.lock"):
            Disk().remove(left)
        take_copy(index, temp)
        lookup, refused = CachedLookup(self._files), Refusals()
        take, drop = self._sort(paths, lookup, known, refused)
        self._forget(temp, drop)
        reasons = dict.fromkeys(self._put(temp, take), UNREADABLE)
        after = self._listing.list_entries(temp, paths)
        reasons |= self.store(temp, {path: entry.oid for path, entry in after.items()})
        for path, reason in reasons.items():
            found = lookup.find_status(path)
            refused[path] = (reason, None if found is None else stamp_of(found))
        after = self._listing.list_entries(temp, paths)
        os.replace(temp, index)
        return after, refused

    def store(self, index: str, wanted: Mapping[bytes, str]) -> dict[bytes, str]:
        """Store the content of each path.

        Remove paths that cannot be stored from the index, and return them with the reason.
        """
        for _ in range(MAX_ROUNDS):
            paths = self._list_missing(wanted)
            if not paths:
                return {}
            try:
                self._objects.write_many(self._read_contents(paths), count=len(paths))
            except SnapshotsFullError:
                self._forget(index, paths)
                return dict.fromkeys(paths, NO_ROOM)
            # Add them again: files that changed meanwhile now have another name.
            self._put(index, paths)
            wanted = {path: entry.oid for path, entry in self._listing.list_entries(index, paths).items()}
        paths = self._list_missing(wanted)
        self._forget(index, paths)
        return dict.fromkeys(paths, KEEPS_CHANGING)

    def _list_missing(self, wanted: Mapping[bytes, str]) -> list[bytes]:
        lacking = self._objects.find_missing(set(wanted.values()))
        return [path for path, oid in wanted.items() if oid in lacking]

    def _read_contents(self, paths: list[bytes]) -> Iterator[bytes]:
        for content in self._files.read_many(paths, limit=self.max_file_bytes):
            if self._plumbing.stopped:
                return
            yield content

    def _sort(
        self, paths: list[bytes], lookup: CachedLookup, known: Refusals, refused: Refusals
    ) -> tuple[list[bytes], list[bytes]]:
        """Split paths into those to add and those to remove from the index."""
        take, drop = [], []
        for path in paths:
            found = lookup.find_status(path)
            reason = "" if found is None else self._find_refusal(path, found, known)
            if found is None or stat.S_ISDIR(found.st_mode) or reason:
                drop.append(path)
            else:
                take.append(path)
            if found is not None and reason:
                refused[path] = (reason, stamp_of(found))
        return take, drop

    def _find_refusal(self, path: bytes, found: os.stat_result, known: Refusals) -> str:
        reason, stamp = known.get(path, ("", None))
        if stamp == stamp_of(found):
            return reason
        if not stat.S_ISREG(found.st_mode):
            return ""
        if found.st_size > self.max_file_bytes:
            return TOO_LARGE
        return "" if os.access(self._files.absolute(path), os.R_OK) else UNREADABLE

    def _forget(self, index: str, paths: list[bytes]) -> None:
        if paths:
            self._update_index(index, paths, "--force-remove")

    def _put(self, index: str, paths: list[bytes]) -> list[bytes]:
        """Add paths to the index. If git refuses one, find it by bisection. Return the refused paths."""
        refused: list[bytes] = []
        todo = [paths] if paths else []
        while todo:
            some = todo.pop()
            try:
                self._update_index(index, some, "--info-only", "--add", "--remove", "--replace")
            except GitError:
                if self._plumbing.stopped or len(refused) >= MAX_REFUSALS:
                    raise
                half = len(some) // 2
                if half:
                    todo += [some[half:], some[:half]]
                else:
                    refused += some
        return refused

    def _update_index(self, index: str, paths: list[bytes], *how: str) -> None:
        asked = ["update-index", *how, "-z", "--stdin"]
        self._plumbing.run(asked, input=b"\0".join(paths) + b"\0", index=index, seconds=SECONDS)


MAX_DIRECTORIES: Final = 20_000
MAX_NESTED: Final = 5_000

NESTED_REPOSITORY: Final = "it is a nested repository"
MOVED_IN: Final = "it was moved here from a place that is not tracked"


class ScannedChange(Struct, frozen=True, kw_only=True):
    """One file before and after, and which of its parent directories existed before (`had`) and after (`has`)."""

    path: bytes
    before: FileEntry | None
    after: FileEntry | None
    had: frozenset[bytes] = frozenset()
    has: frozenset[bytes] = frozenset()


class ScanResult(Struct, frozen=True, kw_only=True):
    """What changed since the last scan; and which refused files seem to have changed, with the reason."""

    changes: tuple[ScannedChange, ...]
    uncovered: Mapping[bytes, str]


class ScanState(Struct, frozen=True, kw_only=True):
    """What a scan found besides the index: directories without files, and refused files."""

    bare: frozenset[bytes] = frozenset()
    refused: Refusals = {}


class Scanner:
    """Scans the directory. `index` belongs to this process; `shared` is a copy for the next one."""

    def __init__(
        self, files: SafeDirectory, objects: ObjectStore, plumbing: Plumbing, listing: GitListing
    ) -> None:
        self._files = files
        self._plumbing = plumbing
        self._listing = listing
        self._permissions = FilePermissions(files)
        self._known = ScanState()
        self.updater = IndexUpdater(files, objects, plumbing, listing)
        self.index = ""
        self.shared = ""
        self.is_remote = False  # whether file times come from another machine

    def scan_first(self) -> None:
        """Start from the index of the last process, and store the contents that are missing."""
        take_copy(self.shared, self.index)
        begun = os.path.exists(self.index)
        self._refresh()
        entries = self._listing.list_entries(self.index)
        if begun:
            self.updater.store(self.index, {path: entry.oid for path, entry in entries.items()})
        self._permissions.learn(entries)
        self._note_time()

    def scan(self, sources: Collection[str] = ()) -> ScanResult:
        """Return what changed since the last scan. `sources` are contents that are stored elsewhere."""
        known = self._known
        found, before, after = self._refresh()
        changes = tuple(self._list_changes(found, before, after, known))
        moved = set() if self.is_remote else self._list_moved_in(changes, sources)
        self._note_time()
        return ScanResult(
            changes=tuple(change for change in changes if change.path not in moved),
            uncovered={
                **_list_differing(known.refused, self._known.refused),
                **dict.fromkeys(moved, MOVED_IN),
            },
        )

    def write_tree(self) -> Tree:
        """Return all indexed files as a tree. Its trees are our own; its blobs may be in the user's repository only."""
        # Do not use the user's objects here: git would update their times, and we never write there.
        asked = ["write-tree", "--missing-ok"]
        return Tree(self._plumbing.run(asked, index=self.index, seconds=SECONDS).decode().strip())

    def _refresh(self) -> tuple[IndexDifference, dict[bytes, FileEntry], dict[bytes, FileEntry]]:
        """Update the index. Return what differed, with the entries before and after."""
        found = self._listing.find_differences(self.index, self._files.root)
        refused: Refusals = {path: (NESTED_REPOSITORY, self._stamp_nested(path)) for path in found.nested}
        before: dict[bytes, FileEntry] = {}
        after: dict[bytes, FileEntry] = {}
        if paths := found.files:
            before = self._listing.list_entries(self.index, paths)
            after, others = self.updater.update(self.index, paths, self._known.refused)
            refused |= others
            publish(self.index, self.shared)
        self._known = ScanState(bare=self._list_bare(found), refused=refused)
        return found, before, after

    # --- finding changes ---

    def _list_changes(
        self,
        found: IndexDifference,
        before: Mapping[bytes, FileEntry],
        after: Mapping[bytes, FileEntry],
        known: ScanState,
    ) -> Iterator[ScannedChange]:
        lookup = CachedLookup(self._files)
        for path in found.files:
            old, new = self._permissions.complete(path, before.get(path), after.get(path))
            # If a file was or is refused, we cannot say whether it was created or removed.
            if path in known.refused or path in self._known.refused or is_same(old, new):
                continue
            has = lookup.list_existing_parents(path)
            had = frozenset(
                each for each in list_parents(path) if each in known.bare or not _is_in(each, found.bare)
            )
            yield ScannedChange(
                path=path, before=old, after=new, had=had if old is None else had | has, has=has
            )

    def _list_moved_in(self, changes: Collection[ScannedChange], sources: Collection[str]) -> set[bytes]:
        """Return files that are older than the last scan, so that they were moved here from an untracked place.

        Removing one of them to undo the move would destroy it.
        """
        noted = find_stat(os.fsencode(self._clock))
        since = 0 if noted is None else noted.st_mtime_ns
        kept = {*sources, *(change.before.oid for change in changes if change.before is not None)}
        return {
            change.path
            for change in changes
            if change.after is not None
            and change.after.oid not in kept
            and _is_older(self._files.absolute(change.path), since)
        }

    def _note_time(self) -> None:
        """Record the time of the scan with the file system's clock, because ours may be ahead of it."""
        with open(self._clock, "ab"):
            os.utime(self._clock)

    @property
    def _clock(self) -> str:
        return f"{self.index}.seen"

    def _list_bare(self, found: IndexDifference) -> frozenset[bytes]:
        taken = {each for path in found.new for each in list_parents(path)}
        walked = list_directories(self._files.root, found.bare, at_most=MAX_DIRECTORIES)
        return frozenset(path for path in walked if path not in taken)

    def _stamp_nested(self, path: bytes) -> int | None:
        """Return one number for the stamps of all files in a nested repository; None if there are too many."""
        left, total = MAX_NESTED, 0
        for where, dirs, names in os.walk(self._files.absolute(path)):
            dirs[:] = [each for each in dirs if each != b".git"]
            for name in names:
                left -= 1
                if not left:
                    return None
                if (found := find_stat(os.path.join(where, name))) is not None:
                    total ^= hash((where, name, stamp_of(found)))
        return total


def _is_older(path: bytes, than: int) -> bool:
    """Return True if the file was neither created nor modified since then."""
    found = find_stat(path)
    return found is not None and found.st_mtime_ns < than and (find_birth_time(path) or 0) < than


def _is_in(path: bytes, directories: frozenset[bytes]) -> bool:
    return path in directories or any(each in directories for each in list_parents(path))


def _list_differing(known: Refusals, found: Refusals) -> dict[bytes, str]:
    """Return files that are or were refused and whose stamp changed."""
    paths = [path for path in {*known, *found} if known.get(path) != found.get(path)]
    return {path: (found.get(path) or known[path])[0] for path in paths}
