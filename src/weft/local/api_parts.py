"""The parts of the `Api` that most runs do not use. Each is loaded and made when it is first used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from weft.host.tasks import OnDemand, open_on_demand
from weft.local.mcp_settings import McpLaunch, McpSettings
from weft.local.tools import ToolHelpers
from weft.local.workspace_sources import WorkspaceSources
from weft.model.event import Publish
from weft.model.ids import Mint
from weft.run.runtime import Runtime
from weft.tool.mcp.contract import McpServers, NoMcpServers

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api.configuration import Configuration
    from weft.api.data import Data
    from weft.api.workspace import Files, Workspace, Worktrees
    from weft.local.client_tools import ClientToolCalls
    from weft.local.mcp import LocalMcp
    from weft.local.terminals import LocalTerminals


@asynccontextmanager
async def open_mcp(
    settings: McpSettings, launch: McpLaunch, publish: Publish, *, reserved: frozenset[str]
) -> AsyncIterator[OnDemand[LocalMcp]]:
    """Open the configured servers. They connect now only if `settings.eager` is set. Leaving the context ends all of them."""

    def make(tasks: asyncio.TaskGroup) -> LocalMcp:
        from weft.local.mcp import make_mcp  # noqa: PLC0415  most directories have no MCP server

        return make_mcp(settings, launch, publish, tasks, reserved=reserved)

    async with open_on_demand(make, lambda made: made.pool.close()) as mcp:
        if settings.servers:
            mcp.get()
        yield mcp


def get_servers(mcp: OnDemand[LocalMcp]) -> McpServers:
    """Return the servers that runs use. There are none until one is configured or added."""
    return NoMcpServers() if mcp.found is None else mcp.found.pool


@asynccontextmanager
async def open_terminals(
    directory: str, environment: Mapping[str, str], mint: Mint, publish: Publish
) -> AsyncIterator[OnDemand[LocalTerminals]]:
    """Open the terminals of a directory. Leaving the context ends all of them."""

    def make(tasks: asyncio.TaskGroup) -> LocalTerminals:
        from weft.local.terminals import LocalTerminals  # noqa: PLC0415  only front ends open terminals

        return LocalTerminals(directory, environment, mint, publish, tasks)

    async with open_on_demand(make, lambda made: made.close()) as terminals:
        yield terminals


class ApiParts:
    """The parts of an `Api`: its workspace, configuration, files, worktrees, terminals and MCP servers."""

    def __init__(
        self,
        runtime: Runtime,
        sources: WorkspaceSources,
        *,
        helpers: ToolHelpers,
        mcp: OnDemand[LocalMcp],
        terminals: OnDemand[LocalTerminals],
    ) -> None:
        self._runtime = runtime
        self.sources = sources
        self._helpers = helpers
        self._mcp = mcp
        self._terminals = terminals

    @property
    def mcp(self) -> LocalMcp:
        return self._mcp.get()

    @property
    def terminals(self) -> LocalTerminals:
        return self._terminals.get()

    @cached_property
    def client_tools(self) -> ClientToolCalls:
        from weft.local.client_tools import ClientToolCalls  # noqa: PLC0415  few clients offer tools

        return ClientToolCalls(self._runtime)

    @cached_property
    def data(self) -> Data:
        from weft.local.data import LocalData  # noqa: PLC0415  few calls ask for data

        return LocalData(self._runtime, self.sources)

    @cached_property
    def workspace(self) -> Workspace:
        from weft.local.workspace import LocalWorkspace  # noqa: PLC0415  only front ends show the workspace

        return LocalWorkspace(
            runtime=self._runtime, sources=self.sources, helpers=self._helpers, mcp=self._mcp
        )

    @cached_property
    def configuration(self) -> Configuration:
        from weft.local.configuration import LocalConfiguration  # noqa: PLC0415  only front ends show the configuration

        return LocalConfiguration(self.sources, self._runtime.models, self._runtime.clock.now)

    @cached_property
    def files(self) -> Files:
        from weft.local.files import ProjectFiles  # noqa: PLC0415  only front ends show files

        return ProjectFiles(self._runtime.place, self.sources.env, self._helpers.environment)

    @cached_property
    def worktrees(self) -> Worktrees:
        from weft.local.worktrees import LocalWorktrees  # noqa: PLC0415  only front ends show worktrees

        return LocalWorktrees(place=self._runtime.place, paths=self.sources.paths, env=self.sources.env)
