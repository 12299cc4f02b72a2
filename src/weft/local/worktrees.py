"""Create, list, reset and remove worktrees for sessions."""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.config.sources import ConfigScope
from weft.errors import ConflictError, NotFoundError, WeftError
from weft.host.now import now
from weft.host.paths import Paths, paths_from
from weft.host.processes import OnOutput, ProcessCommand, run_command, tool_environment
from weft.local.reader import SessionReader
from weft.model.ids import SessionID
from weft.model.project import Place, is_within
from weft.model.session import SessionInfo
from weft.model.workspace import WorktreeInfo
from weft.project.checkout import find_checkout
from weft.trust.decision import ProjectTrust
from weft.trust.fingerprint import take_fingerprint
from weft.trust.records import TrustRecords
from weft.worktree.repository import (
    Worktree,
    WorktreeRepository,
    commit_state,
    create_worktree,
    discard_worktree,
    find_worktree,
    get_repository,
    list_worktrees,
    lock_worktree,
    open_new_worktree,
    plan_worktree,
    read_state,
    to_slug,
)


class EnteredWorktree(Struct, frozen=True, kw_only=True):
    """A worktree, the directory in it to work in, and whether it was just made."""

    worktree: Worktree
    directory: str
    made: bool = False


def read_repository(directory: str, env: Mapping[str, str], store: str | None = None) -> WorktreeRepository:
    """Return the repository of a directory, with the id of its project."""
    at = find_checkout(directory, fake_vcs=env.get("OPENCODE_FAKE_VCS", ""))
    project = SessionReader(directory, env, store=store).project()
    return get_repository(project, at.top, at.directory, paths_from(env), env)


def enter_worktree(repository: WorktreeRepository, name: str | None) -> EnteredWorktree:
    """Return the worktree with this name. Make it if it does not exist, or if no name is given."""
    found = find_worktree(repository, to_slug(name)) if name else None
    if found is not None:
        return EnteredWorktree(worktree=found, directory=get_directory_in(repository, found))
    return _to_entered(repository, create_worktree(repository, name, os.urandom))


def _to_entered(repository: WorktreeRepository, made: Worktree) -> EnteredWorktree:
    copy_trust(repository, made)
    return EnteredWorktree(worktree=made, directory=get_directory_in(repository, made), made=True)


@contextmanager
def open_worktree(
    repository: WorktreeRepository,
    name: str | None,
    *,
    find_session: Callable[[Worktree], SessionID | None] = lambda _: None,
) -> Iterator[EnteredWorktree]:
    """Enter a worktree as `enter_worktree` does, and use it exclusively.

    A new one that was not worked in is removed if its use ends with a `WeftError`. `find_session` returns the session that
    would continue in the worktree, for the error if another process uses it.
    """
    slug = to_slug(name or "")
    found = find_worktree(repository, slug) if slug else None
    if found is None and slug:
        with lock_worktree(
            repository, plan_worktree(repository, slug)
        ):  # or another process is just making it
            found = find_worktree(repository, slug)
    if found is None:
        with open_new_worktree(repository, name, os.urandom) as made:
            entered = _to_entered(repository, made)
            try:
                find_session(made)
                yield entered
            except WeftError:
                discard_unused(repository, entered)
                raise
        return
    with lock_worktree(repository, found, session=find_session(found)):
        if find_worktree(repository, found.name) is None:
            raise ConflictError(
                "worktree", found.name, "was removed a moment ago", hint="try again: that makes a new one"
            )
        yield EnteredWorktree(worktree=found, directory=get_directory_in(repository, found))


def get_directory_in(repository: WorktreeRepository, worktree: Worktree) -> str:
    """Return the directory in the worktree that corresponds to the current one, or its top."""
    path = os.path.normpath(
        os.path.join(worktree.directory, os.path.relpath(repository.directory, repository.top))
    )
    return path if os.path.isdir(path) else worktree.directory


# --- trust ---


def copy_trust(repository: WorktreeRepository, worktree: Worktree) -> bool:
    """Trust a worktree if its project is trusted and its files are those that were trusted. Return True if it is trusted."""
    here = _to_scope(repository, repository.top, repository.directory)
    there = _to_scope(repository, worktree.directory, get_directory_in(repository, worktree))
    status = ProjectTrust(here).get_status()
    try:
        if status.why == "given":
            found = TrustRecords(repository.paths).find(ProjectTrust(here).root)
            files = found.files if found is not None else {}
            if any(files.get(name) != digest for name, digest in take_fingerprint(there).items()):
                return False
        elif status.why != "configured":
            return status.trusted
        ProjectTrust(there).trust(now())
    except (OSError, WeftError):
        return False
    return True


def _to_scope(repository: WorktreeRepository, top: str, directory: str) -> ConfigScope:
    return ConfigScope(
        directory=directory, worktree=top, paths=repository.paths, env=repository.env, trusted=False
    )


def is_trusted_in(repository: WorktreeRepository, worktree: Worktree) -> bool:
    return ProjectTrust(_to_scope(repository, worktree.directory, worktree.directory)).get_status().trusted


# --- the start command ---


async def run_start_command(
    entered: EnteredWorktree, command: str, env: Mapping[str, str], on_output: OnOutput
) -> None:
    """Run the start command of the project in a new worktree. Raise `ConflictError` if it fails."""
    argv = ("bash", "-lc", command)
    environment = tool_environment(env)
    directory = entered.worktree.directory
    ended = await run_command(
        ProcessCommand(argv=argv, directory=directory, environment=environment), on_output
    )
    if ended.code != 0:
        raise ConflictError(
            "worktree",
            entered.worktree.name,
            f"was made, but its start command exited with {ended.code}",
            hint=f"fix it in {directory}, then continue there: weft run --worktree {entered.worktree.name}",
        )


# --- sessions, and removal ---


def find_session_worktree(session: SessionInfo, env: Mapping[str, str]) -> str | None:
    """Return the directory of a session if it is in a worktree made for sessions, else None."""
    worktrees = os.path.realpath(paths_from(env).worktrees)
    inside = os.path.realpath(session.directory).startswith(worktrees + os.sep)
    return session.directory if inside else None


def works_in(session: SessionInfo, worktree: Worktree) -> bool:
    """Return True if a session works in a worktree."""
    return is_within(os.path.realpath(session.directory), os.path.realpath(worktree.directory))


def discard_unused(repository: WorktreeRepository, entered: EnteredWorktree) -> None:
    """Remove a worktree that was just made and has no work in it. Whoever made it still uses it exclusively."""
    if entered.made and not read_state(repository, entered.worktree).has_work:
        delete_worktree(repository, entered.worktree)


def delete_worktree(repository: WorktreeRepository, worktree: Worktree) -> str:
    """Remove a worktree and the trust in it. Return the commit that keeps its contents, or ""."""
    root = os.path.realpath(worktree.directory)
    if os.path.realpath(repository.top) == root:
        # Git cannot remove the worktree that it runs in, so run it in the main checkout.
        main = find_checkout(repository.top).main
        repository = replace(repository, top=main, directory=main)
    commit = discard_worktree(repository, worktree)
    with suppress(OSError):
        TrustRecords(repository.paths).remove(root)
    return commit


# Refs that keep the old contents of a reset worktree, so that git does not collect them.
RESET_REFS: Final = "refs/weft/reset/"
MAIN_REFS: Final = ("refs/remotes/origin/HEAD", "refs/heads/main", "refs/heads/master")
UNMERGED_WORK: Final = "has work that is not merged"
FORCE_HINT: Final = "weft worktree merge merges it; with force, only a commit keeps it"


class LocalWorktrees(Struct, frozen=True, kw_only=True):
    """The `Worktrees` of a project. Git runs in a thread, because it blocks."""

    place: Place
    paths: Paths
    env: Mapping[str, str]

    async def list_worktrees(self) -> list[WorktreeInfo]:
        if self.place.project.vcs is None:
            return []
        return [
            to_worktree_info(each)
            for each in await asyncio.to_thread(lambda: list_worktrees(self._get_repository()))
        ]

    async def create_worktree(
        self, name: str | None = None, *, start: bool = True, also: str = ""
    ) -> WorktreeInfo:
        entered = await asyncio.to_thread(self._create, name)
        repository = self._get_repository()
        configured = self.place.project.commands
        commands = [configured.start] if configured is not None and configured.start else []
        if commands and not await asyncio.to_thread(is_trusted_in, repository, entered.worktree):
            commands = []
        for command in [*commands, *([also] if also else [])] if start else []:
            await run_silently(entered, command, self.env)
        return to_worktree_info(entered.worktree)

    async def remove_worktree(self, directory: str, *, force: bool = False) -> str:
        return await asyncio.to_thread(self._remove, directory, force)

    async def reset_worktree(self, directory: str, *, force: bool = False) -> str:
        return await asyncio.to_thread(self._reset, directory, force)

    # --- in a thread ---

    def _get_repository(self) -> WorktreeRepository:
        top = "" if self.place.project.vcs is None else self.place.worktree
        return get_repository(self.place.project.id, top, self.place.directory, self.paths, self.env)

    def _create(self, name: str | None) -> EnteredWorktree:
        repository = self._get_repository()
        if name and find_worktree(repository, to_slug(name)) is not None:
            # OpenCode makes another worktree with a longer name, so that repeating a request adds a worktree.
            raise ConflictError("worktree", to_slug(name), "already exists")
        return enter_worktree(repository, name or None)

    def _remove(self, directory: str, force: bool) -> str:
        repository = self._get_repository()
        worktree = _get_worktree(repository, directory)
        with lock_worktree(repository, worktree):
            if not force and not read_state(repository, worktree).is_safe:
                raise ConflictError("worktree", worktree.name, UNMERGED_WORK, hint=FORCE_HINT)
            return delete_worktree(repository, worktree)

    def _reset(self, directory: str, force: bool) -> str:
        repository = self._get_repository()
        worktree = _get_worktree(repository, directory)
        with lock_worktree(repository, worktree):
            state = read_state(repository, worktree)
            if state.missing:
                raise NotFoundError("directory", worktree.directory)
            if not force and not state.is_safe:
                raise ConflictError("worktree", worktree.name, UNMERGED_WORK, hint=FORCE_HINT)
            commit = commit_state(repository, worktree) if state.has_work else ""
            if commit:
                repository.checkouts.put_ref(RESET_REFS + worktree.name, commit)
            repository.inside(worktree).restore(_get_main_commit(repository))
            return commit


def _get_main_commit(repository: WorktreeRepository) -> str:
    """Return the commit of the main branch if it is known here, else the checked-out commit."""
    found = (repository.checkouts.find_commit(name) for name in (*MAIN_REFS, "HEAD"))
    return next(commit for commit in found if commit is not None)


def _get_worktree(repository: WorktreeRepository, directory: str) -> Worktree:
    """Return the session worktree in a directory. Raise `NotFoundError` for the main checkout and worktrees of the person."""
    for each in list_worktrees(repository):
        if _is_same_path(each.directory, directory):
            return each
    raise NotFoundError("worktree", directory[:200], hint="only worktrees that were made for sessions")


def _is_same_path(one: str, other: str) -> bool:
    try:
        return os.path.realpath(one) == os.path.realpath(other)
    except (OSError, ValueError):  # a NUL or a lone surrogate in the path
        return False


def to_worktree_info(worktree: Worktree) -> WorktreeInfo:
    return WorktreeInfo(name=worktree.name, branch=worktree.branch, directory=worktree.directory)


async def run_silently(entered: EnteredWorktree, command: str, env: Mapping[str, str]) -> None:
    async def ignore(_: bytes) -> None:
        pass

    await run_start_command(entered, command, env, ignore)
