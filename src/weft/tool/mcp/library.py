"""The official MCP library: loaded by the first server that is connected. It takes more than a second."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Final

from weft.errors import McpError
from weft.tool.mcp.auth.book import Book
from weft.tool.mcp.entry import AnyEntry
from weft.tool.mcp.link import Dial, Link, Login, News

# The library logs what it also raises; without a handler it would land on the screen.
LOGGERS: Final = ("mcp", "client")
EXTRA: Final = "pip install 'weft[mcp]'"


def dialling(book: Book, redirect: str) -> Dial:
    """Connect by way of the library. Logins are kept in `book`, and come back by `redirect`."""

    @asynccontextmanager
    async def dial(entry: AnyEntry, news: News, login: Login | None) -> AsyncIterator[Link]:
        sdk = await asyncio.to_thread(_load)
        async with sdk.open_link(
            entry, news, sdk.Passport(book=book, redirect=redirect, login=login)
        ) as link:
            yield link

    return dial


def _load() -> Any:
    try:
        import_module("mcp")
    except ImportError as error:
        raise McpError(f"the package for MCP is not installed: {EXTRA}") from error
    for name in LOGGERS:
        if not logging.getLogger(name).handlers:
            logging.getLogger(name).addHandler(logging.NullHandler())
    return import_module("weft.tool.mcp.sdk.connect")
