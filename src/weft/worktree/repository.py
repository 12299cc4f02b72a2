"""List, create, lock and discard the worktrees of a project, and read what was done in one and whether it exists anywhere else.

Names and locations are those of OpenCode.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from msgspec import Struct

from weft.errors import (
    ConflictError,
    DirectoryError,
    GitError,
    InvalidInputError,
    NotFoundError,
    SessionBusyError,
)
from weft.host.files import Disk, make_directory, try_lock
from weft.host.paths import Paths
from weft.host.processes import describe_process
from weft.model.ids import GLOBAL_PROJECT, ProjectID, SessionID, check_file_name
from weft.model.session import make_slug
from weft.project.checkout import read_text
from weft.worktree.git import GitCheckout, WorktreeGit

BRANCH_PREFIX = "opencode/"
# Refs that name what was last merged from a worktree. They are not branches, and protect it from garbage collection.
MERGED_PREFIX = "refs/weft/merged/"
MAX_NAME_ATTEMPTS = 26
MAX_ATTRIBUTES_BYTES = 1 << 20
MAX_OWNER_BYTES = 4096
MAKE_HINT = 'weft run --worktree "…" makes one'

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Worktree(Struct, frozen=True, kw_only=True):
    """A checkout for a session: its name, branch and directory."""

    name: str
    branch: str
    directory: str


class WorktreeRepository(Struct, frozen=True, kw_only=True):
    """A project, and the user's checkout of it: its root `top`, and the working `directory`."""

    project: ProjectID
    top: str
    directory: str
    paths: Paths
    env: Mapping[str, str]

    @property
    def checkouts(self) -> WorktreeGit:
        """Return git for the user's checkout."""
        return WorktreeGit(self.env, self.top)

    @property
    def home(self) -> str:
        """The directory of the project's worktrees."""
        return os.path.join(self.paths.worktrees, check_file_name("project", self.project))

    def inside(self, worktree: Worktree) -> WorktreeGit:
        """Return git for a worktree."""
        return WorktreeGit(self.env, worktree.directory)


def get_repository(
    project: ProjectID, top: str, directory: str, paths: Paths, env: Mapping[str, str]
) -> WorktreeRepository:
    """Return the repository of a project. Raise `DirectoryError` if there is none, or it has no commit."""
    if project == GLOBAL_PROJECT and not top:
        raise DirectoryError(directory, "not in a git repository", hint="worktrees are made by git: git init")
    repository = WorktreeRepository(project=project, top=top, directory=directory, paths=paths, env=env)
    if repository.checkouts.find_commit() is None:
        raise DirectoryError(top, "the repository has no commit yet", hint="commit something first")
    return repository


def to_slug(name: str) -> str:
    """Convert a name to one for a branch and a directory: lower-case words joined by dashes."""
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


def list_worktrees(repository: WorktreeRepository) -> list[Worktree]:
    """Return the worktrees of the project, sorted by name, including those that OpenCode made."""
    home = os.path.realpath(repository.home)
    return sorted(
        (
            _to_worktree(checkout)
            for checkout in repository.checkouts.list_all()
            if os.path.dirname(os.path.realpath(checkout.directory)) == home
        ),
        key=lambda worktree: worktree.name,
    )


def _to_worktree(checkout: GitCheckout) -> Worktree:
    name = os.path.basename(checkout.directory)
    return Worktree(name=name, branch=checkout.branch, directory=checkout.directory)


def find_worktree(repository: WorktreeRepository, name: str) -> Worktree | None:
    return next((worktree for worktree in list_worktrees(repository) if worktree.name == name), None)


def get_worktree(repository: WorktreeRepository, name: str | None) -> Worktree:
    """Return a worktree by name. Without a name, return the only one, or the one that the user is in."""
    worktrees = list_worktrees(repository)
    if name is not None:
        exact = next((worktree for worktree in worktrees if worktree.name in (name, to_slug(name))), None)
        if exact is None:
            names = ", ".join(worktree.name for worktree in worktrees)
            raise NotFoundError("worktree", name, hint=f"there are: {names}" if names else MAKE_HINT)
        return exact
    current = [
        worktree
        for worktree in worktrees
        if os.path.realpath(worktree.directory) == os.path.realpath(repository.top)
    ]
    if len(candidates := current or worktrees) == 1:
        return candidates[0]
    if not worktrees:
        raise InvalidInputError("NAME", "there are no worktrees", hint=MAKE_HINT)
    raise InvalidInputError(
        "NAME",
        f"there are {len(worktrees)} worktrees",
        hint=f"name one: {', '.join(worktree.name for worktree in worktrees)}",
    )


def create_worktree(
    repository: WorktreeRepository, name: str | None, random: Callable[[int], bytes], *, commit: str = ""
) -> Worktree:
    """Create a worktree from a commit, or from the one that is checked out. Uncommitted changes are not included."""
    with open_new_worktree(repository, name, random, commit=commit) as worktree:
        return worktree


@contextmanager
def open_new_worktree(
    repository: WorktreeRepository, name: str | None, random: Callable[[int], bytes], *, commit: str = ""
) -> Iterator[Worktree]:
    """Create a worktree as `create_worktree` does, and use it exclusively. Nobody else can have used it before."""
    if name is not None and not _SLUG.fullmatch(to_slug(name)):
        raise InvalidInputError(
            "--worktree", f"{name!r} does not name a worktree", hint="use letters and digits"
        )
    commit = commit or repository.checkouts.find_commit() or ""
    for candidate in _list_candidates(name, random):
        worktree = plan_worktree(repository, candidate)
        if _exists(repository, worktree):
            continue
        # Locked before it exists, so that nobody works in it, and nobody removes it.
        with lock_worktree(repository, worktree):
            if _exists(repository, worktree):
                continue
            make_directory(repository.home)
            repository.checkouts.add(worktree.directory, worktree.branch, commit)
            yield worktree
            return
    raise ConflictError("worktree", name or "", "already exists, and so do similar names")


def plan_worktree(repository: WorktreeRepository, name: str) -> Worktree:
    """Return the worktree that has this name once it is made."""
    directory = os.path.join(repository.home, name)
    return Worktree(name=name, branch=f"{BRANCH_PREFIX}{name}", directory=directory)


def _exists(repository: WorktreeRepository, worktree: Worktree) -> bool:
    branch = f"refs/heads/{worktree.branch}"
    return os.path.lexists(worktree.directory) or repository.checkouts.find_commit(branch) is not None


def _list_candidates(name: str | None, random: Callable[[int], bytes]) -> Iterator[str]:
    base = to_slug(name) if name else make_slug(random)
    yield base
    yield from (f"{base}-{make_slug(random)}" for _ in range(MAX_NAME_ATTEMPTS - 1))


def list_hints(worktree: Worktree) -> list[str]:
    """Return hints about what a new checkout lacks."""
    hints = []
    if os.path.exists(os.path.join(worktree.directory, ".gitmodules")):
        hints.append("submodules are empty in it: git submodule update --init")
    if "filter=lfs" in read_text(os.path.join(worktree.directory, ".gitattributes"), MAX_ATTRIBUTES_BYTES):
        hints.append("large files (Git LFS) that were never fetched are pointers in it: git lfs pull")
    return hints


@contextmanager
def lock_worktree(
    repository: WorktreeRepository, worktree: Worktree, *, session: SessionID | None = None
) -> Iterator[None]:
    """Use a worktree exclusively: for a session, to merge or to remove it. If it is in use, raise `SessionBusyError` for the
    `session` that would continue in it, else `ConflictError`.

    The lock ends with the process.
    """
    directory = os.path.join(
        repository.paths.data, "weft", "worktree", check_file_name("project", repository.project)
    )
    make_directory(directory)
    path = os.path.join(directory, f"{worktree.name}.lock")
    with try_lock(path) as acquired:
        if not acquired:
            owner = read_text(path, MAX_OWNER_BYTES)
            holder = owner or "another process"
            if session is not None:
                raise SessionBusyError(
                    session, owner, hint=f"{holder} uses its worktree; wait until it is done"
                )
            raise ConflictError(
                "worktree", worktree.name, "is in use", hint=f"{holder} works in it, or merges it"
            )
        with suppress(OSError):  # others are told less, but the lock holds
            Disk().extend(path, 0, describe_process().encode())
        yield


# --- what was done in a worktree ---


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


def discard_worktree(repository: WorktreeRepository, worktree: Worktree) -> str:
    """Remove a worktree, its branch and its merge ref. Return a commit with all unmerged work, "" if there is none."""
    state = read_state(repository, worktree)
    saved_commit = "" if state.missing or not state.has_work else commit_state(repository, worktree)
    repository.checkouts.remove(worktree.directory)
    for ref in (f"refs/heads/{BRANCH_PREFIX}{worktree.name}", f"{MERGED_PREFIX}{worktree.name}"):
        with suppress(GitError):  # it does not exist
            repository.checkouts.delete_ref(ref)
    return saved_commit
