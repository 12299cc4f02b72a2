"""MCP servers as a run sees them: what they offer, and how long it waits for them."""

from collections.abc import AsyncIterator, Mapping
from typing import Final, Protocol

from msgspec import Struct

from weft.errors import McpError
from weft.model.agent import Command
from weft.tool.contract import AnyTool, Attachment

# The port that the browser returns to after a login.
CALLBACK_PORT: Final = 19876

CONNECT_TIMEOUT_SECONDS: Final = 30.0
CALL_TIMEOUT_SECONDS: Final = 60.0
START_WAIT_SECONDS: Final = 5.0
LOGIN_TIMEOUT_SECONDS: Final = 300.0


class McpTimeouts(Struct, frozen=True, kw_only=True):
    """How long a run waits for servers that are starting, in seconds.

    `wait` is None to wait until each has connected or failed. After `notice` seconds, the run says that it is waiting.
    """

    wait: float | None = START_WAIT_SECONDS
    notice: float = START_WAIT_SECONDS


DEFAULT_TIMEOUTS: Final = McpTimeouts()


class ResourcePiece(Struct, frozen=True, kw_only=True):
    """A piece of a resource: a text or a file."""

    text: str = ""
    file: Attachment | None = None


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
