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
from weft.tool.mcp.contract import DEFAULT_TIMEOUTS, WAIT_SECONDS, MayUsePrefix, McpTimeouts, ResourcePiece
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

MAX_TEXT: Final = 500
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
        """Add a server. One of the same name is replaced and must have been left before."""
        name = configured.entry.name
        self.servers[name] = McpServerRunner(configured.entry, self._context, enabled=configured.enabled)
        self._tools.pop(name, None)
        return self.servers[name]

    def get(self, name: str) -> McpServerRunner:
        """Return a server by name. Raise `NotFoundError` if there is none."""
        found = self.servers.get(name)
        if found is None:
            raise NotFoundError(
                "MCP server", name[:80], hint=f"there are {', '.join(self.servers) or 'none'}"
            )
        return found

    def list_status(self) -> dict[str, AnyMcpStatus]:
        return {name: server.status for name, server in self.servers.items()}

    async def close(self) -> None:
        async with open_tasks() as tasks:
            for server in self.servers.values():
                tasks.create_task(server.leave(off=False))

    def begin(self) -> None:
        """Start to connect every server that is due (see `McpServerRunner.is_due`)."""
        for server in self.servers.values():
            if server.is_due:
                server.begin()

    # --- for a run ---

    async def connect_all(self, may_use: MayUsePrefix) -> AsyncIterator[str]:
        """Start to connect all servers, wait for those that start for the first time, and yield messages.

        The messages are for the person. The time limit counts from the start of each server, so a later caller waits
        for less. Servers that failed before are not waited for, nor those whose tools the run may not use. Our own
        preparation comes first, so that it does not use up the servers' time. A server that announced a change is asked
        for its offers again, so that a tool it added in the last step exists in the next.
        """
        if any(each.is_due for each in self.servers.values()):
            await self._context.connector.prepare()
        self.begin()
        usable = [each for name, each in self.servers.items() if may_use(make_tool_prefix(name))]
        starting = [each for each in usable if each.is_connecting and not each.failures]
        wait, notice = self._timeouts.wait, self._timeouts.notice
        if wait is None or wait > notice:
            await _wait_for_all(starting, notice)
            if late := [each.entry.name for each in starting if each.is_connecting]:
                yield format_waiting(late)
        await _wait_for_all(starting, wait)
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS if wait is None else wait):
                for _, each in list(self._connected()):
                    await each.caught_up()
        for words in self._report_troubles():
            yield words

    def _report_troubles(self) -> Iterator[str]:
        """Yield a message for each server that should be connected and is not, unless it was reported before."""
        for name, server in self.servers.items():
            words = format_trouble(server)
            if words and words != self._reported.get(name):
                yield words
            self.note_said(server)

    def note_said(self, server: McpServerRunner) -> None:
        """Note that the state of a server was reported, so that no run reports it again."""
        self._reported[server.entry.name] = format_trouble(server)

    async def settled(self, servers: Iterable[McpServerRunner] | None = None) -> None:
        """Connect some servers or all, and wait until each is connected or has failed."""
        wanted = list(self.servers.values() if servers is None else servers)
        for server in wanted:
            if server.is_due:
                server.begin()
        for server in wanted:
            if server.is_connecting:
                await server.settled()

    def tools(self) -> Mapping[str, AnyTool]:
        """Return the tools of all connected servers, by the names that models and rules use."""
        return {key: tool for _, server in self._connected() for key, tool in self._tools_of(server).items()}

    def _connected(self) -> Iterator[tuple[str, McpServerRunner]]:
        for name, server in self.servers.items():
            if isinstance(server.status, McpConnected):
                yield name, server

    def _tools_of(self, server: McpServerRunner) -> dict[str, AnyTool]:
        name, offers = server.entry.name, server.offers
        known = self._tools.get(name)
        if known is not None and known[0] is offers:
            return known[1]
        # Sort by name. If the order changed from day to day, models would lose their prompt cache.
        offered = sorted(offers.tools, key=lambda offer: offer.name)
        named = [(self._key(name, offer.name), offer) for offer in offered]
        made = {key: tool for key, offer in named if (tool := to_tool(key, offer, server)) is not None}
        self._tools[name] = (offers, made)
        if len(made) < len(offers.tools):
            self._note(
                server,
                f"{format_count(len(offers.tools) - len(made), 'tool')} with too long a schema left out",
            )
        return made

    def _key(self, server: str, tool: str) -> str:
        """Return the name of a tool. It never changes, because rules and grants refer to it."""
        if (server, tool) not in self._tool_keys:
            self._tool_keys[server, tool] = make_tool_key(
                server, tool, {*self._reserved, *self._tool_keys.values()}
            )
        return self._tool_keys[server, tool]

    @staticmethod
    def _note(server: McpServerRunner, words: str) -> None:
        if isinstance(server.status, McpConnected):
            said = "; ".join(each for each in (server.status.note, words) if each)
            server.status = replace(server.status, note=said)

    # --- prompts ---

    def list_commands(self) -> dict[str, Command]:
        """Return the prompts of all connected servers as commands. Their texts are requested on use."""
        return {key: _to_command(key, prompt) for key, (_, prompt) in self._prompts().items()}

    def _prompts(self) -> dict[str, tuple[McpServerRunner, PromptOffer]]:
        found: dict[str, tuple[McpServerRunner, PromptOffer]] = {}
        for name, server in self._connected():
            for prompt in server.offers.prompts:
                found[make_prompt_key(name, prompt.name, found)] = (server, prompt)
        return found

    async def find_command(self, name: str) -> Command | None:
        """Return a command by name, or None. Wait until the server that may have it is connected or has failed."""
        word = name.partition(":")[0]
        await self.settled([each for each in self.servers.values() if sanitize_name(each.entry.name) == word])
        return self.list_commands().get(name)

    async def render(self, command: str, arguments: Mapping[str, str]) -> str:
        """Return the text of a prompt, filled in by its server. Raise `McpError` on failure."""
        found = self._prompts().get(command)
        if found is None:
            raise McpError(f"there is no prompt {command} any more")
        server, prompt = found
        return to_prompt_text(await server.render(prompt.name, dict(arguments)))

    # --- resources ---

    def list_resources(self) -> dict[str, McpResource]:
        """Return the resources of all connected servers."""
        found: dict[str, McpResource] = {}
        for name, server in self._connected():
            for each in server.offers.resources:
                found[make_resource_key(name, each.name, found)] = McpResource(
                    name=to_single_line(each.name, MAX_TEXT),
                    uri=each.uri,
                    description=to_single_line(each.about, MAX_TEXT) or None,
                    mime_type=each.mime or None,
                    client=name,
                )
        return found

    async def read_resource(self, client: str, uri: str) -> tuple[ResourcePiece, ...]:
        """Return the content of a resource. Raise `McpError` on failure."""
        server = self.servers.get(client)
        if server is None:
            raise McpError(f"Resource not found: {client}/{uri}")
        return to_pieces(await server.read(uri))


def _to_command(key: str, prompt: PromptOffer) -> Command:
    return Command(
        name=key,
        description=to_single_line(prompt.about, MAX_TEXT) or None,
        mcp=True,
        template="",
        hints=tuple(f"${place}" for place, _ in enumerate(prompt.arguments, 1)),
        arguments=tuple(
            CommandArgument(
                name=each.name,
                description=to_single_line(each.about, MAX_TEXT) or None,
                required=each.required,
            )
            for each in prompt.arguments
        ),
    )


async def _wait_for_all(servers: Iterable[McpServerRunner], seconds: float | None) -> None:
    """Wait until each server is connected or has failed, for at most this many seconds after the last one started."""
    under_way = [each for each in servers if each.is_connecting]
    if not under_way:
        return
    until = None if seconds is None else max(each.started_at for each in under_way) + seconds
    with suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            for each in under_way:
                await each.settled()


def format_waiting(names: Sequence[str]) -> str:
    shown = ", ".join(to_single_line(each, MAX_TEXT) for each in names)
    if len(names) == 1:
        return f"waiting for the MCP server {shown}, which is still starting"
    return f"waiting for the MCP servers {shown}, which are still starting"


def format_trouble(server: McpServerRunner) -> str:
    """Return why a server is missing, or "" if it is connected or switched off."""
    who = f"the MCP server {to_single_line(server.entry.name, MAX_TEXT)}"
    match server.status:
        case McpConnected():
            return ""
        case McpDisabled():
            return (
                f"{who} is still connecting: its tools will be available later"
                if server.is_connecting
                else ""
            )
        case McpNeedsAuth():
            return f"{who} is not available: it needs a login ({LOGIN_COMMAND} {server.entry.name})"
        case McpFailed() | McpNeedsRegistration():
            return f"{who} is not available: {describe_status(server.status)}"


def to_tool(key: str, offer: ToolOffer, server: McpServerRunner) -> AnyTool | None:
    """Convert a server's tool to ours under the name `key`. Return None if its schema is too long for a model.

    The description and schema reach the model as the server wrote them. The server checks the arguments itself: we do
    not evaluate a foreign schema. The claim that a tool is read-only is not verified either; its only effect is that no
    files are watched while the tool runs.
    """
    schema = {**offer.schema, "type": "object", "additionalProperties": False}
    schema.setdefault("properties", {})
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA:
        return None

    async def run(wanted: RawArguments, ctx: ToolContext) -> ToolResult:
        await ctx.ask(key, "*", always=("*",))
        answer = await server.call(
            offer.name, wanted.arguments, _make_progress_reporter(ctx.report, ctx.clock)
        )
        return to_result(answer)

    about = offer.about if len(offer.about) <= MAX_DESCRIPTION else f"{offer.about[:MAX_DESCRIPTION]}…"
    return Tool(name=key, about=about, takes=RawArguments, run=run, announces=offer.read_only, schema=schema)


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
