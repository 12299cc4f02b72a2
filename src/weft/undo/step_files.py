"""The files of a session after each of its steps, read from its snapshots.

A snapshot holds the files that a call changed, before and after. So a file that the session changed is known after every
step, exactly. A file that it never changed is not recorded here: `local/step_checkout.py` takes it from the repository.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from weft.errors import SnapshotMissingError
from weft.model.diff import Uncovered
from weft.session.steps import SessionStep
from weft.snapshot.contract import Snapshots
from weft.snapshot.entry import FileEntry, is_same

# The state of files by path below the root of the checkout; None means that there was no such file.
FileStates = Mapping[bytes, FileEntry | None]


class StepFileChange(Struct, frozen=True, kw_only=True):
    """How one call of one step changed one file. `place` is the number of the recorded change, of one or more files, counted over the session from 1."""

    place: int
    step: int
    call_id: str
    path: bytes
    before: FileEntry | None
    after: FileEntry | None


class StepFiles(Struct, frozen=True, kw_only=True):
    """All changes of files that the steps of a session made, oldest first.

    Changes with the same `place` belong together: one call made them. `uncovered` are files that changed without a
    snapshot, by the number of the step.
    """

    changes: tuple[StepFileChange, ...]
    uncovered: Mapping[int, tuple[Uncovered, ...]]

    @property
    def places(self) -> list[int]:
        """The places at which files changed, in order."""
        return sorted({change.place for change in self.changes})

    def list_at(self, place: int) -> list[StepFileChange]:
        """Return the changes that were made together at a place."""
        return [change for change in self.changes if change.place == place]

    def get_after(self, place: int) -> FileStates:
        """Return every file that the session ever changed, as it was after the changes up to a place; 0 is the beginning."""
        states: dict[bytes, FileEntry | None] = {}
        for change in self.changes:
            if change.place <= place:
                states[change.path] = change.after
            else:
                states.setdefault(change.path, change.before)
        return states

    def find_last_place(self, step: int) -> int:
        """Return the place of the last change that was made up to a step, 0 if there was none."""
        ends = sorted({(change.step, change.place) for change in self.changes})
        index = bisect_right(ends, step, key=lambda end: end[0])
        return ends[index - 1][1] if index else 0


async def read_step_files(snapshots: Snapshots, steps: Sequence[SessionStep]) -> StepFiles:
    """Read the changes of these steps. Raise `SnapshotMissingError` if a snapshot cannot be read any more."""
    changes: list[StepFileChange] = []
    uncovered: dict[int, tuple[Uncovered, ...]] = {}
    place = 0
    for step in steps:
        for change in step.changes:
            place += 1
            before = await snapshots.list_files(change.patch.before)
            after = await snapshots.list_files(change.patch.after)
            changes += [
                StepFileChange(
                    place=place,
                    step=step.number,
                    call_id=change.call_id,
                    path=path,
                    before=before.get(path),
                    after=after.get(path),
                )
                for path in sorted({*before, *after})
                if not is_same(before.get(path), after.get(path))
            ]
            if change.patch.uncovered:
                uncovered[step.number] = (*uncovered.get(step.number, ()), *change.patch.uncovered)
    return StepFiles(changes=tuple(changes), uncovered=uncovered)


async def read_contents(snapshots: Snapshots, entries: Iterable[FileEntry | None]) -> dict[str, bytes]:
    """Return the contents of files by object name. Raise `SnapshotMissingError` if one cannot be read any more."""
    oids = sorted({entry.oid for entry in entries if entry is not None})
    contents = await snapshots.read_contents(oids)
    if missing := [oid for oid in oids if oid not in contents]:
        raise SnapshotMissingError(f"the content {missing[0]} of a file cannot be read any more")
    return contents
