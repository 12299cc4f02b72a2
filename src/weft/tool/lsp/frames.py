"""Messages as a language server sends and reads them: JSON behind a header that tells its length (pure)."""

import re
from typing import Any, Final

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
