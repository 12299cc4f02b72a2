"""Bringing the work of a worktree into the person's checkout: all of it or nothing, and no commit unless asked for.

Both checkouts are read as they stand, uncommitted changes too, and merged on paper, three ways, with what was last
merged or where they parted as the common start. If that goes without a conflict, and nothing lies in the way, the files
are put into place one by one, each by a rename: whoever is interrupted can simply do it again.
"""

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from typing import Literal

from msgspec import Struct

from weft.errors import ConflictError
from weft.worktree.checkouts import LINK, PROGRAM, Change, Checkouts
from weft.worktree.place import MERGED, Repository, Worktree
from weft.worktree.state import keep_state

SHOWN = 10
SHORT = 12


class Brought(Struct, frozen=True, kw_only=True):
    """A path that came with a merge, and how."""

    path: str
    how: Literal["added", "changed", "deleted"]


class Outcome(Struct, frozen=True, kw_only=True):
    """What a merge did. `left_out` are submodules, which have commits of their own; `commit` if one was asked for."""

    brought: tuple[Brought, ...] = ()
    left_out: tuple[str, ...] = ()
    commit: str = ""


def merge_worktree(
    repository: Repository, worktree: Worktree, *, message: str | None = None, again: bool = False
) -> Outcome:
    """Raises `ConflictError`, and has changed nothing then. With a `message` the outcome is committed.

    Only what is new since the last time is brought, unless all of it is wanted `again`.
    """
    here = repository.checkouts
    if os.path.realpath(worktree.directory) == os.path.realpath(repository.top):
        raise ConflictError(
            "worktree", worktree.name, "is where you are", hint="merge it from your own checkout"
        )
    theirs = keep_state(repository, worktree)
    last = None if again else here.find_commit(MERGED + worktree.name)
    ours, head = here.capture(untracked=False), here.find_commit() or ""
    mine = here.commit_tree(ours, head, *([last] if last else []), message="checkout")
    merged = here.merge(mine, theirs)
    if merged.conflicts:
        # As a commit: what stands in the worktree is seldom on its branch yet.
        way = f"commit your own, then: git merge {theirs[:SHORT]}"
        raise _conflict(worktree, "conflicts with your checkout", merged.conflicts, way)
    changes = here.list_differences(ours, merged.tree)
    left_out = tuple(change.path for change in changes if change.is_submodule)
    wanted = [change for change in changes if not change.is_submodule]
    if message is not None:
        _check_commit(here, worktree, head, ours, wanted)
    _bring(here, worktree, ours, merged.tree, wanted)
    here.put_ref(MERGED + worktree.name, theirs)
    commit = (
        here.commit([change.path for change in wanted], message) if message is not None and wanted else ""
    )
    return Outcome(brought=tuple(_brought(change) for change in wanted), left_out=left_out, commit=commit)


def _conflict(worktree: Worktree, reason: str, paths: tuple[str, ...], way: str) -> ConflictError:
    named = ", ".join(paths[:SHOWN]) + (f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else "")
    return ConflictError("worktree", worktree.name, f"{reason}: {named}", hint=f"nothing was changed; {way}")


def _brought(change: Change) -> Brought:
    return Brought(path=change.path, how="added" if not change.was else "changed" if change.id else "deleted")


def _check_commit(here: Checkouts, worktree: Worktree, head: str, ours: str, wanted: list[Change]) -> None:
    """What the person has not committed must not be committed by the way; and there must be a name to commit in."""
    here.get_identity()
    own = {change.path for change in here.list_differences(here.tree_of(head), ours)}
    mixed = tuple(change.path for change in wanted if change.path in own)
    if mixed:
        way = "commit your own first, or leave out --commit"
        raise _conflict(worktree, "cannot be committed, as you have changes of your own in", mixed, way)


def _bring(here: Checkouts, worktree: Worktree, ours: str, merged: str, wanted: list[Change]) -> None:
    gone = {change.path for change in wanted if not change.id}
    put = [change for change in wanted if change.id]
    # In git's own directory: on the same disk as the checkout, and in nobody's way if it is left behind.
    with tempfile.TemporaryDirectory(prefix="weft-merge-", dir=here.git_directory()) as staged:
        here.export(merged, [change.path for change in put], staged)
        in_the_way = tuple(change.path for change in put if _is_in_the_way(here.top, staged, change, gone))
        if in_the_way:
            way = "move them out of the way, and merge again"
            raise _conflict(worktree, "would overwrite files that git does not know", in_the_way, way)
        if here.capture(untracked=False) != ours:
            raise ConflictError(
                "worktree", worktree.name, "was not merged: files changed meanwhile", hint="try again"
            )
        for path in sorted(gone, reverse=True):
            _remove(here.top, path)
        for change in put:
            _put(here.top, staged, change)


def _is_in_the_way(top: str, staged: str, change: Change, gone: set[str]) -> bool:
    """Whether something stands there that is not what the merge takes away or knows."""
    above = os.path.dirname(change.path)
    while above:
        found = os.path.join(top, above)
        if os.path.islink(found) or (os.path.exists(found) and not os.path.isdir(found)):
            return above not in gone
        above = os.path.dirname(above)
    target = os.path.join(top, change.path)
    if os.path.isdir(target) and not os.path.islink(target):
        return not all(path in gone for path in _list_below(top, change.path))
    if change.was or not os.path.lexists(target):
        return False
    return not _is_same(os.path.join(staged, change.path), target)


def _list_below(top: str, path: str) -> list[str]:
    found = []
    for directory, _, files in os.walk(os.path.join(top, path)):
        found += [os.path.relpath(os.path.join(directory, name), top) for name in files]
    return found


def _is_same(one: str, other: str) -> bool:
    if os.path.islink(one) or os.path.islink(other):
        return os.path.islink(one) and os.path.islink(other) and os.readlink(one) == os.readlink(other)
    if os.path.getsize(one) != os.path.getsize(other):
        return False
    with open(one, "rb") as first, open(other, "rb") as second:
        return first.read() == second.read()


def _remove(top: str, path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(top, path))
    above = os.path.dirname(path)
    with suppress(OSError):  # there is something else in it
        while above:
            os.rmdir(os.path.join(top, above))
            above = os.path.dirname(above)


def _put(top: str, staged: str, change: Change) -> None:
    source, target = os.path.join(staged, change.path), os.path.join(top, change.path)
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target)  # nothing is in it: it was looked at
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if change.mode != LINK and os.path.isfile(target) and not os.path.islink(target):
        _keep_mode(source, target, executable=change.mode == PROGRAM)
    try:
        os.replace(source, target)
    except OSError:  # another disk after all
        beside = f"{target}.weft-merge"
        shutil.copy2(source, beside, follow_symlinks=False)
        os.replace(beside, target)


def _keep_mode(source: str, target: str, *, executable: bool) -> None:
    """Who may read a file is the person's business; whether it is a program came with the merge."""
    mode = stat.S_IMODE(os.stat(target).st_mode)
    readers = (mode & 0o444) >> 2
    os.chmod(source, mode | readers if executable else mode & ~0o111)
