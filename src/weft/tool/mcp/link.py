"""The connection to an MCP server, behind which the official library is loaded when first needed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib import import_module
from typing import Any, Final, Protocol

from msgspec import Struct

from weft.errors import McpError
from weft.tool.mcp.entry import AnyEntry
from weft.tool.mcp.login import Book

# What one server may bring. Servers are strangers: one that is out of its mind costs itself, not the conversation.
MOST_TOOLS: Final = 256
MOST_PROMPTS: Final = 256
MOST_RESOURCES: Final = 1000
MOST_PAGES: Final = 50


class ToolOffer(Struct, frozen=True, kw_only=True):
    """A tool as the server tells of it. That it is `read_only` is the server's own word."""

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


class Offers(Struct, frozen=True, kw_only=True):
    """All that a server offers, as far as we take it; `left_out` says in words what we do not."""

    tools: tuple[ToolOffer, ...] = ()
    prompts: tuple[PromptOffer, ...] = ()
    resources: tuple[ResourceOffer, ...] = ()
    left_out: str = ""


Progressed = Callable[[float, float | None, str | None], Awaitable[None]]


class News:
    """What is heard of a server besides its answers: how often it said that it offers something else now, and why it is
    no more."""

    def __init__(self) -> None:
        self.lost = ""
        self.changes = 0
        self._any = asyncio.Event()

    def change(self) -> None:
        self.changes += 1
        self._any.set()

    def lose(self, reason: str) -> None:
        self.lost = self.lost or reason
        self._any.set()

    async def next(self) -> None:
        """Wait until there are any."""
        await self._any.wait()
        self._any.clear()


class Link(Protocol):
    """A server that answered. Every call raises `McpError` where it does not do as asked. Results are plain JSON, as MCP
    has them."""

    async def list_offers(self) -> Offers: ...

    async def call(self, tool: str, arguments: dict[str, Any], progressed: Progressed) -> dict[str, Any]: ...

    async def render(self, prompt: str, arguments: dict[str, str]) -> dict[str, Any]: ...

    async def read(self, uri: str) -> dict[str, Any]: ...


class Login(Protocol):
    """Somebody who can log in: is shown an address, and brings what comes back from it (code, state, issuer)."""

    async def show(self, url: str) -> None: ...

    async def bring(self) -> tuple[str, str | None, str | None]: ...


class Dial(Protocol):
    """Connect to a server, whose `news` are told. `prepare` gets ready what that takes of us, whatever the server.

    Raises `LoginNeededError` or `RegistrationNeededError` if it wants to know who we are, and there is no `login` to
    tell it; anything else it likes when it fails, also in a group.
    """

    async def prepare(self) -> None: ...

    def __call__(
        self, entry: AnyEntry, news: News, login: Login | None
    ) -> AbstractAsyncContextManager[Link]: ...


class LoginNeededError(Exception):
    """The server lets nobody in who has not logged in."""


class RegistrationNeededError(Exception):
    """The server has to know us as a client first, and does not register us by itself."""


def first_of(error: BaseException) -> BaseException:
    """What went wrong first, out of the groups it is wrapped in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


# The library logs what it also raises; without a handler it would land on the screen.
LOGGERS: Final = ("mcp", "client")
EXTRA: Final = "pip install 'weft[mcp]'"


class Dialling:
    """Connect by way of the library. Logins are kept in `book`, and come back by `redirect`."""

    def __init__(self, book: Book, redirect: str) -> None:
        self._book = book
        self._redirect = redirect

    async def prepare(self) -> None:
        with suppress(McpError):  # that it is not installed is said by every server that would be connected
            await asyncio.to_thread(_load)

    @asynccontextmanager
    async def __call__(self, entry: AnyEntry, news: News, login: Login | None) -> AsyncIterator[Link]:
        sdk = await asyncio.to_thread(_load)
        passport = sdk.Passport(book=self._book, redirect=self._redirect, login=login)
        async with sdk.open_link(entry, news, passport) as link:
            yield link


def _load() -> Any:
    try:
        import_module("mcp")
    except ImportError as error:
        raise McpError(f"the package for MCP is not installed: {EXTRA}") from error
    for name in LOGGERS:
        if not logging.getLogger(name).handlers:
            logging.getLogger(name).addHandler(logging.NullHandler())
    return import_module("weft.tool.mcp.sdk.transport")
