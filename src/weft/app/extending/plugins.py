"""The plugins of a directory, from finding them to leaving them: what they add to a run, and how they are told of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from typing import Any

from msgspec import Struct

from weft.app.extending.finding import Wanted, find_plugins, read_terms, to_warning
from weft.app.extending.listening import hear_last_words, open_ears
from weft.app.extending.loading import LOAD_SECONDS, Loader, Plugin, Unloaded
from weft.app.extending.remote import to_remote
from weft.app.extending.shell import list_commands
from weft.app.extending.tooling import Named, name_tools, to_tools
from weft.app.local import Local
from weft.config.load import Loaded
from weft.config.sources import Situation
from weft.errors import ConfigError, DeadlineError
from weft.host.clock import Clock
from weft.host.deadline import Deadline
from weft.host.process import tool_environment
from weft.host.tasks import open_tasks
from weft.model.event import SessionFailed
from weft.model.failure import Said, UnknownFailure
from weft.plugin.carried import PluginContext
from weft.plugin.chain import SECONDS, Chain, Voice, voice_in
from weft.plugin.command import CommandHook, Surroundings, voice_of
from weft.plugin.conduct import FAULTS, Conduct
from weft.plugin.hooks import UNHOOKED, Hooks
from weft.plugin.room import Failed, Outside, Stray
from weft.tool.contract import AnyTool

Warn = Callable[[ConfigError], None]


class Ground(Struct, frozen=True, kw_only=True):
    """Where plugins are opened: what is configured there, what a program hands over, and who hears what is wrong."""

    loaded: Loaded
    situation: Situation
    clock: Clock
    warn: Warn
    given: tuple[Any, ...] = ()


class Reporter:
    """What is wrong with a plugin, said to who opened weft, and to all who listen once there is somebody to listen."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._local: Local | None = None

    def attach(self, local: Local | None) -> None:
        self._local = local

    def __call__(self, error: ConfigError) -> None:
        self._warn(error)
        if self._local is not None:
            failure = UnknownFailure(data=Said(message=str(error)))
            self._local.bus.publish(SessionFailed(error=failure), directory=self._local.kit.place.directory)


class Plugins:
    """All that were loaded. `hooks` and `tools` are for the run; `named` are the tools with whose they are."""

    def __init__(self, plugins: Iterable[Plugin], commands: Iterable[CommandHook], ground: Ground) -> None:
        self.loaded = tuple(plugins)
        self.commands = tuple(commands)
        self._terms = read_terms(ground.loaded)
        self._ground = ground
        self._reporter = Reporter(ground.warn)
        self.conduct = Conduct(self._reporter, faults=self._terms.faults or FAULTS)
        voices = self._voices()
        self._chain = Chain(voices, self.conduct, ground.clock)
        self.hooks: Hooks = self._chain if voices else UNHOOKED
        self.named: Mapping[str, Named] = name_tools(self.loaded, ground.warn)

    @property
    def tools(self) -> tuple[AnyTool, ...]:
        """By name: in which order plugins are listed must not change a request, or no provider's cache holds."""
        return to_tools(self.named[name] for name in sorted(self.named))

    def _voices(self) -> list[Voice]:
        seconds = self._terms.seconds or SECONDS
        situation = self._ground.situation
        top = situation.worktree.rstrip("/") or situation.directory
        around = Surroundings(directory=top, environment=tool_environment(situation.env))
        return [
            *(
                voice_in(plugin.room, hooked, plugin=plugin.wanted.where, seconds=seconds)
                for plugin in self.loaded
                for hooked in plugin.carried.hooks
            ),
            *(voice_of(command, around) for command in self.commands),
        ]

    @asynccontextmanager
    async def attached(self, local: Local) -> AsyncIterator[None]:
        """While this is open plugins hear what happens, and have weft to talk to. They are set up first."""
        self._reporter.attach(local)
        ears = open_ears(self._chain, local.bus)
        await asyncio.gather(*(self._set_up(plugin, local) for plugin in self.loaded))
        async with open_tasks() as tasks:
            listening = [tasks.create_task(ear.listen(self._chain, self.conduct)) for ear in ears]
            try:
                yield
            finally:
                await hear_last_words(ears)
                for task in listening:
                    task.cancel()
                self._reporter.attach(None)

    async def _set_up(self, plugin: Plugin, local: Local) -> None:
        setup = plugin.carried.setup
        if setup is None:
            return
        place = local.kit.place
        context = PluginContext(
            directory=place.directory,
            worktree=place.worktree,
            project=place.project,
            api=to_remote(local, Outside(asyncio.get_running_loop(), copy_context())),
        )
        seconds = self._terms.load_seconds or LOAD_SECONDS
        try:
            async with Deadline("setup", seconds, self._ground.clock).running():
                outcome = await plugin.room.do(partial(setup, context))
        except DeadlineError:
            self.conduct.give_up(plugin.wanted.where, f"setup took longer than {seconds:g} seconds")
            return
        if isinstance(outcome, Failed):
            line = outcome.lines.get(plugin.wanted.where, 0)
            self.conduct.give_up(plugin.wanted.where, f"setup: {outcome.reason}", line=line)


@asynccontextmanager
async def open_plugins(ground: Ground) -> AsyncIterator[Plugins]:
    """Find and load them. What is wrong with one is told, and costs that one. Leaving ends them, stuck or not."""
    found = await asyncio.to_thread(find_plugins, ground.loaded, ground.situation, ground.given)
    for problem in found.problems:
        ground.warn(problem)
    if found.passed:
        ground.warn(to_warning(found.passed))
    hold = _Hold(asyncio.get_running_loop())
    terms = read_terms(ground.loaded)
    loader = Loader(ground.clock, hold.stray_of, seconds=terms.load_seconds or LOAD_SECONDS)
    try:
        loaded = await loader.load_all(found.wanted)
        for each in loaded:
            if isinstance(each, Unloaded):
                ground.warn(each.error)
        ready = [each for each in loaded if isinstance(each, Plugin)]
        plugins = Plugins(ready, list_commands(ground.loaded, ground.warn), ground)
        hold.conduct = plugins.conduct
        yield plugins
    finally:
        hold.conduct = None
        await loader.close()


class _Hold:
    """What goes wrong in a plugin's own tasks, brought over to our loop and held against it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.conduct: Conduct | None = None

    def stray_of(self, wanted: Wanted) -> Stray:
        def stray(failed: Failed) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._note, wanted, failed)

        return stray

    def _note(self, wanted: Wanted, failed: Failed) -> None:
        if self.conduct is not None:
            line = failed.lines.get(wanted.where, 0)
            self.conduct.fault(wanted.where, f"a task of its own: {failed.reason}", line=line)
