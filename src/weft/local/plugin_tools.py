"""Load plugins, each in its own worker thread, and wrap their tools for runs."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.context.reminders import VALUE_TOOL
from weft.errors import ConfigError, DeadlineError, ToolError, WeftError
from weft.host.clock import Clock
from weft.host.tasks import Deadline
from weft.local.plugin_sources import PluginSource
from weft.model.wire import decode, encode, parse
from weft.permission.rules import permission_of
from weft.plugin.loader import PluginContents, collect, load_file, load_module
from weft.plugin.tools import TOOL_NAME, CustomTool, ToolAnswer, ToolCallContext, check_is_async, name_in_file
from weft.plugin.worker import Failed, MainLoop, OnStrayError, PluginWorker, Returned, run_in_thread
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult
from weft.tool.registry import AFTER_BACKGROUND_JOB, AFTER_COMPACTION, TOOLS

LOAD_SECONDS: Final = 30.0


class Plugin(Struct, frozen=True, kw_only=True):
    """A plugin that was loaded."""

    source: PluginSource
    contents: PluginContents
    worker: PluginWorker


class FailedPlugin(Struct, frozen=True, kw_only=True):
    """A plugin that could not be loaded, and why."""

    source: PluginSource
    error: ConfigError


class PluginLoader:
    """Loads plugins. `make_handler` returns the handler for errors in tasks that a plugin starts itself."""

    def __init__(
        self,
        clock: Clock,
        make_handler: Callable[[PluginSource], OnStrayError],
        *,
        seconds: float = LOAD_SECONDS,
    ) -> None:
        self._clock = clock
        self._make_handler = make_handler
        self._seconds = seconds
        self._workers: list[PluginWorker] = []

    async def load_all(self, sources: Iterable[PluginSource]) -> list[Plugin | FailedPlugin]:
        """Load all plugins at the same time, and return them in the order of `sources`."""
        return list(await asyncio.gather(*(self._load(each) for each in sources)))

    async def _load(self, source: PluginSource) -> Plugin | FailedPlugin:
        worker = PluginWorker(source.name, self._make_handler(source))
        self._workers.append(worker)
        try:
            async with Deadline("loading", self._seconds, self._clock).running():
                outcome = await worker.do(partial(_load_source, source))
        except DeadlineError:
            reason = f"took longer than {self._seconds:g} seconds to load and is left out"
            return FailedPlugin(source=source, error=ConfigError(source.where, reason))
        match outcome:
            case Returned(value=value):
                return Plugin(source=source, contents=value, worker=worker)
            case Failed(error=ConfigError() as error):
                return FailedPlugin(source=source, error=error)
            case Failed(reason=reason):
                return FailedPlugin(source=source, error=ConfigError(source.where, reason))

    async def close(self) -> None:
        await asyncio.gather(*(worker.close() for worker in self._workers))


def _load_source(source: PluginSource) -> PluginContents:
    match source.kind:
        case "given":
            return collect(source.namespace)
        case "file" | "tools":
            return collect(vars(load_file(source.where)))
        case "module" | "package":
            return collect(vars(load_module(source.where)))


# Tool names that have a meaning for runs.
RESERVED_NAMES: Final = (
    {tool.name for tool in TOOLS if tool.hidden} | AFTER_COMPACTION | AFTER_BACKGROUND_JOB | {VALUE_TOOL}
)


class NamedTool(Struct, frozen=True, kw_only=True):
    """A custom tool under the name by which the model calls it, and its plugin."""

    custom: CustomTool
    plugin: Plugin


def name_tools(plugins: Iterable[Plugin], warn: Callable[[ConfigError], None]) -> dict[str, NamedTool]:
    """Return every custom tool by its name. A later tool replaces an earlier one, as in OpenCode, with a warning."""
    named: dict[str, NamedTool] = {}
    for plugin in plugins:
        own: set[str] = set()
        for custom in list_plugin_tools(plugin):
            fault = _find_fault(custom, own)
            if fault:
                warn(ConfigError(plugin.source.where, fault, at=(_get_line(custom), 0)))
                continue
            own.add(custom.name)
            if custom.name in named:
                before = named[custom.name].plugin.source.where
                warn(ConfigError(plugin.source.where, f"tool {custom.name!r} replaces the one in {before}"))
            named[custom.name] = NamedTool(custom=custom, plugin=plugin)
    return named


def list_plugin_tools(plugin: Plugin) -> Iterator[CustomTool]:
    """Return the tools of a plugin. Tools in a tool file are named after the file."""
    for custom in plugin.contents.tools:
        if plugin.source.kind == "tools":
            stem = os.path.splitext(os.path.basename(plugin.source.where))[0]
            yield replace(custom, name=name_in_file(custom.name, stem))
        else:
            yield custom


def _find_fault(custom: CustomTool, own: set[str]) -> str:
    function = custom.function.__name__
    if TOOL_NAME.fullmatch(custom.name) is None:
        return f"function {function!r}: {custom.name!r} is not a valid tool name"
    if custom.name in RESERVED_NAMES:
        return f"function {function!r}: the name {custom.name!r} is reserved by weft"
    return (
        f"function {function!r}: this file already has a tool {custom.name!r}" if custom.name in own else ""
    )


def _get_line(custom: CustomTool) -> int:
    line: int = custom.function.__code__.co_firstlineno
    return line


def to_run_tools(named: Iterable[NamedTool]) -> tuple[AnyTool, ...]:
    return tuple(to_run_tool(each.custom, each.plugin.worker) for each in named)


def to_run_tool(custom: CustomTool, worker: PluginWorker) -> AnyTool:
    """Wrap a custom tool. Its permission is its name, or that of the built-in tool that it replaces."""

    async def run(arguments: Struct, ctx: ToolContext) -> ToolResult:
        await ctx.ask(permission_of(custom.name), "*", always=("*",))
        work = partial(_call, custom, arguments, _to_call_context(ctx))
        outcome = await (worker.do(work) if custom.is_async else run_in_thread(custom.name, work))
        if isinstance(outcome, Returned) and isawaitable(outcome.value):
            # A wrapper around an `async` function may not look like one.
            outcome = await worker.do(partial(_return_value, outcome.value))
        match outcome:
            case Returned(value=value):
                return ToolResult(title=value.title, output=value.output, metadata=dict(value.metadata))
            case Failed(error=WeftError() as error):
                raise error
            case Failed(reason=reason):
                raise ToolError(reason)

    return Tool(name=custom.name, about=custom.about, takes=custom.takes, run=run)


def _return_value(value: Any) -> Any:
    return value


def _call(custom: CustomTool, arguments: Struct, context: ToolCallContext) -> Any:
    result = custom.call(arguments, context)
    return _await_answer(custom, result) if isawaitable(result) else _to_answer(custom, result)


async def _await_answer(custom: CustomTool, result: Any) -> ToolAnswer:
    return _to_answer(custom, await result)


def _to_answer(custom: CustomTool, result: Any) -> ToolAnswer:
    if not isinstance(result, str | ToolAnswer):
        kind = type(result).__name__
        raise ToolError(f"The {custom.name} tool returned a {kind}; it must return text or a ToolAnswer.")
    answer = ToolAnswer(output=result) if isinstance(result, str) else result
    return decode(encode(answer), ToolAnswer, where=f"the result of the {custom.name} tool")


def _to_call_context(ctx: ToolContext) -> ToolCallContext:
    """Return the context for use in a plugin's thread: `ask` and `report` run in the main thread."""
    main_loop = MainLoop(asyncio.get_running_loop(), copy_context())

    def ask(permission: str, *patterns: str) -> Coroutine[Any, Any, None]:
        check_is_async("ask")
        wanted = patterns or ("*",)
        return main_loop.do(lambda: ctx.ask(permission, *wanted, always=wanted))

    def report(
        *, title: str | None = None, metadata: Mapping[str, object] | None = None
    ) -> Coroutine[Any, Any, None]:
        check_is_async("report")
        plain = None if metadata is None else parse(encode(metadata))
        return main_loop.do(lambda: ctx.report(title=title, metadata=plain))

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
