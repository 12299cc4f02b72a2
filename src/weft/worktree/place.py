"""Worktrees of a project: checkouts of their own for sessions, where OpenCode has them, under names it knows."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from weft.errors import ConflictError, DirectoryError, InvalidInputError, NotFoundError
from weft.host.files import make_directory, try_locked
from weft.host.paths import Paths
from weft.model.ids import GLOBAL_PROJECT, ProjectID, file_name
from weft.model.session import make_slug
from weft.worktree.checkouts import Checkout, Checkouts

BRANCH = "opencode/"
# Where a repository remembers what was last merged out of a worktree: no branch, and safe from being swept away.
MERGED = "refs/weft/merged/"
ATTEMPTS = 26

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Worktree(Struct, frozen=True, kw_only=True):
    """A checkout of its own: what it is called, on which branch, and where."""

    name: str
    branch: str
    directory: str


class Repository(Struct, frozen=True, kw_only=True):
    """The project, and the checkout of it that the person stands in: its top, and where below it."""

    project: ProjectID
    top: str
    directory: str
    paths: Paths
    env: Mapping[str, str]

    @property
    def checkouts(self) -> Checkouts:
        return Checkouts(self.env, self.top)

    @property
    def home(self) -> str:
        """Where the project's worktrees lie."""
        return os.path.join(self.paths.worktrees, file_name("project", self.project))

    def inside(self, worktree: Worktree) -> Checkouts:
        return Checkouts(self.env, worktree.directory)


def get_repository(
    project: ProjectID, top: str, directory: str, paths: Paths, env: Mapping[str, str]
) -> Repository:
    """Raises `DirectoryError` where there is none, or one without a commit to begin from."""
    if project == GLOBAL_PROJECT and not top:
        raise DirectoryError(directory, "not in a git repository", hint="worktrees are made by git: git init")
    found = Repository(project=project, top=top, directory=directory, paths=paths, env=env)
    if found.checkouts.find_commit() is None:
        raise DirectoryError(top, "there is no commit yet to begin from", hint="commit something first")
    return found


def slug_of(name: str) -> str:
    """A name as it is used for a branch and a directory."""
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


def list_worktrees(repository: Repository) -> list[Worktree]:
    """Those of the project that were made for sessions, by name; OpenCode's, too."""
    home = os.path.realpath(repository.home)
    return sorted(
        (
            _worktree(checkout)
            for checkout in repository.checkouts.list_all()
            if os.path.dirname(os.path.realpath(checkout.directory)) == home
        ),
        key=lambda each: each.name,
    )


def _worktree(checkout: Checkout) -> Worktree:
    name = os.path.basename(checkout.directory)
    return Worktree(name=name, branch=checkout.branch, directory=checkout.directory)


def find_worktree(repository: Repository, name: str) -> Worktree | None:
    return next((each for each in list_worktrees(repository) if each.name == name), None)


def get_worktree(repository: Repository, name: str | None) -> Worktree:
    """By its name; without one the only one there is, or the one that the person stands in."""
    found = list_worktrees(repository)
    if name is not None:
        exact = next((each for each in found if each.name in (name, slug_of(name))), None)
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


def make_worktree(repository: Repository, name: str | None, random: Callable[[int], bytes]) -> Worktree:
    """A new one from the commit that is checked out here. What is not committed stays where it is, and is not in it."""
    if name is not None and not _NAME.fullmatch(slug_of(name)):
        raise InvalidInputError(
            "--worktree", f"{name!r} does not name a worktree", hint="use letters and digits"
        )
    commit = repository.checkouts.find_commit() or ""
    for candidate in _candidates(name, random):
        made = Worktree(
            name=candidate,
            branch=f"{BRANCH}{candidate}",
            directory=os.path.join(repository.home, candidate),
        )
        if os.path.lexists(made.directory) or repository.checkouts.find_commit(f"refs/heads/{made.branch}"):
            continue
        make_directory(repository.home)
        repository.checkouts.add(made.directory, made.branch, commit)
        return made
    raise ConflictError("worktree", name or "", "has a name that is taken, and so are those like it")


def _candidates(name: str | None, random: Callable[[int], bytes]) -> Iterator[str]:
    base = slug_of(name) if name else make_slug(random)
    yield base
    yield from (f"{base}-{make_slug(random)}" for _ in range(ATTEMPTS - 1))


@contextmanager
def occupied(repository: Repository, worktree: Worktree) -> Iterator[None]:
    """Have it to ourselves: a session works in it, or it is being merged or removed. Raises `ConflictError`.

    The lock dies with its holder.
    """
    directory = os.path.join(
        repository.paths.data, "weft", "worktree", file_name("project", repository.project)
    )
    make_directory(directory)
    with try_locked(os.path.join(directory, f"{worktree.name}.lock")) as free:
        if not free:
            raise ConflictError(
                "worktree", worktree.name, "is in use", hint="a session works in it, or it is being merged"
            )
        yield
