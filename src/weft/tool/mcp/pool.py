"""The MCP servers of a directory: none is started before it is needed, none outlives us."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import McpError, NotFoundError
from weft.host.tasks import open_tasks
from weft.model.agent import Command, CommandArgument
from weft.model.readable import plural
from weft.model.workspace import (
    AnyMcpStatus,
    McpConnected,
    McpDisabled,
    McpFailed,
    McpNeedsAuth,
    McpNeedsRegistration,
    McpResource,
)
from weft.tool.contract import AnyTool
from weft.tool.mcp.entry import (
    USUAL,
    WAIT_SECONDS,
    AnyEntry,
    Patience,
    legible,
    prompt_key,
    resource_key,
    to_word,
    tool_key,
    tool_prefix,
)
from weft.tool.mcp.link import Dial, Offers, PromptOffer
from weft.tool.mcp.result import Piece, to_pieces, to_words
from weft.tool.mcp.server import Around, Server, describe
from weft.tool.mcp.tools import MayUse, to_tool

LONGEST_WORDS: Final = 500
LOG_IN: Final = "weft mcp auth"


class Configured(Struct, frozen=True, kw_only=True):
    """A server of the configuration; one that is not `enabled` is connected when somebody says so."""

    entry: AnyEntry
    enabled: bool = True


class Pool:
    """`reserved` are names that no tool of a server gets."""

    def __init__(self, around: Around, reserved: frozenset[str], patience: Patience) -> None:
        self._around = around
        self.tasks = around.tasks
        self._reserved = reserved
        self._patience = patience
        self.servers: dict[str, Server] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._made: dict[str, tuple[Offers, dict[str, AnyTool]]] = {}
        self._said: dict[str, str] = {}

    def put(self, configured: Configured) -> Server:
        """Take a server in, in place of one that has its name, which must have been left."""
        name = configured.entry.name
        self.servers[name] = Server(configured.entry, self._around, enabled=configured.enabled)
        self._made.pop(name, None)
        return self.servers[name]

    def get(self, name: str) -> Server:
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
        """Have every server set out that is not there, nor off, nor left alone for now."""
        for server in self.servers.values():
            if server.is_wanted:
                server.begin()

    # --- what a run asks for ---

    async def arrive(self, may_use: MayUse) -> AsyncIterator[str]:
        """See to it that every server is on its way, and wait for those that set out for the first time.

        The time counts from when each set out: who comes later waits for less, and nobody for one that failed before, or
        of which no tool may be used. What we need ourselves in order to connect is got ready first: no server's time goes
        by with that. A server that said it offers something else now is asked what, so that a tool it added in the last
        step is there in the next.
        """
        if any(each.is_wanted for each in self.servers.values()):
            await self._around.dial.prepare()
        self.begin()
        usable = [each for name, each in self.servers.items() if may_use(tool_prefix(name))]
        starting = [each for each in usable if each.is_connecting and not each.fails]
        wait, notice = self._patience.wait, self._patience.notice
        if wait is None or wait > notice:
            await _await_all(starting, notice)
            if late := [each.entry.name for each in starting if each.is_connecting]:
                yield to_waiting(late)
        await _await_all(starting, wait)
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS if wait is None else wait):
                for _, each in list(self._connected()):
                    await each.caught_up()
        for words in self._take_troubles():
            yield words

    def _take_troubles(self) -> Iterator[str]:
        """What there is to say of servers that should be there and are not, unless it was said."""
        for name, server in self.servers.items():
            words = to_trouble(server)
            if words and words != self._said.get(name):
                yield words
            self.note_said(server)

    def note_said(self, server: Server) -> None:
        """How it stands has been said, and no run has to say it again."""
        self._said[server.entry.name] = to_trouble(server)

    async def settled(self, servers: Iterable[Server] | None = None) -> None:
        """The same for some of them or all, until each is connected or is not: every one has its deadline."""
        wanted = list(self.servers.values() if servers is None else servers)
        for server in wanted:
            if server.is_wanted:
                server.begin()
        for server in wanted:
            if server.is_connecting:
                await server.settled()

    def tools(self) -> Mapping[str, AnyTool]:
        """The tools of all that are connected, by the names that models and rules have for them."""
        return {key: tool for _, server in self._connected() for key, tool in self._tools_of(server).items()}

    def _connected(self) -> Iterator[tuple[str, Server]]:
        for name, server in self.servers.items():
            if isinstance(server.status, McpConnected):
                yield name, server

    def _tools_of(self, server: Server) -> dict[str, AnyTool]:
        name, offers = server.entry.name, server.offers
        known = self._made.get(name)
        if known is not None and known[0] is offers:
            return known[1]
        # By name: a server that lists them in another order today would cost a model's whole cache.
        offered = sorted(offers.tools, key=lambda offer: offer.name)
        named = [(self._key(name, offer.name), offer) for offer in offered]
        made = {key: tool for key, offer in named if (tool := to_tool(key, offer, server)) is not None}
        self._made[name] = (offers, made)
        if len(made) < len(offers.tools):
            self._note(
                server, f"{plural(len(offers.tools) - len(made), 'tool')} with too long a schema left out"
            )
        return made

    def _key(self, server: str, tool: str) -> str:
        """A name that a tool has is its name for good: rules and grants go by it."""
        if (server, tool) not in self._keys:
            self._keys[server, tool] = tool_key(server, tool, {*self._reserved, *self._keys.values()})
        return self._keys[server, tool]

    @staticmethod
    def _note(server: Server, words: str) -> None:
        if isinstance(server.status, McpConnected):
            said = "; ".join(each for each in (server.status.note, words) if each)
            server.status = replace(server.status, note=said)

    # --- prompts ---

    def list_commands(self) -> dict[str, Command]:
        """The prompts of all that are connected, as commands. Their words are asked for when they are used."""
        return {key: _to_command(key, prompt) for key, (_, prompt) in self._prompts().items()}

    def _prompts(self) -> dict[str, tuple[Server, PromptOffer]]:
        found: dict[str, tuple[Server, PromptOffer]] = {}
        for name, server in self._connected():
            for prompt in server.offers.prompts:
                found[prompt_key(name, prompt.name, found)] = (server, prompt)
        return found

    async def find_command(self, name: str) -> Command | None:
        """A command by its name, once the server that may have it is connected or is not; None if nobody has it."""
        word = name.partition(":")[0]
        await self.settled([each for each in self.servers.values() if to_word(each.entry.name) == word])
        return self.list_commands().get(name)

    async def render(self, command: str, arguments: Mapping[str, str]) -> str:
        """The words of a command, as its server fills them in. Raises `McpError`."""
        found = self._prompts().get(command)
        if found is None:
            raise McpError(f"there is no prompt {command} any more")
        server, prompt = found
        return to_words(await server.render(prompt.name, dict(arguments)))

    # --- resources ---

    def list_resources(self) -> dict[str, McpResource]:
        found: dict[str, McpResource] = {}
        for name, server in self._connected():
            for each in server.offers.resources:
                found[resource_key(name, each.name, found)] = McpResource(
                    name=legible(each.name, LONGEST_WORDS),
                    uri=each.uri,
                    description=legible(each.about, LONGEST_WORDS) or None,
                    mime_type=each.mime or None,
                    client=name,
                )
        return found

    async def read_resource(self, client: str, uri: str) -> tuple[Piece, ...]:
        """What a server has under an address. Raises `McpError`."""
        server = self.servers.get(client)
        if server is None:
            raise McpError(f"Resource not found: {client}/{uri}")
        return to_pieces(await server.read(uri))


def _to_command(key: str, prompt: PromptOffer) -> Command:
    return Command(
        name=key,
        description=legible(prompt.about, LONGEST_WORDS) or None,
        mcp=True,
        template="",
        hints=tuple(f"${place}" for place, _ in enumerate(prompt.arguments, 1)),
        arguments=tuple(
            CommandArgument(
                name=each.name,
                description=legible(each.about, LONGEST_WORDS) or None,
                required=each.required,
            )
            for each in prompt.arguments
        ),
    )


async def _await_all(servers: Iterable[Server], seconds: float | None) -> None:
    """Wait until each is connected or is not, and no longer than so many seconds from when the last one set out."""
    under_way = [each for each in servers if each.is_connecting]
    if not under_way:
        return
    until = None if seconds is None else max(each.begun_at for each in under_way) + seconds
    with suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            for each in under_way:
                await each.settled()


def to_waiting(names: Sequence[str]) -> str:
    shown = ", ".join(legible(each, LONGEST_WORDS) for each in names)
    if len(names) == 1:
        return f"waiting for the MCP server {shown}, which is still starting"
    return f"waiting for the MCP servers {shown}, which are still starting"


def to_trouble(server: Server) -> str:
    """Why a server that should be there is not, in words; none if it is, or is meant to be off."""
    who = f"the MCP server {legible(server.entry.name, LONGEST_WORDS)}"
    match server.status:
        case McpConnected():
            return ""
        case McpDisabled():
            return f"{who} takes long to connect: its tools come when it has" if server.is_connecting else ""
        case McpNeedsAuth():
            return f"{who} is not there: it needs a login ({LOG_IN} {server.entry.name})"
        case McpFailed() | McpNeedsRegistration():
            return f"{who} is not there: {describe(server.status)}"


@asynccontextmanager
async def open_pool(
    servers: tuple[Configured, ...],
    dial: Dial,
    changed: Callable[[str], Awaitable[None]],
    *,
    reserved: frozenset[str] = frozenset(),
    patience: Patience = USUAL,
) -> AsyncIterator[Pool]:
    """Nothing is started until something is to be done. Leaving ends every server."""
    async with open_tasks() as tasks:
        pool = Pool(Around(dial=dial, changed=changed, tasks=tasks), reserved, patience)
        for each in servers:
            pool.put(each)
        try:
            yield pool
        finally:
            await pool.close()
