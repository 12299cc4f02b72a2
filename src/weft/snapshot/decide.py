"""Decide for each file, by a three-way comparison, what a restore does (pure).

Starting from the current file, patches are undone from the newest to the oldest as long as the file is what the agent
left. Where it is not, the person changed it in between, and the walk ends.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from weft.model.diff import Fate
from weft.snapshot.entry import FILE, FileEntry, TreeState, is_same, list_parents

CHANGED_SINCE: Final = "you changed it since"
CHANGED_BETWEEN: Final = "it is as you left it between two changes of the agent"
LAST_COPY: Final = "it is the last copy of something that was yours under another name"
PATH_BLOCKED: Final = "something else is in its place"


class RestoreStep(Struct, frozen=True, array_like=True):
    """Change one file to `goal` if it is still as it was `found`."""

    path: bytes
    found: FileEntry | None
    goal: FileEntry | None


class FileDecision(Struct, frozen=True, kw_only=True):
    """The decision about one file; it has a `step` if the file changes."""

    path: bytes
    fate: Fate
    reason: str = ""
    step: RestoreStep | None = None


class PatchSides(Struct, frozen=True, kw_only=True):
    """The two trees of a patch: the files before the agent's change and after it."""

    before: TreeState
    after: TreeState

    @property
    def paths(self) -> set[bytes]:
        return {*self.before.files, *self.after.files}

    @property
    def new_directories(self) -> set[bytes]:
        """The directories that exist after it but not before."""
        return set(self.after.dirs - self.before.dirs)


class UnknownState(Struct, frozen=True, kw_only=True):
    """The current file cannot be compared, so it may differ from what the agent left."""

    reason: str


CurrentState = FileEntry | UnknownState | None


def decide_restore(
    sides: Sequence[PatchSides], current: Mapping[bytes, CurrentState], others: Collection[bytes] = ()
) -> list[FileDecision]:
    """Return a decision on each file in `current`, its state now. `sides` are oldest first; `others` are files that must not change."""
    decisions = [_judge(path, sides, found) for path, found in sorted(current.items())]
    user_contents = _list_user_contents(sides)
    while True:
        unblocked = _refuse_blocked(decisions, current, others)
        decisions = _keep_last_copies(unblocked, current, user_contents)
        if decisions == unblocked:
            return decisions


def _judge(path: bytes, sides: Sequence[PatchSides], found: CurrentState) -> FileDecision:
    if isinstance(found, UnknownState):
        return FileDecision(path=path, fate="kept", reason=found.reason)
    goal, undone, complete = found, False, True
    for side in reversed(sides):
        if path not in side.paths:
            continue
        before, after = side.before.files.get(path), side.after.files.get(path)
        if is_same(goal, after):
            goal, undone = _merge_permissions(before, after, goal), True
        elif not is_same(goal, before):  # if it is the same, this change was already undone
            complete = False
            break
    if is_same(goal, found):
        if complete:
            return FileDecision(path=path, fate="unchanged")
        return FileDecision(path=path, fate="kept", reason=CHANGED_SINCE if not undone else CHANGED_BETWEEN)
    fate: Fate = "removed" if goal is None else "restored"
    return FileDecision(
        path=path, fate=fate, reason="" if complete else CHANGED_BETWEEN, step=RestoreStep(path, found, goal)
    )


def _list_user_contents(sides: Sequence[PatchSides]) -> set[str]:
    """Return the contents that existed before the agent's changes. The agent may have moved them, but did not make them."""
    agent_contents: set[tuple[bytes, str]] = set()
    contents: set[str] = set()
    for side in sides:
        contents |= {
            entry.oid for path, entry in side.before.files.items() if (path, entry.oid) not in agent_contents
        }
        agent_contents |= {(path, entry.oid) for path, entry in side.after.files.items()}
    return contents


def _keep_last_copies(
    decisions: list[FileDecision], current: Mapping[bytes, CurrentState], user_contents: Collection[str]
) -> list[FileDecision]:
    """Keep files that a step would remove although they are the last copy of a user's content.

    That happens when the agent renamed a file, and the old name is now taken by something new.
    """
    remaining = {
        found.oid
        for decision in decisions
        if isinstance(
            found := decision.step.goal if decision.step is not None else current[decision.path], FileEntry
        )
    }
    return [
        _keep(decision, LAST_COPY) if _removes_last_copy(decision, user_contents, remaining) else decision
        for decision in decisions
    ]


def _removes_last_copy(
    decision: FileDecision, user_contents: Collection[str], remaining: Collection[str]
) -> bool:
    found = decision.step.found if decision.step is not None else None
    return found is not None and found.oid in user_contents and found.oid not in remaining


def _keep(decision: FileDecision, reason: str) -> FileDecision:
    return FileDecision(path=decision.path, fate="kept", reason=reason)


def _merge_permissions(
    before: FileEntry | None, after: FileEntry | None, found: FileEntry | None
) -> FileEntry | None:
    """Return the earlier entry, with the current permissions unless the agent changed them."""
    if before is None or after is None or found is None or before.is_link or found.is_link:
        return before
    return FileEntry(FILE | found.permissions, before.oid) if before.mode == after.mode else before


def _refuse_blocked(
    decisions: list[FileDecision], current: Mapping[bytes, CurrentState], others: Collection[bytes]
) -> list[FileDecision]:
    """Keep files whose place is blocked by something that stays."""
    while True:
        staying = {*others} | {
            decision.path
            for decision in decisions
            if current[decision.path] is not None
            and (decision.step is None or decision.step.goal is not None)
        }
        restored = {
            decision.path
            for decision in decisions
            if decision.step is not None and decision.step.goal is not None
        }
        directories = {parent for path in staying for parent in list_parents(path)}
        blocked = {
            path
            for path in restored
            if path in directories or any(parent in staying for parent in list_parents(path))
        }
        if not blocked:
            return decisions
        decisions = [
            _keep(decision, PATH_BLOCKED) if decision.path in blocked else decision for decision in decisions
        ]


def list_emptied(sides: Iterable[PatchSides], steps: Iterable[RestoreStep]) -> list[bytes]:
    """Return the directories that the agent created and that may be empty after these steps, innermost first."""
    parents = {parent for step in steps if step.goal is None for parent in list_parents(step.path)}
    created = {directory for side in sides for directory in side.new_directories}
    return sorted(parents & created, key=lambda path: (-path.count(b"/"), path))
