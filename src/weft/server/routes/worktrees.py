"""HTTP for worktrees: checkouts of their own for sessions."""

import os
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from weft.errors import ConflictError, NotPermittedError
from weft.model.wire import Wire
from weft.model.workspace import WorktreeInfo
from weft.server.route import Call, route

WORKTREE = "/experimental/worktree"
LONGEST_NAME = 200
LONGEST_COMMAND = 100_000
NO_SHELL = "the server was started with --no-shell"


class WorktreeInput(Wire, frozen=True, kw_only=True):
    """`start_command` is run after the one that the project says makes a worktree ready."""

    name: Annotated[str, Meta(max_length=LONGEST_NAME)] | None = None
    start_command: Annotated[str, Meta(max_length=LONGEST_COMMAND)] | None = None


class WorktreePlace(Wire, frozen=True, kw_only=True):
    directory: str


class ForceQuery(Struct, frozen=True, kw_only=True):
    """By `force` also if there is work in it that is nowhere else."""

    force: bool = False


async def list_worktrees(call: Call) -> list[str]:
    """The other checkouts of this project."""
    made = [each.directory for each in await call.api.worktrees.list_worktrees()]
    return _there((*(await call.api.current_project()).sandboxes, *made))


def _there(directories: Iterable[str]) -> list[str]:
    """A project remembers its checkouts until it is next opened, those that are gone too."""
    return [each for each in dict.fromkeys(directories) if os.path.isdir(each)]


async def list_described(call: Call) -> list[WorktreeInfo]:
    """The worktrees that were made for sessions, by name."""
    return await call.api.worktrees.list_worktrees()


async def create_worktree(call: Call) -> WorktreeInfo:
    """Make another checkout, on a branch of its own, and make it ready."""
    asked: WorktreeInput = call.body or WorktreeInput()
    made = await call.api.worktrees.create_worktree(asked.name or None, also=asked.start_command or "")
    # Opened, it is known to its project, and sessions may be begun in it.
    await call.premises.open(made.directory)
    return made


async def create_bare(call: Call) -> WorktreeInfo:
    """Make another checkout, on a branch of its own. Nothing is run in it: there is no shell to be had here."""
    asked: WorktreeInput = call.body or WorktreeInput()
    if asked.start_command:
        raise NotPermittedError(f"startCommand: {NO_SHELL}")
    made = await call.api.worktrees.create_worktree(asked.name or None, start=False)
    await call.premises.open(made.directory)
    return made


async def remove_worktree(call: Call) -> bool:
    """Remove a checkout with its branch; what stood in it is kept as a commit for as long as git keeps it."""
    await call.api.worktrees.remove_worktree(await _left(call), force=call.query.force)
    return True


async def reset_worktree(call: Call) -> bool:
    """Put a checkout back to the main branch; what git ignores stays."""
    await call.api.worktrees.reset_worktree(await _left(call), force=call.query.force)
    return True


async def _left(call: Call) -> str:
    """The directory that is meant, with nothing going on in it any more."""
    asked: WorktreePlace = call.body
    directory = call.premises.resolve(asked.directory)
    if await call.premises.is_busy(directory):
        raise ConflictError("worktree", asked.directory[:200], "is in use", hint="end what runs in it first")
    await call.premises.dispose(directory)
    return directory


ROUTES = (
    route("GET", WORKTREE, "worktree.list", list_worktrees),
    route("GET", "/weft/worktree", "weft.worktree.list", list_described),
    route("DELETE", WORKTREE, "worktree.remove", remove_worktree, takes=WorktreePlace, query=ForceQuery),
    route(
        "POST", f"{WORKTREE}/reset", "worktree.reset", reset_worktree, takes=WorktreePlace, query=ForceQuery
    ),
)

CREATING = (route("POST", WORKTREE, "worktree.create", create_worktree, takes=WorktreeInput, optional=True),)
CREATING_BARE = (route("POST", WORKTREE, "worktree.create", create_bare, takes=WorktreeInput, optional=True),)
