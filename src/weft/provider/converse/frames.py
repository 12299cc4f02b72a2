"""Amazon's binary event stream: bytes to events, as they arrive, each checked by its sums."""

import struct
import zlib
from typing import Final

from weft.provider.faults import broken, fault
from weft.provider.sse import MAX_EVENT, SseEvent, too_big

# A frame: its length, that of its headers, a sum over both; headers, payload, and a sum over all before it.
PRELUDE: Final = struct.Struct(">III")
SUM: Final = struct.Struct(">I")
LEAST: Final = PRELUDE.size + SUM.size
TEXT: Final = 7
# Bytes that a header's value takes, by its type; those not here begin with their length in two bytes.
SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
NAMES: Final = (":exception-type", ":error-code", ":event-type")


class FrameReader:
    """Feed it what arrives, cut anywhere; it gives back the events that became whole, named by their type.

    What is not whole is kept in pieces, so the work is linear however it was cut.
    """

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._held = 0
        self._wanted = LEAST
        self._names: dict[bytes, str] = {}  # of the few kinds of headers one answer has

    def feed(self, data: bytes) -> list[SseEvent]:
        self._pieces.append(data)
        self._held += len(data)
        if self._held < self._wanted:
            return []
        whole, at = b"".join(self._pieces), 0
        events: list[SseEvent] = []
        self._wanted = LEAST
        while len(whole) - at >= LEAST:
            size = self._size(whole, at)
            if len(whole) - at < size:
                self._wanted = size
                break
            events.append(self._event(whole[at : at + size]))
            at += size
        self._pieces, self._held = [whole[at:]], len(whole) - at
        return events

    def end(self) -> list[SseEvent]:
        if self._held:
            raise broken("the model's answer broke off in the middle of an event")
        return []

    def _size(self, whole: bytes, at: int) -> int:
        size, headers, told = PRELUDE.unpack_from(whole, at)
        if zlib.crc32(whole[at : at + PRELUDE.size - SUM.size]) != told:
            raise fault("protocol", "the server does not answer in Amazon's event stream")
        if size > self._limit:
            raise too_big(self._limit)
        if size < LEAST + headers:
            raise fault("protocol", "the server sent an event that is shorter than its own headers")
        return int(size)

    def _event(self, frame: bytes) -> SseEvent:
        _, size, _ = PRELUDE.unpack_from(frame)
        end = len(frame) - SUM.size
        if SUM.unpack_from(frame, end)[0] != zlib.crc32(frame[:end]):
            raise broken("an event was damaged on its way")
        headers, payload = frame[PRELUDE.size : PRELUDE.size + size], frame[PRELUDE.size + size : end]
        name = self._names.get(headers)
        if name is None:
            name = self._names[headers] = _name(headers)
        return SseEvent(name, payload)


def _name(raw: bytes) -> str:
    found = to_headers(raw)
    return next((found[name] for name in NAMES if name in found), "")


def to_headers(raw: bytes) -> dict[str, str]:
    """The headers that are text; others have nothing for us."""
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(raw):
            start = at + 1 + raw[at]
            name, kind = raw[at + 1 : start].decode(errors="replace"), raw[start]
            at = start + 1
            size = SIZES.get(kind)
            if size is None:
                size = int.from_bytes(raw[at : at + 2], "big")
                at += 2
            if kind == TEXT:
                found[name] = raw[at : at + size].decode(errors="replace")
            at += size
    except IndexError:
        raise fault("protocol", "the server sent an event with headers we cannot read") from None
    return found
