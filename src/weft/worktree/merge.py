"""Merge the work of a worktree into the user's checkout: everything or nothing, and with a commit only on request.

Both checkouts are captured with uncommitted changes, and merged three-way without touching files. The base is what was
merged last, or the common ancestor. If there are no conflicts and nothing is in the way, the files are renamed into
place one by one. If that is interrupted, the merge can simply be repeated.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import msgspec
from msgspec import Struct

from weft.errors import ConflictError, InvalidInputError, NotFoundError
from weft.worktree.git import EXECUTABLE_MODE, LINK_MODE, TreeDifference, WorktreeGit
from weft.worktree.repository import MERGED_PREFIX, Worktree, WorktreeRepository, commit_state

MAX_LISTED_PATHS = 10
SHORT_ID_LENGTH = 12
# What the last undoable merge into this checkout changed. Git keeps refs below this prefix for each checkout separately.
UNDO_REF = "refs/worktree/weft/merged"
LAST_MERGE = "the last merge"


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


class WorktreePick(Struct, frozen=True, kw_only=True):
    """What to merge of a worktree: everything, or only these files and directories."""

    worktree: Worktree
    paths: tuple[str, ...] = ()


class _MergedRef(Struct, frozen=True, kw_only=True):
    """The merged state of a worktree, before and after a merge; "" if nothing was merged."""

    name: str
    old: str
    new: str


class _TreeChange(Struct, frozen=True, kw_only=True):
    """The trees of the checkout before and after a merge, and whether they contain untracked files."""

    before: str
    after: str
    untracked: bool


def merge_worktree(
    repository: WorktreeRepository, worktree: Worktree, *, message: str | None = None, again: bool = False
) -> MergeResult:
    """Merge a worktree; commit the result if `message` is given. On a conflict raise `ConflictError` and change nothing.

    Only changes since the last merge are applied, or all of them if `again`.
    """
    pick = WorktreePick(worktree=worktree)
    return merge_picks(repository, (pick,), message=message, again=again, undoable=False)


def merge_picks(
    repository: WorktreeRepository,
    picks: Sequence[WorktreePick],
    *,
    message: str | None = None,
    again: bool = False,
    undoable: bool = True,
) -> MergeResult:
    """Merge several worktrees, or files of them, all or nothing; otherwise like `merge_worktree`.

    If `undoable`, record what is needed for `undo_merge`.
    """
    git = repository.checkouts
    name = ", ".join(pick.worktree.name for pick in picks)
    ours, head = git.capture(untracked=False), git.find_commit() or ""
    merged = ours
    merged_commits: list[_MergedRef] = []
    for pick in picks:
        if os.path.realpath(pick.worktree.directory) == os.path.realpath(repository.top):
            raise ConflictError(
                "worktree", pick.worktree.name, "is where you are", hint="merge it from your own checkout"
            )
        last = None if again else git.find_commit(MERGED_PREFIX + pick.worktree.name)
        theirs = _commit_pick(repository, pick, head, last)
        our_commit = git.commit_tree(merged, head, *([last] if last else []), message="checkout")
        outcome = git.merge(our_commit, theirs)
        if outcome.conflicts:
            # The hint names this commit, because the branch seldom contains everything in the worktree.
            hint = f"commit your own changes, then run: git merge {theirs[:SHORT_ID_LENGTH]}"
            raise _make_conflict(pick.worktree.name, "conflicts with your checkout", outcome.conflicts, hint)
        merged = outcome.tree
        merged_commits += (
            [_MergedRef(name=pick.worktree.name, old=last or "", new=theirs)] if not pick.paths else []
        )
    changes = git.list_differences(ours, merged)
    left_out = tuple(change.path for change in changes if change.is_submodule)
    applied = [change for change in changes if not change.is_submodule]
    if message is not None:
        _check_commit(git, name, head, ours, applied)
    _write_merge(git, name, _TreeChange(before=ours, after=merged, untracked=False), applied)
    for each in merged_commits:
        git.put_ref(MERGED_PREFIX + each.name, each.new)
    if applied and undoable:
        _record_merge(git, ours, merged, merged_commits)
    commit = (
        git.commit([change.path for change in applied], message) if message is not None and applied else ""
    )
    return MergeResult(
        brought=tuple(_to_merged_path(change) for change in applied), left_out=left_out, commit=commit
    )


def _commit_pick(repository: WorktreeRepository, pick: WorktreePick, head: str, last: str | None) -> str:
    """Return a commit with the state of a worktree, or only with its changes of the picked paths."""
    git, theirs = repository.checkouts, commit_state(repository, pick.worktree)
    if not pick.paths:
        return theirs
    base = last or git.get_merge_base(head, theirs)
    changes = git.list_differences(git.get_tree(base), git.get_tree(theirs))
    prefixes = [os.path.normpath(path) for path in pick.paths]
    for path, prefix in zip(pick.paths, prefixes, strict=True):
        if not any(_is_at(change.path, prefix) for change in changes):
            raise InvalidInputError(
                path,
                f"worktree {pick.worktree.name} did not change it",
                hint=f"it changed: {', '.join(change.path for change in changes[:MAX_LISTED_PATHS]) or 'nothing'}",
            )
    picked = [change for change in changes if any(_is_at(change.path, prefix) for prefix in prefixes)]
    tree = git.write_changed(git.get_tree(base), picked)
    return git.commit_tree(tree, base, message=f"files of worktree {pick.worktree.name}")


def _is_at(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + "/")


def _record_merge(git: WorktreeGit, before: str, after: str, refs: list[_MergedRef]) -> None:
    """Remember a merge as a commit: it has the tree before the merge, its parents have the tree after it and the record before
    it, and its message has the refs that the merge moved.
    """
    earlier = git.find_commit(UNDO_REF)
    merged = git.commit_tree(after, message="merged")
    message = msgspec.json.encode(refs).decode()
    record = git.commit_tree(before, merged, *([earlier] if earlier else []), message=message)
    git.put_ref(UNDO_REF, record)


def _restore_refs(git: WorktreeGit, record: str) -> None:
    """Let the work that was merged count as not merged again, unless it was merged once more since."""
    for ref in msgspec.json.decode(git.get_message(record), type=list[_MergedRef]):
        if git.find_commit(MERGED_PREFIX + ref.name) != ref.new:
            continue
        if ref.old:
            git.put_ref(MERGED_PREFIX + ref.name, ref.old)
        else:
            git.delete_ref(MERGED_PREFIX + ref.name)


def undo_merge(repository: WorktreeRepository) -> MergeResult:
    """Take back the last undoable merge into this checkout, all or nothing. Changes that the person made since are kept.

    Raise `NotFoundError` if there is none, `ConflictError` if the person changed the same lines since.
    """
    git = repository.checkouts
    record = git.find_commit(UNDO_REF)
    if record is None:
        raise NotFoundError("adoption to undo in", repository.top, hint="weft adopt ID makes one")
    merged, earlier = git.find_commit(f"{record}^1") or "", git.find_commit(f"{record}^2")
    # With untracked files: the merge may have added some.
    ours = git.capture(untracked=True)
    theirs = git.commit_tree(git.get_tree(record), merged, message="before the merge")
    outcome = git.merge(git.commit_tree(ours, merged, message="checkout"), theirs)
    if outcome.conflicts:
        hint = f"undo it by hand: git diff {merged[:SHORT_ID_LENGTH]} {record[:SHORT_ID_LENGTH]}"
        raise _make_conflict(LAST_MERGE, "was changed by you since", outcome.conflicts, hint)
    changes = [change for change in git.list_differences(ours, outcome.tree) if not change.is_submodule]
    _write_merge(git, LAST_MERGE, _TreeChange(before=ours, after=outcome.tree, untracked=True), changes)
    _restore_refs(git, record)
    if earlier is None:
        git.delete_ref(UNDO_REF)
    else:
        git.put_ref(UNDO_REF, earlier)
    return MergeResult(brought=tuple(_to_merged_path(change) for change in changes))


def _make_conflict(name: str, reason: str, paths: tuple[str, ...], hint: str) -> ConflictError:
    listed = ", ".join(paths[:MAX_LISTED_PATHS]) + (
        f" and {len(paths) - MAX_LISTED_PATHS} more" if len(paths) > MAX_LISTED_PATHS else ""
    )
    return ConflictError("worktree", name, f"{reason}: {listed}", hint=f"nothing was changed; {hint}")


def _to_merged_path(change: TreeDifference) -> MergedPath:
    return MergedPath(
        path=change.path, how="added" if not change.old_id else "changed" if change.id else "deleted"
    )


def _check_commit(git: WorktreeGit, name: str, head: str, ours: str, applied: list[TreeDifference]) -> None:
    """Refuse to commit the user's own uncommitted changes along with the merge, or without a configured committer."""
    git.get_identity()
    own_paths = {change.path for change in git.list_differences(git.get_tree(head), ours)}
    mixed_paths = tuple(change.path for change in applied if change.path in own_paths)
    if mixed_paths:
        hint = "commit your own changes first, or omit --commit"
        raise _make_conflict(
            name, "cannot be committed, because you have changes of your own in", mixed_paths, hint
        )


def _write_merge(git: WorktreeGit, name: str, trees: _TreeChange, applied: list[TreeDifference]) -> None:
    deleted = {change.path for change in applied if not change.id}
    written = [change for change in applied if change.id]
    # In git's own directory: on the same disk as the checkout, and harmless if it is left behind.
    with tempfile.TemporaryDirectory(prefix="weft-merge-", dir=git.get_git_directory()) as staged:
        git.export(trees.after, [change.path for change in written], staged)
        obstacles = tuple(
            change.path for change in written if _is_obstructed(git.top, staged, change, deleted)
        )
        if obstacles:
            hint = "move them out of the way, and merge again"
            raise _make_conflict(name, "would overwrite untracked files", obstacles, hint)
        if git.capture(untracked=trees.untracked) != trees.before:
            raise ConflictError("worktree", name, "was not merged: files changed meanwhile", hint="try again")
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
    """Return everything below a directory except directories. Links are not followed."""
    paths = []
    for directory, names, files in os.walk(os.path.join(top, path)):
        links = [name for name in names if os.path.islink(os.path.join(directory, name))]
        paths += [os.path.relpath(os.path.join(directory, name), top) for name in (*files, *links)]
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
