"""Speak JSON-RPC with a language server."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

LONGEST: Final = 64 << 20
LONGEST_HEAD: Final = 4096

_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"^content-length:[ \t]*(\d{1,12})[ \t]*$", re.IGNORECASE | re.MULTILINE)

Message = dict[str, Any]


class FrameError(ValueError):
    """What was sent is not a message."""


def to_frame(message: Message) -> bytes:
    body = msgspec.json.encode({"jsonrpc": "2.0", **message})
    return b"Content-Length: %d%b%b" % (len(body), _END, body)


class Frames:
    """Messages out of the pieces in which they come."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._body: int | None = None

    def feed(self, piece: bytes) -> list[Message]:
        """The messages that are whole by now. Raises `FrameError` if these are none."""
        self._held += piece
        messages: list[Message] = []
        while self._has_body() and self._body is not None and len(self._held) >= self._body:
            raw = bytes(self._held[: self._body])
            del self._held[: self._body]
            self._body = None
            messages.append(_to_message(raw))
        return messages

    def _has_body(self) -> bool:
        """Whether the head of the next message is read."""
        if self._body is None and (end := self._held.find(_END)) >= 0:
            length = _LENGTH.search(self._held[:end].replace(b"\r\n", b"\n"))
            if length is None or int(length[1]) > LONGEST:
                raise FrameError("a head that tells no length we take")
            self._body = int(length[1])
            del self._held[: end + len(_END)]
        elif self._body is None and len(self._held) > LONGEST_HEAD:
            raise FrameError("a head without an end")
        return self._body is not None


def _to_message(raw: bytes) -> Message:
    try:
        message = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FrameError("not JSON") from error
    if not isinstance(message, dict):
        raise FrameError("not an object")
    return message


UNKNOWN: Final = -32601


class PeerError(Exception):
    """It could not answer, or is no more."""


class Say(Protocol):
    def __call__(self, words: bytes) -> None: ...


# What it asks of us; `UnknownError` when we do not know what is meant.
Answer = Callable[[str, Any], Any]
Hear = Callable[[str, Any], None]


class UnknownError(Exception):
    """We were asked for something we do not do."""


class Peer:
    """`answer` answers what it asks, `hear` hears what it tells. `lost` ends all waiting for it."""

    def __init__(self, answer: Answer, hear: Hear) -> None:
        self._answer = answer
        self._hear = hear
        self._frames = Frames()
        self._say: Say | None = None
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._count = 0

    def attach(self, say: Say) -> None:
        self._say = say

    async def ask(self, method: str, params: Any) -> Any:
        """Its answer. Raises `PeerError`."""
        self._count += 1
        number = self._count
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = answered
        try:
            self._send({"id": number, "method": method, "params": params})
            return await answered
        finally:
            del self._asked[number]

    def tell(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    async def feed(self, piece: bytes) -> None:
        for message in self._frames.feed(piece):
            self._take(message)

    def lost(self, reason: str) -> None:
        self._say = None
        for answered in self._asked.values():
            if not answered.done():
                answered.set_exception(PeerError(reason))

    def _send(self, message: Message) -> None:
        if self._say is None:
            raise PeerError("it has ended")
        try:
            self._say(to_frame(message))
        except OSError as error:
            raise PeerError(str(error)) from error

    def _take(self, message: Message) -> None:
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str) and number is not None:
            self._reply(number, method, message.get("params"))
        elif isinstance(method, str):
            self._hear(method, message.get("params"))
        elif isinstance(number, int) and (answered := self._asked.get(number)) and not answered.done():
            error = message.get("error")
            if error is None:
                answered.set_result(message.get("result"))
            else:
                answered.set_exception(PeerError(_reason(error)))

    def _reply(self, number: Any, method: str, params: Any) -> None:
        try:
            self._send({"id": number, "result": self._answer(method, params)})
        except UnknownError:
            self._send({"id": number, "error": {"code": UNKNOWN, "message": f"{method} is not known here"}})


def _reason(error: Any) -> str:
    return str(error.get("message") if isinstance(error, dict) else error)
