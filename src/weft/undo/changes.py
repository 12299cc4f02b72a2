"""Add up what sessions and prompts changed in files, step by step."""

import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import GitError, SnapshotMissingError
from weft.model.diff import FILES, FileDiff, Patch, cap_diffs
from weft.model.session import SessionSummary
from weft.snapshot.contract import Snapshots

REMEMBERED: Final = 32


class Sum(Struct, frozen=True, kw_only=True):
    """What patches came to, file by file (within bounds), and how many files that is."""

    diffs: tuple[FileDiff, ...] = ()
    files: int = 0

    @property
    def summary(self) -> SessionSummary:
        return SessionSummary(
            additions=sum(diff.additions for diff in self.diffs),
            deletions=sum(diff.deletions for diff in self.diffs),
            files=self.files,
        )


class _Known(Struct, frozen=True, kw_only=True):
    """Patches that were added up, as one, and what it says of each file; `diffs` is empty if there are too many."""

    patches: tuple[Patch, ...]
    folded: Patch
    diffs: dict[str, FileDiff]


class Tally:
    """Remembers what it added up last. `root` is the directory that names in diffs are relative to."""

    def __init__(self, snapshots: Snapshots, root: str) -> None:
        self._snapshots = snapshots
        self._root = os.fsencode(os.path.realpath(root)).decode(errors="backslashreplace").rstrip("/") + "/"
        self._known: OrderedDict[str, _Known] = OrderedDict()

    @property
    def root(self) -> str:
        return self._root.rstrip("/") or "/"

    async def add_up(self, of: str, patches: Sequence[Patch]) -> Sum | None:
        """What these patches came to; `of` is whose they are. None if git cannot say."""
        if not patches:
            self._known.pop(of, None)
            return Sum()
        try:
            known = await self._go_on(of, tuple(patches))
            if known.diffs:
                diffs = cap_diffs([known.diffs[name] for name in sorted(known.diffs)])
                known = replace(known, diffs={diff.file: diff for diff in diffs})
            else:
                diffs = await self._snapshots.diff(known.folded.hash, known.folded.until)
        except (GitError, SnapshotMissingError, OSError):
            self._known.pop(of, None)
            return None
        self._remember(of, known)
        return Sum(diffs=diffs, files=len(known.folded.files))

    async def _go_on(self, of: str, patches: tuple[Patch, ...]) -> _Known:
        """From what is known of the first of them, if anything is."""
        known = self._known.get(of)
        if known is None or not known.diffs or patches[: len(known.patches)] != known.patches:
            return await self._begin(patches)
        new = patches[len(known.patches) :]
        if not new:
            return known
        try:
            folded = await self._snapshots.fold((known.folded, *new))
        except SnapshotMissingError:  # swept away: nobody keeps what is only added up
            return await self._begin(patches)
        names = {file for patch in new for file in patch.files}
        diffs = {file: diff for file, diff in known.diffs.items() if self._root + file not in names}
        diffs |= await self._diffs(folded, sorted(names))
        return self._whole(patches, folded, diffs)

    async def _begin(self, patches: tuple[Patch, ...]) -> _Known:
        folded = await self._fold(patches)
        return self._whole(patches, folded, await self._diffs(folded, None))

    def _whole(self, patches: tuple[Patch, ...], folded: Patch, diffs: dict[str, FileDiff]) -> _Known:
        """Past a number of files not all of them are told of, and nothing can be added to what is not known."""
        return _Known(
            patches=patches, folded=folded, diffs=diffs if len(diffs) == len(folded.files) < FILES else {}
        )

    async def _diffs(self, folded: Patch, files: Sequence[str] | None) -> dict[str, FileDiff]:
        found = await self._snapshots.diff(folded.hash, folded.until, files)
        return {diff.file: diff for diff in found}

    async def _fold(self, patches: Sequence[Patch]) -> Patch:
        """Without those that cannot be read any more: what is left is better than nothing."""
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

    def _remember(self, of: str, known: _Known) -> None:
        self._known[of] = known
        self._known.move_to_end(of)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def is_within(root: str, patches: Iterable[Patch]) -> bool:
    """Whether all that was changed lies in a directory."""
    below = root.rstrip("/") + "/"
    return all(file.startswith(below) for patch in patches for file in patch.files)
