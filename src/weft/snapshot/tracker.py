"""Track the files below one directory: read them, keep their contents, and turn changes into patches. Every method blocks."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from weft.errors import GitError
from weft.host.files import Stamp, share_lock, stamp_of
from weft.host.git import Git, Plumbing
from weft.host.mounts import find_network_file_system
from weft.host.witness import DeathWitness
from weft.model.diff import Patch, Tree, Uncovered
from weft.model.ids import SessionID
from weft.model.project import is_within
from weft.snapshot.contract import SnapshotLimits
from weft.snapshot.directory import FileTooLargeError, SafeDirectory
from weft.snapshot.entry import FileEntry, TreeState, format_path
from weft.snapshot.index import NO_ROOM, TOO_LARGE, UNREADABLE, GitListing, Scanner, ScanResult
from weft.snapshot.ledger import RecordedChange, group_changes, join_changes, to_states
from weft.snapshot.location import SnapshotLocation, SnapshotSite, locate_snapshots
from weft.snapshot.objects import ObjectStore, SnapshotsFullError, pin_trees

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.snapshot.diffs import TreeDiffs
    from weft.snapshot.restore import Restorer

# In the directory of a process: the file that changes when it dies, and the list of the files that were removed by then.
WITNESS_FILE: Final = "witness"
REMOVED_FILE: Final = "removed"

OUTSIDE: Final = "it lies outside the project"
NOT_AVAILABLE: Final = "its earlier content is no longer available"
NOT_A_FILE: Final = "it is not a file"


class RefusedFile(Struct, frozen=True, kw_only=True):
    """A file that is not stored, the reason, and its stamp, which tells later whether it changed."""

    reason: str
    stamp: Stamp | None = None


class SeenFile(Struct, frozen=True, kw_only=True):
    """A file as it was found (`file` is the name the caller used), and which of its parent directories exist."""

    file: str
    path: bytes | None
    found: FileEntry | RefusedFile | None
    dirs: frozenset[bytes] = frozenset()


class FileTracker:
    """Reads and stores files, scans for changes, and builds patches."""

    def __init__(
        self, site: SnapshotSite, environ: Mapping[str, str], limits: SnapshotLimits, live: str
    ) -> None:
        self.place: SnapshotLocation = locate_snapshots(site.base, site.project, site.root)
        # Worktrees live in our own data directory, but their files belong to the project and are tracked.
        real = map(os.path.realpath, site.avoid)
        self._avoid = tuple(each for each in real if is_within(each, self.place.root))
        self._git = Git(environ)
        self._environ = environ
        self._limits = limits
        self._made = False
        self._tree: tuple[Stamp | None, Tree] | None = None
        self.plumbing = Plumbing(environ, self.place.git_dir, self.place.root)
        self.files = SafeDirectory(self.place.root)
        self.objects = ObjectStore(self.place, self.plumbing, limits.max_bytes)
        self.listing = GitListing(self.plumbing, self.objects, limits.wait_seconds)
        self.scanner = self.make_scanner(f"{self.place.live}/{live}/index")

    @cached_property
    def restorer(self) -> Restorer:
        from weft.snapshot.restore import Restorer  # noqa: PLC0415  few sessions are undone

        return Restorer(self.place, self.files, self.objects, self._limits.max_file_bytes)

    @cached_property
    def diffs(self) -> TreeDiffs:
        from weft.snapshot.diffs import TreeDiffs  # noqa: PLC0415  a run that changes no file shows none

        return TreeDiffs(self.plumbing, self.objects, self.files.root)

    def make_scanner(self, index: str) -> Scanner:
        scanner = Scanner(self.files, self.objects, self.plumbing, self.listing)
        scanner.index, scanner.shared = index, self.place.index
        scanner.updater.max_file_bytes = self._limits.max_file_bytes
        scanner.is_remote = any(find_network_file_system(each) for each in (self.place.root, index))
        return scanner

    def read_opencode_revert(self, git_dir: str, snapshot: str, trees: Mapping[str, str]) -> Patch:
        """Return what OpenCode changed when it reverted a session."""
        from weft.snapshot.opencode import OpenCodeSnapshots  # noqa: PLC0415  few sessions were undone in OpenCode

        snapshots = OpenCodeSnapshots(self._environ, git_dir, self.place.root)
        return snapshots.read_patch(self.objects, snapshot, trees)

    def make(self) -> None:
        """Create the snapshot repository. That happens only when there is something to store."""
        if not self._made:
            self.place.make(self._avoid)
            self._made = True

    def make_witness(self, directory: str) -> DeathWitness:
        """Start the witness of this process, which notes in its directory when it died and which files were removed by then."""
        command, environ = self.plumbing.to_command(["ls-files", "-z", "--deleted"], index=self.scanner.index)
        return DeathWitness(
            f"{directory}/{WITNESS_FILE}",
            f"{directory}/{REMOVED_FILE}",
            command,
            directory=self.place.root,
            environment=environ,
        )

    # --- all files ---

    def scan_first(self) -> None:
        """Scan all files for the first time. Raise `GitError` or `OSError` on failure."""
        self.make()
        self.read_user_repository()
        with share_lock(self.place.lock):
            self.scanner.scan_first()

    def scan(self, sources: Collection[str] = (), scanner: Scanner | None = None) -> ScanResult:
        """Return what changed since the last scan, and copy all contents that a restore needs into our own repository."""
        with share_lock(self.place.lock):
            scanned = (scanner or self.scanner).scan(sources)
            oids = {
                entry.oid for change in scanned.changes for entry in (change.before, change.after) if entry
            }
            lost = self.objects.copy_borrowed(oids) if oids else set()
        if not lost:
            return scanned
        uncovered_changes = [
            change
            for change in scanned.changes
            if any(entry is not None and entry.oid in lost for entry in (change.before, change.after))
        ]
        covered_changes = tuple(change for change in scanned.changes if change not in uncovered_changes)
        return ScanResult(
            changes=covered_changes,
            uncovered={**scanned.uncovered, **{change.path: NOT_AVAILABLE for change in uncovered_changes}},
        )

    def write_tree(self) -> Tree:
        """Return the files of the last scan as a tree. It is cached until the index changes."""
        stamp = _find_stamp(self.scanner.index)
        if self._tree is None or self._tree[0] != stamp:
            with share_lock(self.place.lock):
                self._tree = (stamp, self.scanner.write_tree())
        return self._tree[1]

    def read_user_repository(self) -> None:
        """Read from the user's repository where its objects are and what it ignores. May be called again."""
        with suppress(GitError):
            common = self._git.common_dir(self.place.root)
            if self._git.object_format(self.place.root) == "sha1":
                self.objects.alternate = f"{common}/objects"
            if os.path.isfile(f"{common}/info/exclude"):
                self.listing.ignoring = (f"--exclude-from={common}/info/exclude",)
        with suppress(GitError):
            if ignored := self._git.find_setting(self.place.root, "core.excludesFile"):
                self.listing.settings = ("-c", f"core.excludesFile={ignored}")

    # --- some files ---

    def record(self, files: Iterable[str]) -> list[SeenFile]:
        """Store these files as they are now."""
        self.make()
        with share_lock(self.place.lock):
            return [self._record(file, self.files.locate(file)) for file in files]

    def record_again(self, seen: Iterable[SeenFile]) -> list[SeenFile]:
        """Store the same files as they are by now."""
        with share_lock(self.place.lock):
            return [self._record(each.file, each.path) for each in seen]

    def _record(self, file: str, path: bytes | None) -> SeenFile:
        if path is None or self._is_avoided(path):
            return SeenFile(file=file, path=None, found=RefusedFile(reason=OUTSIDE, stamp=_find_stamp(file)))
        return SeenFile(
            file=file, path=path, found=self.store_file(path), dirs=self.files.list_existing_parents(path)
        )

    def store_file(self, path: bytes) -> FileEntry | RefusedFile | None:
        """Store a file as it is now. Return None if it does not exist."""
        status = self.files.find_status(path)
        if status is None or stat.S_ISDIR(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
            return RefusedFile(reason=NOT_A_FILE, stamp=stamp_of(status))
        try:
            entry, content, _ = self.files.read(path, limit=self._limits.max_file_bytes)
            self.objects.write(content)
        except FileTooLargeError:
            return RefusedFile(reason=TOO_LARGE, stamp=stamp_of(status))
        except SnapshotsFullError:
            return RefusedFile(reason=NO_ROOM, stamp=stamp_of(status))
        except OSError:
            return RefusedFile(reason=UNREADABLE, stamp=stamp_of(status))
        return entry

    def _is_avoided(self, path: bytes) -> bool:
        absolute = os.fsdecode(self.files.absolute(path))
        return any(is_within(absolute, each) for each in self._avoid)

    def list_scanned(self, paths: Collection[bytes]) -> list[bytes]:
        """Return those of the paths that a scan of all files includes."""
        return list(self.listing.list_entries(self.scanner.index, paths)) if paths else []

    # --- patches ---

    def make_patches(
        self, session: SessionID, changes: Iterable[RecordedChange], uncovered: Mapping[bytes, str]
    ) -> tuple[Patch, ...]:
        """Turn changes into pinned patches. Uncovered files go with the last one."""
        groups = group_changes(list(join_changes(changes)))
        uncovered_files = tuple(
            Uncovered(file=self.format_path(path), reason=reason)
            for path, reason in sorted(uncovered.items())
        )
        if not groups and uncovered_files:
            groups = [[]]
        with share_lock(self.place.lock):
            patches = [self.make_patch(group) for group in groups]
            pin_trees(
                self.place, session, (tree for patch in patches for tree in (patch.before, patch.after))
            )
        if patches and uncovered_files:
            last = patches[-1]
            patches[-1] = Patch(
                before=last.before, after=last.after, files=last.files, uncovered=uncovered_files
            )
        return tuple(patches)

    def make_patch(self, changes: Collection[RecordedChange]) -> Patch:
        before, after = to_states(changes)
        return Patch(
            before=self.objects.write_state(before),
            after=self.objects.write_state(after),
            files=tuple(
                self.format_path(change.path) for change in sorted(changes, key=lambda each: each.path)
            ),
        )

    def fold(self, patches: Sequence[Patch]) -> Patch:
        """Combine patches into one, from the first to the last state of each file."""
        changes: dict[bytes, RecordedChange] = {}
        for index, patch in enumerate(patches):
            before, after = self.objects.read_state(patch.before), self.objects.read_state(patch.after)
            for change in _to_changes(before, after, index):
                old = changes.get(change.path, change)
                changes[change.path] = RecordedChange(
                    change.path, old.before, change.after, index, old.had, change.has
                )
        # Paths that cannot exist in one tree come from different times. The first group is shown.
        folded = self.make_patch(next(iter(group_changes(list(join_changes(changes.values())))), []))
        uncovered = tuple({each.file: each for patch in patches for each in patch.uncovered}.values())
        return Patch(before=folded.before, after=folded.after, files=folded.files, uncovered=uncovered)

    def compare_trees(self, since: Tree, until: Tree) -> Patch:
        changes = [
            RecordedChange(path, old, new, 0) for path, (old, new) in self.diffs.list_changed(since, until)
        ]
        self.objects.copy_borrowed(
            {each.oid for change in changes for each in (change.before, change.after) if each}
        )
        return self.make_patch(changes)

    def format_path(self, path: bytes) -> str:
        return format_path(self.files.absolute(path) if path else self.files.root)


def _to_changes(before: TreeState, after: TreeState, at: int) -> Iterator[RecordedChange]:
    had, has = tuple(before.dirs), tuple(after.dirs)
    for path in {*before.files, *after.files}:
        yield RecordedChange(path, before.files.get(path), after.files.get(path), at, had, has)


def _find_stamp(file: str) -> Stamp | None:
    try:
        return stamp_of(os.lstat(file))
    except OSError:
        return None
