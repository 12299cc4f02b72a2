"""Load plugins, each in a worker of its own, and wrap their custom tools as tools of a run."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.context.reminders import NAME as VALUE
from weft.errors import ConfigError, DeadlineError, ToolError, WeftError
from weft.host.clock import Clock
from weft.host.tasks import Deadline
from weft.local.plugin_sources import Wanted
from weft.model.wire import decode, encode, parse
from weft.permission.rules import permission_of
from weft.plugin.loading import Carried, gather, load_file, load_module
from weft.plugin.tools import NAME, CustomTool, ToolAnswer, ToolCallContext, name_in_file
from weft.plugin.worker import Failed, Gave, Outside, Room, Stray, do_apart
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult
from weft.tool.registry import AFTER_A_CUT, AFTER_A_JOB, UNSEEN

LOAD_SECONDS: Final = 30.0


class Plugin(Struct, frozen=True, kw_only=True):
    """One that was loaded."""

    wanted: Wanted
    carried: Carried
    room: Room


class Unloaded(Struct, frozen=True, kw_only=True):
    """One that could not be, and why."""

    wanted: Wanted
    error: ConfigError


class Loader:
    """`stray` gives who hears what goes wrong in a plugin while nobody waits for it."""

    def __init__(
        self, clock: Clock, stray: Callable[[Wanted], Stray], *, seconds: float = LOAD_SECONDS
    ) -> None:
        self._clock = clock
        self._stray = stray
        self._seconds = seconds
        self._rooms: list[Room] = []

    async def load_all(self, wanted: Iterable[Wanted]) -> list[Plugin | Unloaded]:
        """In the order wanted, whoever is ready first."""
        return list(await asyncio.gather(*(self._load(each) for each in wanted)))

    async def _load(self, wanted: Wanted) -> Plugin | Unloaded:
        room = Room(wanted.name, self._stray(wanted))
        self._rooms.append(room)
        try:
            async with Deadline("loading", self._seconds, self._clock).running():
                outcome = await room.do(partial(_read, wanted))
        except DeadlineError:
            reason = f"took longer than {self._seconds:g} seconds to load, and is left out"
            return Unloaded(wanted=wanted, error=ConfigError(wanted.where, reason))
        match outcome:
            case Gave(value=value):
                return Plugin(wanted=wanted, carried=value, room=room)
            case Failed(error=ConfigError() as error):
                return Unloaded(wanted=wanted, error=error)
            case Failed(reason=reason):
                return Unloaded(wanted=wanted, error=ConfigError(wanted.where, reason))

    async def close(self) -> None:
        await asyncio.gather(*(room.close() for room in self._rooms))


def _read(wanted: Wanted) -> Carried:
    match wanted.kind:
        case "given":
            return gather(wanted.given)
        case "file" | "tools":
            return gather(vars(load_file(wanted.where)))
        case "module" | "package":
            return gather(vars(load_module(wanted.where)))


# Names that mean something to the run itself.
KEPT: Final = UNSEEN | AFTER_A_CUT | AFTER_A_JOB | {VALUE}


class Named(Struct, frozen=True, kw_only=True):
    """A custom tool under the name that the model calls it by, and whose it is."""

    custom: CustomTool
    plugin: Plugin


def name_tools(plugins: Iterable[Plugin], warn: Callable[[ConfigError], None]) -> dict[str, Named]:
    """Every custom tool by its name. Of two that have the same, the later one counts, as in OpenCode; that is said."""
    named: dict[str, Named] = {}
    for plugin in plugins:
        own: set[str] = set()
        for custom in list_tools(plugin):
            wrong = _fault(custom, own)
            if wrong:
                warn(ConfigError(plugin.wanted.where, wrong, at=(_line(custom), 0)))
                continue
            own.add(custom.name)
            if custom.name in named:
                before = named[custom.name].plugin.wanted.where
                warn(
                    ConfigError(
                        plugin.wanted.where, f"tool {custom.name!r} takes the place of the one in {before}"
                    )
                )
            named[custom.name] = Named(custom=custom, plugin=plugin)
    return named


def list_tools(plugin: Plugin) -> Iterator[CustomTool]:
    """A plugin's tools as they are called: in a file of tools, by the file."""
    for custom in plugin.carried.tools:
        if plugin.wanted.kind == "tools":
            stem = os.path.splitext(os.path.basename(plugin.wanted.where))[0]
            yield replace(custom, name=name_in_file(custom.name, stem))
        else:
            yield custom


def _fault(custom: CustomTool, own: set[str]) -> str:
    function = custom.function.__name__
    if NAME.fullmatch(custom.name) is None:
        return f"function {function!r}: {custom.name!r} is no name that a model can call"
    if custom.name in KEPT:
        return f"function {function!r}: the name {custom.name!r} is weft's own"
    return (
        f"function {function!r}: there is a tool {custom.name!r} in this file already"
        if custom.name in own
        else ""
    )


def _line(custom: CustomTool) -> int:
    line: int = custom.function.__code__.co_firstlineno
    return line


def to_tools(named: Iterable[Named]) -> tuple[AnyTool, ...]:
    return tuple(to_tool(each.custom, each.plugin.room) for each in named)


def to_tool(custom: CustomTool, room: Room) -> AnyTool:
    """The permission of a custom tool is its name; of one that stands in for weft's own, that of the other."""

    async def run(wanted: Struct, ctx: ToolContext) -> ToolResult:
        await ctx.ask(permission_of(custom.name), "*", always=("*",))
        work = partial(_call, custom, wanted, _context(ctx))
        outcome = await (room.do(work) if custom.is_async else do_apart(custom.name, work))
        if isinstance(outcome, Gave) and isawaitable(outcome.value):
            # What is wrapped around an `async` function need not look like one.
            outcome = await room.do(partial(_same, outcome.value))
        match outcome:
            case Gave(value=value):
                return ToolResult(title=value.title, output=value.output, metadata=value.metadata)
            case Failed(error=WeftError() as error):
                raise error
            case Failed(reason=reason):
                raise ToolError(reason)

    return Tool(name=custom.name, about=custom.about, takes=custom.takes, run=run)


def _same(value: Any) -> Any:
    return value


def _call(custom: CustomTool, wanted: Struct, context: ToolCallContext) -> Any:
    given = custom.call(wanted, context)
    return _awaited(custom, given) if isawaitable(given) else _to_answer(custom, given)


async def _awaited(custom: CustomTool, given: Any) -> ToolAnswer:
    return _to_answer(custom, await given)


def _to_answer(custom: CustomTool, given: Any) -> ToolAnswer:
    if not isinstance(given, str | ToolAnswer):
        kind = type(given).__name__
        raise ToolError(f"The {custom.name} tool gave back a {kind}, where text or a ToolAnswer is wanted.")
    answer = ToolAnswer(output=given) if isinstance(given, str) else given
    return decode(encode(answer), ToolAnswer, where=f"what the {custom.name} tool gave back")


def _context(ctx: ToolContext) -> ToolCallContext:
    """The context as it is seen from another thread: what is asked and reported there is done here."""
    outside = Outside(asyncio.get_running_loop(), copy_context())

    def ask(permission: str, *patterns: str) -> Coroutine[Any, Any, None]:
        _check_awaits("ask")
        return outside.do(lambda: ctx.ask(permission, *patterns, always=patterns))

    def report(
        *, title: str | None = None, metadata: dict[str, Any] | None = None
    ) -> Coroutine[Any, Any, None]:
        _check_awaits("report")
        plain = parse(encode(metadata)) if metadata else metadata
        return outside.do(lambda: ctx.report(title=title, metadata=plain))

    return ToolCallContext(
        session_id=ctx.session_id,
        message_id=ctx.message_id,
        call_id=ctx.call_id,
        agent=ctx.agent,
        directory=ctx.directory,
        worktree=ctx.worktree,
        ask=ask,
        report=report,
    )


def _check_awaits(what: str) -> None:
    """Who cannot await would go on as if it had been allowed."""
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        raise ToolError(f"{what} needs a tool that is async: write async def, and await it") from error
