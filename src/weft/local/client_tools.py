"""Tools of clients: what they offer to the sessions of a directory, and the calls that wait for them."""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, Final

import msgspec

from weft.errors import InvalidInputError, NotFoundError, RejectedError, ToolError, WeftError
from weft.host.tasks import open_tasks
from weft.local.plugin_tools import RESERVED_NAMES
from weft.model.client_tool import (
    ClientTool,
    ClientToolAsk,
    ClientToolReport,
    ClientToolRequest,
    ClientToolResult,
)
from weft.model.event import ToolRequested
from weft.model.ids import SessionID, ToolRequestID
from weft.permission.rules import permission_of
from weft.plugin.tools import TOOL_NAME
from weft.run.runtime import Runtime
from weft.tool.contract import AnyTool, RawArguments, Tool, ToolContext, ToolResult

ACCEPT_SECONDS: Final = 10.0
RENEW_SECONDS: Final = 60.0
MAX_CLIENTS: Final = 100
MAX_CLIENT_NAME: Final = 100
MAX_TOOLS: Final = 128
MAX_DESCRIPTION: Final = 10_000
MAX_SCHEMA_BYTES: Final = 100_000
MAX_TITLE: Final = 1000
MAX_ERROR: Final = 100_000
MAX_METADATA_BYTES: Final = 1_000_000
MAX_KEY: Final = 100
MAX_PERMISSION: Final = 100
MAX_PATTERNS: Final = 100
MAX_PATTERN: Final = 10_000
MAX_ASKS: Final = 1000


class OpenToolCall:
    """A call that waits for its client. `accepted` says whether the client accepted it in the current period.

    The permissions that the client asks for are requested in `tasks`, which end with the call.
    """

    def __init__(self, request: ClientToolRequest, ctx: ToolContext, tasks: asyncio.TaskGroup) -> None:
        self.request = request
        self.ctx = ctx
        self.accepted = False
        self.result: asyncio.Future[ClientToolResult] = asyncio.get_running_loop().create_future()
        self._tasks = tasks
        self._variables = copy_context()  # the deadline of the call pauses while a person is asked
        self._asks: dict[str, tuple[ClientToolAsk, asyncio.Task[WeftError | None]]] = {}

    def start_ask(self, ask: ClientToolAsk) -> asyncio.Task[WeftError | None]:
        """Return the task that asks. It returns the refusal, if there is one."""
        known = self._asks.get(ask.key)
        if known is not None and known[0] != ask:
            raise InvalidInputError("key", "it was used for another request")
        if known is None:
            if len(self._asks) >= MAX_ASKS:
                raise InvalidInputError("request", f"this call has asked {MAX_ASKS} times already")
            task = self._tasks.create_task(self._ask(ask), context=self._variables.copy())
            self._asks[ask.key] = known = ask, task
        return known[1]

    async def _ask(self, ask: ClientToolAsk) -> WeftError | None:
        try:
            await self.ctx.ask(ask.permission, *ask.patterns, always=ask.patterns)
        except WeftError as error:
            return error
        return None

    def cancel_asks(self) -> None:
        for _, task in self._asks.values():
            task.cancel()


class ClientToolCalls:
    """The tools that clients offer to the sessions of one directory, and their open calls. Nothing is stored."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._offers: dict[SessionID, dict[str, dict[str, AnyTool]]] = {}
        self._open: dict[ToolRequestID, OpenToolCall] = {}

    def offer(self, session: SessionID, client: str, tools: Sequence[ClientTool]) -> None:
        """Offer tools to a session, instead of those that the client offered before. Raise `InvalidInputError` if they cannot be offered."""
        check_offer(client, tools)
        offers = {name: offer for name, offer in self._offers.get(session, {}).items() if name != client}
        if tools:
            offers[client] = {tool.name: self._to_tool(client, tool) for tool in tools}
        if len(offers) > MAX_CLIENTS:
            raise InvalidInputError("client", f"{MAX_CLIENTS} others offer tools to this session already")
        if not offers:
            self.forget(session)
            return
        self._offers[session] = offers
        self._runtime.session_tools[session] = {
            name: tool for offer in offers.values() for name, tool in offer.items()
        }

    def forget(self, *sessions: SessionID) -> None:
        """Withdraw everything that was offered to these sessions."""
        for session in sessions:
            if self._offers.pop(session, None) is not None:
                self._runtime.session_tools.pop(session, None)

    def list_open(self) -> list[ClientToolRequest]:
        return [call.request for call in self._open.values()]

    def accept(self, id: ToolRequestID) -> None:
        self._get(id).accepted = True

    async def ask(self, id: ToolRequestID, ask: ClientToolAsk) -> None:
        call = self._get(id)
        check_ask(ask)
        task = call.start_ask(ask)
        await asyncio.wait((task,))
        if task.cancelled():
            raise NotFoundError("tool request", id)
        refusal = task.result()
        if refusal is not None:
            raise refusal

    async def report(self, id: ToolRequestID, report: ClientToolReport) -> None:
        call = self._get(id)
        check_shown(report.title or "", report.metadata or {})
        await call.ctx.report(title=report.title, metadata=report.metadata)

    def finish(self, id: ToolRequestID, result: ClientToolResult) -> None:
        call = self._get(id)
        check_result(result)
        del self._open[id]
        call.result.set_result(result)

    def _get(self, id: ToolRequestID) -> OpenToolCall:
        call = self._open.get(id)
        if call is None:
            raise NotFoundError("tool request", id)
        return call

    def _to_tool(self, client: str, tool: ClientTool) -> AnyTool:
        run: Callable[[RawArguments, ToolContext], Any] = partial(self._run, client, tool.name)
        return Tool(name=tool.name, about=tool.description, takes=RawArguments, run=run, schema=tool.schema)

    async def _run(self, client: str, tool: str, given: RawArguments, ctx: ToolContext) -> ToolResult:
        """Ask for permission, request the call, and wait for its result. Raise `ToolError` if there is none."""
        await ctx.ask(permission_of(tool), "*", always=("*",))
        if client not in self._offers.get(ctx.session_id, {}):
            raise ToolError(f"The program that offered the {tool} tool has withdrawn it.")
        request = ClientToolRequest(
            id=self._runtime.mint.tool_request(),
            session_id=ctx.session_id,
            message_id=ctx.message_id,
            call_id=ctx.call_id,
            agent=ctx.agent,
            directory=ctx.directory,
            worktree=ctx.worktree,
            client=client,
            tool=tool,
            input=given.arguments,
        )
        async with open_tasks() as tasks:
            self._open[request.id] = call = OpenToolCall(request, ctx, tasks)
            try:
                await self._runtime.journal.commit(ToolRequested(request=request))
                result = await self._wait(call)
            finally:
                self._open.pop(request.id, None)
                call.cancel_asks()
        if result.error is not None:
            raise (RejectedError if result.refused else ToolError)(result.error)
        return ToolResult(title=result.title, output=result.output, metadata=result.metadata)

    async def _wait(self, call: OpenToolCall) -> ClientToolResult:
        """Return the result. Raise `ToolError` after a period in which the client did not accept the call."""
        seconds = ACCEPT_SECONDS
        while True:
            async with open_tasks() as tasks:
                sleeping = tasks.create_task(self._runtime.clock.sleep(seconds))
                await asyncio.wait((call.result, sleeping), return_when=asyncio.FIRST_COMPLETED)
                sleeping.cancel()
            if call.result.done():
                return call.result.result()
            if not call.accepted:
                raise ToolError(f"The program that offers the {call.request.tool} tool does not answer.")
            call.accepted, seconds = False, RENEW_SECONDS


def check_offer(client: str, tools: Sequence[ClientTool]) -> None:
    """Raise `InvalidInputError` if these tools cannot be offered."""
    if not 0 < len(client) <= MAX_CLIENT_NAME or not client.isprintable():
        raise InvalidInputError("client", f"it must have 1 to {MAX_CLIENT_NAME} printable characters")
    if len(tools) > MAX_TOOLS:
        raise InvalidInputError("tools", f"there are more than {MAX_TOOLS}")
    names = [tool.name for tool in tools]
    for tool in tools:
        if TOOL_NAME.fullmatch(tool.name) is None or tool.name in RESERVED_NAMES:
            raise InvalidInputError("tools", f"{tool.name[:80]!r} cannot be the name of a tool")
        if names.count(tool.name) > 1:
            raise InvalidInputError("tools", f"two are called {tool.name!r}")
        if len(_encode("tools", tool.description)) > MAX_DESCRIPTION:
            raise InvalidInputError("tools", f"the description of {tool.name} is too long")
        if tool.schema.get("type") != "object":
            raise InvalidInputError("tools", f"the schema of {tool.name} is not that of an object")
        if len(_encode("tools", tool.schema)) > MAX_SCHEMA_BYTES:
            raise InvalidInputError("tools", f"the schema of {tool.name} is too long")


def check_result(result: ClientToolResult) -> None:
    """Raise `InvalidInputError` if a result cannot be stored with its call. Long output is cut later."""
    _encode("result", result)
    if len(result.error or "") > MAX_ERROR:
        raise InvalidInputError("error", f"it is longer than {MAX_ERROR} characters")
    check_shown(result.title, result.metadata)


def check_shown(title: str, metadata: dict[str, Any]) -> None:
    """Raise `InvalidInputError` if a title or metadata cannot be stored with a call."""
    _encode("title", title)
    if len(title) > MAX_TITLE:
        raise InvalidInputError("title", f"it is longer than {MAX_TITLE} characters")
    if len(_encode("metadata", metadata)) > MAX_METADATA_BYTES:
        raise InvalidInputError("metadata", f"it is longer than {MAX_METADATA_BYTES} bytes")


def check_ask(ask: ClientToolAsk) -> None:
    """Raise `InvalidInputError` if a permission cannot be asked for."""
    for field, text, most in (("key", ask.key, MAX_KEY), ("permission", ask.permission, MAX_PERMISSION)):
        if not 0 < len(text) <= most or not text.isprintable():
            raise InvalidInputError(field, f"it must have 1 to {most} printable characters")
    if not 0 < len(ask.patterns) <= MAX_PATTERNS:
        raise InvalidInputError("patterns", f"there are 1 to {MAX_PATTERNS}")
    if any(len(_encode("patterns", pattern)) > MAX_PATTERN for pattern in ask.patterns):
        raise InvalidInputError("patterns", f"one is longer than {MAX_PATTERN} bytes")


def _encode(field: str, value: object) -> bytes:
    """Return a value as JSON. Raise `InvalidInputError` if it contains text that is no Unicode."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise InvalidInputError(field, "it contains half of a character") from error
