"""JSON-RPC with a language server: message framing, requests and notifications."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

MAX_BODY_BYTES: Final = 64 << 20
MAX_HEAD_BYTES: Final = 4096

_HEAD_END: Final = b"\r\n\r\n"
_CONTENT_LENGTH: Final = re.compile(rb"^content-length:[ \t]*(\d{1,12})[ \t]*$", re.IGNORECASE | re.MULTILINE)

Message = dict[str, Any]


class FrameError(ValueError):
    """The received bytes are not a message."""


def to_frame(message: Message) -> bytes:
    """Return a message as it is sent: a header with its length, and JSON."""
    body = msgspec.json.encode({"jsonrpc": "2.0", **message})
    return b"Content-Length: %d%b%b" % (len(body), _HEAD_END, body)


class LspFrameReader:
    """Assembles messages from the pieces in which they arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._body_length: int | None = None

    def feed(self, piece: bytes) -> list[Message]:
        """Return the messages that are complete by now. Raise `FrameError` if the bytes are not messages."""
        self._buffer += piece
        messages: list[Message] = []
        while self._read_head() and self._body_length is not None and len(self._buffer) >= self._body_length:
            raw = bytes(self._buffer[: self._body_length])
            del self._buffer[: self._body_length]
            self._body_length = None
            messages.append(_to_message(raw))
        return messages

    def _read_head(self) -> bool:
        """Read the head of the next message if it has arrived. Return True if its length is known."""
        if self._body_length is None and (end := self._buffer.find(_HEAD_END)) >= 0:
            length = _CONTENT_LENGTH.search(self._buffer[:end].replace(b"\r\n", b"\n"))
            if length is None or int(length[1]) > MAX_BODY_BYTES:
                raise FrameError("a header without an acceptable length")
            self._body_length = int(length[1])
            del self._buffer[: end + len(_HEAD_END)]
        elif self._body_length is None and len(self._buffer) > MAX_HEAD_BYTES:
            raise FrameError("a header without an end")
        return self._body_length is not None


def _to_message(raw: bytes) -> Message:
    try:
        message = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError("not JSON") from error
    if not isinstance(message, dict):
        raise FrameError("not an object")
    return message


METHOD_NOT_FOUND: Final = -32601


class LanguageServerError(Exception):
    """The language server returned an error, or has ended."""


# Answers a request of the server. It raises `UnknownMethodError` for an unknown method.
AnswerRequest = Callable[[str, Any], Any]
HandleNotification = Callable[[str, Any], None]
WriteBytes = Callable[[bytes], None]


class UnknownMethodError(Exception):
    """The server requested a method that we do not support."""


class JsonRpcPeer:
    """One side of a JSON-RPC connection.

    `answer` answers the server's requests, `handle` its notifications. Call `attach` when the connection starts, and
    `close` when it ends.
    """

    def __init__(self, answer: AnswerRequest, handle: HandleNotification) -> None:
        self._answer = answer
        self._handle = handle
        self._frames = LspFrameReader()
        self._write: WriteBytes | None = None
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0

    def attach(self, write: WriteBytes) -> None:
        """Start to send messages through this function."""
        self._write = write

    async def request(self, method: str, params: Any) -> Any:
        """Send a request and return the answer. Raise `LanguageServerError` if there is none."""
        self._last_id += 1
        number = self._last_id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        try:
            self._send({"id": number, "method": method, "params": params})
            return await future
        finally:
            del self._pending[number]

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    async def feed(self, piece: bytes) -> None:
        """Handle the messages that are complete with this piece.

        Raise `FrameError` if the bytes are not messages, `LanguageServerError` if an answer cannot be sent.
        """
        for message in self._frames.feed(piece):
            self._dispatch(message)

    def close(self, reason: str) -> None:
        """Let every pending request fail for this reason."""
        self._write = None
        for future in self._pending.values():
            if not future.done():
                future.set_exception(LanguageServerError(reason))

    def _send(self, message: Message) -> None:
        if self._write is None:
            raise LanguageServerError("the language server has ended")
        try:
            self._write(to_frame(message))
        except OSError as error:
            raise LanguageServerError(str(error)) from error

    def _dispatch(self, message: Message) -> None:
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str) and number is not None:
            self._reply(number, method, message.get("params"))
        elif isinstance(method, str):
            self._handle(method, message.get("params"))
        elif isinstance(number, int) and (future := self._pending.get(number)) and not future.done():
            error = message.get("error")
            if error is None:
                future.set_result(message.get("result"))
            else:
                future.set_exception(LanguageServerError(_describe_error(error)))

    def _reply(self, number: Any, method: str, params: Any) -> None:
        try:
            self._send({"id": number, "result": self._answer(method, params)})
        except UnknownMethodError:
            self._send(
                {"id": number, "error": {"code": METHOD_NOT_FOUND, "message": f"{method} is not known here"}}
            )


def _describe_error(error: Any) -> str:
    return str(error.get("message") if isinstance(error, dict) else error)
