"""Tools, prompts and resources of MCP servers, as a run sees them."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Protocol

import msgspec

from weft.errors import McpError
from weft.host.clock import Clock
from weft.model.agent import Command
from weft.tool.contract import AnyTool, Given, Report, Tool, ToolContext, ToolResult
from weft.tool.mcp.entry import legible
from weft.tool.mcp.link import Progressed, ToolOffer
from weft.tool.mcp.result import Piece, to_result
from weft.tool.mcp.server import Server

LONGEST_ABOUT: Final = 10_000
LONGEST_SCHEMA: Final = 100_000
LONGEST_WORDS: Final = 200
REPORT_MS: Final = 250


def to_tool(key: str, offer: ToolOffer, server: Server) -> AnyTool | None:
    """The tool under the name we have for it; None if it cannot be told to a model: it has too much to say for itself.

    Its words and its schema reach the model as the server has them. Whether arguments fit is for the server to judge:
    a stranger's schema is not run against anything here. That it reads only is the server's word, too; all that comes
    of it is that no files are watched while it runs.
    """
    schema = {**offer.schema, "type": "object", "additionalProperties": False}
    schema.setdefault("properties", {})
    if len(msgspec.json.encode(schema)) > LONGEST_SCHEMA:
        return None

    async def run(wanted: Given, ctx: ToolContext) -> ToolResult:
        await ctx.ask(key, "*", always=("*",))
        answer = await server.call(offer.name, wanted.arguments, _reporting(ctx.report, ctx.clock))
        return to_result(answer)

    about = offer.about if len(offer.about) <= LONGEST_ABOUT else f"{offer.about[:LONGEST_ABOUT]}…"
    return Tool(name=key, about=about, takes=Given, run=run, announces=offer.read_only, schema=schema)


def _reporting(report: Report, clock: Clock) -> Progressed:
    """Tell how a call gets on, four times a second at most."""
    told = 0

    async def progressed(done: float, of: float | None, words: str | None) -> None:
        nonlocal told
        if clock.now() - told < REPORT_MS:
            return
        told = clock.now()
        metadata: dict[str, Any] = {"progress": done}
        if of is not None:
            metadata["total"] = of
        await report(title=legible(words, LONGEST_WORDS) if words else None, metadata=metadata)

    return progressed


class MayUse(Protocol):
    """Whether a run may use any tool whose name begins so."""

    def __call__(self, prefix: str) -> bool: ...


class Guests(Protocol):
    """* `arrive` has all servers set out, and waits a while for those that the run may use and that set out for the first
      time. It gives words while it waits and on each server that is not there, the same words once;
    * `tools` are those of the guests that are there, each under the same name for good;
    * `find_command` gives a command of a guest, None if none has it; `render` gives its words, filled in with arguments
      by their names; `read_resource` gives what a guest has to read. The last two raise `McpError`.
    """

    def arrive(self, may_use: MayUse) -> AsyncIterator[str]: ...

    def tools(self) -> Mapping[str, AnyTool]: ...

    def list_commands(self) -> Mapping[str, Command]: ...

    async def find_command(self, name: str) -> Command | None: ...

    async def render(self, command: str, arguments: Mapping[str, str]) -> str: ...

    async def read_resource(self, client: str, uri: str) -> tuple[Piece, ...]: ...


class NoGuests:
    """For where no servers are configured."""

    async def arrive(self, may_use: MayUse) -> AsyncIterator[str]:
        del may_use
        nothing: tuple[str, ...] = ()
        for words in nothing:
            yield words

    def tools(self) -> Mapping[str, AnyTool]:
        return {}

    def list_commands(self) -> Mapping[str, Command]:
        return {}

    async def find_command(self, name: str) -> Command | None:
        del name
        return None

    async def render(self, command: str, arguments: Mapping[str, str]) -> str:
        del arguments
        raise McpError(f"there is no prompt {command}")

    async def read_resource(self, client: str, uri: str) -> tuple[Piece, ...]:
        raise McpError(f"Resource not found: {client}/{uri}")
