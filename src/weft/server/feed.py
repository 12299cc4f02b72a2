"""The feed: the events of one directory, as frames of an event stream. Each event is encoded once for all listeners.

A `fine` listener understands growth and receives each piece of a text as it arrives. A `whole` listener receives the
whole part at most ten times a second: sent with every piece, as OpenCode 1.1.34 does, a long answer costs gigabytes.
"""

import asyncio
import sys
from collections import deque
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from weft.model.event import Event, PartGrew, PartRemoved, PartUpdated
from weft.model.event_wire import UnknownEvent
from weft.model.ids import PartID
from weft.model.part import ReasoningPart, TextPart
from weft.model.wire import encode

MAX_FRAMES = 8192
MAX_FRAME_BYTES = 64 * 1024 * 1024
WHOLE_PART_SECONDS = 0.1
WAKE_SECONDS = 0.01
MAX_DIGITS = 20
CHUNK_BYTES = 1 << 20
NO_LIMIT = sys.maxsize
SETTLE_TURNS = 2

Grain = Literal["fine", "whole"]


class FeedFrame(Struct, frozen=True):
    """One event as JSON, with a number that is unique over all feeds.

    A frame with a `grain` is for listeners of that grain only. A `relayed` frame came from the feed of another
    directory, where listeners to all directories have received it.
    """

    number: int
    body: bytes
    grain: Grain | None = None
    relayed: bool = False


class StreamStyle(Struct, frozen=True, kw_only=True):
    """How a listener receives events: in which grain, and whether `wrapped` in an object that names the directory."""

    grain: Grain
    wrapped: bool


def encode_event(event: Event) -> bytes:
    """Encode an event as `{"type", "properties"}`."""
    if isinstance(event, UnknownEvent):
        return encode({"type": event.named, "properties": event.properties})
    properties = encode(getattr(event, event.whole) if event.whole else event)
    return b'{"type":"' + event.type.encode() + b'","properties":' + properties + b"}"


class Signal:
    """Wakes all waiting tasks. When many events arrive it wakes them at most a hundred times a second."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[bool]] = set()
        self._woken_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def fire(self) -> None:
        if not self._waiters or self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        wait = self._woken_at + WAKE_SECONDS - loop.time()
        if wait > 0:
            self._timer = loop.call_later(wait, self.wake)
        else:
            self.wake()

    def flush(self) -> None:
        """Wake now those that would be woken in a moment."""
        if self._timer is not None:
            self._timer.cancel()
            self.wake()

    def wake(self) -> None:
        self._timer, self._woken_at = None, asyncio.get_running_loop().time()
        for waiter in self._waiters:
            _set_result(waiter, True)
        self._waiters.clear()

    async def wait(self, seconds: float) -> bool:
        """Return True when the signal fires, False if it does not fire within `seconds`."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiters.add(waiter)
        timeout = loop.call_later(seconds, _set_result, waiter, False)
        try:
            return await waiter
        finally:
            timeout.cancel()
            self._waiters.discard(waiter)


def _set_result(waiter: asyncio.Future[bool], fired: bool) -> None:
    if not waiter.done():
        waiter.set_result(fired)


class EventCounter:
    """Numbers the events of all feeds, so that one id is the position of a listener in all feeds.

    `name` distinguishes our ids from those before a restart. `closed` is the last number of a feed that was closed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.signal = Signal()
        self.last = 0
        self.closed = 0
        self.ended = False

    def next(self) -> int:
        self.last += 1
        return self.last

    def end(self) -> None:
        """Ask every listener to leave: no more events will follow."""
        self.ended = True
        self.signal.wake()

    def find(self, id: str) -> int | None:
        """Return the number in one of our ids, or None if a later event was lost with a closed feed."""
        name, _, digits = id.rpartition(".")
        # Checked first: Python refuses to convert thousands of digits.
        if name != self.name or not digits.isdecimal() or len(digits) > MAX_DIGITS:
            return None
        number = int(digits)
        return number if self.closed <= number <= self.last else None


class GrowingPart:
    """A part whose text arrives in pieces. They are joined only when a listener needs the whole."""

    def __init__(self, part: TextPart | ReasoningPart) -> None:
        self._part = part
        self._pieces = [part.text]
        self._length = self._sent = len(part.text)

    def grow(self, event: PartGrew) -> None:
        overlap = self._length - event.offset
        text = event.delta[overlap:] if overlap >= 0 else ""
        self._pieces.append(text)
        self._length += len(text)

    def to_event(self) -> PartUpdated:
        """Return the whole part, with the text that was added since the last call."""
        text = "".join(self._pieces)
        self._pieces = [text]
        delta, self._sent = text[self._sent :], self._length
        return PartUpdated(part=replace(self._part, text=text), delta=delta)


class EventFeed:
    """A bounded log of frames. Each listener reads at its own pace; one that falls too far behind loses its position."""

    def __init__(self, counter: EventCounter, *, directory: str, project: str) -> None:
        self.signal = Signal()
        self.closed = False
        self.listeners: dict[Grain, int] = {"fine": 0, "whole": 0}
        self.has_listeners = asyncio.Event()
        self.has_no_listeners = asyncio.Event()  # always the opposite of the other
        self.has_no_listeners.set()
        self._counter = counter
        self._head = encode({"directory": directory, "project": project})[:-1] + b',"payload":'
        self._frames: deque[FeedFrame] = deque()
        self._bytes = 0
        self._dropped = 0  # frames that have left the log
        self._dropped_number = 0
        self._growing_parts: dict[PartID, GrowingPart] = {}
        self._changed_parts: dict[PartID, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._encoded_chunks: dict[tuple[int, StreamStyle, int], tuple[bytes, int]] = {}

    def close(self) -> None:
        """Add no more events. A listener that resumes after one of our frames learns that the feed is gone."""
        self._send_whole_parts()
        self.closed = True
        if self._frames:
            self._counter.closed = max(self._counter.closed, self._frames[-1].number)
        self.signal.fire()
        self._counter.signal.fire()

    def add_listener(self, grain: Grain) -> None:
        """Count a new listener."""
        self.listeners[grain] += 1
        self.has_listeners.set()
        self.has_no_listeners.clear()

    def remove_listener(self, grain: Grain) -> None:
        """Stop counting a listener."""
        self.listeners[grain] -= 1
        if not any(self.listeners.values()):
            self.has_listeners.clear()
            self.has_no_listeners.set()

    async def settle(self) -> None:
        """Let listeners send what has happened so far, as far as that is possible without waiting."""
        for _ in range(SETTLE_TURNS):  # for events on their way from the bus
            await asyncio.sleep(0)
        self.signal.flush()
        self._counter.signal.flush()
        await asyncio.sleep(0)

    def report_gap(self) -> None:
        """Drop all frames because events were missed: every listener is told to read everything again."""
        self._dropped += len(self._frames) + 1
        self._dropped_number = self._counter.next()
        self._frames.clear()
        self._encoded_chunks.clear()
        self._growing_parts.clear()
        self._changed_parts.clear()
        self._bytes = 0
        self.signal.fire()
        self._counter.signal.fire()

    def add(self, event: Event, *, relayed: bool = False) -> None:
        """Add an event. One that is `relayed` belongs to another directory."""
        match event:
            case PartGrew():
                self._put(encode_event(event), "fine", relayed=relayed)
                self._grow(event)
            case PartUpdated(part=part):
                self._changed_parts.pop(part.id, None)
                self._growing_parts.pop(part.id, None)
                if isinstance(part, TextPart | ReasoningPart) and part.time and part.time.end is None:
                    self._growing_parts[part.id] = GrowingPart(part)
                self._put(encode_event(event), relayed=relayed)
            case PartRemoved(part_id=part):
                self._growing_parts.pop(part, None)
                self._changed_parts.pop(part, None)
                self._put(encode_event(event), relayed=relayed)
            case _:
                self._send_whole_parts()  # keep the text before the events that follow it
                self._put(encode_event(event), relayed=relayed)

    def position(self) -> int:
        """Return where a listener starts that wants only new events."""
        return self._dropped + len(self._frames)

    def position_after(self, number: int) -> int | None:
        """Return where a listener resumes that has received everything up to a number.

        Return None if some of the later events are no longer held.
        """
        if number < self._dropped_number:
            return None
        return self.position() - sum(frame.number > number for frame in self._frames)

    def number_at(self, position: int) -> int | None:
        """Return the number of the next event at a position, None if there is nothing new."""
        if position == self.position():
            return None
        return self._frames[position - self._dropped].number if position >= self._dropped else 0

    def read(self, position: int, style: StreamStyle, *, before: int = NO_LIMIT) -> tuple[bytes, int] | None:
        """Return the bytes to send to a listener at a position, and its next position.

        Return None if events from that position on are no longer held.

        A listener that is far behind gets one chunk at a time, so that its connection buffers little. Events from
        the number `before` on are left out: another feed has an event that comes first.
        """
        if position < self._dropped:
            return None
        key = position, style, before
        encoded = self._encoded_chunks.get(key)
        if encoded is None:
            encoded = self._encoded_chunks[key] = self._encode(*key)
        return encoded

    def _encode(self, position: int, style: StreamStyle, before: int) -> tuple[bytes, int]:
        head, tail = (self._head, b"}") if style.wrapped else (b"", b"")
        name = self._counter.name.encode()
        pieces: list[bytes] = []
        size, end = 0, self.position()
        while position < end and size < CHUNK_BYTES:
            frame = self._frames[position - self._dropped]
            if frame.number >= before:
                break
            position += 1
            if style.wrapped and frame.relayed:
                continue
            if frame.grain is None or frame.grain == style.grain:
                pieces.append(b"id: %s.%d\ndata: %s%s%s\n\n" % (name, frame.number, head, frame.body, tail))
                size += len(pieces[-1])
        return b"".join(pieces), position

    def _grow(self, event: PartGrew) -> None:
        part = self._growing_parts.get(event.part_id)
        if part is None:
            return
        part.grow(event)
        self._changed_parts[event.part_id] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WHOLE_PART_SECONDS, self._send_whole_parts)

    def _send_whole_parts(self) -> None:
        """Add the whole text of the parts that have grown, for listeners that need it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        changed, self._changed_parts = self._changed_parts, {}
        if self.listeners["whole"]:
            for part in changed:
                self._put(encode_event(self._growing_parts[part].to_event()), "whole")

    def _put(self, body: bytes, grain: Grain | None = None, *, relayed: bool = False) -> None:
        self._frames.append(FeedFrame(self._counter.next(), body, grain, relayed))
        self._bytes += len(body)
        while len(self._frames) > MAX_FRAMES or (self._bytes > MAX_FRAME_BYTES and len(self._frames) > 1):
            frame = self._frames.popleft()
            self._bytes -= len(frame.body)
            self._dropped, self._dropped_number = self._dropped + 1, frame.number
        self._encoded_chunks.clear()
        self.signal.fire()
        self._counter.signal.fire()
