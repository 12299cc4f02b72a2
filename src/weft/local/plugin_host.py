"""Run the plugins of a directory: load them, call their hooks, close them."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final

from msgspec import convert
from msgspec.structs import replace

from weft.api import Api
from weft.bus import Bus
from weft.config.check import check_config, find_nearest
from weft.config.layer import ConfigOrigin, ConfigProblems, make_layer
from weft.config.load import LoadedConfig
from weft.config.schema import Config
from weft.config.sources import ConfigScope
from weft.errors import ConfigError, CursorLostError, DeadlineError, UnsupportedError
from weft.host.clock import Clock
from weft.host.processes import tool_environment
from weft.host.tasks import Deadline, open_tasks
from weft.local.api import LocalApi
from weft.local.plugin_sources import FoundPlugins, PluginSource, read_plugin_settings, to_skipped_warning
from weft.local.plugin_tools import (
    LOAD_SECONDS,
    FailedPlugin,
    NamedTool,
    Plugin,
    PluginLoader,
    name_tools,
    to_run_tools,
)
from weft.local.provider_logins import LoginMethods, find_login_methods
from weft.model.event import SessionFailed
from weft.model.failure import MessageData, UnknownFailure
from weft.model.wire import to_plain
from weft.plugin.chain import (
    HOOK_SECONDS,
    MAX_FAULTS,
    FaultCounter,
    HookChain,
    RegisteredHook,
    register_function,
)
from weft.plugin.command import CommandEnvironment, HookCommand, register_command
from weft.plugin.hooks import (
    COMMAND_BEFORE,
    CONFIG,
    EVENT,
    HOOKS,
    NO_HOOKS,
    PERMISSION_ASK,
    TOOL_AFTER,
    TOOL_BEFORE,
    ConfigHookScope,
    ConfigHookValue,
    Happened,
    Hooks,
    NoChange,
)
from weft.plugin.loader import PluginContext
from weft.plugin.worker import Failed, MainLoop, OnStrayError
from weft.tool.contract import AnyTool


class ApiProxy:
    """An object of the main thread for use in a plugin's thread: its coroutines and those of its parts can be awaited there.

    Raise `AttributeError` for names that `protocol` does not define.
    """

    def __init__(self, target: Any, main_loop: MainLoop, protocol: type = object) -> None:
        self._target = target
        self._main_loop = main_loop
        self._protocol = protocol

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or (self._protocol is not object and not hasattr(self._protocol, name)):
            raise AttributeError(f"the Api has no attribute {name!r}")
        found = getattr(self._target, name)
        if inspect.iscoroutinefunction(found):
            return self._wrap(found)
        if callable(found):
            raise UnsupportedError(
                f"calling {name} from a plugin", hint='to receive events, use @hook("event")'
            )
        return ApiProxy(found, self._main_loop)

    def _wrap(self, function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        async def call(*arguments: Any, **named: Any) -> Any:
            return await self._main_loop.do(lambda: function(*arguments, **named))

        return call


# How long plugins may take, when weft closes, to handle the last events.
DRAIN_SECONDS: Final = 1.0


class PluginListener:
    """Passes events to one plugin. The bus buffers them; if a plugin falls too far behind, events are lost and reported."""

    def __init__(self, plugin: str, hooks: Sequence[RegisteredHook], bus: Bus) -> None:
        self._plugin = plugin
        self._hooks = hooks
        self._bus = bus
        self._listener = bus.listen()
        self._cursor = self._listener.cursor
        self._progress = asyncio.Event()
        self._stopped = False

    async def listen(self, chain: HookChain, fault_counter: FaultCounter) -> None:
        while not fault_counter.is_disabled(self._plugin):
            try:
                events = await self._listener.take()
            except CursorLostError:
                fault_counter.report(self._plugin, "hook event is too slow and has missed some events")
                self._listener = self._bus.listen()
                self._advance(self._listener.cursor)
                continue
            for published in events:
                for hook in self._hooks:
                    if not fault_counter.is_disabled(self._plugin):
                        await chain.ask_one(hook, EVENT, Happened(event=published.event), NoChange())
                self._advance(published.cursor)
        self._stopped = True
        self._progress.set()

    def _advance(self, to: int) -> None:
        self._cursor = to
        self._progress.set()

    async def catch_up(self) -> None:
        """Wait until the plugin has handled every event that was published before this call."""
        until = self._bus.cursor
        while self._cursor < until and not self._stopped:
            self._progress.clear()
            await self._progress.wait()


def make_plugin_listeners(chain: HookChain, bus: Bus) -> list[PluginListener]:
    """Return a listener for each plugin that has an `event` hook."""
    hooks: dict[str, list[RegisteredHook]] = {}
    for hook in chain.list_registered(EVENT):
        hooks.setdefault(hook.plugin, []).append(hook)
    return [PluginListener(plugin, each, bus) for plugin, each in hooks.items()]


async def drain_listeners(listeners: Iterable[PluginListener]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            await asyncio.gather(*(listener.catch_up() for listener in listeners))


Warn = Callable[[ConfigError], None]


class FaultReporter:
    """Reports faults of plugins to the caller of `weft.open` and, once an `Api` is attached, as events."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._local: LocalApi | None = None

    def attach(self, local: LocalApi | None) -> None:
        self._local = local

    def __call__(self, error: ConfigError) -> None:
        self._warn(error)
        if self._local is not None:
            failure = UnknownFailure(data=MessageData(message=str(error)))
            self._local.bus.publish(
                SessionFailed(error=failure), directory=self._local.runtime.place.directory
            )


class LoadedPlugins:
    """The plugins that were loaded. Runs use `hooks` and `tools`; `named` also says which plugin each tool is from."""

    def __init__(
        self,
        plugins: Iterable[Plugin],
        commands: Iterable[HookCommand],
        loaded: LoadedConfig,
        scope: ConfigScope,
        *,
        clock: Clock,
        warn: Warn,
    ) -> None:
        self.plugins = tuple(plugins)
        self.commands = tuple(commands)
        self._settings = read_plugin_settings(loaded)
        self._scope = scope
        self._clock = clock
        self._warn = warn
        self._reporter = FaultReporter(warn)
        self.fault_counter = FaultCounter(self._reporter, faults=self._settings.faults or MAX_FAULTS)
        hooks = self._register_hooks()
        self._chain = HookChain(hooks, self.fault_counter, clock)
        self.hooks: Hooks = self._chain if hooks else NO_HOOKS
        self.named: Mapping[str, NamedTool] = name_tools(self.plugins, warn)

    async def change_config(self, loaded: LoadedConfig) -> LoadedConfig:
        return await apply_config_hooks(loaded, self.hooks, self._scope.directory, self._warn)

    def find_logins(self, loaded: LoadedConfig) -> LoginMethods:
        return find_login_methods(loaded, self.plugins, self._clock, self._warn)

    @property
    def tools(self) -> tuple[AnyTool, ...]:
        """The tools, sorted by name: the order of plugins must not change a request, or providers could not cache it."""
        return to_run_tools(self.named[name] for name in sorted(self.named))

    def _register_hooks(self) -> list[RegisteredHook]:
        seconds = self._settings.seconds or HOOK_SECONDS
        scope = self._scope
        top = scope.worktree.rstrip("/") or scope.directory
        environment = CommandEnvironment(directory=top, environment=tool_environment(scope.env))
        return [
            *(
                register_function(plugin.worker, hooked, plugin=plugin.source.where, seconds=seconds)
                for plugin in self.plugins
                for hooked in plugin.contents.hooks
            ),
            *(register_command(command, environment) for command in self.commands),
        ]

    @asynccontextmanager
    async def attach(self, local: LocalApi) -> AsyncIterator[None]:
        """Run the `setup` of all plugins, then pass them events until the context is left."""
        self._reporter.attach(local)
        listeners = make_plugin_listeners(self._chain, local.bus)
        await asyncio.gather(*(self._set_up(plugin, local) for plugin in self.plugins))
        async with open_tasks() as tasks:
            running = [tasks.create_task(each.listen(self._chain, self.fault_counter)) for each in listeners]
            try:
                yield
            finally:
                await drain_listeners(listeners)
                for task in running:
                    task.cancel()
                self._reporter.attach(None)

    async def _set_up(self, plugin: Plugin, local: LocalApi) -> None:
        setup = plugin.contents.setup
        if setup is None:
            return
        place = local.runtime.place
        context = PluginContext(
            directory=place.directory,
            worktree=place.worktree,
            project=place.project,
            api=ApiProxy(local, MainLoop(asyncio.get_running_loop(), copy_context()), Api),
        )
        seconds = self._settings.load_seconds or LOAD_SECONDS
        try:
            async with Deadline("setup", seconds, self._clock).running():
                outcome = await plugin.worker.do(partial(setup, context))
        except DeadlineError:
            self.fault_counter.disable(plugin.source.where, f"setup took longer than {seconds:g} seconds")
            return
        if isinstance(outcome, Failed):
            line = outcome.lines.get(plugin.source.where, 0)
            self.fault_counter.disable(plugin.source.where, f"setup: {outcome.reason}", line=line)


@asynccontextmanager
async def load_plugins(
    found: FoundPlugins, loaded: LoadedConfig, scope: ConfigScope, *, clock: Clock, warn: Warn
) -> AsyncIterator[LoadedPlugins]:
    """Load the plugins that were found, and report problems. A plugin that fails is reported and left out.

    Leaving the context ends their threads, even if a plugin hangs.
    """
    for problem in found.problems:
        warn(problem)
    if found.skipped:
        warn(to_skipped_warning(found.skipped))
    faults = _TaskFaults(asyncio.get_running_loop())
    seconds = read_plugin_settings(loaded).load_seconds or LOAD_SECONDS
    loader = PluginLoader(clock, faults.make_handler, seconds=seconds)
    try:
        results = await loader.load_all(found.sources)
        for result in results:
            if isinstance(result, FailedPlugin):
                warn(result.error)
        ready = [result for result in results if isinstance(result, Plugin)]
        commands = list_hook_commands(loaded, warn)
        plugins = LoadedPlugins(ready, commands, loaded, scope, clock=clock, warn=warn)
        faults.fault_counter = plugins.fault_counter
        yield plugins
    finally:
        faults.fault_counter = None
        await loader.close()


class _TaskFaults:
    """Counts errors in tasks that a plugin started itself. The errors arrive from the plugin's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.fault_counter: FaultCounter | None = None

    def make_handler(self, source: PluginSource) -> OnStrayError:
        def handle(failed: Failed) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._count, source, failed)

        return handle

    def _count(self, source: PluginSource, failed: Failed) -> None:
        if self.fault_counter is not None:
            line = failed.lines.get(source.where, 0)
            self.fault_counter.record(source.where, f"a task of its own: {failed.reason}", line=line)


HOOKS_KEY: Final = "experimental.weft.hooks"
HOOKS_WITH_MATCHER: Final = {
    each.name for each in (TOOL_BEFORE, TOOL_AFTER, EVENT, COMMAND_BEFORE, PERMISSION_ASK)
}


def list_hook_commands(loaded: LoadedConfig, warn: Callable[[ConfigError], None]) -> Iterator[HookCommand]:
    """Return the commands that are configured for hooks, in order. Warn about those that are not valid."""
    own = loaded.config.weft_settings
    default = (own.plugins.seconds if own.plugins else None) or HOOK_SECONDS
    for name, commands in (own.hooks or {}).items():
        origin = loaded.origins.get((*HOOKS_KEY.split("."), name))
        path, key = origin.path if origin else HOOKS_KEY, f"{HOOKS_KEY}.{name}"
        if name not in HOOKS:
            warn(ConfigError(path, "there is no such hook", key=key, near=find_nearest(name, HOOKS)))
            continue
        for each in commands:
            if not each.command:
                warn(ConfigError(path, "the command is empty", key=key))
                continue
            if each.matcher is not None and name not in HOOKS_WITH_MATCHER:
                warn(ConfigError(path, "this hook has no matcher; the setting is ignored", key=key))
            yield HookCommand(
                hook=name, argv=each.command, matcher=each.matcher, seconds=each.timeout or default
            )


HOOK_ORIGIN: Final = ConfigOrigin(kind="environment", path="config hook", own=True)


async def apply_config_hooks(
    loaded: LoadedConfig, hooks: Hooks, directory: str, warn: Callable[[ConfigError], None]
) -> LoadedConfig:
    """Return the configuration as the `config` hooks of plugins change it, checked against the schema like a file.

    For an untrusted project, only the changes of plugins are trusted; what the project itself configures is not.
    """
    if not hooks.any(CONFIG):
        return loaded
    before = to_plain(loaded.config)
    after = (
        await hooks.ask(CONFIG, ConfigHookScope(directory=directory), ConfigHookValue(config=before))
    ).config
    if after == before:
        return loaded
    problems = ConfigProblems()
    config = _to_config(after, problems)
    trusted_config = config
    if loaded.trusted_config is not loaded.config:
        trusted_config = _to_config(
            apply_changes(to_plain(loaded.trusted_config), before, after), ConfigProblems()
        )
    for problem in (*problems.errors, *problems.warnings):
        warn(problem)
    return replace(loaded, config=config, trusted_config=trusted_config)


def _to_config(plain: dict[str, Any], problems: ConfigProblems) -> Config:
    layer = make_layer(HOOK_ORIGIN, plain, None, problems)
    kept, findings = check_config(layer.data, is_complete=True)
    problems.add(HOOK_ORIGIN, None, findings)
    return convert(kept, Config)


def apply_changes(value: Any, before: Any, after: Any) -> Any:
    """Apply the changes between `before` and `after` to `value`, and return the result."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return after
    result = {key: item for key, item in (value or {}).items() if key in after or key not in before}
    for key, new in after.items():
        if key not in before:
            result[key] = new
        elif new != before[key]:
            result[key] = apply_changes(result.get(key), before[key], new)
    return result
