"""Open the plugins of a directory. The code that runs plugins is loaded only if there are any."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from weft.config.load import LoadedConfig
from weft.config.sources import ConfigScope
from weft.errors import ConfigError
from weft.host.clock import Clock
from weft.local.plugin_sources import FoundPlugins, find_plugins
from weft.plugin.hooks import NO_HOOKS, Hooks
from weft.tool.contract import AnyTool

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.local.api import LocalApi
    from weft.local.provider_logins import LoginMethods


class Plugins(Protocol):
    """The plugins of a directory.

    * Runs use `hooks` and `tools`.
    * `change_config` returns the configuration as the `config` hooks change it.
    * `find_logins` returns the login methods with those of plugins, or None without plugins. It reports invalid ones.
    * `attach` runs the `setup` of all plugins, then passes them events until the context is left.
    """

    @property
    def hooks(self) -> Hooks: ...

    @property
    def tools(self) -> tuple[AnyTool, ...]: ...

    async def change_config(self, loaded: LoadedConfig) -> LoadedConfig: ...

    def find_logins(self, loaded: LoadedConfig) -> LoginMethods | None: ...

    def attach(self, local: LocalApi) -> AbstractAsyncContextManager[None]: ...


class NoPlugins:
    """No plugins, as in most directories."""

    hooks: Hooks = NO_HOOKS
    tools: tuple[AnyTool, ...] = ()

    async def change_config(self, loaded: LoadedConfig) -> LoadedConfig:
        return loaded

    def find_logins(self, loaded: LoadedConfig) -> LoginMethods | None:
        del loaded
        return None

    @asynccontextmanager
    async def attach(self, local: LocalApi) -> AsyncIterator[None]:
        del local
        yield


@asynccontextmanager
async def open_plugins(
    loaded: LoadedConfig,
    scope: ConfigScope,
    *,
    clock: Clock,
    warn: Callable[[ConfigError], None],
    extra: tuple[Any, ...] = (),
) -> AsyncIterator[Plugins]:
    """Find and load the plugins; `extra` are added by the program. A plugin that fails is reported and left out.

    Leaving the context ends their threads, even if a plugin hangs.
    """
    found = await asyncio.to_thread(find_plugins, loaded, scope, extra)
    if found == FoundPlugins() and not _has_hook_commands(loaded):
        yield NoPlugins()
        return
    from weft.local.plugin_host import load_plugins  # noqa: PLC0415  most directories have no plugins

    async with load_plugins(found, loaded, scope, clock=clock, warn=warn) as plugins:
        yield plugins


def _has_hook_commands(loaded: LoadedConfig) -> bool:
    return bool(loaded.config.weft_settings.hooks)
