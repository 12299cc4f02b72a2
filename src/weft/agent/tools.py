"""Functions of the embedding program as tools. They run in the program's own event loop, or in a thread if they block."""

import asyncio
from collections.abc import Mapping
from functools import partial
from inspect import isawaitable

import msgspec
from msgspec import Struct

from weft.agent.options import ToolFunction
from weft.errors import InvalidInputError, ToolError, WeftError
from weft.permission.rules import permission_of
from weft.plugin.tools import TOOL_NAME, CustomTool, ToolAnswer, ToolCallContext, to_custom_tool
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult


def to_tools(functions: tuple[ToolFunction, ...]) -> dict[str, AnyTool]:
    """Return the functions as tools, by name. Raise `InvalidInputError` if one cannot be a tool."""
    tools: dict[str, AnyTool] = {}
    for function in functions:
        tool = to_tool(function)
        if tool.name in tools:
            raise InvalidInputError("tools", f"two functions are called {tool.name!r}")
        tools[tool.name] = tool
    return tools


def to_tool(function: ToolFunction) -> AnyTool:
    """Return a function as a tool: its name, its docstring and its type hints are what the model sees."""
    if isinstance(function, partial) or not hasattr(function, "__name__"):
        raise InvalidInputError(
            "tools", f"{function!r} has no name", hint="pass a function, written with def"
        )
    if TOOL_NAME.fullmatch(function.__name__) is None:
        raise InvalidInputError(
            "tools",
            f"{function.__name__!r} cannot be the name of a tool",
            hint="pass a function, written with def",
        )
    custom = to_custom_tool(function)

    async def run(arguments: Struct, ctx: ToolContext) -> ToolResult:
        await ctx.ask(permission_of(custom.name), "*", always=("*",))
        return await _run(custom, arguments, ctx)

    return Tool(name=custom.name, about=custom.about, takes=custom.takes, run=run)


async def _run(custom: CustomTool, arguments: Struct, ctx: ToolContext) -> ToolResult:
    call = partial(custom.call, arguments, _to_call_context(ctx))
    try:
        result: object = call() if custom.is_async else await asyncio.to_thread(call)
        if isawaitable(result):
            result = await result
    except WeftError:
        raise
    except Exception as error:
        raise ToolError(f"{type(error).__name__}: {error}") from error
    return _to_result(custom.name, result)


def _to_result(tool: str, result: object) -> ToolResult:
    match result:
        case ToolAnswer():
            return ToolResult(title=result.title, output=result.output, metadata=dict(result.metadata))
        case str():
            return ToolResult(title="", output=result)
        case None:
            return ToolResult(title="", output="")
        case _:
            try:
                return ToolResult(title="", output=msgspec.json.encode(result).decode())
            except (TypeError, ValueError) as error:
                kind = type(result).__name__
                raise ToolError(
                    f"The {tool} tool returned a {kind}, which cannot be written as JSON."
                ) from error


def _to_call_context(ctx: ToolContext) -> ToolCallContext:
    async def ask(permission: str, *patterns: str) -> None:
        await ctx.ask(permission, *patterns, always=patterns)

    async def report(*, title: str | None = None, metadata: Mapping[str, object] | None = None) -> None:
        await ctx.report(title=title, metadata=None if metadata is None else dict(metadata))

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
