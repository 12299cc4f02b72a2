"""Worktrees by the promise: made, listed, put back and removed, for front ends that are not at the person's shell."""

import asyncio
import os
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from weft.app.isolation.worktrees import Entered, drop, enter, is_trusted_in, start
from weft.errors import ConflictError, NotFoundError
from weft.host.paths import Paths
from weft.model.around.worktree import WorktreeInfo
from weft.model.project import Place
from weft.project.worktree.place import (
    Repository,
    Worktree,
    find_worktree,
    get_repository,
    list_worktrees,
    occupied,
    slug_of,
)
from weft.project.worktree.state import keep_state, look_into

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
