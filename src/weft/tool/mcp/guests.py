"""Guests: what MCP servers bring to a run, as a run sees it."""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from weft.errors import McpError
from weft.model.agent import Command
from weft.tool.contract import AnyTool
from weft.tool.mcp.result import Piece


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
