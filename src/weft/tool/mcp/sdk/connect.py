"""Connect to a server: a local one by its pipes, a remote one over HTTP, the newer way first, then the older."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final

import httpx2
import mcp_types as types
from mcp import ClientSession, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION

from weft.errors import McpError
from weft.tool.mcp.entry import AnyEntry, LocalEntry, RemoteEntry
from weft.tool.mcp.link import Link, News, first_of
from weft.tool.mcp.sdk.http import LONGEST_ANSWER, open_client
from weft.tool.mcp.sdk.oauth import Passport, to_auth
from weft.tool.mcp.sdk.session import SessionLink
from weft.tool.mcp.sdk.sse import open_sse
from weft.tool.mcp.sdk.stdio import open_stdio
from weft.version import VERSION

__all__ = ["Passport", "open_link"]

US: Final = types.Implementation(name="weft", version=VERSION)
CHANGES: Final = (
    types.ToolListChangedNotification,
    types.PromptListChangedNotification,
    types.ResourceListChangedNotification,
)


@asynccontextmanager
async def open_link(entry: AnyEntry, news: News, passport: Passport) -> AsyncIterator[Link]:
    match entry:
        case LocalEntry():
            async with open_stdio(entry, news) as streams, _session(streams, news) as session:
                await _greet(session)
                yield SessionLink(session)
        case RemoteEntry():
            async with AsyncExitStack() as held:
                yield SessionLink(await _reach(held, entry, news, passport))


async def _reach(held: AsyncExitStack, entry: RemoteEntry, news: News, passport: Passport) -> ClientSession:
    """The first way that works. What is told of two failures is the first."""
    known = to_auth(entry, passport)
    client = await held.enter_async_context(open_client(entry, known))
    try:
        newer = streamable_http_client(entry.url, http_client=client, max_sse_event_size=LONGEST_ANSWER)
        return await _try(held, newer, news)
    except (MCPError, httpx2.HTTPStatusError) as error:
        refused = error

    try:
        return await _try(held, open_sse(client, entry, news), news)
    except (httpx2.HTTPError, MCPError) as error:
        raise McpError(str(refused)) from error


async def _try(
    held: AsyncExitStack, transport: AbstractAsyncContextManager[Any], news: News
) -> ClientSession:
    try:
        async with AsyncExitStack() as opened:
            streams = await opened.enter_async_context(transport)
            session = await opened.enter_async_context(_session(streams, news))
            await _greet(session)
            held.push_async_exit(opened.pop_all())
            return session
    except BaseExceptionGroup as group:
        raise first_of(group) from group


def _session(streams: Any, news: News) -> ClientSession:
    async def hear(message: Any) -> None:
        if isinstance(message, CHANGES):
            news.change()

    read, write = streams
    return ClientSession(read, write, message_handler=hear, client_info=US)


async def _greet(session: ClientSession) -> None:
    """The handshake that every server knows; one that knows only the newer way says so."""
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()
