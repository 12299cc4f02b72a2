"""The contract of a connection to an MCP server, and a connector that loads the official library on first use."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib import import_module
from typing import Any, Final, Protocol

from msgspec import Struct

from weft.errors import McpError
from weft.tool.mcp.entry import AnyEntry
from weft.tool.mcp.login import McpLoginStore

# What we accept from one server. Servers are not trusted: a misbehaving one must not fill the conversation.
MAX_TOOLS: Final = 256
MAX_PROMPTS: Final = 256
MAX_RESOURCES: Final = 1000
MAX_PAGES: Final = 50


class ToolOffer(Struct, frozen=True, kw_only=True):
    """A tool as the server describes it. `read_only` is the server's own claim."""

    name: str
    about: str = ""
    schema: dict[str, Any] = {}
    read_only: bool = False


class PromptArgument(Struct, frozen=True, kw_only=True):
    name: str
    about: str = ""
    required: bool = False


class PromptOffer(Struct, frozen=True, kw_only=True):
    name: str
    about: str = ""
    arguments: tuple[PromptArgument, ...] = ()


class ResourceOffer(Struct, frozen=True, kw_only=True):
    name: str
    uri: str
    about: str = ""
    mime: str = ""


class McpOffers(Struct, frozen=True, kw_only=True):
    """Everything that we accept of a server's offers. `left_out` says what we do not accept."""

    tools: tuple[ToolOffer, ...] = ()
    prompts: tuple[PromptOffer, ...] = ()
    resources: tuple[ResourceOffer, ...] = ()
    left_out: str = ""


OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]


class ConnectionEvents:
    """What a connection reports besides answers: how often the server changed its offers, and the reason of its end."""

    def __init__(self) -> None:
        self.end_reason = ""
        self.changes = 0
        self._event = asyncio.Event()

    def note_change(self) -> None:
        """Note that the server offers something else now."""
        self.changes += 1
        self._event.set()

    def note_end(self, reason: str) -> None:
        """Note why the connection ended. The first reason counts."""
        self.end_reason = self.end_reason or reason
        self._event.set()

    async def wait(self) -> None:
        """Wait for the next event."""
        await self._event.wait()
        self._event.clear()


class McpConnection(Protocol):
    """A connection to an MCP server.

    Every method raises `McpError` on failure and returns plain JSON as MCP defines it.
    """

    async def list_offers(self) -> McpOffers: ...

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: OnProgress) -> dict[str, Any]: ...

    async def render(self, prompt: str, arguments: dict[str, str]) -> dict[str, Any]: ...

    async def read(self, uri: str) -> dict[str, Any]: ...


class McpLogin(Protocol):
    """A person who logs in.

    `show` presents the URL of the login page. `wait_for_code` returns the code, the state and the issuer.
    """

    async def show(self, url: str) -> None: ...

    async def wait_for_code(self) -> tuple[str, str | None, str | None]: ...


class McpConnector(Protocol):
    """Connects to a server and reports to `events`. `prepare` loads what every connection needs.

    Raises `LoginNeededError` or `RegistrationNeededError` if the server requires a login and `login` is None. Other
    failures raise any exception, possibly in a group.
    """

    async def prepare(self) -> None: ...

    def __call__(
        self, entry: AnyEntry, events: ConnectionEvents, login: McpLogin | None
    ) -> AbstractAsyncContextManager[McpConnection]: ...


class LoginNeededError(Exception):
    """The server requires a login."""


class RegistrationNeededError(Exception):
    """The server requires a registered client, and does not register us itself."""


def get_first_error(error: BaseException) -> BaseException:
    """Return the first exception in nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


# The library logs what it also raises. Without a handler, these logs would be printed on the screen.
LIBRARY_LOGGERS: Final = ("mcp", "client")
INSTALL_HINT: Final = "in weft's checkout: pip install '.[mcp]'"


class SdkConnector:
    """Connects through the official library. `logins` stores logins, and `redirect` is where browsers return to."""

    def __init__(self, logins: McpLoginStore, redirect: str) -> None:
        self._logins = logins
        self._redirect = redirect

    async def prepare(self) -> None:
        with suppress(McpError):  # every server reports the missing package when it is connected
            await asyncio.to_thread(_load_sdk)

    @asynccontextmanager
    async def __call__(
        self, entry: AnyEntry, events: ConnectionEvents, login: McpLogin | None
    ) -> AsyncIterator[McpConnection]:
        sdk = await asyncio.to_thread(_load_sdk)
        oauth = sdk.OAuthContext(logins=self._logins, redirect=self._redirect, login=login)
        async with sdk.open_connection(entry, events, oauth) as connection:
            yield connection


def _load_sdk() -> Any:
    try:
        import_module("mcp")
    except ImportError as error:
        raise McpError(f"the package for MCP is not installed: {INSTALL_HINT}") from error
    for name in LIBRARY_LOGGERS:
        if not logging.getLogger(name).handlers:
            logging.getLogger(name).addHandler(logging.NullHandler())
    return import_module("weft.tool.mcp.sdk.transport")
