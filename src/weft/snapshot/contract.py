"""The contract of snapshots: record the files that an agent changes, show the changes, and undo them safely."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, NamedTuple, Protocol

from msgspec import Struct

from weft.model.diff import FileDiff, FileFate, Patch, Tree
from weft.model.ids import SessionID
from weft.snapshot.entry import FileEntry

MAX_BYTES: Final = 2 << 30
MAX_FILE_BYTES: Final = 10 << 20
WAIT_SECONDS: Final = 30.0


class SnapshotLimits(Struct, frozen=True, kw_only=True):
    """The size limits in total and for one file, and how long a command waits for the first scan."""

    max_bytes: int = MAX_BYTES
    max_file_bytes: int = MAX_FILE_BYTES
    wait_seconds: float = WAIT_SECONDS


class RestorePlan(Struct, frozen=True, kw_only=True):
    """Restore files to their state before these patches (oldest first), or only `files` (absolute, as in `Patch.files`).

    `note` is the caller's own label. After a crash, `recover` passes it to the caller to ask whether the restore should stand.
    """

    session: SessionID
    patches: tuple[Patch, ...]
    files: tuple[str, ...] | None = None
    note: str = ""


class Restoration(Struct, frozen=True, kw_only=True):
    """The result of a plan. Restoring the patch `undo` alone reverses it."""

    session: SessionID
    fates: tuple[FileFate, ...]
    undo: Patch | None = None
    note: str = ""


class RecoveredPatch(Struct, frozen=True, kw_only=True):
    """A patch that a dead process left, and the call that made it, if there was only one."""

    session: SessionID
    patch: Patch
    call: str = ""


class RecoveryReport(Struct, frozen=True, kw_only=True):
    """What dead processes left behind: restores that were finished or rolled back, and patches that may not be stored yet.

    A patch with the same two trees as one that the session already has is the same patch.
    """

    finished: tuple[Restoration, ...] = ()
    rolled_back: tuple[Restoration, ...] = ()
    patches: tuple[RecoveredPatch, ...] = ()


ObjectKind = Literal["blob", "tree"]


class PackedObject(Struct, frozen=True):
    """An object of a tree: a file's content, or a tree in git's format."""

    kind: ObjectKind
    oid: str
    content: bytes


class FileTrees(NamedTuple):
    """Files as they are to be, and files that are not to exist, as two trees."""

    present: Tree
    absent: Tree


class Coverage(Struct, frozen=True, kw_only=True):
    """What is tracked: `all` files that git does not ignore, only `announced` files, or `none`; and why not all."""

    extent: Literal["all", "announced", "none"]
    reason: str = ""


class SnapshotReader(Protocol):
    """Reads files out of the stored snapshots of one checkout. Every method blocks."""

    def has_tree(self, tree: Tree) -> bool: ...

    def find_entry(self, tree: Tree, path: bytes) -> FileEntry | None:
        """Return the entry of a file in a tree, None if it is not there or the tree cannot be read."""
        ...

    def read_contents(self, oids: Collection[str]) -> dict[str, bytes]:
        """Return the contents that exist and are not damaged, by their ids."""
        ...


class Snapshots(Protocol):
    """Tracks and restores the files below one directory.

    * nothing is ever written to the user's repository, and no program that it configures is run;
    * contents, links, the executable bit and names are restored exactly, other permissions as far as they are known;
    * a change belongs to the session whose call was `watch`ed when it happened, and to no other session;
    * a restore changes a file only if it is still as the agent left it, and restores all files or, if a snapshot is missing, none;
    * if a file cannot be written, the others are put back and `RestoreFailedError` is raised. If that fails too, the rest is
      left to `recover`, and until then nothing more is restored;
    * `recover` finishes or rolls back an interrupted restore, as the caller decides;
    * a tree is kept as long as a session pins it.

    If snapshots are switched off, nothing new is recorded, and methods that record return an empty value. Earlier snapshots can still be restored.
    """

    def coverage(self) -> Coverage: ...

    # --- tracking ---

    def begin(self) -> None:
        """Start the first scan of all files in the background. `watch` waits for it if it has to."""
        ...

    def watch(
        self, session: SessionID, files: Sequence[str] | None = None, call: str = ""
    ) -> AbstractAsyncContextManager[None]:
        """Track a call that changes these files, even ignored ones; or, with None, a call that may change any file.

        After a crash, `recover` names the `call` for its changes.

        Entering waits at most `wait_seconds` until the files are recorded. After that the call runs all the same, and its
        changes are `uncovered`. A call that only reads need not be watched.
        """
        ...

    async def take(self, session: SessionID) -> tuple[Patch, ...]:
        """Return what the session changed since the last call, pinned. Usually that is one patch, none if nothing changed.

        There are several, oldest first, if the user changed a file between two changes of the agent. After a crash
        `recover` returns them again, until `mark_stored` is called.
        """
        ...

    async def mark_stored(self, session: SessionID) -> None:
        """Record that the patches from `take` are stored with the session."""
        ...

    async def track(self, session: SessionID) -> Tree | None:
        """Return all tracked files as one tree, named as by `git write-tree`; None if it is not available.

        It is meant for comparison: its objects may exist only in the user's repository. To restore files, use patches.
        """
        ...

    async def changes(self, since: Tree, until: Tree | None = None) -> Patch:
        """Return the difference between two trees from `track`, or between one and now."""
        ...

    # --- showing ---

    async def fold(self, patches: Sequence[Patch]) -> Patch:
        """Combine patches, oldest first, into one: each file from its first to its last state, if they differ."""
        ...

    async def diff(
        self, before: Tree, after: Tree, files: Sequence[str] | None = None
    ) -> tuple[FileDiff, ...]:
        """Return the diff of each file, within the bounds of `model.diff`; names are relative to the directory."""
        ...

    async def diff_text(self, before: Tree, after: Tree) -> str:
        """Return the difference as a unified diff."""
        ...

    # --- reading ---

    async def list_files(self, tree: Tree) -> Mapping[bytes, FileEntry]:
        """Return the files of a tree by their paths below the directory. Raise `SnapshotMissingError` if it cannot be read."""
        ...

    async def read_contents(self, oids: Collection[str]) -> dict[str, bytes]:
        """Return the contents of files by object name. What is missing or damaged is left out."""
        ...

    def open_archive(self, root: str) -> SnapshotReader:
        """Return a reader of the stored snapshots of a checkout, this one or another. Its calls block."""
        ...

    # --- restoring ---

    async def read_opencode_revert(self, git_dir: str, snapshot: str, trees: Mapping[str, str]) -> Patch:
        """Return as a patch what OpenCode changed when it reverted a session, read from its own snapshot repository.

        `trees` maps each file to the tree from which it was restored. Raise `SnapshotMissingError` if that tree is missing.
        """
        ...

    async def preview(self, plan: RestorePlan) -> Restoration:
        """Return what `restore` would do, without changing anything."""
        ...

    async def restore(self, plan: RestorePlan) -> Restoration:
        """Restore files. Raise `SnapshotMissingError`, without changing anything, if a content cannot be read."""
        ...

    def restoring(self, plan: RestorePlan) -> AbstractAsyncContextManager[Restoration]:
        """Restore files for the body, and roll back if it raises. Store in the body that the session was reverted."""
        ...

    async def recover(self, should_stand: Callable[[SessionID, str], Awaitable[bool]]) -> RecoveryReport:
        """Finish the work of dead processes. `should_stand` decides by session and note whether a restore should stand."""
        ...

    async def has_unfinished_restore(self, session: SessionID) -> bool:
        """Return True if a restore of the session still has to be finished or rolled back. Keep its trees until then."""
        ...

    # --- moving to another machine ---

    async def pack_files(self, paths: Collection[bytes]) -> FileTrees:
        """Store files below the directory as they are now, whether or not they are tracked. Nothing pins them."""
        ...

    async def read_objects(
        self,
        trees: Sequence[Tree],
        receive: Callable[[PackedObject], None],
        *,
        known: Collection[str] = frozenset(),
    ) -> None:
        """Call `receive`, in a thread, with every object of these trees that can be read. Leave out what is `known`, with all that a
        known tree names."""
        ...

    async def add_objects(self, objects: Iterable[PackedObject], where: str) -> None:
        """Store objects from elsewhere. Raise `BundleError` if one is damaged, or would lead out of the directory."""
        ...

    async def plan_overlay(self, trees: FileTrees) -> Patch:
        """Return the patch whose restore changes the current files into these."""
        ...

    # --- pins ---

    async def pin(self, session: SessionID, trees: Sequence[Tree]) -> None:
        """Keep trees that a session refers to, for a fork or an import. `take` pins its own."""
        ...

    async def unpin(self, session: SessionID, trees: Sequence[Tree]) -> None: ...

    async def release(self, session: SessionID) -> None:
        """Unpin everything of a session."""
        ...
