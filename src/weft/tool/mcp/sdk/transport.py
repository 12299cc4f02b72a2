"""Connect to MCP servers: local ones by pipes, remote ones over HTTP, with the newer transport first."""

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
from weft.host.pipes import PipeProcess, open_pipe_process
from weft.host.processes import ProcessCommand
from weft.host.tasks import open_tasks
from weft.tool.mcp.connection import ConnectionEvents, McpConnection, get_first_error
from weft.tool.mcp.entry import AnyEntry, LocalEntry, RemoteEntry, to_single_line
from weft.tool.mcp.sdk.oauth import OAuthContext, to_auth
from weft.tool.mcp.sdk.session import SdkConnection
from weft.version import VERSION

# The names that `SdkConnector` uses.
__all__ = ["OAuthContext", "open_connection"]

MAX_RESPONSE_BYTES: Final = 32 << 20
# An event stream may be silent for a long time. Every request has its own deadline above this.
READ_TIMEOUT_SECONDS: Final = 3600.0


class _BoundedStream(httpx2.AsyncByteStream):
    """A response body that fails if it gets too long."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        remaining = MAX_RESPONSE_BYTES
        async for piece in self._stream:
            remaining -= len(piece)
            if remaining < 0:
                raise httpx2.StreamError(f"the answer is longer than {MAX_RESPONSE_BYTES} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _limit_response(response: httpx2.Response) -> None:
    """Limit the length of a response. An event stream may go on: each of its events is limited."""
    is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
    if not is_stream and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _BoundedStream(response.stream)


def open_client(entry: RemoteEntry, auth: httpx2.Auth | None) -> httpx2.AsyncClient:
    """Return an HTTP client for a server."""
    return httpx2.AsyncClient(
        headers=dict(entry.headers),
        timeout=httpx2.Timeout(entry.connect, read=READ_TIMEOUT_SECONDS),
        auth=auth,
        event_hooks={"response": [_limit_response]},
    )


MAX_LINE_BYTES: Final = 16 << 20


class LineTooLongError(Exception):
    """The server sent a line without an end."""


class LineReader:
    """Splits received bytes into lines."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._partial = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the lines that are complete by now, except empty ones. Raise `LineTooLongError`."""
        *complete, rest = piece.split(b"\n")
        for line in complete:
            self._partial += line
            if stripped := bytes(self._partial).strip():
                yield stripped
            self._partial.clear()
        self._partial += rest
        if len(self._partial) > self._max_bytes:
            raise LineTooLongError


# Lines that are not messages are skipped, as the library does, but not without a limit.
MAX_INVALID_LINES: Final = 1000
# Pause after this many messages in a row, so that other tasks can run.
MESSAGES_PER_PAUSE: Final = 256
PAUSE_SECONDS: Final = 0.005
MAX_STDERR_BYTES: Final = 2000
STDERR_WAIT_SECONDS: Final = 0.3

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class _StdioReader:
    """Reads the server's messages from its standard output, and keeps the end of its standard error."""

    def __init__(self, incoming: Incoming, events: ConnectionEvents) -> None:
        self._incoming = incoming
        self._events = events
        self._lines = LineReader()
        self._invalid_lines = 0
        self._message_count = 0
        self._stderr = bytearray()

    async def read_output(self, piece: bytes) -> None:
        if self._events.end_reason:
            return
        try:
            for line in self._lines.feed(piece):
                await self._handle_line(line)
        except LineTooLongError:
            self.note_end("it sent a message without an end")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.note_end("nobody listens to it any more")

    async def _handle_line(self, line: bytes) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError:
            self._invalid_lines += 1
            if self._invalid_lines > MAX_INVALID_LINES:
                self.note_end(f"it writes what is not MCP to its standard output: {_decode_line(line[:200])}")
            return
        if not self._events.end_reason:
            await self._incoming.send(SessionMessage(message))
        self._message_count += 1
        if self._message_count % MESSAGES_PER_PAUSE == 0:
            await asyncio.sleep(PAUSE_SECONDS)

    async def read_stderr(self, piece: bytes) -> None:
        self._stderr += piece
        del self._stderr[:-MAX_STDERR_BYTES]

    def note_end(self, reason: str) -> None:
        stderr = _decode_line(bytes(self._stderr))
        self._events.note_end(f"{reason}; it said: {stderr}" if stderr else reason)
        self._incoming.close()


def _decode_line(raw: bytes) -> str:
    return to_single_line(raw.decode(errors="replace"), MAX_STDERR_BYTES)


@asynccontextmanager
async def open_stdio(entry: LocalEntry, events: ConnectionEvents) -> AsyncIterator[Streams]:
    """Start a server and connect to its pipes. Leaving ends the server and every process it started."""
    if entry.refusal:
        raise McpError(entry.refusal)
    if not await asyncio.to_thread(_is_installed, entry):
        raise McpError(f"{entry.argv[0]} cannot be run: there is no such program")
    incoming_writer, incoming_reader = anyio.create_memory_object_stream[SessionMessage | Exception](
        MESSAGES_PER_PAUSE
    )
    outgoing_writer, outgoing_reader = anyio.create_memory_object_stream[SessionMessage](0)
    reader = _StdioReader(incoming_writer, events)
    command = ProcessCommand(argv=entry.argv, directory=entry.directory, environment=entry.environment)
    with incoming_writer, incoming_reader, outgoing_writer, outgoing_reader:
        try:
            async with (
                open_pipe_process(command, reader.read_output, reader.read_stderr) as process,
                open_tasks() as tasks,
            ):
                workers = [
                    tasks.create_task(_write_messages(outgoing_reader, process)),
                    tasks.create_task(_watch_exit(process, reader, entry)),
                ]
                try:
                    yield incoming_reader, outgoing_writer
                finally:
                    for task in workers:
                        task.cancel()
        except OSError as error:
            raise McpError(f"{entry.argv[0]} cannot be run: {error.strerror or error}") from error


def _is_installed(entry: LocalEntry) -> bool:
    program = entry.argv[0]
    path = os.path.join(entry.directory, program) if "/" in program else program
    return shutil.which(path, path=entry.environment.get("PATH", os.defpath)) is not None


async def _write_messages(
    outgoing_reader: MemoryObjectReceiveStream[SessionMessage], process: PipeProcess
) -> None:
    async for message in outgoing_reader:
        line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            process.write(line.encode() + b"\n")
        except OSError:
            return  # it has ended or does not read; callers have a deadline


async def _watch_exit(process: PipeProcess, reader: _StdioReader, entry: LocalEntry) -> None:
    await process.wait()
    await process.wait_for_output(STDERR_WAIT_SECONDS)
    reader.note_end(f"{os.path.basename(entry.argv[0])} has ended")


@asynccontextmanager
async def open_sse(
    client: httpx2.AsyncClient, entry: RemoteEntry, events: ConnectionEvents
) -> AsyncIterator[Streams]:
    """Connect to a server by the older HTTP transport. The end of the stream is reported to `events`.

    Raise `httpx2.HTTPError` if the server does not support this transport.
    """
    async with _send_request(client, "GET", entry.url, headers={"Accept": "text/event-stream"}) as response:
        response.raise_for_status()
        sse_events = aiter(httpx2.EventSource(response, max_event_size=MAX_RESPONSE_BYTES))
        endpoint = await _find_endpoint(sse_events, entry.url)
        incoming_writer, incoming_reader = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing_writer, outgoing_reader = anyio.create_memory_object_stream[SessionMessage](0)
        with incoming_writer, incoming_reader, outgoing_writer, outgoing_reader:
            async with open_tasks() as tasks:
                workers = [
                    tasks.create_task(_read_events(sse_events, incoming_writer, events)),
                    tasks.create_task(
                        _MessagePoster(client, endpoint, entry.connect).post_all(
                            outgoing_reader, incoming_writer
                        )
                    ),
                ]
                try:
                    yield incoming_reader, outgoing_writer
                finally:
                    for task in workers:
                        task.cancel()


async def _find_endpoint(sse_events: AsyncIterator[httpx2.ServerSentEvent], url: str) -> str:
    """Return the URL for our messages from the first event. It must be on the server's own origin."""
    async for event in sse_events:
        if event.event == "endpoint":
            endpoint = urljoin(url, event.data)
            if not _is_same_origin(httpx2.URL(url), httpx2.URL(endpoint)):
                raise httpx2.SSEError("the server wants messages to be sent to another server")
            return endpoint
    raise httpx2.SSEError("the server did not say where to send messages")


async def _read_events(
    sse_events: AsyncIterator[httpx2.ServerSentEvent], incoming_writer: Incoming, events: ConnectionEvents
) -> None:
    reason = "it closed the stream of events"
    try:
        async for event in sse_events:
            if event.event != "message" or not event.data:
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(event.data, by_name=False)
            except ValidationError as error:
                await incoming_writer.send(error)
                continue
            await incoming_writer.send(SessionMessage(message))
    except httpx2.HTTPError as error:
        reason = str(error) or type(error).__name__
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        reason = "nobody listens to it any more"
    events.note_end(reason)
    incoming_writer.close()


class _MessagePoster:
    """Posts messages to an endpoint one after the other, each with a time limit."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: str, seconds: float) -> None:
        self._client = client
        self._endpoint = endpoint
        self._seconds = seconds

    async def post_all(
        self, outgoing_reader: MemoryObjectReceiveStream[SessionMessage], incoming_writer: Incoming
    ) -> None:
        async for message in outgoing_reader:
            reason = await self._send(message)
            # A request that was not delivered gets no answer. Answer it with an error, so that its caller does not wait
            # in vain.
            if reason and isinstance(message.message, JSONRPCRequest):
                error = ErrorData(code=INTERNAL_ERROR, message=reason)
                answer = JSONRPCError(jsonrpc="2.0", id=message.message.id, error=error)
                try:
                    await incoming_writer.send(SessionMessage(answer))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return  # the event stream has ended, and with it the connection

    async def _send(self, message: SessionMessage) -> str:
        """Send a message. Return why it was not delivered, or ""."""
        body = message.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        try:
            async with _send_request(
                self._client, "POST", self._endpoint, json=body, timeout=self._seconds
            ) as response:
                await response.aread()
                response.raise_for_status()
        except httpx2.HTTPError as error:
            return f"the message could not be sent: {str(error) or type(error).__name__}"
        return ""


@asynccontextmanager
async def _send_request(
    client: httpx2.AsyncClient, method: str, url: str, **options: object
) -> AsyncIterator[httpx2.Response]:
    """Send a request and follow redirects on the same origin only, because the headers contain the person's keys."""
    request = client.build_request(method, url, **options)  # type: ignore[arg-type]
    response = await client.send(request, stream=True, follow_redirects=False)
    redirects = 0
    while redirects < client.max_redirects and (next_request := response.next_request) is not None:
        if next_request.method != method or not _is_same_origin(response.request.url, next_request.url):
            break
        await response.aclose()
        response = await client.send(next_request, stream=True, follow_redirects=False)
        redirects += 1
    try:
        yield response
    finally:
        await response.aclose()


def _is_same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


CLIENT_INFO: Final = types.Implementation(name="weft", version=VERSION)
CHANGE_NOTIFICATIONS: Final = (
    types.ToolListChangedNotification,
    types.PromptListChangedNotification,
    types.ResourceListChangedNotification,
)


@asynccontextmanager
async def open_connection(
    entry: AnyEntry, events: ConnectionEvents, oauth: OAuthContext
) -> AsyncIterator[McpConnection]:
    """Connect to a server, local or remote."""
    match entry:
        case LocalEntry():
            async with open_stdio(entry, events) as streams, _make_session(streams, events) as session:
                await _initialize(session)
                yield SdkConnection(session)
        case RemoteEntry():
            async with AsyncExitStack() as stack:
                yield SdkConnection(await _connect_remote(stack, entry, events, oauth))


async def _connect_remote(
    stack: AsyncExitStack, entry: RemoteEntry, events: ConnectionEvents, oauth: OAuthContext
) -> ClientSession:
    """Return a session by the first transport that works. If both fail, raise the error of the first."""
    auth = to_auth(entry, oauth)
    client = await stack.enter_async_context(open_client(entry, auth))
    try:
        transport = streamable_http_client(
            entry.url, http_client=client, max_sse_event_size=MAX_RESPONSE_BYTES
        )
        return await _try_transport(stack, transport, events)
    except (MCPError, httpx2.HTTPStatusError) as error:
        first_failure = error

    try:
        return await _try_transport(stack, open_sse(client, entry, events), events)
    except (httpx2.HTTPError, MCPError) as error:
        raise McpError(str(first_failure)) from error


async def _try_transport(
    stack: AsyncExitStack, transport: AbstractAsyncContextManager[Any], events: ConnectionEvents
) -> ClientSession:
    try:
        async with AsyncExitStack() as own_stack:
            streams = await own_stack.enter_async_context(transport)
            session = await own_stack.enter_async_context(_make_session(streams, events))
            await _initialize(session)
            stack.push_async_exit(own_stack.pop_all())
            return session
    except BaseExceptionGroup as group:
        raise get_first_error(group) from group


def _make_session(streams: Any, events: ConnectionEvents) -> ClientSession:
    async def handle_message(message: Any) -> None:
        if isinstance(message, CHANGE_NOTIFICATIONS):
            events.note_change()

    read, write = streams
    return ClientSession(read, write, message_handler=handle_message, client_info=CLIENT_INFO)


async def _initialize(session: ClientSession) -> None:
    """Do the handshake, by the older method first, which every server but the newest supports."""
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()
