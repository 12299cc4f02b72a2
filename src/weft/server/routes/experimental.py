"""HTTP that clients of later versions ask for at start: what there is of it, and honest nothings for the rest."""

from typing import Any

from weft.model.wire import Wire
from weft.server.route import Wide, route


class Capabilities(Wire, frozen=True, kw_only=True):
    background_subagents: bool


class ConsoleState(Wire, frozen=True, kw_only=True):
    console_managed_providers: tuple[str, ...]
    switchable_org_count: int


class Orgs(Wire, frozen=True, kw_only=True):
    orgs: tuple[dict[str, Any], ...]


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


ROUTES = (
    route("GET", "/experimental/capabilities", "experimental.capabilities.get", get_capabilities),
    route("GET", "/experimental/console", "experimental.console.get", get_console),
    route("GET", "/experimental/console/orgs", "experimental.console.listOrgs", list_orgs),
    route("GET", "/experimental/workspace", "experimental.workspace.list", list_nothing),
    route("GET", "/experimental/workspace/status", "experimental.workspace.status", list_nothing),
    route("GET", "/experimental/workspace/adapter", "experimental.workspace.adapter.list", list_nothing),
)
