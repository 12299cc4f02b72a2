"""Guests: what MCP servers bring to a run, as a run sees it."""

from collections.abc import Mapping
from typing import Protocol

from weft.errors import McpError
from weft.model.agent import Command
from weft.tool.contract import AnyTool
from weft.tool.mcp.result import Piece


class Guests(Protocol):
    """* `arrive` sees to it that all are on their way, and waits for them a moment and no longer; asked again, it
      waits only for what is new. It gives words on each that is not there, the same ones once;
    * `tools` are those of the guests that are there, each under the same name for good;
    * `render` gives a command of a guest with its words, None if none has it; `read_resource` what one has to read;
      both raise `McpError`.
    """

    async def arrive(self) -> tuple[str, ...]: ...

    def tools(self) -> Mapping[str, AnyTool]: ...

    def list_commands(self) -> Mapping[str, Command]: ...

    async def render(self, command: str) -> Command | None: ...

    async def read_resource(self, client: str, uri: str) -> tuple[Piece, ...]: ...


class NoGuests:
    """For where no servers are configured."""

    async def arrive(self) -> tuple[str, ...]:
        return ()

    def tools(self) -> Mapping[str, AnyTool]:
        return {}

    def list_commands(self) -> Mapping[str, Command]:
        return {}

    async def render(self, command: str) -> Command | None:
        del command
        return None

    async def read_resource(self, client: str, uri: str) -> tuple[Piece, ...]:
        raise McpError(f"Resource not found: {client}/{uri}")
