"""The snapshot contract without a directory for snapshots: nothing is tracked and nothing can be restored."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from weft.errors import SnapshotMissingError
from weft.model.diff import EMPTY_TREE, FileDiff, Patch, Tree
from weft.model.ids import GLOBAL_PROJECT, SessionID
from weft.snapshot.archive import SnapshotArchive
from weft.snapshot.contract import (
    Coverage,
    FileTrees,
    PackedObject,
    RecoveryReport,
    Restoration,
    RestorePlan,
)
from weft.snapshot.entry import FileEntry

REASON: Final = "there is no directory for snapshots"


class NoSnapshots:
    """Tracks nothing. `reason` says why."""

    def __init__(self, reason: str = REASON) -> None:
        self._reason = reason

    def coverage(self) -> Coverage:
        return Coverage(extent="none", reason=self._reason)

    def begin(self) -> None:
        return

    @asynccontextmanager
    async def watch(
        self, session: SessionID, files: Sequence[str] | None = None, call: str = ""
    ) -> AsyncIterator[None]:
        del session, files, call
        yield

    async def take(self, session: SessionID) -> tuple[Patch, ...]:
        del session
        return ()

    async def mark_stored(self, session: SessionID) -> None:
        del session

    async def track(self, session: SessionID) -> Tree | None:
        del session
        return None

    async def changes(self, since: Tree, until: Tree | None = None) -> Patch:
        return Patch(before=since, after=until or since, files=())

    async def fold(self, patches: Sequence[Patch]) -> Patch:
        del patches
        return Patch(before=EMPTY_TREE, after=EMPTY_TREE, files=())

    async def diff(
        self, before: Tree, after: Tree, files: Sequence[str] | None = None
    ) -> tuple[FileDiff, ...]:
        del before, after, files
        return ()

    async def diff_text(self, before: Tree, after: Tree) -> str:
        del before, after
        return ""

    async def list_files(self, tree: Tree) -> Mapping[bytes, FileEntry]:
        if tree == EMPTY_TREE:
            return {}
        raise SnapshotMissingError(f"the snapshot {tree} cannot be read: {self._reason}")

    async def read_contents(self, oids: Collection[str]) -> dict[str, bytes]:
        del oids
        return {}

    def open_archive(self, root: str) -> SnapshotArchive:
        return SnapshotArchive("", GLOBAL_PROJECT, root, {})

    async def read_opencode_revert(self, git_dir: str, snapshot: str, trees: Mapping[str, str]) -> Patch:
        del git_dir, snapshot
        raise SnapshotMissingError(self._reason, files=sorted(trees))

    async def preview(self, plan: RestorePlan) -> Restoration:
        if plan.patches:
            raise SnapshotMissingError(self._reason)
        return Restoration(session=plan.session, fates=(), note=plan.note)

    async def restore(self, plan: RestorePlan) -> Restoration:
        return await self.preview(plan)

    @asynccontextmanager
    async def restoring(self, plan: RestorePlan) -> AsyncIterator[Restoration]:
        yield await self.preview(plan)

    async def recover(self, should_stand: Callable[[SessionID, str], Awaitable[bool]]) -> RecoveryReport:
        del should_stand
        return RecoveryReport()

    async def has_unfinished_restore(self, session: SessionID) -> bool:
        del session
        return False

    async def pack_files(self, paths: Collection[bytes]) -> FileTrees:
        del paths
        raise SnapshotMissingError(self._reason)

    async def read_objects(
        self,
        trees: Sequence[Tree],
        receive: Callable[[PackedObject], None],
        *,
        known: Collection[str] = frozenset(),
    ) -> None:
        del trees, receive, known

    async def add_objects(self, objects: Iterable[PackedObject], where: str) -> None:
        del objects, where
        raise SnapshotMissingError(self._reason)

    async def plan_overlay(self, trees: FileTrees) -> Patch:
        del trees
        raise SnapshotMissingError(self._reason)

    async def pin(self, session: SessionID, trees: Sequence[Tree]) -> None:
        del session, trees

    async def unpin(self, session: SessionID, trees: Sequence[Tree]) -> None:
        del session, trees

    async def release(self, session: SessionID) -> None:
        del session
