"""Merge the work of a worktree into the user's checkout: everything or nothing, and with a commit only on request.

Both checkouts are captured with uncommitted changes, and merged three-way without touching files. The base is what was
merged last, or the common ancestor. If there are no conflicts and nothing is in the way, the files are renamed into
place one by one. If that is interrupted, the merge can simply be repeated.
"""

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from typing import Literal

from msgspec import Struct

from weft.errors import ConflictError
from weft.worktree.git import LINK, PROGRAM, TreeDifference, WorktreeGit
from weft.worktree.repository import MERGED_PREFIX, Worktree, WorktreeRepository
from weft.worktree.state import commit_state

MAX_LISTED = 10
SHORT_ID = 12


class MergedPath(Struct, frozen=True, kw_only=True):
    """A path that the merge changed, and how."""

    path: str
    how: Literal["added", "changed", "deleted"]


class MergeResult(Struct, frozen=True, kw_only=True):
    """What a merge did. `left_out` are submodules, which are not merged; `commit` is set if one was requested."""

    brought: tuple[MergedPath, ...] = ()
    left_out: tuple[str, ...] = ()
    commit: str = ""


def merge_worktree(
    repository: WorktreeRepository, worktree: Worktree, *, message: str | None = None, again: bool = False
) -> MergeResult:
    """Merge a worktree; commit the result if `message` is given. Raise `ConflictError`, without changing anything.

    Only changes since the last merge are applied, or all of them if `again`.
    """
    here = repository.checkouts
    if os.path.realpath(worktree.directory) == os.path.realpath(repository.top):
        raise ConflictError(
            "worktree", worktree.name, "is where you are", hint="merge it from your own checkout"
        )
    theirs = commit_state(repository, worktree)
    last = None if again else here.find_commit(MERGED_PREFIX + worktree.name)
    ours, head = here.capture(untracked=False), here.find_commit() or ""
    mine = here.commit_tree(ours, head, *([last] if last else []), message="checkout")
    merged = here.merge(mine, theirs)
    if merged.conflicts:
        # The hint names this commit, because the branch seldom contains everything in the worktree.
        way = f"commit your own changes, then run: git merge {theirs[:SHORT_ID]}"
        raise _to_conflict(worktree, "conflicts with your checkout", merged.conflicts, way)
    changes = here.list_differences(ours, merged.tree)
    left_out = tuple(change.path for change in changes if change.is_submodule)
    wanted = [change for change in changes if not change.is_submodule]
    if message is not None:
        _check_commit(here, worktree, head, ours, wanted)
    _write_merge(here, worktree, ours, merged.tree, wanted)
    here.put_ref(MERGED_PREFIX + worktree.name, theirs)
    commit = (
        here.commit([change.path for change in wanted], message) if message is not None and wanted else ""
    )
    return MergeResult(
        brought=tuple(_to_merged_path(change) for change in wanted), left_out=left_out, commit=commit
    )


def _to_conflict(worktree: Worktree, reason: str, paths: tuple[str, ...], way: str) -> ConflictError:
    named = ", ".join(paths[:MAX_LISTED]) + (
        f" and {len(paths) - MAX_LISTED} more" if len(paths) > MAX_LISTED else ""
    )
    return ConflictError("worktree", worktree.name, f"{reason}: {named}", hint=f"nothing was changed; {way}")


def _to_merged_path(change: TreeDifference) -> MergedPath:
    return MergedPath(
        path=change.path, how="added" if not change.was else "changed" if change.id else "deleted"
    )


def _check_commit(
    here: WorktreeGit, worktree: Worktree, head: str, ours: str, wanted: list[TreeDifference]
) -> None:
    """Refuse to commit the user's own uncommitted changes along with the merge, or without a configured committer."""
    here.get_identity()
    own = {change.path for change in here.list_differences(here.find_tree(head), ours)}
    mixed = tuple(change.path for change in wanted if change.path in own)
    if mixed:
        way = "commit your own changes first, or omit --commit"
        raise _to_conflict(
            worktree, "cannot be committed, because you have changes of your own in", mixed, way
        )


def _write_merge(
    here: WorktreeGit, worktree: Worktree, ours: str, merged: str, wanted: list[TreeDifference]
) -> None:
    gone = {change.path for change in wanted if not change.id}
    put = [change for change in wanted if change.id]
    # In git's own directory: on the same disk as the checkout, and harmless if it is left behind.
    with tempfile.TemporaryDirectory(prefix="weft-merge-", dir=here.git_directory()) as staged:
        here.export(merged, [change.path for change in put], staged)
        in_the_way = tuple(change.path for change in put if _is_in_the_way(here.top, staged, change, gone))
        if in_the_way:
            way = "move them out of the way, and merge again"
            raise _to_conflict(worktree, "would overwrite untracked files", in_the_way, way)
        if here.capture(untracked=False) != ours:
            raise ConflictError(
                "worktree", worktree.name, "was not merged: files changed meanwhile", hint="try again"
            )
        for path in sorted(gone, reverse=True):
            _remove(here.top, path)
        for change in put:
            _put(here.top, staged, change)


def _is_in_the_way(top: str, staged: str, change: TreeDifference, gone: set[str]) -> bool:
    """Return True if something is in the place of a file that the merge neither removes nor knows."""
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
    with suppress(OSError):  # the directory is not empty
        while above:
            os.rmdir(os.path.join(top, above))
            above = os.path.dirname(above)


def _put(top: str, staged: str, change: TreeDifference) -> None:
    source, target = os.path.join(staged, change.path), os.path.join(top, change.path)
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target)  # empty, as `_is_in_the_way` checked
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if change.mode != LINK and os.path.isfile(target) and not os.path.islink(target):
        _keep_mode(source, target, executable=change.mode == PROGRAM)
    try:
        os.replace(source, target)
    except OSError:  # on another disk after all
        beside = f"{target}.weft-merge"
        shutil.copy2(source, beside, follow_symlinks=False)
        os.replace(beside, target)


def _keep_mode(source: str, target: str, *, executable: bool) -> None:
    """Keep the permissions of the user's file, except for the executable bit, which comes from the merge."""
    mode = stat.S_IMODE(os.stat(target).st_mode)
    readers = (mode & 0o444) >> 2
    os.chmod(source, mode | readers if executable else mode & ~0o111)
