"""The MCP servers of a directory. They are started when first needed, and end with the pool."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.errors import McpError, NotFoundError
from weft.host.clock import Clock
from weft.host.tasks import open_tasks
from weft.model.agent import Command, CommandArgument
from weft.model.display import format_count
from weft.model.verdict import CallEvidence, CallResult
from weft.model.workspace import (
    AnyMcpStatus,
    McpConnected,
    McpDisabled,
    McpFailed,
    McpNeedsAuth,
    McpNeedsRegistration,
    McpResource,
)
from weft.tool.contract import AnyTool, RawArguments, ReportProgress, Tool, ToolContext, ToolResult
from weft.tool.mcp.connection import McpOffers, OnProgress, PromptOffer, ToolOffer
from weft.tool.mcp.contract import (
    DEFAULT_TIMEOUTS,
    START_WAIT_SECONDS,
    MayUsePrefix,
    McpTimeouts,
    ResourcePiece,
)
from weft.tool.mcp.entry import (
    AnyEntry,
    make_prompt_key,
    make_resource_key,
    make_tool_key,
    make_tool_prefix,
    sanitize_name,
    to_single_line,
)
from weft.tool.mcp.result import to_pieces, to_prompt_text, to_result
from weft.tool.mcp.server import McpServerContext, McpServerRunner, describe_status
from weft.tool.truncate import truncate

MAX_TEXT_LENGTH: Final = 500
LOGIN_COMMAND: Final = "weft mcp auth"
MAX_DESCRIPTION: Final = 10_000
MAX_SCHEMA: Final = 100_000
MAX_TITLE: Final = 200
REPORT_MS: Final = 250


class ConfiguredServer(Struct, frozen=True, kw_only=True):
    """A configured server. One that is not `enabled` is only connected on request."""

    entry: AnyEntry
    enabled: bool = True


class McpPool:
    """The servers by name, with their tools, prompts and resources.

    `reserved` are names that no tool of a server may take. No server is started before it is needed, and `close` ends them all.
    """

    def __init__(
        self,
        context: McpServerContext,
        reserved: frozenset[str] = frozenset(),
        timeouts: McpTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._context = context
        self.tasks = context.tasks
        self._reserved = reserved
        self._timeouts = timeouts
        self.servers: dict[str, McpServerRunner] = {}
        self._tool_keys: dict[tuple[str, str], str] = {}
        self._tools: dict[str, tuple[McpOffers, dict[str, AnyTool]]] = {}
        self._reported: dict[str, str] = {}

    def put(self, configured: ConfiguredServer) -> McpServerRunner:
        """Add a server. One of the same name is replaced, and must have been disconnected before."""
        name = configured.entry.name
        self.servers[name] = McpServerRunner(configured.entry, self._context, enabled=configured.enabled)
        self._tools.pop(name, None)
        return self.servers[name]

    def get(self, name: str) -> McpServerRunner:
        """Return a server by name. Raise `NotFoundError` if there is none."""
        server = self.servers.get(name)
        if server is None:
            raise NotFoundError(
                "MCP server", name[:80], hint=f"there are {', '.join(self.servers) or 'none'}"
            )
        return server

    def list_status(self) -> dict[str, AnyMcpStatus]:
        return {name: server.status for name, server in self.servers.items()}

    async def close(self) -> None:
        async with open_tasks() as tasks:
            for server in self.servers.values():
                tasks.create_task(server.disconnect(off=False))

    def start_connecting(self) -> None:
        """Start to connect every server that is due (see `McpServerRunner.is_due`)."""
        for server in self.servers.values():
            if server.is_due:
                server.start_connecting()

    # --- for a run ---

    async def connect_all(self, may_use: MayUsePrefix) -> AsyncIterator[str]:
        """Start to connect all servers, wait for those that start for the first time, and yield messages for the person.

        The time limit counts from the start of each server, so a later caller waits for less. Nobody waits for servers that failed
        before, nor for those whose tools the run may not use. If a server has announced a change, this also waits until its offers
        are read again, so that a tool that it added in the last step exists in the next.
        """
        # The connector is prepared first, so that this does not use up the servers' time.
        if any(server.is_due for server in self.servers.values()):
            await self._context.connector.prepare()
        self.start_connecting()
        usable = [server for name, server in self.servers.items() if may_use(make_tool_prefix(name))]
        starting = [server for server in usable if server.is_connecting and not server.failures]
        wait, notice = self._timeouts.wait, self._timeouts.notice
        if wait is None or wait > notice:
            await _wait_for_all(starting, notice)
            if late := [server.entry.name for server in starting if server.is_connecting]:
                yield format_waiting(late)
        await _wait_for_all(starting, wait)
        with suppress(TimeoutError):
            async with asyncio.timeout(START_WAIT_SECONDS if wait is None else wait):
                for _, server in list(self._list_connected()):
                    await server.wait_for_refresh()
        for message in self._list_new_troubles():
            yield message

    def _list_new_troubles(self) -> Iterator[str]:
        """Yield a message for each server that should be connected and is not, unless it was reported before."""
        for name, server in self.servers.items():
            message = format_trouble(server)
            if message and message != self._reported.get(name):
                yield message
            self.mark_reported(server)

    def mark_reported(self, server: McpServerRunner) -> None:
        """Note that the state of a server was reported, so that no run reports it again."""
        self._reported[server.entry.name] = format_trouble(server)

    async def wait_until_settled(self, servers: Iterable[McpServerRunner] | None = None) -> None:
        """Connect some servers or all, and wait until each is connected or has failed."""
        selected = list(self.servers.values() if servers is None else servers)
        for server in selected:
            if server.is_due:
                server.start_connecting()
        for server in selected:
            if server.is_connecting:
                await server.wait_until_settled()

    def tools(self) -> Mapping[str, AnyTool]:
        """Return the tools of all connected servers, by the names that models and rules use."""
        return {
            key: tool
            for _, server in self._list_connected()
            for key, tool in self._make_tools(server).items()
        }

    def _list_connected(self) -> Iterator[tuple[str, McpServerRunner]]:
        for name, server in self.servers.items():
            if isinstance(server.status, McpConnected):
                yield name, server

    def _make_tools(self, server: McpServerRunner) -> dict[str, AnyTool]:
        name, offers = server.entry.name, server.offers
        cached = self._tools.get(name)
        if cached is not None and cached[0] is offers:
            return cached[1]
        # Sort by name. If the order changed from day to day, models would lose their prompt cache.
        offered = sorted(offers.tools, key=lambda offer: offer.name)
        keyed = [(self._get_tool_key(name, offer.name), offer) for offer in offered]
        tools = {key: tool for key, offer in keyed if (tool := to_tool(key, offer, server)) is not None}
        self._tools[name] = (offers, tools)
        if len(tools) < len(offers.tools):
            self._add_note(
                server,
                f"{format_count(len(offers.tools) - len(tools), 'tool')} with too long a schema left out",
            )
        return tools

    def _get_tool_key(self, server: str, tool: str) -> str:
        """Return the name of a tool, which never changes, because rules and grants refer to it."""
        if (server, tool) not in self._tool_keys:
            self._tool_keys[server, tool] = make_tool_key(
                server, tool, {*self._reserved, *self._tool_keys.values()}
            )
        return self._tool_keys[server, tool]

    @staticmethod
    def _add_note(server: McpServerRunner, text: str) -> None:
        if isinstance(server.status, McpConnected):
            note = "; ".join(part for part in (server.status.note, text) if part)
            server.status = replace(server.status, note=note)

    # --- prompts ---

    def list_commands(self) -> dict[str, Command]:
        """Return the prompts of all connected servers as commands. Their texts are requested on use."""
        return {key: _to_command(key, prompt) for key, (_, prompt) in self._list_prompts().items()}

    def _list_prompts(self) -> dict[str, tuple[McpServerRunner, PromptOffer]]:
        prompts: dict[str, tuple[McpServerRunner, PromptOffer]] = {}
        for name, server in self._list_connected():
            for prompt in server.offers.prompts:
                prompts[make_prompt_key(name, prompt.name, prompts)] = (server, prompt)
        return prompts

    async def find_command(self, name: str) -> Command | None:
        """Return a command by name, or None. Wait until the server that may have it is connected or has failed."""
        server_name = name.partition(":")[0]
        await self.wait_until_settled(
            [server for server in self.servers.values() if sanitize_name(server.entry.name) == server_name]
        )
        return self.list_commands().get(name)

    async def render(self, command: str, arguments: Mapping[str, str]) -> str:
        """Return the text of a prompt, filled in by its server. Raise `McpError` on failure."""
        entry = self._list_prompts().get(command)
        if entry is None:
            raise McpError(f"there is no prompt {command} any more")
        server, prompt = entry
        return to_prompt_text(await server.render(prompt.name, dict(arguments)))

    # --- resources ---

    def list_resources(self) -> dict[str, McpResource]:
        """Return the resources of all connected servers."""
        resources: dict[str, McpResource] = {}
        for name, server in self._list_connected():
            for resource in server.offers.resources:
                resources[make_resource_key(name, resource.name, resources)] = McpResource(
                    name=to_single_line(resource.name, MAX_TEXT_LENGTH),
                    uri=resource.uri,
                    description=to_single_line(resource.about, MAX_TEXT_LENGTH) or None,
                    mime_type=resource.mime or None,
                    client=name,
                )
        return resources

    async def read_resource(self, client: str, uri: str) -> tuple[ResourcePiece, ...]:
        """Return the content of a resource. Raise `McpError` on failure."""
        server = self.servers.get(client)
        if server is None:
            raise McpError(f"Resource not found: {client}/{uri}")
        return to_pieces(await server.read(uri))


def _to_command(key: str, prompt: PromptOffer) -> Command:
    return Command(
        name=key,
        description=to_single_line(prompt.about, MAX_TEXT_LENGTH) or None,
        mcp=True,
        template="",
        hints=tuple(f"${number}" for number, _ in enumerate(prompt.arguments, 1)),
        arguments=tuple(
            CommandArgument(
                name=argument.name,
                description=to_single_line(argument.about, MAX_TEXT_LENGTH) or None,
                required=argument.required,
            )
            for argument in prompt.arguments
        ),
    )


async def _wait_for_all(servers: Iterable[McpServerRunner], seconds: float | None) -> None:
    """Wait until each server is connected or has failed, for at most this many seconds after the last one started."""
    connecting = [server for server in servers if server.is_connecting]
    if not connecting:
        return
    until = None if seconds is None else max(server.started_at for server in connecting) + seconds
    with suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            for server in connecting:
                await server.wait_until_settled()


def format_waiting(names: Sequence[str]) -> str:
    servers = ", ".join(to_single_line(name, MAX_TEXT_LENGTH) for name in names)
    if len(names) == 1:
        return f"waiting for the MCP server {servers}, which is still starting"
    return f"waiting for the MCP servers {servers}, which are still starting"


def format_trouble(server: McpServerRunner) -> str:
    """Return why a server is missing, or "" if it is connected or switched off."""
    subject = f"the MCP server {to_single_line(server.entry.name, MAX_TEXT_LENGTH)}"
    match server.status:
        case McpConnected():
            return ""
        case McpDisabled():
            return (
                f"{subject} is still connecting: its tools will be available later"
                if server.is_connecting
                else ""
            )
        case McpNeedsAuth():
            return f"{subject} is not available: it needs a login ({LOGIN_COMMAND} {server.entry.name})"
        case McpFailed() | McpNeedsRegistration():
            return f"{subject} is not available: {describe_status(server.status)}"


def to_tool(key: str, offer: ToolOffer, server: McpServerRunner) -> AnyTool | None:
    """Convert a server's tool to ours under the name `key`. Return None if its schema is too long for a model.

    The description and schema reach the model as the server wrote them, but the schema allows no other arguments. The server
    checks the arguments itself: we do not evaluate a foreign schema. The claim that a tool is read-only is not verified either; with it, no
    files are watched while the tool runs, and a call that a crash cut off counts as one that changed nothing.
    """
    schema = {**offer.schema, "type": "object", "additionalProperties": False}
    schema.setdefault("properties", {})
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA:
        return None

    async def run(wanted: RawArguments, ctx: ToolContext) -> ToolResult:
        await ctx.ask(key, "*", always=("*",))
        sent = CallEvidence(server=server.entry.name, read_only=offer.read_only)
        answer = await server.call(
            offer.name,
            wanted.arguments,
            _make_progress_reporter(ctx.report, ctx.clock),
            before_sending=lambda: ctx.note(sent),
        )
        result = to_result(answer)
        await ctx.note(replace(sent, result=_to_noted(result)))
        return result

    about = offer.about if len(offer.about) <= MAX_DESCRIPTION else f"{offer.about[:MAX_DESCRIPTION]}…"
    return Tool(
        name=key,
        about=about,
        takes=RawArguments,
        run=run,
        watch_all=not offer.read_only,
        notes=True,
        schema=schema,
    )


def _to_noted(result: ToolResult) -> CallResult:
    """Return the result of a call as it is noted: as much as a model is shown, without files, which may be large."""
    lost = (
        f"\n\n[{format_count(len(result.attachments), 'file')} of the answer lost]"
        if result.attachments
        else ""
    )
    return CallResult(
        title=result.title, output=truncate(result.output).preview + lost, metadata=result.metadata
    )


def _make_progress_reporter(report: ReportProgress, clock: Clock) -> OnProgress:
    """Return a callback that reports the progress of a call, at most four times a second."""
    reported_at = 0

    async def on_progress(done: float, of: float | None, words: str | None) -> None:
        nonlocal reported_at
        if clock.now() - reported_at < REPORT_MS:
            return
        reported_at = clock.now()
        metadata: dict[str, Any] = {"progress": done}
        if of is not None:
            metadata["total"] = of
        await report(title=to_single_line(words, MAX_TITLE) if words else None, metadata=metadata)

    return on_progress
