"""Send one HTTP request to a model API and turn its answer into chunks, with a deadline for every wait and no retry."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import Final, Protocol
from urllib.parse import urlsplit

from weft.errors import ProviderError
from weft.model.url import redact_url
from weft.provider.catalog.local import find_refused_connection
from weft.provider.chunk import AnyChunk
from weft.provider.endpoint import HttpRequest
from weft.provider.faults import (
    MAX_BODY_LENGTH,
    make_broken_connection_error,
    make_error,
    make_incomplete_error,
    make_silence_error,
    parse_error,
)
from weft.provider.http_client import (
    SUCCESS,
    ConnectFailedError,
    ConnectTimeoutError,
    HttpClient,
    InvalidRequestError,
    TooManyConnectionsError,
)
from weft.provider.http_connection import HttpConnection, UndecodableBodyError
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
    client: HttpClient,
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
    with suppress(ProviderError, OSError, UndecodableBodyError):  # a timeout is an OSError
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in pieces:
                pass


class _OpenAnswer:
    """An answer that has begun: its response, the first bytes of its body, and the rest as it arrives."""

    def __init__(self, response: HttpConnection, first: bytes) -> None:
        self.response = response
        self._first = first

    async def iterate_pieces(self) -> AsyncGenerator[bytes]:
        piece, response = self._first, self.response
        while piece:
            yield piece
            try:
                piece = await response.read()
            except TimeoutError:
                raise make_silence_error(
                    f"the server sent nothing for {response.silence:g} s in the middle of its answer"
                ) from None

    async def read_beginning(self) -> bytes:
        """Return the beginning of the body, as much as arrives and at most `MAX_BODY_LENGTH` bytes."""
        body = b""
        with suppress(ProviderError, OSError, UndecodableBodyError):
            async with aclosing(self.iterate_pieces()) as pieces:
                async for piece in pieces:
                    body += piece
                    if len(body) > MAX_BODY_LENGTH:
                        break
        return body[:MAX_BODY_LENGTH]


@asynccontextmanager
async def _open_answer(client: HttpClient, request: HttpRequest) -> AsyncIterator[_OpenAnswer]:
    """Send the request and yield its answer. Raise `ProviderError` if it is not a stream of events."""
    deadlines = request.deadlines
    async with client.post(
        request.url, _list_headers(request), request.body, connect=deadlines.connect, write=deadlines.between
    ) as response:
        try:
            # It starts when the request has been sent: uploading a long history takes time.
            async with asyncio.timeout(deadlines.first_byte):
                await response.receive_head()
                answer = _OpenAnswer(response, await response.read())
        except TimeoutError:
            raise make_silence_error(
                f"no answer from {_format_host(request.url)} within {deadlines.first_byte:g} s"
            ) from None
        response.silence = deadlines.between
        await _require_event_stream(answer, request)
        yield answer


async def _require_event_stream(answer: _OpenAnswer, request: HttpRequest) -> None:
    """Raise `ProviderError` if the answer is an error, a web page or a single document."""
    response = answer.response
    content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_success = response.status in SUCCESS
    if is_success and content_type not in {"text/html", "application/json"}:
        return
    body, headers = await answer.read_beginning(), _drop_secret_headers(response)
    is_error = content_type == "application/json" and (b'"error"' in body or b'"__type"' in body)
    if is_error or not is_success:
        error = parse_error(response.status, headers, body)
        error.hint = request.key_hint if error.kind == "auth" else ""
        raise error
    raise make_error(
        "protocol",
        "the server answered with a web page instead of a stream: check the address of the API"
        if content_type == "text/html"
        else "the server answered with a single document instead of a stream",
        status=response.status,
        headers=headers,
        body=body.decode(errors="replace"),
    )


def _drop_secret_headers(response: HttpConnection) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name not in SECRET_HEADERS}


def _list_headers(request: HttpRequest) -> dict[str, str]:
    # A compressed stream arrives in large batches of events.
    defaults = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "user-agent": f"weft/{VERSION}",
    }
    return {**defaults, **request.headers}


@contextmanager
def _translate_errors(request: HttpRequest) -> Iterator[None]:
    """Turn network errors into `ProviderError`. The messages never quote a header: one of them holds the key."""
    host = _format_host(request.url)
    try:
        yield
    except ConnectTimeoutError:
        raise _make_timeout_error(f"connecting to {host} took too long") from None
    except TooManyConnectionsError:
        raise _make_timeout_error(f"too many requests to {host} are in progress") from None
    except TimeoutError:
        raise _make_timeout_error(f"{host} stopped reading the request") from None
    except InvalidRequestError:
        raise make_error(
            "bad-request", "the request cannot be sent: check the address, the key and the headers"
        ) from None
    except UndecodableBodyError as error:
        undecodable = make_error("protocol", f"the answer cannot be decompressed: {error}")
        undecodable.may_be_charged = True
        raise undecodable from error
    except ConnectFailedError as error:
        raise find_refused_connection(request.url, error, request.provider_id) or make_error(
            "network", f"cannot connect to {host}: {error}"
        ) from error
    except OSError as error:
        raise make_broken_connection_error(f"the connection to {host} broke off: {error}") from error


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
        return redact_url(urlsplit(url).geturl())
    except ValueError:
        return ""


def _make_timeout_error(message: str) -> ProviderError:
    return make_error("timeout", message)


def _format_host(url: str) -> str:
    """Return the host, with its port if the URL names one."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "the server"
    except ValueError:
        return "the server"
