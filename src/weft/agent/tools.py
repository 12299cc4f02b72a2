"""Functions of the embedding program as tools. They run in the program's own event loop, or in a thread if they block."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from inspect import isawaitable
from typing import Any, Final

import msgspec
from msgspec import Struct

from weft.agent.options import ToolFunction
from weft.api import Api
from weft.client.prompt_run import stop_listening
from weft.errors import InvalidInputError, NotFoundError, RejectedError, ToolError, WeftError
from weft.host.tasks import open_tasks
from weft.model.client_tool import (
    ClientTool,
    ClientToolAsk,
    ClientToolReport,
    ClientToolRequest,
    ClientToolResult,
)
from weft.model.event import PublishedEvent, ToolRequested
from weft.model.event_wire import RESYNC, UnknownEvent
from weft.model.ids import SessionID
from weft.permission.rules import permission_of
from weft.plugin.tools import (
    TOOL_NAME,
    CustomTool,
    ToolAnswer,
    ToolCallContext,
    check_is_async,
    to_custom_tool,
)
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult, schema_of, to_input

RENEW_SECONDS: Final = 15.0  # a server gives up a call that was not accepted for a minute
WITHDRAW_SECONDS: Final = 5.0


def to_custom_tools(functions: tuple[ToolFunction, ...]) -> dict[str, CustomTool]:
    """Return the functions as custom tools, by name. Raise `InvalidInputError` if one cannot be a tool."""
    customs: dict[str, CustomTool] = {}
    for function in functions:
        if isinstance(function, partial) or not hasattr(function, "__name__"):
            raise InvalidInputError(
                "tools", f"{function!r} has no name", hint="pass a function, written with def"
            )
        if isinstance(function, type):
            raise InvalidInputError(
                "tools", f"{function.__name__} is a class", hint="pass a function, written with def"
            )
        if TOOL_NAME.fullmatch(function.__name__) is None:
            raise InvalidInputError(
                "tools",
                f"{function.__name__!r} cannot be the name of a tool",
                hint="pass a function, written with def",
            )
        if function.__name__ in customs:
            raise InvalidInputError(
                "tools",
                f"two functions are called {function.__name__!r}",
                hint="rename one: the model calls a tool by the name of its function",
            )
        customs[function.__name__] = to_custom_tool(function)
    return customs


def to_tools(functions: tuple[ToolFunction, ...]) -> dict[str, AnyTool]:
    """Return the functions as tools for a run in this process, by name."""
    return {name: to_tool(custom) for name, custom in to_custom_tools(functions).items()}


def to_tool(custom: CustomTool) -> AnyTool:
    """Return a function as a tool: its name, its docstring and its type hints are what the model sees."""

    async def run(arguments: Struct, ctx: ToolContext) -> ToolResult:
        await ctx.ask(permission_of(custom.name), "*", always=("*",))
        return await run_function(custom, arguments, _to_call_context(ctx))

    return Tool(name=custom.name, about=custom.about, takes=custom.takes, run=run)


async def run_function(custom: CustomTool, arguments: Struct, context: ToolCallContext) -> ToolResult:
    """Call a function and return its result. Raise `ToolError` if it fails, or returns something without a JSON form."""
    call = partial(custom.call, arguments, context)
    try:
        result: object = call() if custom.is_async else await asyncio.to_thread(_call_in_thread, call)
        if isawaitable(result):
            result = await result
    except WeftError:
        raise
    except Exception as error:
        raise ToolError(f"{type(error).__name__}: {error}") from error
    return _to_result(custom.name, result)


def _call_in_thread(call: Callable[[], object]) -> object:
    try:
        return call()
    except StopIteration as error:
        # It cannot be raised into a future: asyncio would wait for ever.
        raise ToolError(f"StopIteration: {error}") from error


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
    def ask(permission: str, *patterns: str) -> Coroutine[Any, Any, None]:
        check_is_async("ask")
        wanted = patterns or ("*",)
        return ctx.ask(permission, *wanted, always=wanted)

    def report(
        *, title: str | None = None, metadata: Mapping[str, object] | None = None
    ) -> Coroutine[Any, Any, None]:
        check_is_async("report")
        return ctx.report(title=title, metadata=copy_metadata(metadata))

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


def copy_metadata(metadata: Mapping[str, object] | None) -> dict[str, object] | None:
    """Return metadata as plain JSON values. Raise `ToolError` if it has no JSON form."""
    try:
        return (
            None
            if metadata is None
            else msgspec.json.decode(msgspec.json.encode(metadata), type=dict[str, object])
        )
    except (TypeError, ValueError) as error:
        raise ToolError(f"The metadata of a report cannot be written as JSON: {error}") from error


# --- for a model on a server ---


@asynccontextmanager
async def serve_tools(
    api: Api,
    session: SessionID,
    functions: tuple[ToolFunction, ...],
    *,
    renew_seconds: float = RENEW_SECONDS,
) -> AsyncIterator[None]:
    """Offer functions to a session of a server until the end of the block, and run them here when the model calls them.

    It listens by itself, so that calls are answered while the caller of a stream does something else. At the end,
    what still runs is cancelled and the offer is withdrawn.
    """
    server = ToolServer(api, session, to_custom_tools(functions), renew_seconds)
    events = api.events()  # before the offer, so that no request is missed
    try:
        await server.offer()
        serving = asyncio.ensure_future(server.serve(events))
        try:
            yield
        finally:
            serving.cancel()
            (ended,) = await asyncio.gather(serving, return_exceptions=True)
            await server.withdraw()
    finally:
        await stop_listening(events)
    # If the server cannot be reached, it fails the calls itself. Any other error is a fault of this module.
    if isinstance(ended, Exception) and not isinstance(ended, WeftError):
        raise ended


class ToolServer:
    """Answers the calls of a session's model to the functions of this process."""

    def __init__(
        self, api: Api, session: SessionID, customs: dict[str, CustomTool], renew_seconds: float
    ) -> None:
        self._api = api
        self._session = session
        self._customs = customs
        self._tools = {name: to_tool(custom) for name, custom in customs.items()}
        self._renew_seconds = renew_seconds
        self._client = f"weft-{secrets.token_hex(10)}"
        self._seen: set[str] = set()

    async def offer(self) -> None:
        tools = [
            ClientTool(name=tool.name, description=tool.about, schema=schema_of(tool))
            for tool in self._tools.values()
        ]
        await self._api.offer_tools(self._session, self._client, tools)

    async def withdraw(self) -> None:
        """Withdraw the offer. If the server is gone or does not know the session, there is nothing to withdraw."""
        with suppress(WeftError, TimeoutError):
            async with asyncio.timeout(WITHDRAW_SECONDS):
                await self._api.offer_tools(self._session, self._client, ())

    async def serve(self, events: AsyncIterator[PublishedEvent]) -> None:
        """Answer requests until cancelled, each in a task of its own."""
        async with open_tasks() as tasks:
            async for published in events:
                match published.event:
                    case ToolRequested(request=request) if self._is_new(request):
                        tasks.create_task(self._answer(request))
                    case UnknownEvent(named=named) if named == RESYNC:
                        with suppress(NotFoundError):  # the session was removed
                            await self.offer()  # the server may have been restarted
                    case _:
                        pass

    def _is_new(self, request: ClientToolRequest) -> bool:
        if request.client != self._client or request.id in self._seen:
            return False
        self._seen.add(request.id)
        return True

    async def _answer(self, request: ClientToolRequest) -> None:
        """Run the function and send its result. If the server cannot be told, it fails the call after a while."""
        with suppress(WeftError):  # `NotFoundError`: the run was aborted
            await self._api.accept_tool(request.id)
            running = asyncio.ensure_future(self._run(request))
            try:
                while not (await asyncio.wait((running,), timeout=self._renew_seconds))[0]:
                    await self._api.accept_tool(request.id)
                await self._finish(request, running.result())
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    async def _finish(self, request: ClientToolRequest, result: ClientToolResult) -> None:
        try:
            await self._api.finish_tool(request.id, result)
        except InvalidInputError as error:  # the result is too large
            await self._api.finish_tool(request.id, ClientToolResult(error=str(error)))

    async def _run(self, request: ClientToolRequest) -> ClientToolResult:
        try:
            arguments = to_input(self._tools[request.tool], request.input)
            result = await run_function(
                self._customs[request.tool], arguments, _to_remote_context(self._api, request)
            )
        except WeftError as error:
            refused = isinstance(error, RejectedError)
            return ClientToolResult(error=str(error) or type(error).__name__, refused=refused)
        answer = ClientToolResult(output=result.output, title=result.title, metadata=result.metadata)
        try:
            msgspec.json.encode(answer)
        except (TypeError, ValueError):
            return ClientToolResult(
                error=f"The {request.tool} tool returned a result that cannot be written as JSON."
            )
        return answer


def _to_remote_context(api: Api, request: ClientToolRequest) -> ToolCallContext:
    def ask(permission: str, *patterns: str) -> Coroutine[Any, Any, None]:
        check_is_async("ask")
        key = secrets.token_hex(10)
        return api.ask_for_tool(
            request.id, ClientToolAsk(key=key, permission=permission, patterns=patterns or ("*",))
        )

    def report(
        *, title: str | None = None, metadata: Mapping[str, object] | None = None
    ) -> Coroutine[Any, Any, None]:
        check_is_async("report")
        return api.report_tool(request.id, ClientToolReport(title=title, metadata=copy_metadata(metadata)))

    return ToolCallContext(
        session_id=request.session_id,
        message_id=request.message_id,
        call_id=request.call_id,
        agent=request.agent,
        directory=request.directory,
        worktree=request.worktree,
        ask=ask,
        report=report,
    )
