"""The official MCP library: loaded by the first server that is connected. It takes more than a second."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import Any, Final

from weft.errors import McpError
from weft.tool.mcp.auth.book import Book
from weft.tool.mcp.entry import AnyEntry
from weft.tool.mcp.link import Link, Login, News

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
    return import_module("weft.tool.mcp.sdk.connect")
