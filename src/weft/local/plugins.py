"""The plugins of a directory: load them, call their hooks, list them, close them."""

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final, Literal

from msgspec import Struct, convert
from msgspec.structs import replace

from weft.api import Api
from weft.bus import Bus
from weft.config.check import check
from weft.config.finish import plugin_name
from weft.config.layer import Origin, Problems, make_layer
from weft.config.load import Loaded, load_config
from weft.config.schema import Config
from weft.config.sources import Situation
from weft.errors import ConfigError, CursorLostError, DeadlineError, InvalidInputError, UnsupportedError
from weft.host.clock import Clock, SystemClock
from weft.host.paths import paths_from
from weft.host.processes import tool_environment
from weft.host.tasks import Deadline, open_tasks
from weft.local.api import Local
from weft.local.logins import Ways, list_built_in
from weft.local.plugin_sources import Found, Wanted, find_plugins, list_commands, read_terms, to_warning
from weft.local.plugin_tools import LOAD_SECONDS, Loader, Named, Plugin, Unloaded, name_tools, to_tools
from weft.model.event import SessionFailed
from weft.model.failure import Said, UnknownFailure
from weft.model.wire import to_plain
from weft.plugin.auth import list_auths, login_in
from weft.plugin.chain import FAULTS, SECONDS, Chain, Conduct, Voice, voice_in
from weft.plugin.command import CommandHook, Surroundings, voice_of
from weft.plugin.hooks import CONFIG, EVENT, UNHOOKED, Configuration, Configured, Happened, Hooks, Nothing
from weft.plugin.loading import PluginContext
from weft.plugin.worker import Failed, Outside, Stray
from weft.project.look import look
from weft.tool.contract import AnyTool
from weft.trust.decision import is_trusted


class Remote:
    """An object of ours, seen from a plugin's room: its coroutines can be awaited there, and what it is made of likewise."""

    def __init__(self, target: Any, outside: Outside, promised: type = object) -> None:
        self._target = target
        self._outside = outside
        self._promised = promised

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or (self._promised is not object and not hasattr(self._promised, name)):
            raise AttributeError(f"weft promises nothing of the name {name!r}")
        found = getattr(self._target, name)
        if inspect.iscoroutinefunction(found):
            return self._carried_over(found)
        if callable(found):
            raise UnsupportedError(
                f"{name} from within a plugin", hint='for what happens there is @hook("event")'
            )
        return Remote(found, self._outside)

    def _carried_over(self, function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        async def call(*given: Any, **named: Any) -> Any:
            return await self._outside.do(lambda: function(*given, **named))

        return call


def to_remote(api: Api, outside: Outside) -> Any:
    return Remote(api, outside, Api)


# How long plugins may take for what happened just before weft is closed.
LAST_WORDS: Final = 1.0


class Ear:
    """What one plugin hears. The bus holds what it has yet to hear, and what is too much is lost and told."""

    def __init__(self, plugin: str, voices: Sequence[Voice], bus: Bus) -> None:
        self._plugin = plugin
        self._voices = voices
        self._bus = bus
        self._listener = bus.listen()
        self._heard = self._listener.cursor
        self._moved = asyncio.Event()
        self._over = False

    async def listen(self, chain: Chain, conduct: Conduct) -> None:
        while not conduct.is_off(self._plugin):
            try:
                news = await self._listener.take()
            except CursorLostError:
                conduct.remark(self._plugin, "hook event cannot keep up, and misses some of what happened")
                self._listener = self._bus.listen()
                self._move(self._listener.cursor)
                continue
            for told in news:
                for voice in self._voices:
                    if not conduct.is_off(self._plugin):
                        await chain.ask_one(voice, EVENT, Happened(event=told.event), Nothing())
                self._move(told.cursor)
        self._over = True
        self._moved.set()

    def _move(self, to: int) -> None:
        self._heard = to
        self._moved.set()

    async def caught_up(self) -> None:
        """Wait until all has been heard that was told by now."""
        until = self._bus.cursor
        while self._heard < until and not self._over:
            self._moved.clear()
            await self._moved.wait()


def open_ears(chain: Chain, bus: Bus) -> list[Ear]:
    """One for each plugin that wants to hear what happens."""
    voices: dict[str, list[Voice]] = {}
    for voice in chain.voices(EVENT):
        voices.setdefault(voice.plugin, []).append(voice)
    return [Ear(plugin, each, bus) for plugin, each in voices.items()]


async def hear_last_words(ears: Iterable[Ear]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORDS):
            await asyncio.gather(*(ear.caught_up() for ear in ears))


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


HELD: Final = ("plugin", "tool", "hook")

State = Literal["loaded", "failed", "held back", "passed over"]


class Row(Struct, frozen=True, kw_only=True):
    """`kind` says what it is (`file`, `tools`, `module`, `package`, `command`), `why` what is wrong, if anything is."""

    name: str
    kind: str
    where: str
    state: State
    hooks: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    why: str = ""


async def list_plugins(directory: str, env: Mapping[str, str]) -> tuple[list[Row], list[ConfigError]]:
    """Every plugin, in the order they are asked, and what is wrong besides. They are loaded for it, and not set up."""
    at, paths = look(directory), paths_from(env)
    worktree = at.top or at.directory
    trusted = is_trusted(paths, env, worktree, at.directory)
    situation = Situation(directory=at.directory, worktree=worktree, paths=paths, env=env, trusted=trusted)
    loaded = load_config(situation)
    found = find_plugins(loaded, situation)
    wrong = [*loaded.problems, *found.problems]
    loader = Loader(SystemClock(), _nobody_hears, seconds=read_terms(loaded).load_seconds or LOAD_SECONDS)
    try:
        came = await loader.load_all(found.wanted)
    finally:
        await loader.close()
    rows = [*_to_rows(came, wrong), *_commands(loaded, wrong), *_left_out(loaded, found)]
    return rows, wrong


def _nobody_hears(_: Wanted) -> Stray:
    def stray(failed: Failed) -> None:
        del failed  # nothing is set up here, so nothing goes on that would be missed

    return stray


def _to_rows(came: list[Plugin | Unloaded], wrong: list[ConfigError]) -> Iterator[Row]:
    named = name_tools([each for each in came if isinstance(each, Plugin)], wrong.append)
    for each in came:
        wanted = each.wanted
        if isinstance(each, Unloaded):
            why = str(each.error)
            yield Row(name=wanted.name, kind=wanted.kind, where=wanted.where, state="failed", why=why)
        else:
            yield Row(
                name=wanted.name,
                kind=wanted.kind,
                where=wanted.where,
                state="loaded",
                hooks=_once(hooked.hook for hooked in each.carried.hooks),
                tools=tuple(name for name, tool in named.items() if tool.plugin is each),
            )


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _commands(loaded: Loaded, wrong: list[ConfigError]) -> Iterator[Row]:
    for command in list_commands(loaded, wrong.append):
        said = " ".join(command.argv)
        yield Row(name=said, kind="command", where=said, state="loaded", hooks=(command.hook,))


def _left_out(loaded: Loaded, found: Found) -> Iterator[Row]:
    for held in loaded.held:
        if held.kind in HELD:
            why = "nobody has vouched for the project: weft trust"
            # A plugin that is a file is called by the file, as when it is loaded.
            name = plugin_name(f"file://{held.name}") if os.path.isabs(held.name) else held.name
            yield Row(name=name, kind=held.kind, where=held.path, state="held back", why=why)
    for passed in found.passed:
        why = "weft runs Python plugins"
        yield Row(name=passed, kind="other", where=passed, state="passed over", why=why)


ORIGIN: Final = Origin(kind="environment", path="config hook", own=True)


async def configured(
    loaded: Loaded, hooks: Hooks, directory: str, warn: Callable[[ConfigError], None]
) -> Loaded:
    """The configuration as plugins would have it, held against the schema like a file's.

    Of a project that nobody has vouched for, what it says itself stays what it is: only what a plugin changed is vouched for.
    """
    if not hooks.any(CONFIG):
        return loaded
    before = to_plain(loaded.config)
    told, now = Configured(directory=directory), Configuration(config=before)
    after = (await hooks.ask(CONFIG, told, now)).config
    if after == before:
        return loaded
    problems = Problems()
    config = _to_config(after, problems)
    vouched = config
    if loaded.vouched is not loaded.config:
        vouched = _to_config(changed(to_plain(loaded.vouched), before, after), Problems())
    for problem in (*problems.errors, *problems.warnings):
        warn(problem)
    return replace(loaded, config=config, vouched=vouched)


def _to_config(said: dict[str, Any], problems: Problems) -> Config:
    layer = make_layer(ORIGIN, said, None, problems)
    kept, findings = check(layer.data, whole=True)
    problems.note(ORIGIN, None, findings)
    return convert(kept, Config)


def changed(value: Any, before: Any, after: Any) -> Any:
    """A value with the changes made to it that lead from `before` to `after`, and no more."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return after
    made = {key: item for key, item in (value or {}).items() if key in after or key not in before}
    for key, new in after.items():
        if key not in before:
            made[key] = new
        elif new != before[key]:
            made[key] = changed(made.get(key), before[key], new)
    return made


def find_ways(
    loaded: Loaded, plugins: Iterable[Plugin], clock: Clock, warn: Callable[[ConfigError], None]
) -> Ways:
    """A plugin's stands in place of ours. What makes no sense is told, and costs the plugin its logins alone."""
    ways = Ways(list_built_in(loaded.vouched, clock))
    for plugin in plugins:
        try:
            declared = list_auths(plugin.carried.namespace)
        except InvalidInputError as error:
            warn(ConfigError(plugin.wanted.where, str(error)))
            continue
        for auth in declared:
            ways.add(login_in(plugin.room, auth, clock))
    return ways
