"""The tools, prompts and resources of MCP servers, as a run sees them."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Protocol

import msgspec

from weft.errors import McpError
from weft.host.clock import Clock
from weft.model.agent import Command
from weft.tool.contract import AnyTool, RawArguments, ReportProgress, Tool, ToolContext, ToolResult
from weft.tool.mcp.connection import OnProgress, ToolOffer
from weft.tool.mcp.entry import to_single_line
from weft.tool.mcp.result import ResourcePiece, to_result
from weft.tool.mcp.server import McpServerRunner

MAX_DESCRIPTION: Final = 10_000
MAX_SCHEMA: Final = 100_000
MAX_TITLE: Final = 200
REPORT_MS: Final = 250


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


class MayUsePrefix(Protocol):
    """Return True if a run may use any tool whose name starts with this prefix."""

    def __call__(self, prefix: str) -> bool: ...


class McpServers(Protocol):
    """The MCP servers that a run uses.

    * `connect_all` starts to connect all servers, and waits a while for those that the run may use and that start for
      the first time. It yields messages while it waits and for each missing server, each message once;
    * `tools` returns the tools of the connected servers, whose names never change;
    * `find_command` returns a server's prompt as a command, or None;
    * `render` returns the text of a prompt for arguments by name, `read_resource` the content of a resource. Both raise
      `McpError` on failure.
    """

    def connect_all(self, may_use: MayUsePrefix) -> AsyncIterator[str]: ...

    def tools(self) -> Mapping[str, AnyTool]: ...

    def list_commands(self) -> Mapping[str, Command]: ...

    async def find_command(self, name: str) -> Command | None: ...

    async def render(self, command: str, arguments: Mapping[str, str]) -> str: ...

    async def read_resource(self, client: str, uri: str) -> tuple[ResourcePiece, ...]: ...


class NoMcpServers:
    """No servers. For callers without any configured."""

    async def connect_all(self, may_use: MayUsePrefix) -> AsyncIterator[str]:
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

    async def read_resource(self, client: str, uri: str) -> tuple[ResourcePiece, ...]:
        raise McpError(f"Resource not found: {client}/{uri}")
