"""Send one HTTP request to a model API and turn its answer into chunks, with a deadline for every wait and no retry."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any, Final, Protocol

import httpx2

from weft.errors import ProviderError
from weft.provider.catalog.local import find_refused_connection
from weft.provider.chunk import AnyChunk
from weft.provider.endpoint import HttpRequest, StreamDeadlines
from weft.provider.faults import MAX_BODY_LENGTH, make_error, make_incomplete_error, parse_error
from weft.provider.sse import SseEvent, SseReader
from weft.version import VERSION

DRAIN_SECONDS: Final = 0.2
SECRET_HEADERS: Final = frozenset({"set-cookie"})


class EventReader(Protocol):
    """Splits a stream of bytes into events. The bytes may be cut anywhere.

    `feed` returns the events that are now complete. `end` returns the last event if the stream ended without closing
    it.
    """

    def feed(self, data: bytes, /) -> list[SseEvent]: ...

    def end(self) -> list[SseEvent]: ...


class StreamFold(Protocol):
    """Turns the events of one API's stream into chunks.

    `done` is True once the answer is complete. `end` returns the chunks that are left when the stream is over; it
    raises `ProviderError` if the answer is incomplete.
    """

    done: bool

    def feed(self, event: SseEvent, /) -> Iterable[AnyChunk]: ...

    def end(self) -> Iterable[AnyChunk]: ...


async def stream_chunks(
    client: httpx2.AsyncClient,
    build: Callable[[], HttpRequest],
    fold: StreamFold,
    *,
    reader: EventReader | None = None,
    in_thread: bool = False,
) -> AsyncGenerator[AnyChunk]:
    """POST a request and yield its answer as chunks. With `in_thread`, `build` runs in a thread because encoding
    takes long.

    Closing the generator closes the connection at once. A complete answer is read to the end of the stream first,
    so that the connection can be reused.

    Raise `ProviderError`: with the server's own words if it refused, of kind `protocol` if it did not answer with
    events, and of kind `timeout` or `network` if no answer came.
    """
    events, has_event = reader or SseReader(), False
    request = await asyncio.to_thread(build) if in_thread else build()
    with _add_url(request.url), _translate_errors(request):
        async with _open_answer(client, request) as answer, aclosing(answer.iterate_pieces()) as pieces:
            async for piece in pieces:
                for event in events.feed(piece):
                    has_event = True
                    for chunk in fold.feed(event):
                        yield chunk
                if fold.done:
                    break
            for event in () if fold.done else events.end():
                has_event = True
                for chunk in _feed_rest(fold, event):
                    yield chunk
            if not has_event:
                raise make_incomplete_error("the server sent an empty answer")
            for chunk in fold.end():
                yield chunk
            await _drain(pieces)


def _feed_rest(fold: StreamFold, event: SseEvent) -> list[AnyChunk]:
    """Return the chunks of an event that the stream did not close. If it cannot be parsed, the answer was cut off
    inside it.
    """
    try:
        return list(fold.feed(event))
    except ProviderError as error:
        if error.kind != "protocol" or error.retryable:
            raise
        raise make_incomplete_error("the answer broke off in the middle of an event") from error


async def _drain(pieces: AsyncGenerator[bytes]) -> None:
    """Read a complete answer to the end of the stream, for a short time, so that its connection can be reused."""
    with suppress(TimeoutError, ProviderError, httpx2.TransportError):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in pieces:
                pass


class _OpenAnswer:
    """An answer that has begun: its response, the first bytes of its body, and the rest as it arrives."""

    def __init__(self, response: httpx2.Response, deadlines: StreamDeadlines) -> None:
        self.response = response
        self._deadlines = deadlines
        self._rest = _iterate_bytes(response)
        self._first: bytes | None = None

    async def read_first(self) -> None:
        self._first = await anext(self._rest, None)

    async def iterate_pieces(self) -> AsyncGenerator[bytes]:
        if self._first is None:
            return
        yield self._first
        try:
            async for piece in self._rest:
                yield piece
        except httpx2.ReadTimeout:
            raise _make_timeout_error(
                f"the server sent nothing for {self._deadlines.between:g} s in the middle of its answer"
            ) from None

    async def read_beginning(self) -> bytes:
        """Return the beginning of the body, as much as arrives and at most `MAX_BODY_LENGTH` bytes."""
        body = b""
        with suppress(ProviderError, httpx2.TransportError):
            async with aclosing(self.iterate_pieces()) as pieces:
                async for piece in pieces:
                    body += piece
                    if len(body) > MAX_BODY_LENGTH:
                        break
        return body[:MAX_BODY_LENGTH]

    async def close(self) -> None:
        if isinstance(self._rest, AsyncGenerator):
            await self._rest.aclose()
        await self.response.aclose()


def _iterate_bytes(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Return the bytes of the body as they arrive. An uncompressed body skips the decoder, which costs time for
    every piece.
    """
    stream = response.stream
    if isinstance(stream, httpx2.AsyncByteStream) and "content-encoding" not in response.headers:
        return aiter(stream)
    return response.aiter_bytes()


@asynccontextmanager
async def _open_answer(client: httpx2.AsyncClient, request: HttpRequest) -> AsyncIterator[_OpenAnswer]:
    """Send the request and yield its answer. Raise `ProviderError` if it is not a stream of events."""
    http_request, deadlines = _build_request(client, request), request.deadlines
    answer: _OpenAnswer | None = None
    try:
        try:
            async with asyncio.timeout(None) as deadline:
                # The deadline for the first byte starts when the request has been sent: uploading a long history
                # takes time.
                http_request.extensions["trace"] = _make_deadline_trace(deadline, deadlines.first_byte)
                answer = _OpenAnswer(await client.send(http_request, stream=True), deadlines)
                # From here on the client's own read timeout is used: `asyncio.timeout` would cost time for every piece.
                http_request.extensions["timeout"]["read"] = deadlines.between
                await answer.read_first()
        except TimeoutError:
            raise _make_timeout_error(f"no answer within {deadlines.first_byte:g} s") from None
        await _require_event_stream(answer, request)
        yield answer
    finally:
        if answer is not None:
            await answer.close()


def _make_deadline_trace(deadline: asyncio.Timeout, seconds: float) -> Any:
    """Return a trace callback that starts the deadline when the request body has been sent."""

    async def trace(name: str, _: Mapping[str, Any]) -> None:
        if name.endswith("send_request_body.complete"):
            deadline.reschedule(asyncio.get_running_loop().time() + seconds)

    return trace


async def _require_event_stream(answer: _OpenAnswer, request: HttpRequest) -> None:
    """Raise `ProviderError` if the answer is an error, a web page or a single document."""
    response = answer.response
    content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.is_success and content_type not in {"text/html", "application/json"}:
        return
    body, headers = await answer.read_beginning(), _drop_secret_headers(response)
    is_error = content_type == "application/json" and (b'"error"' in body or b'"__type"' in body)
    if is_error or not response.is_success:
        error = parse_error(response.status_code, headers, body)
        error.hint = request.key_hint if error.kind == "auth" else ""
        raise error
    raise make_error(
        "protocol",
        "the server answered with a web page instead of a stream: check the address of the API"
        if content_type == "text/html"
        else "the server answered with a single document instead of a stream",
        status=response.status_code,
        headers=headers,
        body=body.decode(errors="replace"),
    )


def _drop_secret_headers(response: httpx2.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name not in SECRET_HEADERS}


def _build_request(client: httpx2.AsyncClient, request: HttpRequest) -> httpx2.Request:
    deadlines = request.deadlines
    # `_open_answer` limits the wait for the first byte, and sets the read timeout when the answer begins.
    timeouts = httpx2.Timeout(
        connect=deadlines.connect, pool=deadlines.connect, write=deadlines.between, read=None
    )
    # A compressed stream arrives in large batches of events.
    defaults = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "user-agent": f"weft/{VERSION}",
    }
    headers = {**defaults, **request.headers}
    return client.build_request("POST", request.url, headers=headers, content=request.body, timeout=timeouts)


@contextmanager
def _translate_errors(request: HttpRequest) -> Iterator[None]:
    """Turn network errors into `ProviderError`. The messages never quote a header: one of them holds the key."""
    url = request.url
    try:
        yield
    except httpx2.ConnectTimeout:
        raise _make_timeout_error(f"connecting to {_format_host(url)} took too long") from None
    except httpx2.PoolTimeout:
        raise _make_timeout_error(f"too many requests to {_format_host(url)} are in progress") from None
    except httpx2.TimeoutException:
        raise _make_timeout_error(f"{_format_host(url)} stopped reading the request") from None
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL, UnicodeEncodeError, httpx2.LocalProtocolError):
        raise make_error(
            "bad-request", "the request cannot be sent: check the address, the key and the headers"
        ) from None
    except httpx2.DecodingError as error:
        raise make_error("protocol", f"the answer cannot be decompressed: {error}") from error
    except (httpx2.ConnectError, httpx2.ProxyError) as error:
        raise find_refused_connection(url, error, request.provider_id) or make_error(
            "network", f"cannot connect to {_format_host(url)}: {error}"
        ) from error
    except (httpx2.TransportError, ssl.SSLError) as error:
        raise make_error("network", f"the connection to {_format_host(url)} broke off: {error}") from error


@contextmanager
def _add_url(url: str) -> Iterator[None]:
    """Set the address of every `ProviderError`, without the parts that may hold a key."""
    try:
        yield
    except ProviderError as error:
        error.url = strip_url(url)
        raise


def strip_url(url: str) -> str:
    """Return a URL without query, fragment and password. Return "" if it is not a URL."""
    try:
        return str(httpx2.URL(url).copy_with(query=None, fragment=None, userinfo=b""))
    except httpx2.InvalidURL:
        return ""


def _make_timeout_error(message: str) -> ProviderError:
    return make_error("timeout", message)


def _format_host(url: str) -> str:
    """Return the host, with its port if the URL names one."""
    try:
        return httpx2.URL(url).netloc.decode() or "the server"
    except httpx2.InvalidURL:
        return "the server"
