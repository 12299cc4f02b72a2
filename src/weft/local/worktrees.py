"""Create, list, reset and remove worktrees for sessions."""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.config.sources import Situation
from weft.errors import ConflictError, NotFoundError, WeftError
from weft.host.now import now
from weft.host.paths import Paths, paths_from
from weft.host.processes import Command, Hear, run, tool_environment
from weft.local.reader import Reading
from weft.model.project import Place
from weft.model.session import Session
from weft.model.workspace import WorktreeInfo
from weft.project.look import look
from weft.trust.decision import Trusting
from weft.trust.fingerprint import seal
from weft.trust.records import Book
from weft.worktree.place import (
    Repository,
    Worktree,
    find_worktree,
    get_repository,
    list_worktrees,
    make_worktree,
    occupied,
    slug_of,
)
from weft.worktree.state import discard, keep_state, look_into


class Entered(Struct, frozen=True, kw_only=True):
    """The worktree, where in it to work, and whether it is new."""

    worktree: Worktree
    directory: str
    made: bool = False


def open_repository(directory: str, env: Mapping[str, str], store: str | None = None) -> Repository:
    """The repository around a directory, under the id that its project has."""
    at = look(directory, fake_vcs=env.get("OPENCODE_FAKE_VCS", ""))
    project = Reading(directory, env, store=store).project()
    return get_repository(project, at.top, at.directory, paths_from(env), env)


def enter(repository: Repository, name: str | None) -> Entered:
    """The one of that name, made if there is none; without a name a new one."""
    found = find_worktree(repository, slug_of(name)) if name else None
    if found is not None:
        return Entered(worktree=found, directory=_below(repository, found))
    made = make_worktree(repository, name, os.urandom)
    carry_trust(repository, made)
    return Entered(worktree=made, directory=_below(repository, made), made=True)


def _below(repository: Repository, worktree: Worktree) -> str:
    """The same directory in it as the person stands in, if it has that."""
    path = os.path.normpath(
        os.path.join(worktree.directory, os.path.relpath(repository.directory, repository.top))
    )
    return path if os.path.isdir(path) else worktree.directory


# --- trust ---


def carry_trust(repository: Repository, worktree: Worktree) -> bool:
    """Trust it if its project is trusted, and it has the very files that were vouched for."""
    here = _situation(repository, repository.top, repository.directory)
    there = _situation(repository, worktree.directory, _below(repository, worktree))
    standing = Trusting(here).standing()
    try:
        if standing.why == "given":
            found = Book(repository.paths).find(Trusting(here).root)
            files = found.files if found is not None else {}
            if any(files.get(name) != digest for name, digest in seal(there).items()):
                return False
        elif standing.why != "configured":
            return standing.trusted
        Trusting(there).trust(now())
    except (OSError, WeftError):
        return False
    return True


def _situation(repository: Repository, top: str, directory: str) -> Situation:
    return Situation(
        directory=directory, worktree=top, paths=repository.paths, env=repository.env, trusted=False
    )


def is_trusted_in(repository: Repository, worktree: Worktree) -> bool:
    return Trusting(_situation(repository, worktree.directory, worktree.directory)).standing().trusted


# --- the start command ---


async def start(entered: Entered, command: str, env: Mapping[str, str], hear: Hear) -> None:
    """Make a new worktree ready, by what the project says for that. Raises `ConflictError` if it fails."""
    argv = ("bash", "-lc", command)
    environment = tool_environment(env)
    directory = entered.worktree.directory
    ended = await run(Command(argv=argv, directory=directory, environment=environment), hear)
    if ended.code != 0:
        raise ConflictError(
            "worktree",
            entered.worktree.name,
            f"was made, and its start command ended with {ended.code}",
            hint=f"see to it in {directory}, then go on there: weft run --worktree {entered.worktree.name}",
        )


# --- sessions in it, and its end ---


def find_session_worktree(session: Session, env: Mapping[str, str]) -> str | None:
    """The directory that a session works in, if that is a worktree made for sessions."""
    home = os.path.realpath(paths_from(env).worktrees)
    inside = os.path.realpath(session.directory).startswith(home + os.sep)
    return session.directory if inside else None


def list_sessions_in(worktree: Worktree, sessions: list[Session]) -> list[Session]:
    """Oldest first."""
    home = os.path.realpath(worktree.directory)
    return [each for each in sessions if _is_in(os.path.realpath(each.directory), home)]


def _is_in(path: str, home: str) -> bool:
    return path == home or path.startswith(home + os.sep)


def give_up(repository: Repository, entered: Entered) -> None:
    """Take back one that was only just made, and in which nothing was done."""
    if entered.made and not look_into(repository, entered.worktree).has_work:
        drop(repository, entered.worktree)


def drop(repository: Repository, worktree: Worktree) -> str:
    """Remove it, and the trust in it."""
    root = os.path.realpath(worktree.directory)
    if os.path.realpath(repository.top) == root:
        # From the main checkout: nobody can be where nothing is left.
        main = look(repository.top).main
        repository = replace(repository, top=main, directory=main)
    kept = discard(repository, worktree)
    with suppress(OSError):
        Book(repository.paths).remove(root)
    return kept


# Where what stood in a worktree is kept when it is put back: no branch, and safe from being swept away.
PUT_BACK: Final = "refs/weft/reset/"
BEGINNINGS: Final = ("refs/remotes/origin/HEAD", "refs/heads/main", "refs/heads/master")
NOWHERE_ELSE: Final = "has work that is nowhere else"
FORCE: Final = "weft worktree merge brings it back; force does without it"


class KeptWorktrees(Struct, frozen=True, kw_only=True):
    """`Worktrees` over git. What git does blocks, and is done in a thread."""

    place: Place
    paths: Paths
    env: Mapping[str, str]

    async def list_worktrees(self) -> list[WorktreeInfo]:
        if self.place.project.vcs is None:
            return []
        return [to_info(each) for each in await asyncio.to_thread(lambda: list_worktrees(self._repository()))]

    async def create_worktree(
        self, name: str | None = None, *, start: bool = True, also: str = ""
    ) -> WorktreeInfo:
        made = await asyncio.to_thread(self._make, name)
        repository = self._repository()
        said = self.place.project.commands
        commands = [said.start] if said is not None and said.start else []
        if commands and not await asyncio.to_thread(is_trusted_in, repository, made.worktree):
            commands = []
        for command in [*commands, *([also] if also else [])] if start else []:
            await _run(made, command, self.env)
        return to_info(made.worktree)

    async def remove_worktree(self, directory: str, *, force: bool = False) -> str:
        return await asyncio.to_thread(self._remove, directory, force)

    async def reset_worktree(self, directory: str, *, force: bool = False) -> str:
        return await asyncio.to_thread(self._reset, directory, force)

    # --- in a thread ---

    def _repository(self) -> Repository:
        top = "" if self.place.project.vcs is None else self.place.worktree
        return get_repository(self.place.project.id, top, self.place.directory, self.paths, self.env)

    def _make(self, name: str | None) -> Entered:
        repository = self._repository()
        if name and find_worktree(repository, slug_of(name)) is not None:
            # OpenCode makes another one with more in its name; a second request for the same is then a second worktree.
            raise ConflictError("worktree", slug_of(name), "is there already")
        return enter(repository, name or None)

    def _remove(self, directory: str, force: bool) -> str:
        repository = self._repository()
        worktree = _at(repository, directory)
        with occupied(repository, worktree):
            if not force and not look_into(repository, worktree).is_safe:
                raise ConflictError("worktree", worktree.name, NOWHERE_ELSE, hint=FORCE)
            return drop(repository, worktree)

    def _reset(self, directory: str, force: bool) -> str:
        repository = self._repository()
        worktree = _at(repository, directory)
        with occupied(repository, worktree):
            state = look_into(repository, worktree)
            if state.missing:
                raise NotFoundError("directory", worktree.directory)
            if not force and not state.is_safe:
                raise ConflictError("worktree", worktree.name, NOWHERE_ELSE, hint=FORCE)
            kept = keep_state(repository, worktree) if state.has_work else ""
            if kept:
                repository.checkouts.put_ref(PUT_BACK + worktree.name, kept)
            repository.inside(worktree).put_back(_beginning(repository))
            return kept


def _beginning(repository: Repository) -> str:
    """The commit of the main branch, as far as it is known here; else the one that is checked out."""
    found = (repository.checkouts.find_commit(name) for name in (*BEGINNINGS, "HEAD"))
    return next(commit for commit in found if commit is not None)


def _at(repository: Repository, directory: str) -> Worktree:
    """The one in a directory. The main checkout, and those that a person made themselves, are not for us to touch."""
    for each in list_worktrees(repository):
        if _same(each.directory, directory):
            return each
    raise NotFoundError("worktree", directory[:200], hint="those that were made for sessions are meant")


def _same(one: str, other: str) -> bool:
    try:
        return os.path.realpath(one) == os.path.realpath(other)
    except (OSError, ValueError):  # a NUL in it, or half a character
        return False


def to_info(worktree: Worktree) -> WorktreeInfo:
    return WorktreeInfo(name=worktree.name, branch=worktree.branch, directory=worktree.directory)


async def _run(made: Entered, command: str, env: Mapping[str, str]) -> None:
    async def unheard(_: bytes) -> None:
        pass

    await start(made, command, env, unheard)
