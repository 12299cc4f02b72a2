"""List, create and lock the worktrees of a project. Names and locations are those of OpenCode."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from weft.errors import ConflictError, DirectoryError, InvalidInputError, NotFoundError
from weft.host.files import make_directory, try_lock
from weft.host.paths import Paths
from weft.model.ids import GLOBAL_PROJECT, ProjectID, check_file_name
from weft.model.session import make_slug
from weft.worktree.git import GitCheckout, WorktreeGit

BRANCH_PREFIX = "opencode/"
# Refs that name what was last merged from a worktree. They are not branches, and protect it from garbage collection.
MERGED_PREFIX = "refs/weft/merged/"
ATTEMPTS = 26

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


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
        return WorktreeGit(self.env, self.top)

    @property
    def home(self) -> str:
        """The directory of the project's worktrees."""
        return os.path.join(self.paths.worktrees, check_file_name("project", self.project))

    def inside(self, worktree: Worktree) -> WorktreeGit:
        return WorktreeGit(self.env, worktree.directory)


def get_repository(
    project: ProjectID, top: str, directory: str, paths: Paths, env: Mapping[str, str]
) -> WorktreeRepository:
    """Raise `DirectoryError` if there is no repository, or it has no commit."""
    if project == GLOBAL_PROJECT and not top:
        raise DirectoryError(directory, "not in a git repository", hint="worktrees are made by git: git init")
    found = WorktreeRepository(project=project, top=top, directory=directory, paths=paths, env=env)
    if found.checkouts.find_commit() is None:
        raise DirectoryError(top, "the repository has no commit yet", hint="commit something first")
    return found


def to_slug(name: str) -> str:
    """Turn a name into one for a branch and a directory."""
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
        key=lambda each: each.name,
    )


def _to_worktree(checkout: GitCheckout) -> Worktree:
    name = os.path.basename(checkout.directory)
    return Worktree(name=name, branch=checkout.branch, directory=checkout.directory)


def find_worktree(repository: WorktreeRepository, name: str) -> Worktree | None:
    return next((each for each in list_worktrees(repository) if each.name == name), None)


def get_worktree(repository: WorktreeRepository, name: str | None) -> Worktree:
    """Return a worktree by name. Without a name, return the only one, or the one that the user is in."""
    found = list_worktrees(repository)
    if name is not None:
        exact = next((each for each in found if each.name in (name, to_slug(name))), None)
        if exact is None:
            known = ", ".join(each.name for each in found)
            raise NotFoundError("worktree", name, hint=f"there are: {known}" if known else "there is none")
        return exact
    here = [each for each in found if os.path.realpath(each.directory) == os.path.realpath(repository.top)]
    if len(chosen := here or found) == 1:
        return chosen[0]
    if not found:
        raise NotFoundError("worktree", "here", hint='weft run --worktree "…" makes one')
    raise InvalidInputError("NAME", f"which one? {', '.join(each.name for each in found)}")


def create_worktree(
    repository: WorktreeRepository, name: str | None, random: Callable[[int], bytes]
) -> Worktree:
    """Create a worktree from the commit that is checked out. Uncommitted changes are not included."""
    if name is not None and not _NAME.fullmatch(to_slug(name)):
        raise InvalidInputError(
            "--worktree", f"{name!r} does not name a worktree", hint="use letters and digits"
        )
    commit = repository.checkouts.find_commit() or ""
    for candidate in _list_candidates(name, random):
        made = Worktree(
            name=candidate,
            branch=f"{BRANCH_PREFIX}{candidate}",
            directory=os.path.join(repository.home, candidate),
        )
        if os.path.lexists(made.directory) or repository.checkouts.find_commit(f"refs/heads/{made.branch}"):
            continue
        make_directory(repository.home)
        repository.checkouts.add(made.directory, made.branch, commit)
        return made
    raise ConflictError("worktree", name or "", "already exists, and so do similar names")


def _list_candidates(name: str | None, random: Callable[[int], bytes]) -> Iterator[str]:
    base = to_slug(name) if name else make_slug(random)
    yield base
    yield from (f"{base}-{make_slug(random)}" for _ in range(ATTEMPTS - 1))


@contextmanager
def lock_worktree(repository: WorktreeRepository, worktree: Worktree) -> Iterator[None]:
    """Use a worktree exclusively: for a session, to merge or to remove it. Raise `ConflictError` if it is in use.

    The lock ends with the process.
    """
    directory = os.path.join(
        repository.paths.data, "weft", "worktree", check_file_name("project", repository.project)
    )
    make_directory(directory)
    with try_lock(os.path.join(directory, f"{worktree.name}.lock")) as free:
        if not free:
            raise ConflictError(
                "worktree", worktree.name, "is in use", hint="a session works in it, or it is being merged"
            )
        yield
