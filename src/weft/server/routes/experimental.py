"""HTTP that clients of later versions ask for at start: what there is of it, and honest nothings for the rest."""

from typing import Any

from weft.errors import UnsupportedError
from weft.model.wire import Wire
from weft.server.route import Call, Wide, route

WORKTREE = "/experimental/worktree"
BY_HAND = "git worktree does it, and weft sees the checkout"


class Capabilities(Wire, frozen=True, kw_only=True):
    background_subagents: bool


class ConsoleState(Wire, frozen=True, kw_only=True):
    console_managed_providers: tuple[str, ...]
    switchable_org_count: int


class Orgs(Wire, frozen=True, kw_only=True):
    orgs: tuple[dict[str, Any], ...]


class WorktreeInput(Wire, frozen=True, kw_only=True):
    name: str | None = None
    start_command: str | None = None


class WorktreePlace(Wire, frozen=True, kw_only=True):
    directory: str


class Worktree(Wire, frozen=True, kw_only=True):
    name: str
    branch: str
    directory: str


async def get_capabilities(call: Wide) -> Capabilities:
    """Which experiments there are."""
    del call
    return Capabilities(background_subagents=False)


async def get_console(call: Wide) -> ConsoleState:
    """What an organisation's console manages: nothing."""
    del call
    return ConsoleState(console_managed_providers=(), switchable_org_count=0)


async def list_orgs(call: Wide) -> Orgs:
    """The organisations one could switch to: none."""
    del call
    return Orgs(orgs=())


async def list_nothing(call: Wide) -> list[dict[str, Any]]:
    """The workspaces there are: none."""
    del call
    return []


async def list_worktrees(call: Call) -> list[str]:
    """The other checkouts of this project."""
    return list((await call.api.current_project()).sandboxes)


async def create_worktree(call: Wide) -> Worktree:
    """Make another checkout; not built."""
    raise _not_built(call)


async def remove_worktree(call: Wide) -> bool:
    """Remove a checkout; not built."""
    raise _not_built(call)


async def reset_worktree(call: Wide) -> bool:
    """Put a checkout back to where its branch began; not built."""
    raise _not_built(call)


def _not_built(call: Wide) -> UnsupportedError:
    del call
    return UnsupportedError("changing checkouts", hint=BY_HAND)


ROUTES = (
    route("GET", "/experimental/capabilities", "experimental.capabilities.get", get_capabilities),
    route("GET", "/experimental/console", "experimental.console.get", get_console),
    route("GET", "/experimental/console/orgs", "experimental.console.listOrgs", list_orgs),
    route("GET", "/experimental/workspace", "experimental.workspace.list", list_nothing),
    route("GET", "/experimental/workspace/status", "experimental.workspace.status", list_nothing),
    route("GET", "/experimental/workspace/adapter", "experimental.workspace.adapter.list", list_nothing),
    route("GET", WORKTREE, "worktree.list", list_worktrees),
    route("POST", WORKTREE, "worktree.create", create_worktree, takes=WorktreeInput, optional=True),
    route("DELETE", WORKTREE, "worktree.remove", remove_worktree, takes=WorktreePlace),
    route("POST", f"{WORKTREE}/reset", "worktree.reset", reset_worktree, takes=WorktreePlace),
)
