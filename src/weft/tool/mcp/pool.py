"""The MCP servers of a directory: none is started before it is needed, none outlives us."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import McpError, NotFoundError
from weft.host.tasks import open_tasks
from weft.model.agent import Command
from weft.model.around.place import (
    AnyMcpStatus,
    McpConnected,
    McpDisabled,
    McpFailed,
    McpNeedsAuth,
    McpNeedsRegistration,
    McpResource,
)
from weft.tool.contract import AnyTool
from weft.tool.mcp.entry import WAIT_SECONDS, AnyEntry
from weft.tool.mcp.link import Dial, Offers, PromptOffer
from weft.tool.mcp.naming import legible, prompt_key, resource_key, to_word, tool_key
from weft.tool.mcp.result import Piece, to_pieces, to_template
from weft.tool.mcp.server import Around, Server, describe
from weft.tool.mcp.tools import to_tool

LONGEST_WORDS: Final = 500
LOG_IN: Final = "weft mcp auth"


class Configured(Struct, frozen=True, kw_only=True):
    """A server of the configuration; one that is not `enabled` is connected when somebody says so."""

    entry: AnyEntry
    enabled: bool = True


class Pool:
    """`reserved` are names that no tool of a server gets."""

    def __init__(self, around: Around, reserved: frozenset[str], wait: float) -> None:
        self._around = around
        self.tasks = around.tasks
        self._reserved = reserved
        self._wait = wait
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

    async def arrive(self) -> tuple[str, ...]:
        """See to it that every server is on its way, and give those a moment that set out for the first time.

        The moment counts from when each set out: who comes later waits for less, and nobody for one that failed before.
        What we need ourselves in order to connect is got ready first: no server's moment goes by with that.
        """
        if any(each.is_wanted for each in self.servers.values()):
            await self._around.dial.prepare()
        self.begin()
        under_way = [each for each in self.servers.values() if each.is_connecting and not each.fails]
        if under_way:
            until = max(each.begun_at for each in under_way) + self._wait
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    for each in under_way:
                        await each.settled()
        return tuple(self._take_troubles())

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
            self._note(server, f"{len(offers.tools) - len(made)} tools with too long a schema left out")
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
        return {
            key: Command(
                name=key,
                description=legible(prompt.about, LONGEST_WORDS) or None,
                mcp=True,
                template="",
                hints=tuple(f"${place}" for place, _ in enumerate(prompt.arguments, 1)),
            )
            for key, (_, prompt) in self._prompts().items()
        }

    def _prompts(self) -> dict[str, tuple[Server, PromptOffer]]:
        found: dict[str, tuple[Server, PromptOffer]] = {}
        for name, server in self._connected():
            for prompt in server.offers.prompts:
                found[prompt_key(name, prompt.name, found)] = (server, prompt)
        return found

    async def render(self, command: str) -> Command | None:
        """A command with its words, as its server has them now; None if nobody has it. Raises `McpError`.

        Its arguments are filled in with placeholders, so that what a person types never reaches the server.
        """
        word = command.partition(":")[0]
        await self.settled([each for each in self.servers.values() if to_word(each.entry.name) == word])
        found = self._prompts().get(command)
        if found is None:
            return None
        server, prompt = found
        asked = {each: f"${place}" for place, each in enumerate(prompt.arguments, 1)}
        template = to_template(await server.render(prompt.name, asked))
        return replace(self.list_commands()[command], template=template)

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
    wait: float = WAIT_SECONDS,
) -> AsyncIterator[Pool]:
    """Nothing is started until something is to be done. Leaving ends every server."""
    async with open_tasks() as tasks:
        pool = Pool(Around(dial=dial, changed=changed, tasks=tasks), reserved, wait)
        for each in servers:
            pool.put(each)
        try:
            yield pool
        finally:
            await pool.close()
