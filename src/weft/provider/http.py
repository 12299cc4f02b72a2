"""One HTTP request to a model's API, its answer as chunks, every wait with an end. Nothing is retried here."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any, Final, Protocol

import httpx2

from weft.errors import ProviderError
from weft.provider.catalog.local import to_refusal
from weft.provider.chunk import AnyChunk
from weft.provider.endpoint import Deadlines, Question
from weft.provider.faults import MAX_BODY, broken, fault, to_error
from weft.provider.sse import SseEvent, SseReader
from weft.version import VERSION

GRACE: Final = 0.2
SECRET_HEADERS: Final = frozenset({"set-cookie"})


class Reader(Protocol):
    """Bytes, cut anywhere, to the events that became whole; `end` gives what is left when the bytes are over."""

    def feed(self, data: bytes, /) -> list[SseEvent]: ...

    def end(self) -> list[SseEvent]: ...


class Fold(Protocol):
    """Events of one API's stream to chunks. It is `done` when the answer is whole; `end` tells what is left to tell
    when the stream is over, and raises `ProviderError` if the answer is not whole."""

    done: bool

    def feed(self, event: SseEvent, /) -> Iterable[AnyChunk]: ...

    def end(self) -> Iterable[AnyChunk]: ...


async def stream_chunks(
    client: httpx2.AsyncClient,
    ask: Callable[[], Question],
    fold: Fold,
    *,
    reader: Reader | None = None,
    apart: bool = False,
) -> AsyncGenerator[AnyChunk]:
    """POST a question and yield its answer. Closing this closes the connection at once; an answer that is whole is
    read to its end first. A question that takes long to put together is made `apart`, in a thread.

    Raises `ProviderError`: what the server said when it refused, `protocol` when it does not answer in events,
    `timeout` and `network` when nothing comes.
    """
    events, told = reader or SseReader(), False
    question = await asyncio.to_thread(ask) if apart else ask()
    with _addressed(question.url), _ours(question):
        async with _open_answer(client, question) as answer, aclosing(answer.pieces()) as pieces:
            async for piece in pieces:
                for event in events.feed(piece):
                    told = True
                    for chunk in fold.feed(event):
                        yield chunk
                if fold.done:
                    break
            for event in () if fold.done else events.end():
                told = True
                for chunk in _feed_last(fold, event):
                    yield chunk
            if not told:
                raise broken("the server answered with nothing")
            for chunk in fold.end():
                yield chunk
            await _drain(pieces)


def _feed_last(fold: Fold, event: SseEvent) -> list[AnyChunk]:
    """What stands behind the last whole event. Where that cannot be read, the answer was cut off in the middle of it."""
    try:
        return list(fold.feed(event))
    except ProviderError as error:
        if error.kind != "protocol" or error.retryable:
            raise
        raise broken("the model's answer broke off in the middle of an event") from error


async def _drain(pieces: AsyncGenerator[bytes]) -> None:
    """Let an answer that is whole come to its end, so that its connection can serve again; but not for long."""
    with suppress(TimeoutError, ProviderError, httpx2.TransportError):
        async with asyncio.timeout(GRACE):
            async for _ in pieces:
                pass


class _Answer:
    """An answer that has begun: its head, the first bytes of its body, and the rest as it comes."""

    def __init__(self, response: httpx2.Response, deadlines: Deadlines) -> None:
        self.response = response
        self._deadlines = deadlines
        self._rest = _bytes_of(response)
        self._first: bytes | None = None

    async def begin(self) -> None:
        self._first = await anext(self._rest, None)

    async def pieces(self) -> AsyncGenerator[bytes]:
        if self._first is None:
            return
        yield self._first
        try:
            async for piece in self._rest:
                yield piece
        except httpx2.ReadTimeout:
            raise _silent(f"the answer stopped for {self._deadlines.between:g} s") from None

    async def text(self) -> bytes:
        """The beginning of the body, as far as it comes."""
        said = b""
        with suppress(ProviderError, httpx2.TransportError):
            async with aclosing(self.pieces()) as chunks:
                async for chunk in chunks:
                    said += chunk
                    if len(said) > MAX_BODY:
                        break
        return said[:MAX_BODY]

    async def close(self) -> None:
        if isinstance(self._rest, AsyncGenerator):
            await self._rest.aclose()
        await self.response.aclose()


def _bytes_of(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The body as it comes. One that is not packed need not be unpacked: every piece would pay for it."""
    stream = response.stream
    if isinstance(stream, httpx2.AsyncByteStream) and "content-encoding" not in response.headers:
        return aiter(stream)
    return response.aiter_bytes()


@asynccontextmanager
async def _open_answer(client: httpx2.AsyncClient, question: Question) -> AsyncIterator[_Answer]:
    """The answer to the question, once it is one we can read."""
    request, deadlines = _build(client, question), question.deadlines
    answer: _Answer | None = None
    try:
        try:
            async with asyncio.timeout(None) as deadline:
                # The clock for the first byte starts when the question is sent: a long history takes its time.
                request.extensions["trace"] = _once_sent(deadline, deadlines.first_byte)
                answer = _Answer(await client.send(request, stream=True), deadlines)
                # From here on the client's own clock runs, once per read: ours would run for every piece.
                request.extensions["timeout"]["read"] = deadlines.between
                await answer.begin()
        except TimeoutError:
            raise _silent(f"no answer within {deadlines.first_byte:g} s") from None
        await _refuse_unreadable(answer, question)
        yield answer
    finally:
        if answer is not None:
            await answer.close()


def _once_sent(deadline: asyncio.Timeout, seconds: float) -> Any:
    async def trace(name: str, _: Mapping[str, Any]) -> None:
        if name.endswith("send_request_body.complete"):
            deadline.reschedule(asyncio.get_running_loop().time() + seconds)

    return trace


async def _refuse_unreadable(answer: _Answer, question: Question) -> None:
    response = answer.response
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.is_success and kind not in {"text/html", "application/json"}:
        return
    said, headers = await answer.text(), _headers(response)
    told = kind == "application/json" and (b'"error"' in said or b'"__type"' in said)
    if told or not response.is_success:
        error = to_error(response.status_code, headers, said)
        error.hint = question.key_from if error.kind == "auth" else ""
        raise error
    raise fault(
        "protocol",
        "the server answered with a web page, not with a stream; is the address of the API right?"
        if kind == "text/html"
        else "the server answered with one document, not with a stream",
        status=response.status_code,
        headers=headers,
        body=said.decode(errors="replace"),
    )


def _headers(response: httpx2.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name not in SECRET_HEADERS}


def _build(client: httpx2.AsyncClient, question: Question) -> httpx2.Request:
    deadlines = question.deadlines
    # The wait for the first byte has a clock of our own; the one for the rest is set when the answer begins.
    waits = httpx2.Timeout(
        connect=deadlines.connect, pool=deadlines.connect, write=deadlines.between, read=None
    )
    # A compressed stream of events comes in lumps.
    fixed = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "user-agent": f"weft/{VERSION}",
    }
    headers = {**fixed, **question.headers}
    return client.build_request("POST", question.url, headers=headers, content=question.body, timeout=waits)


@contextmanager
def _ours(question: Question) -> Iterator[None]:
    """What goes wrong on the way, as `ProviderError`. Never quotes a header: one of them is the key."""
    url = question.url
    try:
        yield
    except httpx2.ConnectTimeout:
        raise _silent(f"no connection to {_host(url)} in time") from None
    except httpx2.PoolTimeout:
        raise _silent(f"too many requests to {_host(url)} under way") from None
    except httpx2.TimeoutException:
        raise _silent(f"{_host(url)} stopped listening") from None
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL, UnicodeEncodeError, httpx2.LocalProtocolError):
        raise fault(
            "bad-request", "the request cannot be sent: check the address, the key and the headers"
        ) from None
    except httpx2.DecodingError as error:
        raise fault("protocol", f"the answer cannot be unpacked: {error}") from error
    except (httpx2.ConnectError, httpx2.ProxyError) as error:
        raise to_refusal(url, error, question.provider_id) or fault(
            "network", f"no connection to {_host(url)}: {error}"
        ) from error
    except (httpx2.TransportError, ssl.SSLError) as error:
        raise fault("network", f"the connection to {_host(url)} broke off: {error}") from error


@contextmanager
def _addressed(url: str) -> Iterator[None]:
    """Write the address into every `ProviderError`, without what may be a key in it."""
    try:
        yield
    except ProviderError as error:
        error.url = to_address(url)
        raise


def to_address(url: str) -> str:
    """Return a URL without its query and its password, or "" if it is none."""
    try:
        return str(httpx2.URL(url).copy_with(query=None, fragment=None, userinfo=b""))
    except httpx2.InvalidURL:
        return ""


def _silent(message: str) -> ProviderError:
    return fault("timeout", message)


def _host(url: str) -> str:
    """The host, with its port where the address names one."""
    try:
        return httpx2.URL(url).netloc.decode() or "the server"
    except httpx2.InvalidURL:
        return "the server"
