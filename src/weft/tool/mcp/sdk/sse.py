"""The older HTTP transport of MCP: the server sends its messages as events on one stream, we post ours.

The library has this transport too, but its `sse_client` refuses every event over 1 MiB and has no option for it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urljoin

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError

from weft.host.tasks import open_tasks
from weft.tool.mcp.entry import RemoteEntry
from weft.tool.mcp.link import News
from weft.tool.mcp.sdk.http import LONGEST_ANSWER

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


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
