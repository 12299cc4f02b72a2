"""Keep a git index of a directory's files, and find what changed since the last scan. Every method blocks."""

import os
import re
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from weft.errors import GitError
from weft.host.files import Disk, Stamp, stamp_of
from weft.host.git import Plumbing
from weft.model.diff import Tree
from weft.snapshot.directory import CachedLookup, FilePermissions, SafeDirectory, find_birth_time, find_stat
from weft.snapshot.entry import FileEntry, is_same, list_parents
from weft.snapshot.objects import ObjectStore, SnapshotsFullError


def link_or_copy(source: str, target: str) -> None:
    """Hard-link or copy a file to a new name. Do nothing if the file does not exist."""
    with suppress(FileNotFoundError):
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without hard links
            shutil.copy2(source, target)


def replace_with_copy(source: str, target: str) -> None:
    """Replace a file by a copy of another one, atomically."""
    temp = f"{target}.{os.path.basename(os.path.dirname(source))}~"
    Disk().remove(temp)
    link_or_copy(source, temp)
    with suppress(FileNotFoundError):
        os.replace(temp, target)


# The inode number of an entry in the output of `git ls-files -z --debug`.
_INODE: Final = re.compile(rb"\0  ctime: .*\n  mtime: .*\n  dev: \d+\tino: (\d+)\n")
INODE_BITS: Final = 0xFFFFFFFF

# For more paths than this, listing all files is cheaper than naming these.
MAX_PATH_ARGUMENTS: Final = 300


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
        behind_links = self._list_behind_links(index, root, others)
        # Git does not report a directory in the place of an indexed file, because its name is known.
        swapped = {path for path in known - behind_links if _is_directory(os.path.join(root, path))}
        bare = frozenset(other[:-1] for other in others if other.endswith(b"/")) | swapped
        nested = {path for path in bare if os.path.lexists(os.path.join(root, path, b".git"))}
        deeper = self._list_in_bare(index, bare - nested)
        nested.update(path[:-1] for path in deeper if path.endswith(b"/"))
        new = {path for path in (*others, *deeper) if not path.endswith(b"/")}
        return IndexDifference(
            known=known | behind_links, new=frozenset(new), bare=bare - nested, nested=frozenset(nested)
        )

    def _list_behind_links(self, index: str, root: bytes, others: Collection[bytes]) -> set[bytes]:
        """Return the indexed files of directories that are links now.

        Git looks through the link: to it, a file that is there, too, has not changed.
        """
        if not os.path.exists(index):
            return set()
        links = tuple(
            path + b"/"
            for path in others
            if not path.endswith(b"/") and os.path.islink(os.path.join(root, path))
        )
        return {path for path in self.list_entries(index) if path.startswith(links)} if links else set()

    def list_inodes(self, index: str) -> set[int]:
        """Return the inode numbers of all files in an index, which keeps `INODE_BITS` of each."""
        return {int(number) for number in _INODE.findall(self._list_files(index, "--debug"))}

    def list_entries(self, index: str, paths: Collection[bytes] | None = None) -> dict[bytes, FileEntry]:
        """Return the entries of an index, all or those of these paths."""
        if not os.path.exists(index):
            return {}
        arguments = _to_arguments(paths) if paths is not None else None
        entries = {}
        for line in _split(self._list_files(index, "-s", *(() if arguments is None else ("--", *arguments)))):
            facts, _, path = line.partition(b"\t")
            mode, oid, _ = facts.split(b" ")
            entries[path] = FileEntry(int(mode, 8), oid.decode())
        if paths is None or arguments is not None:
            return entries
        return {path: entries[path] for path in paths if path in entries}

    def _list_in_bare(self, index: str, bare: Collection[bytes]) -> list[bytes]:
        if not bare:
            return []
        arguments = _to_arguments(bare)
        return _split(
            self._list_files(
                index, "-o", *self._list_exclude_options(), *(("--", *arguments) if arguments else ())
            )
        )

    def _list_exclude_options(self) -> tuple[str, ...]:
        return ("--exclude-standard", *self.ignoring)

    def _list_files(self, index: str, *args: str) -> bytes:
        command = [*self.settings, "ls-files", "-z", *args]
        return self._plumbing.run(
            command, index=index, alternate=self._objects.alternate, seconds=self._seconds
        )


def _to_arguments(paths: Collection[bytes]) -> Sequence[str] | None:
    """Return the paths as arguments; None if there are too many."""
    return [os.fsdecode(path) for path in paths] if len(paths) <= MAX_PATH_ARGUMENTS else None


def _is_directory(path: bytes) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _split(output: bytes) -> list[bytes]:
    return output.split(b"\0")[:-1]


def list_directories(root: bytes, bare: Collection[bytes], *, at_most: int) -> Iterator[bytes]:
    """Yield these directories and all below them, at most `at_most`. Links are not followed."""
    waiting = list(bare)
    while waiting and at_most:
        path = waiting.pop()
        at_most -= 1
        yield path
        try:
            with os.scandir(os.path.join(root, path)) as entries:
                waiting += [
                    path + b"/" + entry.name for entry in entries if entry.is_dir(follow_symlinks=False)
                ]
        except OSError:
            continue


GIT_SECONDS: Final = 600.0
MAX_STORE_ATTEMPTS: Final = 3
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
        self, index: str, paths: list[bytes], earlier: Refusals
    ) -> tuple[dict[bytes, FileEntry], Refusals]:
        """Add these paths to the index. Return the entries it has of them now, and the refused ones with the reason."""
        temp = f"{index}.new"
        for leftover in (temp, f"{temp}.lock"):
            Disk().remove(leftover)
        link_or_copy(index, temp)
        lookup, refused = CachedLookup(self._files), Refusals()
        added, dropped = self._sort(paths, lookup, earlier, refused)
        self._drop(temp, dropped)
        reasons = dict.fromkeys(self._add(temp, added), UNREADABLE)
        after = self._listing.list_entries(temp, paths)
        reasons |= self.store(temp, {path: entry.oid for path, entry in after.items()})
        for path, reason in reasons.items():
            status = lookup.find_status(path)
            refused[path] = (reason, None if status is None else stamp_of(status))
        after = self._listing.list_entries(temp, paths)
        os.replace(temp, index)
        return after, refused

    def store(self, index: str, oids: Mapping[bytes, str]) -> dict[bytes, str]:
        """Store the content of each path.

        Remove paths that cannot be stored from the index, and return them with the reason.
        """
        for _ in range(MAX_STORE_ATTEMPTS):
            paths = self._list_missing(oids)
            if not paths:
                return {}
            try:
                self._objects.write_many(self._read_contents(paths), count=len(paths))
            except SnapshotsFullError:
                self._drop(index, paths)
                return dict.fromkeys(paths, NO_ROOM)
            # Add them again: files that changed meanwhile now have another name.
            self._add(index, paths)
            oids = {path: entry.oid for path, entry in self._listing.list_entries(index, paths).items()}
        paths = self._list_missing(oids)
        self._drop(index, paths)
        return dict.fromkeys(paths, KEEPS_CHANGING)

    def _list_missing(self, oids: Mapping[bytes, str]) -> list[bytes]:
        missing = self._objects.find_missing(set(oids.values()))
        return [path for path, oid in oids.items() if oid in missing]

    def _read_contents(self, paths: list[bytes]) -> Iterator[bytes]:
        for content in self._files.read_many(paths, limit=self.max_file_bytes):
            if self._plumbing.stopped:
                return
            yield content

    def _sort(
        self, paths: list[bytes], lookup: CachedLookup, earlier: Refusals, refused: Refusals
    ) -> tuple[list[bytes], list[bytes]]:
        """Split paths into those to add and those to remove from the index."""
        added, dropped = [], []
        for path in paths:
            status = lookup.find_status(path)
            reason = "" if status is None else self._find_refusal(path, status, earlier)
            if status is None or stat.S_ISDIR(status.st_mode) or reason:
                dropped.append(path)
            else:
                added.append(path)
            if status is not None and reason:
                refused[path] = (reason, stamp_of(status))
        return added, dropped

    def _find_refusal(self, path: bytes, status: os.stat_result, earlier: Refusals) -> str:
        reason, stamp = earlier.get(path, ("", None))
        if stamp == stamp_of(status):
            return reason
        if not stat.S_ISREG(status.st_mode):
            return ""
        if status.st_size > self.max_file_bytes:
            return TOO_LARGE
        return "" if os.access(self._files.absolute(path), os.R_OK) else UNREADABLE

    def _drop(self, index: str, paths: list[bytes]) -> None:
        if paths:
            self._update_index(index, paths, "--force-remove")

    def _add(self, index: str, paths: list[bytes]) -> list[bytes]:
        """Add paths to the index. If git refuses one, find it by bisection. Return the refused paths."""
        refused: list[bytes] = []
        waiting = [paths] if paths else []
        while waiting:
            batch = waiting.pop()
            try:
                self._update_index(index, batch, "--info-only", "--add", "--remove", "--replace")
            except GitError:
                if self._plumbing.stopped or len(refused) >= MAX_REFUSALS:
                    raise
                half = len(batch) // 2
                if half:
                    waiting += [batch[half:], batch[:half]]
                else:
                    refused += batch
        return refused

    def _update_index(self, index: str, paths: list[bytes], *options: str) -> None:
        command = ["update-index", *options, "-z", "--stdin"]
        self._plumbing.run(command, input=b"\0".join(paths) + b"\0", index=index, seconds=GIT_SECONDS)


MAX_DIRECTORIES: Final = 20_000
MAX_NESTED_FILES: Final = 5_000

NESTED_REPOSITORY: Final = "it is a nested repository"
MOVED_IN: Final = "it was not tracked before: it was ignored, or moved here from another place"


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
        self._state = ScanState()
        self.updater = IndexUpdater(files, objects, plumbing, listing)
        self.index = ""
        self.shared = ""
        self.is_remote = False  # whether file times come from another machine

    def scan_first(self) -> None:
        """Start from the index of the last process, and store the contents that are missing."""
        link_or_copy(self.shared, self.index)
        has_index = os.path.exists(self.index)
        self._note_time()
        self._update(self._listing.find_differences(self.index, self._files.root))
        entries = self._listing.list_entries(self.index)
        if has_index:
            self.updater.store(self.index, {path: entry.oid for path, entry in entries.items()})
        self._permissions.learn(entries)
        self._keep_time()

    def scan(self, sources: Collection[str] = ()) -> ScanResult:
        """Return what changed since the last scan. `sources` are contents that are stored elsewhere."""
        earlier = self._state
        self._note_time()
        difference = self._listing.find_differences(self.index, self._files.root)
        untracked = set() if self.is_remote else self._list_untracked(difference)
        before, after = self._update(difference)
        changes = tuple(self._list_changes(difference, before, after, earlier))
        stored = {*sources, *(change.before.oid for change in changes if change.before is not None)}
        moved_in = {
            change.path
            for change in changes
            if change.path in untracked and change.after is not None and change.after.oid not in stored
        }
        self._keep_time()
        return ScanResult(
            changes=tuple(change for change in changes if change.path not in moved_in),
            uncovered={
                **_list_differing(earlier.refused, self._state.refused),
                **dict.fromkeys(moved_in, MOVED_IN),
            },
        )

    def write_tree(self) -> Tree:
        """Return all indexed files as a tree. Its trees are our own; its blobs may be in the user's repository only."""
        # Do not use the user's objects here: git would update their times, and we never write there.
        command = ["write-tree", "--missing-ok"]
        return Tree(self._plumbing.run(command, index=self.index, seconds=GIT_SECONDS).decode().strip())

    def _update(self, difference: IndexDifference) -> tuple[dict[bytes, FileEntry], dict[bytes, FileEntry]]:
        """Update the index. Return the entries of what differed, before and after."""
        refused: Refusals = {
            path: (NESTED_REPOSITORY, self._stamp_nested(path)) for path in difference.nested
        }
        before: dict[bytes, FileEntry] = {}
        after: dict[bytes, FileEntry] = {}
        if paths := difference.files:
            before = self._listing.list_entries(self.index, paths)
            after, refused_files = self.updater.update(self.index, paths, self._state.refused)
            refused |= refused_files
            replace_with_copy(self.index, self.shared)
        self._state = ScanState(bare=self._list_bare(difference), refused=refused)
        return before, after

    # --- finding changes ---

    def _list_changes(
        self,
        difference: IndexDifference,
        before: Mapping[bytes, FileEntry],
        after: Mapping[bytes, FileEntry],
        earlier: ScanState,
    ) -> Iterator[ScannedChange]:
        lookup = CachedLookup(self._files)
        for path in difference.files:
            old, new = self._permissions.complete(path, before.get(path), after.get(path))
            # If a file was or is refused, we cannot say whether it was created or removed.
            if path in earlier.refused or path in self._state.refused or is_same(old, new):
                continue
            has = lookup.list_existing_parents(path)
            had = frozenset(
                each
                for each in list_parents(path)
                if each in earlier.bare or not _is_in(each, difference.bare)
            )
            yield ScannedChange(
                path=path, before=old, after=new, had=had if old is None else had | has, has=has
            )

    def _list_untracked(self, difference: IndexDifference) -> set[bytes]:
        """Return files that existed before the last scan began, but were not tracked then under any name.

        A command may have moved them here, or made git ignore them no longer, and may have changed them, too. Removing
        or replacing one of them would destroy what is stored nowhere else.
        """
        since = self._find_last_time()
        older = {path: status for path in difference.files if (status := self._find_older(path, since))}
        for path in difference.known & older.keys():
            # Of a file that was replaced and did not change, the index has the old inode number.
            if older[path].st_mtime_ns >= since:
                del older[path]
        tracked = self._listing.list_inodes(self.index) if older else set()
        return {path for path, status in older.items() if status.st_ino & INODE_BITS not in tracked}

    def _find_older(self, path: bytes, since: int) -> os.stat_result | None:
        """Return the status of a file if it was created before then. If that is unknown, its last change decides."""
        file = self._files.absolute(path)
        status = find_stat(file)
        if status is None or stat.S_ISDIR(status.st_mode) or not since:
            return None
        try:
            birth = find_birth_time(file)
        except OSError:
            return None
        return status if (status.st_mtime_ns if birth is None else birth) < since else None

    def _find_last_time(self) -> int:
        """Return when the last scan began, in ns since 1970; 0 if that is unknown."""
        status = find_stat(os.fsencode(self._time_file))
        return 0 if status is None else status.st_mtime_ns

    def _note_time(self) -> None:
        """Note when a scan begins, by the file system's clock, because ours may be ahead of it.

        A file that is written while the scan runs may be missed by it, and is newer than its beginning, not than its end.
        """
        with open(f"{self._time_file}.new", "ab") as file:
            os.utime(file.fileno())

    def _keep_time(self) -> None:
        """Take the noted time for that of the last scan, now that the scan has succeeded."""
        os.replace(f"{self._time_file}.new", self._time_file)

    @property
    def _time_file(self) -> str:
        return f"{self.index}.seen"

    def _list_bare(self, difference: IndexDifference) -> frozenset[bytes]:
        occupied = {each for path in difference.new for each in list_parents(path)}
        walked = list_directories(self._files.root, difference.bare, at_most=MAX_DIRECTORIES)
        return frozenset(path for path in walked if path not in occupied)

    def _stamp_nested(self, path: bytes) -> int | None:
        """Return one number for the stamps of all files in a nested repository; None if there are too many."""
        remaining, total = MAX_NESTED_FILES, 0
        for where, dirs, names in os.walk(self._files.absolute(path)):
            dirs[:] = [each for each in dirs if each != b".git"]
            for name in names:
                remaining -= 1
                if not remaining:
                    return None
                if (status := find_stat(os.path.join(where, name))) is not None:
                    total ^= hash((where, name, stamp_of(status)))
        return total


def _is_in(path: bytes, directories: frozenset[bytes]) -> bool:
    return path in directories or any(each in directories for each in list_parents(path))


def _list_differing(earlier: Refusals, current: Refusals) -> dict[bytes, str]:
    """Return files that are or were refused and whose stamp changed."""
    paths = [path for path in {*earlier, *current} if earlier.get(path) != current.get(path)]
    return {path: (current.get(path) or earlier[path])[0] for path in paths}
