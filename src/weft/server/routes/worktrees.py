"""HTTP routes for worktrees: separate checkouts for sessions."""

import os
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from weft.errors import ConflictError, NotPermittedError
from weft.model.wire import Wire
from weft.model.workspace import WorktreeInfo
from weft.server.route import DirectoryCall, route

WORKTREE = "/experimental/worktree"
MAX_NAME_LENGTH = 200
MAX_COMMAND_LENGTH = 100_000
NO_SHELL = "the server was started with --no-shell"


class WorktreeInput(Wire, frozen=True, kw_only=True):
    """`start_command` runs after the command with which the project prepares a worktree."""

    name: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)] | None = None
    start_command: Annotated[str, Meta(max_length=MAX_COMMAND_LENGTH)] | None = None


class WorktreePlace(Wire, frozen=True, kw_only=True):
    directory: str


class ForceQuery(Struct, frozen=True, kw_only=True):
    """With `force`, the worktree is changed even if it contains work that is nowhere else."""

    force: bool = False


async def list_worktrees(call: DirectoryCall) -> list[str]:
    """List the other checkouts of this project."""
    directories = [each.directory for each in await call.api.worktrees.list_worktrees()]
    return _list_existing((*(await call.api.current_project()).sandboxes, *directories))


def _list_existing(directories: Iterable[str]) -> list[str]:
    """Return the directories that exist. A project remembers removed checkouts until it is next opened."""
    return [each for each in dict.fromkeys(directories) if os.path.isdir(each)]


async def list_described(call: DirectoryCall) -> list[WorktreeInfo]:
    """List the worktrees made for sessions, by name."""
    return await call.api.worktrees.list_worktrees()


async def create_worktree(call: DirectoryCall) -> WorktreeInfo:
    """Create a checkout on its own branch and prepare it."""
    input: WorktreeInput = call.body or WorktreeInput()
    worktree = await call.api.worktrees.create_worktree(input.name or None, also=input.start_command or "")
    # Opening it registers it with its project, so that sessions may start in it.
    await call.server.get_api(worktree.directory)
    return worktree


async def create_bare(call: DirectoryCall) -> WorktreeInfo:
    """Create a checkout on its own branch, without running anything in it: this server offers no shell."""
    input: WorktreeInput = call.body or WorktreeInput()
    if input.start_command:
        raise NotPermittedError(f"startCommand: {NO_SHELL}")
    worktree = await call.api.worktrees.create_worktree(input.name or None, start=False)
    await call.server.get_api(worktree.directory)
    return worktree


async def remove_worktree(call: DirectoryCall) -> bool:
    """Remove a checkout with its branch; git keeps its content as a commit for a while."""
    await call.api.worktrees.remove_worktree(await _release(call), force=call.query.force)
    return True


async def reset_worktree(call: DirectoryCall) -> bool:
    """Reset a checkout to the main branch; ignored files stay."""
    await call.api.worktrees.reset_worktree(await _release(call), force=call.query.force)
    return True


async def _release(call: DirectoryCall) -> str:
    """Return the directory after closing it. Raise `ConflictError` if something runs in it."""
    input: WorktreePlace = call.body
    directory = call.server.resolve(input.directory)
    if await call.server.is_busy(directory):
        raise ConflictError("worktree", input.directory[:200], "is in use", hint="end what runs in it first")
    await call.server.dispose(directory)
    return directory


ROUTES = (
    route("GET", WORKTREE, "worktree.list", list_worktrees),
    route("GET", "/weft/worktree", "weft.worktree.list", list_described),
    route("DELETE", WORKTREE, "worktree.remove", remove_worktree, takes=WorktreePlace, query=ForceQuery),
    route(
        "POST", f"{WORKTREE}/reset", "worktree.reset", reset_worktree, takes=WorktreePlace, query=ForceQuery
    ),
)

CREATE_ROUTES = (
    route("POST", WORKTREE, "worktree.create", create_worktree, takes=WorktreeInput, optional=True),
)
NO_SHELL_ROUTES = (
    route("POST", WORKTREE, "worktree.create", create_bare, takes=WorktreeInput, optional=True),
)
