"""One HTTP/1.1 connection: requests are sent, and their responses are read as they arrive."""

import asyncio
import select
import sys
import zlib
from typing import Final

import httptools

IDLE_SECONDS: Final = 5.0  # servers close idle connections, too, and many do so after 5 s
MAX_HEAD_BYTES: Final = 100_000
PULSE_SECONDS: Final = 0.01
MAX_UNREAD_BYTES: Final = 1 << 18
MAX_JOINED_BYTES: Final = 1 << 16  # up to here, a copy costs less than another system call
FIRST_FINAL_STATUS: Final = 200  # a lower one announces another response
NO_ENCODING: Final = "identity"
DECOMPRESSED: Final = frozenset({"gzip", "x-gzip", "deflate"})
ZLIB_OR_GZIP: Final = zlib.MAX_WBITS | 32


class ConnectionBrokenError(OSError):
    """The server closed the connection, or sent something that is not HTTP."""


class UndecodableBodyError(ValueError):
    """The body of a response cannot be decompressed."""


class Pulse:
    """Wakes the readers of many connections together.

    Most of the work, up to the frame for a browser, is done once for all pieces of an answer that are read together. So
    a reader is woken at once only if no reader was woken during the last `PULSE_SECONDS`. Otherwise it is woken when this time is
    over, together with all other readers that wait.
    """

    def __init__(self) -> None:
        self._waiting: set[HttpConnection] = set()
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def wake(self, connection: "HttpConnection") -> None:
        self._waiting.add(connection)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._next_at:
                self._wake_all()
            else:
                self._timer = loop.call_at(self._next_at, self._wake_all)

    def _wake_all(self) -> None:
        self._timer, self._next_at = None, asyncio.get_running_loop().time() + PULSE_SECONDS
        waiting, self._waiting = self._waiting, set()
        for connection in waiting:
            connection.wake()


class HttpConnection(asyncio.Protocol):
    """A connection to a server.

    `status` and `headers` are those of the current response, once `receive_head` has returned. `silence` limits how many
    seconds `read` waits for the next piece.
    """

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self.status = 0
        self.headers: dict[str, str] = {}
        self.silence: float | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._head_bytes = 0
        self._has_head = False
        self._is_complete = True
        self._is_reusable = True
        self._idle_since = 0.0
        self._body: list[bytes] = []
        self._unread = 0
        self._is_reading = True
        self._is_sending = False
        self._encoding = NO_ENCODING
        self._decompressor: zlib._Decompress | None = None
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._waiting_since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # --- called by asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Use this transport. After `start_tls` it is called again, with the transport that encrypts."""
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(0)  # `send` returns when everything is sent
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._is_complete:
            self.abort()  # nothing was asked
            return
        had_head = self._has_head
        if not had_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ConnectionBrokenError(f"the server does not speak HTTP: {error}"))
        if not self._has_head and self._head_bytes > MAX_HEAD_BYTES:
            self._fail(ConnectionBrokenError(f"the headers are longer than {MAX_HEAD_BYTES} bytes"))
        if self._unread > MAX_UNREAD_BYTES and self._is_reading and self._transport is not None:
            self._transport.pause_reading()
            self._is_reading = False
        if had_head and self._is_in_body() and self._is_reading:
            self._pulse.wake(self)
        else:
            self.wake()  # the head, the end, or so much that the reader has to make room

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if exc is None and self._has_head and not self._has_length():
            self._is_complete = True  # the end of the connection is the end of the body
        self._fail(exc or ConnectionBrokenError("the server closed it"))

    def pause_writing(self) -> None:
        self._is_sending = True

    def resume_writing(self) -> None:
        self._is_sending = False
        self.wake()

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        if self._is_complete:
            self._is_reusable = False  # a second response that nobody asked for

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_complete and not self._has_head:  # fields after the body have no use, and no limit
            key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        if self._is_complete:
            return
        self.status = self._parser.get_status_code()
        if self.status < FIRST_FINAL_STATUS:
            self.headers = {}
            return
        self._has_head = True
        self._encoding = self.headers.get("content-encoding", NO_ENCODING).lower()
        if self._encoding in DECOMPRESSED:
            self._decompressor = zlib.decompressobj(ZLIB_OR_GZIP)

    def on_body(self, body: bytes) -> None:
        if not self._is_complete:
            self._body.append(body)
            self._unread += len(body)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self._has_head and not self._is_complete:
            self._is_complete = True
            self._is_reusable = self._is_reusable and self._parser.should_keep_alive()

    # --- called by the pulse ---

    def wake(self) -> None:
        """Wake the reader that waits, so that it sees what has happened."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- called by the client ---

    @property
    def transport(self) -> asyncio.Transport:
        """The open transport. Raise `ConnectionBrokenError` if the server closed the connection."""
        if self._transport is None:
            raise ConnectionBrokenError("the server closed it")
        return self._transport

    async def send(self, head: bytes, body: bytes, seconds: float) -> None:
        """Send a request. Raise `TimeoutError` if the server did not read it within `seconds`.

        A server may answer, and even close the connection, before it has read everything.
        """
        self.status, self.headers, self.silence = 0, {}, None
        self._parser = httptools.HttpResponseParser(self)
        self._head_bytes, self._has_head, self._is_complete = 0, False, False
        self._body, self._unread, self._error = [], 0, None
        self._encoding, self._decompressor = NO_ENCODING, None
        if len(body) <= MAX_JOINED_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)
        if self._must_send():
            async with asyncio.timeout(seconds):
                while self._must_send():
                    await self._wait()

    async def receive_head(self) -> None:
        """Wait for the status and the headers."""
        while not self._has_head:
            if self._error is not None:
                raise self._error
            await self._wait()

    async def read(self) -> bytes:
        """Return what has arrived of the body; wait if nothing has. Return b"" at its end.

        Raise `TimeoutError` after `silence`, `UndecodableBodyError`, or `OSError` if the body broke off.
        """
        while True:
            if self._decompressor is not None and self._decompressor.unconsumed_tail:
                return self._decompress(self._decompressor.unconsumed_tail)
            if self._body:
                data = self._decompress(self._take_body())
                if data:
                    return data
            elif self._is_complete:
                return b""
            elif self._error is not None:
                raise self._error
            else:
                await self._wait()

    def end_response(self) -> None:
        """Make the connection ready for another request, or close it if the response was not read to its end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._idle_since = self._loop.time()
        if not self._is_complete or self._body or not self._is_reusable:
            self.abort()

    def is_reusable(self) -> bool:
        """Return True if another request can be sent: the server is still there."""
        if self._transport is None or self._transport.is_closing() or not self._is_reusable:
            return False
        if self._loop.time() - self._idle_since > IDLE_SECONDS:
            return False
        if sys.platform == "win32":  # it has no `poll`
            return True
        # If something can be read now, it is the end of the connection: the server closed it, and the event loop has not noticed yet.
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    def abort(self) -> None:
        """Close the connection at once."""
        self._is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    def _is_in_body(self) -> bool:
        return self._has_head and not self._is_complete and self._error is None

    def _must_send(self) -> bool:
        return self._is_sending and not self._has_head and self._error is None

    def _has_length(self) -> bool:
        """Return True if the response says where it ends."""
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    def _take_body(self) -> bytes:
        data = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body, self._unread = [], 0
        if not self._is_reading and self._transport is not None:
            self._transport.resume_reading()
            self._is_reading = True
        return data

    def _decompress(self, data: bytes) -> bytes:
        if self._encoding == NO_ENCODING:
            return data
        if self._decompressor is None:
            raise UndecodableBodyError(f"it is compressed with {self._encoding}")
        try:
            return self._decompressor.decompress(data, MAX_UNREAD_BYTES)
        except zlib.error as error:
            raise UndecodableBodyError(str(error)) from error

    def _fail(self, error: Exception) -> None:
        """End the response with an error unless it is complete."""
        self._is_reusable = False
        if self._error is None and not self._is_complete:
            self._error = error
        self.wake()

    async def _wait(self) -> None:
        """Wait until something happens. One timer watches all waits of a response: a timeout for each piece costs more."""
        self._waiter, self._waiting_since = self._loop.create_future(), self._loop.time()
        if self.silence is not None and self._timer is None:
            self._timer = self._loop.call_later(self.silence, self._check_silence)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _check_silence(self) -> None:
        self._timer = None
        if self.silence is None:
            return
        now = self._loop.time()
        due = (now if self._waiter is None else self._waiting_since) + self.silence
        if now >= due:
            self._fail(TimeoutError())
        else:
            self._timer = self._loop.call_at(due, self._check_silence)
