"""Routes that only older or newer clients of OpenCode call."""

import os
from typing import Any

from weft.model.part import ModelRef
from weft.model.wire import Wire
from weft.server.route import DirectoryCall, ServerCall, route


class AppPath(Wire, frozen=True, kw_only=True):
    config: str
    cwd: str
    data: str
    root: str
    state: str


class App(Wire, frozen=True, kw_only=True):
    hostname: str
    git: bool
    path: AppPath
    time: dict[str, int]


class Mode(Wire, frozen=True, kw_only=True):
    """An agent for conversations, under its earlier name."""

    name: str
    tools: dict[str, bool]
    model: ModelRef | None = None
    prompt: str | None = None
    temperature: float | None = None


async def get_app(call: DirectoryCall) -> App:
    """Return where the server runs."""
    place, project = await call.api.workspace.get_paths(), await call.api.current_project()
    initialized = project.time.initialized
    return App(
        hostname=os.uname().nodename,
        git=project.vcs == "git",
        path=AppPath(
            config=place.config, cwd=place.directory, data=place.data, root=place.worktree, state=place.state
        ),
        time={} if initialized is None else {"initialized": initialized},
    )


async def init_app(call: DirectoryCall) -> bool:
    """Do nothing: no initialisation is needed."""
    del call
    return True


async def list_modes(call: DirectoryCall) -> list[Mode]:
    """List the agents for conversations."""
    agents = await call.api.workspace.list_agents()
    return [
        Mode(
            name=agent.name,
            tools={},
            model=agent.model,
            prompt=agent.prompt,
            temperature=agent.temperature,
        )
        for agent in agents
        if agent.mode != "subagent" and not agent.hidden
    ]


LEGACY_ROUTES = (
    route("GET", "/app", "app.get", get_app),
    route("POST", "/app/init", "app.init", init_app, takes=Any, optional=True),
    route("GET", "/mode", "app.modes", list_modes),
)


class ExperimentalCapabilities(Wire, frozen=True, kw_only=True):
    background_subagents: bool


class ConsoleState(Wire, frozen=True, kw_only=True):
    console_managed_providers: tuple[str, ...]
    switchable_org_count: int


class Orgs(Wire, frozen=True, kw_only=True):
    orgs: tuple[dict[str, Any], ...]


async def get_capabilities(call: ServerCall) -> ExperimentalCapabilities:
    """List the experiments that are available."""
    del call
    return ExperimentalCapabilities(background_subagents=False)


async def get_console(call: ServerCall) -> ConsoleState:
    """Return what an organisation's console manages: nothing."""
    del call
    return ConsoleState(console_managed_providers=(), switchable_org_count=0)


async def list_orgs(call: ServerCall) -> Orgs:
    """List the organisations to switch to: none."""
    del call
    return Orgs(orgs=())


async def list_nothing(call: ServerCall) -> list[dict[str, Any]]:
    """Return an empty list: there are no workspaces of OpenCode's kind."""
    del call
    return []


EXPERIMENTAL_ROUTES = (
    route("GET", "/experimental/capabilities", "experimental.capabilities.get", get_capabilities),
    route("GET", "/experimental/console", "experimental.console.get", get_console),
    route("GET", "/experimental/console/orgs", "experimental.console.listOrgs", list_orgs),
    route("GET", "/experimental/workspace", "experimental.workspace.list", list_nothing),
    route("GET", "/experimental/workspace/status", "experimental.workspace.status", list_nothing),
    route("GET", "/experimental/workspace/adapter", "experimental.workspace.adapter.list", list_nothing),
)
