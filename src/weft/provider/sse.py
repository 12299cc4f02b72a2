"""Parse server-sent events from bytes as they arrive, and decode their JSON."""

from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from weft.errors import DocumentError, ProviderError
from weft.model.wire import parse
from weft.provider.body import to_bytes
from weft.provider.faults import MAX_BODY_LENGTH, make_unreadable_error

T = TypeVar("T")

# Far above any real event (an image takes a few megabytes), and small enough to hold in memory.
MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"


class SseEvent(Struct, frozen=True, gc=False):
    """One event: its name ("" if the server gave none) and its raw data."""

    name: str
    data: bytes


class SseReader:
    """Splits a stream of bytes into events. The bytes may be cut anywhere, and lines may end in LF, CR or CRLF.

    Incomplete data is kept in pieces, so that the time is linear even for tiny pieces. An event larger than `limit`
    bytes raises `ProviderError`.
    """

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []  # of the current line
        self._held_bytes = 0
        self._after_cr = False
        self._name = ""
        self._data: bytes | None = None
        self._more: list[bytes] = []  # data lines after the first
        self._more_bytes = 0

    def feed(self, data: bytes) -> list[SseEvent]:
        """Return the events that are complete with this data."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        has_cr = b"\r" in data
        if not has_cr and b"\n" not in data:
            self._hold(data)
            return []
        if self._pieces:
            data = b"".join([*self._pieces, data])
            self._pieces.clear()
        lines = self._split_at_cr(data) if has_cr else data.split(b"\n")
        rest = lines.pop()
        self._held_bytes = self._more_bytes
        events = self._parse_lines(lines)
        if rest:
            self._hold(rest)
        return events

    def end(self) -> list[SseEvent]:
        """Return the last event. Some servers omit the blank line after it."""
        rest = b"".join(self._pieces)
        self._pieces.clear()
        return self._parse_lines([rest, b""])

    def _split_at_cr(self, data: bytes) -> list[bytes]:
        self._after_cr = data.endswith(b"\r")
        lines = data.splitlines()
        return [*lines, b""] if data.endswith((b"\r", b"\n")) else lines

    def _hold(self, data: bytes) -> None:
        self._pieces.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > self._limit:
            raise make_too_large_error(self._limit)

    def _parse_lines(self, lines: list[bytes]) -> list[SseEvent]:
        events: list[SseEvent] = []
        for line in lines:
            if not line:
                if self._data is not None:
                    events.append(SseEvent(self._name, self._take_data()))
                self._name = ""
            elif line.startswith(b"data:"):
                self._add_data(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line.startswith(b"event:"):
                self._name = line[6:].decode(errors="replace").removeprefix(" ")
            else:
                self._parse_rare_line(line)
        return events

    def _take_data(self) -> bytes:
        data = self._data or b""
        if self._more:
            data = b"\n".join([data, *self._more])
            self._more.clear()
            self._held_bytes -= self._more_bytes
            self._more_bytes = 0
        self._data = None
        return data

    def _add_data(self, data: bytes) -> None:
        if self._data is None:
            self._data = data
            return
        self._more.append(data)
        self._more_bytes += len(data) + 1
        self._held_bytes += len(data) + 1
        if self._held_bytes > self._limit:
            raise make_too_large_error(self._limit)

    def _parse_rare_line(self, line: bytes) -> None:
        if line == b"data":
            self._add_data(b"")
        elif line.startswith(_BOM):
            self._parse_lines([line[len(_BOM) :] or b":"])
        # Everything else is ignored: comments, ids and retry times.


def make_too_large_error(limit: int) -> ProviderError:
    return make_unreadable_error(f"the server sent an event of more than {limit} bytes")


def decode_event(data: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """Decode the JSON of an event. Raise `ProviderError` of kind `protocol` if it does not fit the decoder."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        # msgspec rejects lone surrogates. Servers send them when they cut a character between two tokens.
        return decoder.decode(to_bytes(parse(data, where="event")))
    except (DocumentError, msgspec.MsgspecError, TypeError, RecursionError) as error:
        text = data[:MAX_BODY_LENGTH].decode(errors="replace")
        raise make_unreadable_error(
            f"the server sent an event that cannot be read: {error}", body=text
        ) from error
