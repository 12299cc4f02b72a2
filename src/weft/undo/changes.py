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

REMEMBERED: Final = 32


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

    async def add_up(self, of: str, patches: Sequence[Patch]) -> ChangeSum | None:
        """Return the total of these patches, or None if git cannot tell. `of` is the id of their session or message, for the cache."""
        if not patches:
            self._totals.pop(of, None)
            return ChangeSum()
        try:
            known = await self._extend(of, tuple(patches))
            if known.diffs:
                diffs = cap_diffs([known.diffs[name] for name in sorted(known.diffs)])
                known = replace(known, diffs={diff.file: diff for diff in diffs})
            else:
                diffs = await self._snapshots.diff(known.folded.hash, known.folded.until)
        except (GitError, SnapshotMissingError, OSError):
            self._totals.pop(of, None)
            return None
        self._remember(of, known)
        return ChangeSum(diffs=diffs, files=len(known.folded.files))

    async def _extend(self, of: str, patches: tuple[Patch, ...]) -> _Total:
        """Add the new patches to the cached total of the others, if there is one."""
        known = self._totals.get(of)
        if known is None or not known.diffs or patches[: len(known.patches)] != known.patches:
            return await self._begin(patches)
        new = patches[len(known.patches) :]
        if not new:
            return known
        try:
            folded = await self._snapshots.fold((known.folded, *new))
        except SnapshotMissingError:  # garbage collection removed it: totals are not pinned
            return await self._begin(patches)
        names = {file for patch in new for file in patch.files}
        diffs = {file: diff for file, diff in known.diffs.items() if self._root + file not in names}
        diffs |= await self._read_diffs(folded, sorted(names))
        return self._to_total(patches, folded, diffs)

    async def _begin(self, patches: tuple[Patch, ...]) -> _Total:
        folded = await self._fold(patches)
        return self._to_total(patches, folded, await self._read_diffs(folded, None))

    def _to_total(self, patches: tuple[Patch, ...], folded: Patch, diffs: dict[str, FileDiff]) -> _Total:
        """Return the total to cache. Its diffs are dropped if they do not include all files, since nothing can be added to them."""
        return _Total(
            patches=patches, folded=folded, diffs=diffs if len(diffs) == len(folded.files) < MAX_FILES else {}
        )

    async def _read_diffs(self, folded: Patch, files: Sequence[str] | None) -> dict[str, FileDiff]:
        found = await self._snapshots.diff(folded.hash, folded.until, files)
        return {diff.file: diff for diff in found}

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

    def _remember(self, of: str, known: _Total) -> None:
        self._totals[of] = known
        self._totals.move_to_end(of)
        while len(self._totals) > REMEMBERED:
            self._totals.popitem(last=False)


def is_within(root: str, patches: Iterable[Patch]) -> bool:
    """Return True if all changed files are in a directory."""
    below = root.rstrip("/") + "/"
    return all(file.startswith(below) for patch in patches for file in patch.files)
