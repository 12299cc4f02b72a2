"""What was done in a worktree, and whether it is anywhere else yet."""

import os
from contextlib import suppress

from msgspec import Struct

from weft.errors import GitError
from weft.project.look import read_text
from weft.worktree.checkouts import Checkouts
from weft.worktree.place import BRANCH, MERGED, Repository, Worktree

ATTRIBUTES_LIMIT = 1 << 20


class State(Struct, frozen=True, kw_only=True):
    """How a worktree stands: `changed` paths that are not committed in it, `ahead` commits of its own; whether all of
    it is `merged`, or somewhere else anyway. One that is `missing` has no files any more."""

    changed: tuple[str, ...] = ()
    ahead: int = 0
    merged: bool = False
    missing: bool = False

    @property
    def has_work(self) -> bool:
        return bool(self.changed or self.ahead)

    @property
    def is_safe(self) -> bool:
        """Whether nothing would be lost with it."""
        return self.merged or not self.has_work


def look_into(repository: Repository, worktree: Worktree) -> State:
    if not os.path.exists(os.path.join(worktree.directory, ".git")):
        return State(missing=True)
    inside = repository.inside(worktree)
    changed = tuple(inside.list_changed())
    head = inside.find_commit() or ""
    of = repository.checkouts.find_commit() or "HEAD"
    ahead = 0 if _is_held(inside, head, worktree) else inside.count_ahead(head, of=of)
    return State(changed=changed, ahead=ahead, merged=_is_merged(inside, worktree))


def _is_held(inside: Checkouts, head: str, worktree: Worktree) -> bool:
    """Whether another branch has what was committed."""
    return any(name != f"refs/heads/{worktree.branch}" for name in inside.list_holding(head))


def _is_merged(inside: Checkouts, worktree: Worktree) -> bool:
    """Whether it stands as it did when it was last merged."""
    last = inside.find_commit(MERGED + worktree.name)
    return last is not None and inside.tree_of(last) == inside.capture(untracked=True)


def keep_state(repository: Repository, worktree: Worktree) -> str:
    """All that stands in it, as a commit that no branch has: it can be brought back for as long as git keeps it."""
    inside = repository.inside(worktree)
    head = inside.find_commit() or ""
    tree = inside.capture(untracked=True)
    last = inside.find_commit(MERGED + worktree.name)
    if last is None and tree == inside.tree_of(head):
        return head
    return inside.commit_tree(tree, head, *([last] if last else []), message=f"worktree {worktree.name}")


def list_hints(worktree: Worktree) -> list[str]:
    """What a new checkout does not bring along by itself."""
    hints = []
    if os.path.exists(os.path.join(worktree.directory, ".gitmodules")):
        hints.append("submodules are empty in it: git submodule update --init")
    if "filter=lfs" in read_text(os.path.join(worktree.directory, ".gitattributes"), ATTRIBUTES_LIMIT):
        hints.append("large files (Git LFS) that were never fetched are pointers in it: git lfs pull")
    return hints


def discard(repository: Repository, worktree: Worktree) -> str:
    """Remove it, its branch and what was remembered of it. Gives a commit with all that stood in it, "" for nothing."""
    state = look_into(repository, worktree)
    kept = "" if state.missing or not state.has_work else keep_state(repository, worktree)
    repository.checkouts.remove(worktree.directory)
    for ref in (f"refs/heads/{BRANCH}{worktree.name}", f"{MERGED}{worktree.name}"):
        with suppress(GitError):  # it was gone already
            repository.checkouts.delete_ref(ref)
    return kept
