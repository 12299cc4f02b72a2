"""The state of a worktree: what was done in it, and whether that exists anywhere else."""

import os
from contextlib import suppress

from msgspec import Struct

from weft.errors import ConflictError, GitError
from weft.project.checkout import read_text
from weft.worktree.git import WorktreeGit
from weft.worktree.repository import BRANCH_PREFIX, MERGED_PREFIX, Worktree, WorktreeRepository

MAX_ATTRIBUTES_BYTES = 1 << 20


class WorktreeState(Struct, frozen=True, kw_only=True):
    """`changed` paths are not committed, `ahead` commits are in no other branch.

    `merged` means that everything in it was merged, `missing` that its files are gone.
    """

    changed: tuple[str, ...] = ()
    ahead: int = 0
    merged: bool = False
    missing: bool = False

    @property
    def has_work(self) -> bool:
        return bool(self.changed or self.ahead)

    @property
    def is_safe(self) -> bool:
        """True if removing the worktree loses nothing."""
        return self.merged or not self.has_work


def read_state(repository: WorktreeRepository, worktree: Worktree) -> WorktreeState:
    """Return the state of a worktree."""
    if not os.path.exists(os.path.join(worktree.directory, ".git")):
        return WorktreeState(missing=True)
    git = repository.inside(worktree)
    changed = tuple(git.list_changed())
    head = git.find_commit()  # None if its branch was deleted
    base = repository.checkouts.find_commit() or "HEAD"
    ahead = 0 if head is None or _is_in_other_branch(git, head, worktree) else git.count_ahead(head, base)
    return WorktreeState(changed=changed, ahead=ahead, merged=_is_merged(git, worktree))


def _is_in_other_branch(git: WorktreeGit, head: str, worktree: Worktree) -> bool:
    """Return True if another branch contains the commit."""
    return any(name != f"refs/heads/{worktree.branch}" for name in git.list_branches_containing(head))


def _is_merged(git: WorktreeGit, worktree: Worktree) -> bool:
    """Return True if nothing changed since the last merge."""
    last = git.find_commit(MERGED_PREFIX + worktree.name)
    return last is not None and git.get_tree(last) == git.capture(untracked=True)


def commit_state(repository: WorktreeRepository, worktree: Worktree) -> str:
    """Commit everything in the worktree without a branch. It can be restored until git drops it."""
    git = repository.inside(worktree)
    head = git.find_commit()
    tree = git.capture(untracked=True)
    last = git.find_commit(MERGED_PREFIX + worktree.name)
    if last is None and head is not None and tree == git.get_tree(head):
        return head
    if head is None and last is None:
        raise ConflictError(
            "worktree",
            worktree.name,
            f"cannot be merged: its branch {worktree.branch} was deleted",
            hint=f"its files are in {worktree.directory}",
        )
    parents = [commit for commit in (head, last) if commit is not None]
    return git.commit_tree(tree, *parents, message=f"worktree {worktree.name}")


def list_hints(worktree: Worktree) -> list[str]:
    """Return hints about what a new checkout lacks."""
    hints = []
    if os.path.exists(os.path.join(worktree.directory, ".gitmodules")):
        hints.append("submodules are empty in it: git submodule update --init")
    if "filter=lfs" in read_text(os.path.join(worktree.directory, ".gitattributes"), MAX_ATTRIBUTES_BYTES):
        hints.append("large files (Git LFS) that were never fetched are pointers in it: git lfs pull")
    return hints


def discard_worktree(repository: WorktreeRepository, worktree: Worktree) -> str:
    """Remove a worktree, its branch and its merge ref. Return a commit with all unmerged work, "" if there is none."""
    state = read_state(repository, worktree)
    saved_commit = "" if state.missing or not state.has_work else commit_state(repository, worktree)
    repository.checkouts.remove(worktree.directory)
    for ref in (f"refs/heads/{BRANCH_PREFIX}{worktree.name}", f"{MERGED_PREFIX}{worktree.name}"):
        with suppress(GitError):  # it does not exist
            repository.checkouts.delete_ref(ref)
    return saved_commit
