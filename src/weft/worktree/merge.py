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
from weft.worktree.git import EXECUTABLE_MODE, LINK_MODE, TreeDifference, WorktreeGit
from weft.worktree.repository import MERGED_PREFIX, Worktree, WorktreeRepository
from weft.worktree.state import commit_state

MAX_LISTED_PATHS = 10
SHORT_ID_LENGTH = 12


class MergedPath(Struct, frozen=True, kw_only=True):
    """A path that the merge changed, and how."""

    path: str
    how: Literal["added", "changed", "deleted"]


class MergeResult(Struct, frozen=True, kw_only=True):
    """The result of a merge.

    `brought` are the changed paths, `left_out` the submodules, which are not merged. `commit` is set if one was
    requested.
    """

    brought: tuple[MergedPath, ...] = ()
    left_out: tuple[str, ...] = ()
    commit: str = ""


def merge_worktree(
    repository: WorktreeRepository, worktree: Worktree, *, message: str | None = None, again: bool = False
) -> MergeResult:
    """Merge a worktree; commit the result if `message` is given. Raise `ConflictError`, without changing anything.

    Only changes since the last merge are applied, or all of them if `again`.
    """
    git = repository.checkouts
    if os.path.realpath(worktree.directory) == os.path.realpath(repository.top):
        raise ConflictError(
            "worktree", worktree.name, "is where you are", hint="merge it from your own checkout"
        )
    theirs = commit_state(repository, worktree)
    last = None if again else git.find_commit(MERGED_PREFIX + worktree.name)
    ours, head = git.capture(untracked=False), git.find_commit() or ""
    our_commit = git.commit_tree(ours, head, *([last] if last else []), message="checkout")
    merged = git.merge(our_commit, theirs)
    if merged.conflicts:
        # The hint names this commit, because the branch seldom contains everything in the worktree.
        hint = f"commit your own changes, then run: git merge {theirs[:SHORT_ID_LENGTH]}"
        raise _make_conflict(worktree, "conflicts with your checkout", merged.conflicts, hint)
    changes = git.list_differences(ours, merged.tree)
    left_out = tuple(change.path for change in changes if change.is_submodule)
    applied = [change for change in changes if not change.is_submodule]
    if message is not None:
        _check_commit(git, worktree, head, ours, applied)
    _write_merge(git, worktree, ours, merged.tree, applied)
    git.put_ref(MERGED_PREFIX + worktree.name, theirs)
    commit = (
        git.commit([change.path for change in applied], message) if message is not None and applied else ""
    )
    return MergeResult(
        brought=tuple(_to_merged_path(change) for change in applied), left_out=left_out, commit=commit
    )


def _make_conflict(worktree: Worktree, reason: str, paths: tuple[str, ...], hint: str) -> ConflictError:
    listed = ", ".join(paths[:MAX_LISTED_PATHS]) + (
        f" and {len(paths) - MAX_LISTED_PATHS} more" if len(paths) > MAX_LISTED_PATHS else ""
    )
    return ConflictError(
        "worktree", worktree.name, f"{reason}: {listed}", hint=f"nothing was changed; {hint}"
    )


def _to_merged_path(change: TreeDifference) -> MergedPath:
    return MergedPath(
        path=change.path, how="added" if not change.old_id else "changed" if change.id else "deleted"
    )


def _check_commit(
    git: WorktreeGit, worktree: Worktree, head: str, ours: str, applied: list[TreeDifference]
) -> None:
    """Refuse to commit the user's own uncommitted changes along with the merge, or without a configured committer."""
    git.get_identity()
    own_paths = {change.path for change in git.list_differences(git.get_tree(head), ours)}
    mixed_paths = tuple(change.path for change in applied if change.path in own_paths)
    if mixed_paths:
        hint = "commit your own changes first, or omit --commit"
        raise _make_conflict(
            worktree, "cannot be committed, because you have changes of your own in", mixed_paths, hint
        )


def _write_merge(
    git: WorktreeGit, worktree: Worktree, ours: str, merged: str, applied: list[TreeDifference]
) -> None:
    deleted = {change.path for change in applied if not change.id}
    written = [change for change in applied if change.id]
    # In git's own directory: on the same disk as the checkout, and harmless if it is left behind.
    with tempfile.TemporaryDirectory(prefix="weft-merge-", dir=git.get_git_directory()) as staged:
        git.export(merged, [change.path for change in written], staged)
        obstacles = tuple(
            change.path for change in written if _is_obstructed(git.top, staged, change, deleted)
        )
        if obstacles:
            hint = "move them out of the way, and merge again"
            raise _make_conflict(worktree, "would overwrite untracked files", obstacles, hint)
        if git.capture(untracked=False) != ours:
            raise ConflictError(
                "worktree", worktree.name, "was not merged: files changed meanwhile", hint="try again"
            )
        for path in sorted(deleted, reverse=True):
            _delete_file(git.top, path)
        for change in written:
            _write_file(git.top, staged, change)


def _is_obstructed(top: str, staged: str, change: TreeDifference, deleted: set[str]) -> bool:
    """Return True if the path is occupied by something that the merge does not remove."""
    parent = os.path.dirname(change.path)
    while parent:
        path = os.path.join(top, parent)
        if os.path.islink(path) or (os.path.exists(path) and not os.path.isdir(path)):
            return parent not in deleted
        parent = os.path.dirname(parent)
    target = os.path.join(top, change.path)
    if os.path.isdir(target) and not os.path.islink(target):
        return not all(path in deleted for path in _list_below(top, change.path))
    if change.old_id or not os.path.lexists(target):
        return False
    return not _is_same(os.path.join(staged, change.path), target)


def _list_below(top: str, path: str) -> list[str]:
    paths = []
    for directory, _, files in os.walk(os.path.join(top, path)):
        paths += [os.path.relpath(os.path.join(directory, name), top) for name in files]
    return paths


def _is_same(one: str, other: str) -> bool:
    if os.path.islink(one) or os.path.islink(other):
        return os.path.islink(one) and os.path.islink(other) and os.readlink(one) == os.readlink(other)
    if os.path.getsize(one) != os.path.getsize(other):
        return False
    with open(one, "rb") as first, open(other, "rb") as second:
        return first.read() == second.read()


def _delete_file(top: str, path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(top, path))
    parent = os.path.dirname(path)
    with suppress(OSError):  # the directory is not empty
        while parent:
            os.rmdir(os.path.join(top, parent))
            parent = os.path.dirname(parent)


def _write_file(top: str, staged: str, change: TreeDifference) -> None:
    source, target = os.path.join(staged, change.path), os.path.join(top, change.path)
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target)  # empty, as `_is_obstructed` checked
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if change.mode != LINK_MODE and os.path.isfile(target) and not os.path.islink(target):
        _keep_mode(source, target, executable=change.mode == EXECUTABLE_MODE)
    try:
        os.replace(source, target)
    except OSError:  # on another disk after all
        temporary = f"{target}.weft-merge"
        shutil.copy2(source, temporary, follow_symlinks=False)
        os.replace(temporary, target)


def _keep_mode(source: str, target: str, *, executable: bool) -> None:
    """Keep the permissions of the user's file, except for the executable bit, which comes from the merge."""
    mode = stat.S_IMODE(os.stat(target).st_mode)
    readers = (mode & 0o444) >> 2
    os.chmod(source, mode | readers if executable else mode & ~0o111)
