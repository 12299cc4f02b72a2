"""Deciding what to take back: per file and three-way, over values alone.

A file is followed back from how it stands, change by change, as long as it is what the agent left. Where it is not, a
person's work lies between, and there it ends.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from weft.model.diff import Fate
from weft.snapshot.entry import FILE, Entry, State, is_same, parents

CHANGED: Final = "you changed it since"
BETWEEN: Final = "it is as you left it between two changes of the agent"
LAST: Final = "it holds what was yours elsewhere, and would be nowhere else"
BLOCKED: Final = "something else stands in its place"


class Step(Struct, frozen=True, array_like=True):
    """Make one file what it is to be, if it is still what it was found to be."""

    path: bytes
    found: Entry | None
    goal: Entry | None


class Verdict(Struct, frozen=True, kw_only=True):
    """What is to become of one file; a `step` if anything is."""

    path: bytes
    fate: Fate
    reason: str = ""
    step: Step | None = None


class Side(Struct, frozen=True, kw_only=True):
    """A patch, read: the files as they were and as the agent left them."""

    before: State
    after: State

    @property
    def paths(self) -> set[bytes]:
        return {*self.before.files, *self.after.files}

    @property
    def made(self) -> set[bytes]:
        """The directories that are there after it and were not before."""
        return set(self.after.dirs - self.before.dirs)


class Unknown(Struct, frozen=True, kw_only=True):
    """How a file stands cannot be said, and so neither that it is as the agent left it."""

    reason: str


Standing = Entry | Unknown | None


def decide(
    sides: Sequence[Side], standing: Mapping[bytes, Standing], others: Collection[bytes] = ()
) -> list[Verdict]:
    """One verdict for each standing file, by the sides (oldest first). `others` are files that nobody touches."""
    verdicts = [_judge(path, sides, found) for path, found in sorted(standing.items())]
    theirs = _not_the_agents(sides)
    while True:
        unblocked = _unblocked(verdicts, standing, others)
        verdicts = _sparing(unblocked, standing, theirs)
        if verdicts == unblocked:
            return verdicts


def _judge(path: bytes, sides: Sequence[Side], found: Standing) -> Verdict:
    if isinstance(found, Unknown):
        return Verdict(path=path, fate="kept", reason=found.reason)
    goal, undone, whole = found, False, True
    for side in reversed(sides):
        if path not in side.paths:
            continue
        before, after = side.before.files.get(path), side.after.files.get(path)
        if is_same(goal, after):
            goal, undone = _with_permissions(before, after, goal), True
        elif not is_same(goal, before):  # if it is, this change was taken back already
            whole = False
            break
    if is_same(goal, found):
        if whole:
            return Verdict(path=path, fate="unchanged")
        return Verdict(path=path, fate="kept", reason=CHANGED if not undone else BETWEEN)
    fate: Fate = "removed" if goal is None else "restored"
    return Verdict(path=path, fate=fate, reason="" if whole else BETWEEN, step=Step(path, found, goal))


def _not_the_agents(sides: Sequence[Side]) -> set[str]:
    """Contents that the agent found. It may have moved them, but did not make them."""
    left: set[tuple[bytes, str]] = set()
    found: set[str] = set()
    for side in sides:
        found |= {entry.oid for path, entry in side.before.files.items() if (path, entry.oid) not in left}
        left |= {(path, entry.oid) for path, entry in side.after.files.items()}
    return found


def _sparing(
    verdicts: list[Verdict], standing: Mapping[bytes, Standing], theirs: Collection[str]
) -> list[Verdict]:
    """Without those that would take away the last of a content that is not the agent's: renamed, and not renamed back
    because something new has its old name."""
    there = {
        found.oid
        for each in verdicts
        if isinstance(found := each.step.goal if each.step is not None else standing[each.path], Entry)
    }
    return [_spared(each) if _takes(each, theirs, there) else each for each in verdicts]


def _takes(verdict: Verdict, theirs: Collection[str], there: Collection[str]) -> bool:
    found = verdict.step.found if verdict.step is not None else None
    return found is not None and found.oid in theirs and found.oid not in there


def _spared(verdict: Verdict) -> Verdict:
    return Verdict(path=verdict.path, fate="kept", reason=LAST)


def _with_permissions(before: Entry | None, after: Entry | None, found: Entry | None) -> Entry | None:
    """What was before, with the permissions the file has by now unless it was the agent who changed them."""
    if before is None or after is None or found is None or before.is_link or found.is_link:
        return before
    return Entry(FILE | found.permissions, before.oid) if before.mode == after.mode else before


def _unblocked(
    verdicts: list[Verdict], standing: Mapping[bytes, Standing], others: Collection[bytes]
) -> list[Verdict]:
    """Without those that could only be carried out over something that stays."""
    while True:
        staying = {*others} | {
            each.path
            for each in verdicts
            if standing[each.path] is not None and (each.step is None or each.step.goal is not None)
        }
        coming = {each.path for each in verdicts if each.step is not None and each.step.goal is not None}
        directories = {up for path in staying for up in parents(path)}
        blocked = {
            path for path in coming if path in directories or any(up in staying for up in parents(path))
        }
        if not blocked:
            return verdicts
        verdicts = [_blocked(each) if each.path in blocked else each for each in verdicts]


def _blocked(verdict: Verdict) -> Verdict:
    return Verdict(path=verdict.path, fate="kept", reason=BLOCKED)


def emptied(sides: Iterable[Side], steps: Iterable[Step]) -> list[bytes]:
    """The directories that the agent made and that may be empty then, innermost first."""
    left = {up for step in steps if step.goal is None for up in parents(step.path)}
    made = {each for side in sides for each in side.made}
    return sorted(left & made, key=lambda path: (-path.count(b"/"), path))
