"""Add up the file changes of sessions and prompts, incrementally."""

import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import GitError, SnapshotMissingError
from weft.model.diff import MAX_FILES, FileDiff, Patch, cap_diffs
from weft.model.session import SessionSummary
from weft.snapshot.contract import Snapshots

MAX_CACHED_TOTALS: Final = 32


class ChangeSum(Struct, frozen=True, kw_only=True):
    """The total of some patches: a diff for each file, within bounds, and the number of files."""

    diffs: tuple[FileDiff, ...] = ()
    files: int = 0

    @property
    def summary(self) -> SessionSummary:
        return SessionSummary(
            additions=sum(diff.additions for diff in self.diffs),
            deletions=sum(diff.deletions for diff in self.diffs),
            files=self.files,
        )


class _Total(Struct, frozen=True, kw_only=True):
    """Patches that were added up: folded into one, with a diff for each file. `diffs` is empty if there are too many files."""

    patches: tuple[Patch, ...]
    folded: Patch
    diffs: dict[str, FileDiff]


class ChangeTotals:
    """Adds up patches, and caches the last totals. File names in diffs are relative to `root`."""

    def __init__(self, snapshots: Snapshots, root: str) -> None:
        self._snapshots = snapshots
        self._root = os.fsencode(os.path.realpath(root)).decode(errors="backslashreplace").rstrip("/") + "/"
        self._totals: OrderedDict[str, _Total] = OrderedDict()

    @property
    def root(self) -> str:
        return self._root.rstrip("/") or "/"

    async def add_up(self, key: str, patches: Sequence[Patch]) -> ChangeSum | None:
        """Return the total of these patches, or None if git cannot tell. `key` is the id of their session or message, for the cache."""
        if not patches:
            self._totals.pop(key, None)
            return ChangeSum()
        try:
            total = await self._extend(key, tuple(patches))
            if total.diffs:
                diffs = cap_diffs([total.diffs[name] for name in sorted(total.diffs)])
                total = replace(total, diffs={diff.file: diff for diff in diffs})
            else:
                diffs = await self._snapshots.diff(total.folded.before, total.folded.after)
        except (GitError, SnapshotMissingError, OSError):
            self._totals.pop(key, None)
            return None
        self._cache(key, total)
        return ChangeSum(diffs=diffs, files=len(total.folded.files))

    async def _extend(self, key: str, patches: tuple[Patch, ...]) -> _Total:
        """Add the new patches to the cached total of the others, if there is one."""
        cached = self._totals.get(key)
        if cached is None or not cached.diffs or patches[: len(cached.patches)] != cached.patches:
            return await self._compute(patches)
        new = patches[len(cached.patches) :]
        if not new:
            return cached
        try:
            folded = await self._snapshots.fold((cached.folded, *new))
        except SnapshotMissingError:  # garbage collection removed it: totals are not pinned
            return await self._compute(patches)
        names = {file for patch in new for file in patch.files}
        diffs = {file: diff for file, diff in cached.diffs.items() if self._root + file not in names}
        diffs |= await self._read_diffs(folded, sorted(names))
        return self._to_total(patches, folded, diffs)

    async def _compute(self, patches: tuple[Patch, ...]) -> _Total:
        folded = await self._fold(patches)
        return self._to_total(patches, folded, await self._read_diffs(folded, None))

    def _to_total(self, patches: tuple[Patch, ...], folded: Patch, diffs: dict[str, FileDiff]) -> _Total:
        """Return the total to cache. Its diffs are dropped if they do not include all files, since nothing can be added to them."""
        return _Total(
            patches=patches, folded=folded, diffs=diffs if len(diffs) == len(folded.files) < MAX_FILES else {}
        )

    async def _read_diffs(self, folded: Patch, files: Sequence[str] | None) -> dict[str, FileDiff]:
        diffs = await self._snapshots.diff(folded.before, folded.after, files)
        return {diff.file: diff for diff in diffs}

    async def _fold(self, patches: Sequence[Patch]) -> Patch:
        """Fold patches into one, without those whose snapshots are gone."""
        try:
            return await self._snapshots.fold(patches)
        except SnapshotMissingError:
            return await self._snapshots.fold([patch for patch in patches if await self._is_readable(patch)])

    async def _is_readable(self, patch: Patch) -> bool:
        try:
            await self._snapshots.fold([patch])
        except SnapshotMissingError:
            return False
        return True

    def _cache(self, key: str, total: _Total) -> None:
        self._totals[key] = total
        self._totals.move_to_end(key)
        while len(self._totals) > MAX_CACHED_TOTALS:
            self._totals.popitem(last=False)


def all_within(root: str, patches: Iterable[Patch]) -> bool:
    """Return True if all changed files are in a directory."""
    prefix = root.rstrip("/") + "/"
    return all(file.startswith(prefix) for patch in patches for file in patch.files)
