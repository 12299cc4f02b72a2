"""Connect to MCP servers: local ones by pipes, remote ones over HTTP, the newer transport first."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final
from urllib.parse import urljoin

import anyio
import httpx2
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import ClientSession, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from weft.errors import McpError
from weft.host.pipes import Talk, open_talk
from weft.host.processes import Command
from weft.host.tasks import open_tasks
from weft.tool.mcp.entry import AnyEntry, LocalEntry, RemoteEntry, legible
from weft.tool.mcp.link import Link, News, first_of
from weft.tool.mcp.sdk.oauth import Passport, to_auth
from weft.tool.mcp.sdk.session import SessionLink
from weft.version import VERSION

LONGEST_ANSWER: Final = 32 << 20
# A stream of events may be silent for as long as nothing happens; every request has a deadline of its own above this.
READ_SECONDS: Final = 3600.0


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = LONGEST_ANSWER
        async for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise httpx2.StreamError(f"the answer is longer than {LONGEST_ANSWER} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _bound(response: httpx2.Response) -> None:
    """A stream of events is bounded event by event, and goes on; any other answer is one value, and has to end."""
    is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
    if not is_stream and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream)


def open_client(entry: RemoteEntry, auth: httpx2.Auth | None) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        headers=dict(entry.headers),
        timeout=httpx2.Timeout(entry.connect, read=READ_SECONDS),
        auth=auth,
        event_hooks={"response": [_bound]},
    )


LONGEST_LINE: Final = 16 << 20


class LineTooLongError(Exception):
    """Somebody talks and talks."""


class Lines:
    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines that are whole by now, without the empty ones."""
        *whole, rest = piece.split(b"\n")
        for line in whole:
            self._rest += line
            if stripped := bytes(self._rest).strip():
                yield stripped
            self._rest.clear()
        self._rest += rest
        if len(self._rest) > self._longest:
            raise LineTooLongError


# Lines that are no messages are passed over, as the library does; of one that has nothing else to say, not for ever.
MOST_JUNK: Final = 1000
# After so many messages without a pause, others have their turn.
AT_ONCE: Final = 256
PAUSE_SECONDS: Final = 0.005
ERROR_BYTES: Final = 2000
LAST_WORDS_SECONDS: Final = 0.3

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class _Ear:
    """Hears what the process says: messages on its output, complaints on its errors, of which the last are kept."""

    def __init__(self, incoming: Incoming, news: News) -> None:
        self._incoming = incoming
        self._news = news
        self._lines = Lines()
        self._junk = 0
        self._count = 0
        self._complaints = bytearray()

    async def hear(self, piece: bytes) -> None:
        if self._news.lost:
            return
        try:
            for line in self._lines.feed(piece):
                await self._take(line)
        except LineTooLongError:
            self.lose("it sent a message that has no end")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.lose("nobody listens to it any more")

    async def _take(self, line: bytes) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError:
            self._junk += 1
            if self._junk > MOST_JUNK:
                self.lose(f"it writes what is not MCP to its standard output: {_legible(line[:200])}")
            return
        if not self._news.lost:
            await self._incoming.send(SessionMessage(message))
        self._count += 1
        if self._count % AT_ONCE == 0:
            await asyncio.sleep(PAUSE_SECONDS)

    async def hear_errors(self, piece: bytes) -> None:
        self._complaints += piece
        del self._complaints[:-ERROR_BYTES]

    def lose(self, reason: str) -> None:
        said = _legible(bytes(self._complaints))
        self._news.lose(f"{reason}; it said: {said}" if said else reason)
        self._incoming.close()


def _legible(raw: bytes) -> str:
    return legible(raw.decode(errors="replace"), ERROR_BYTES)


@asynccontextmanager
async def open_stdio(entry: LocalEntry, news: News) -> AsyncIterator[Streams]:
    """Start a server and talk with it. Leaving ends it, and everything it started."""
    if entry.refusal:
        raise McpError(entry.refusal)
    if not await asyncio.to_thread(_can_be_run, entry):
        raise McpError(f"{entry.argv[0]} cannot be run: there is no such program")
    hearing, heard = anyio.create_memory_object_stream[SessionMessage | Exception](AT_ONCE)
    saying, said = anyio.create_memory_object_stream[SessionMessage](0)
    ear = _Ear(hearing, news)
    command = Command(argv=entry.argv, directory=entry.directory, environment=entry.environment)
    with hearing, heard, saying, said:
        try:
            async with open_talk(command, ear.hear, ear.hear_errors) as talk, open_tasks() as tasks:
                at_work = [
                    tasks.create_task(_pass_on(said, talk)),
                    tasks.create_task(_wait(talk, ear, entry)),
                ]
                try:
                    yield heard, saying
                finally:
                    for task in at_work:
                        task.cancel()
        except OSError as error:
            raise McpError(f"{entry.argv[0]} cannot be run: {error.strerror or error}") from error


def _can_be_run(entry: LocalEntry) -> bool:
    program = entry.argv[0]
    named = os.path.join(entry.directory, program) if "/" in program else program
    return shutil.which(named, path=entry.environment.get("PATH", os.defpath)) is not None


async def _pass_on(said: MemoryObjectReceiveStream[SessionMessage], talk: Talk) -> None:
    async for each in said:
        line = each.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            talk.say(line.encode() + b"\n")
        except OSError:
            return  # it has ended, or does not listen: whoever waits for an answer has a deadline


async def _wait(talk: Talk, ear: _Ear, entry: LocalEntry) -> None:
    await talk.over()
    await talk.heard_out(LAST_WORDS_SECONDS)
    ear.lose(f"{os.path.basename(entry.argv[0])} has ended")


@asynccontextmanager
async def open_sse(client: httpx2.AsyncClient, entry: RemoteEntry, news: News) -> AsyncIterator[Streams]:
    """Connect to a server and talk with it. The end of the stream is told as `news`.

    Raises `httpx2.HTTPError` if the server does not speak this transport.
    """
    async with _follow(client, "GET", entry.url, headers={"Accept": "text/event-stream"}) as response:
        response.raise_for_status()
        events = aiter(httpx2.EventSource(response, max_event_size=LONGEST_ANSWER))
        endpoint = await _find_endpoint(events, entry.url)
        hearing, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        saying, said = anyio.create_memory_object_stream[SessionMessage](0)
        with hearing, heard, saying, said:
            async with open_tasks() as tasks:
                at_work = [
                    tasks.create_task(_hear(events, hearing, news)),
                    tasks.create_task(_Post(client, endpoint, entry.connect).pass_on(said, hearing)),
                ]
                try:
                    yield heard, saying
                finally:
                    for task in at_work:
                        task.cancel()


async def _find_endpoint(events: AsyncIterator[httpx2.ServerSentEvent], url: str) -> str:
    """The address for our messages, which the first event names. It has to be on the server's own origin."""
    async for event in events:
        if event.event == "endpoint":
            found = urljoin(url, event.data)
            if not _is_same_origin(httpx2.URL(url), httpx2.URL(found)):
                raise httpx2.SSEError("the server wants messages to be sent to another server")
            return found
    raise httpx2.SSEError("the server did not say where to send messages")


async def _hear(events: AsyncIterator[httpx2.ServerSentEvent], hearing: Incoming, news: News) -> None:
    reason = "it closed the stream of events"
    try:
        async for event in events:
            if event.event != "message" or not event.data:
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(event.data, by_name=False)
            except ValidationError as error:
                await hearing.send(error)
                continue
            await hearing.send(SessionMessage(message))
    except httpx2.HTTPError as error:
        reason = str(error) or type(error).__name__
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        reason = "nobody listens to it any more"
    news.lose(reason)
    hearing.close()


class _Post:
    """Sends messages to `endpoint`, one after the other, each within so many seconds."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: str, seconds: float) -> None:
        self._client = client
        self._endpoint = endpoint
        self._seconds = seconds

    async def pass_on(self, said: MemoryObjectReceiveStream[SessionMessage], hearing: Incoming) -> None:
        async for each in said:
            fault = await self._send(each)
            # Nobody answers a request that did not arrive: its caller is told at once instead of waiting in vain.
            if fault and isinstance(each.message, JSONRPCRequest):
                refused = ErrorData(code=INTERNAL_ERROR, message=fault)
                answer = JSONRPCError(jsonrpc="2.0", id=each.message.id, error=refused)
                try:
                    await hearing.send(SessionMessage(answer))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return  # the stream of events has ended, and with it the connection

    async def _send(self, message: SessionMessage) -> str:
        """Send a message. Return why it did not arrive, or nothing."""
        body = message.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        try:
            async with _follow(
                self._client, "POST", self._endpoint, json=body, timeout=self._seconds
            ) as response:
                await response.aread()
                response.raise_for_status()
        except httpx2.HTTPError as error:
            return f"the message could not be sent: {str(error) or type(error).__name__}"
        return ""


@asynccontextmanager
async def _follow(
    client: httpx2.AsyncClient, method: str, url: str, **more: object
) -> AsyncIterator[httpx2.Response]:
    """The answer to a request. A redirect is followed on the same origin only: the headers hold the person's keys."""
    request = client.build_request(method, url, **more)  # type: ignore[arg-type]
    response = await client.send(request, stream=True, follow_redirects=False)
    followed = 0
    while followed < client.max_redirects and (following := response.next_request) is not None:
        if following.method != method or not _is_same_origin(response.request.url, following.url):
            break
        await response.aclose()
        response = await client.send(following, stream=True, follow_redirects=False)
        followed += 1
    try:
        yield response
    finally:
        await response.aclose()


def _is_same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


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
