"""A worktree to work in: found or made, trusted as far as its project is, made ready by the project's start command."""

import os
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from weft.app.reading import Reading
from weft.app.trust import Trusting
from weft.app.vouch.book import Book
from weft.app.vouch.seal import seal
from weft.config.sources import Situation
from weft.errors import ConflictError, WeftError
from weft.host.now import now
from weft.host.paths import paths_from
from weft.host.process import Command, Hear, run, tool_environment
from weft.model.session import Session
from weft.project.look import look
from weft.project.worktree.place import (
    Repository,
    Worktree,
    find_worktree,
    get_repository,
    make_worktree,
    slug_of,
)
from weft.project.worktree.state import discard, look_into


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
