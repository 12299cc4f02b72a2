"""HTTP that OpenCode no longer has, and that its package for Python still asks for."""

import os
from typing import Any

from weft.model.part import ModelRef
from weft.model.wire import Wire
from weft.server.route import Call, route


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
    """An agent that one can talk with, as it was called once."""

    name: str
    tools: dict[str, bool]
    model: ModelRef | None = None
    prompt: str | None = None
    temperature: float | None = None


async def get_app(call: Call) -> App:
    """Where the server runs, and on what."""
    place, project = await call.api.surroundings.get_whereabouts(), await call.api.current_project()
    began = project.time.initialized
    return App(
        hostname=os.uname().nodename,
        git=project.vcs == "git",
        path=AppPath(
            config=place.config, cwd=place.directory, data=place.data, root=place.worktree, state=place.state
        ),
        time={} if began is None else {"initialized": began},
    )


async def init_app(call: Call) -> bool:
    """Nothing has to be done."""
    del call
    return True


async def list_modes(call: Call) -> list[Mode]:
    """The agents one can talk with."""
    agents = await call.api.surroundings.list_agents()
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


ROUTES = (
    route("GET", "/app", "app.get", get_app),
    route("POST", "/app/init", "app.init", init_app, takes=Any, optional=True),
    route("GET", "/mode", "app.modes", list_modes),
)
