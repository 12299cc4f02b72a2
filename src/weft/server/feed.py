"""The feed: the events of one directory, as frames for every listener. Each event is encoded once for all of them.

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
    """One event as JSON, with a number that is unique over all feeds. With a `grain` it is for listeners of that
    grain only.

    A `relayed` frame came from the feed of another directory, where listeners to all directories have heard it.
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
        self._waiting: set[asyncio.Future[bool]] = set()
        self._woken_at = 0.0
        self._due: asyncio.TimerHandle | None = None

    def fire(self) -> None:
        if not self._waiting or self._due is not None:
            return
        loop = asyncio.get_running_loop()
        wait = self._woken_at + WAKE_SECONDS - loop.time()
        if wait > 0:
            self._due = loop.call_later(wait, self.wake)
        else:
            self.wake()

    def flush(self) -> None:
        """Wake now those that would be woken in a moment."""
        if self._due is not None:
            self._due.cancel()
            self.wake()

    def wake(self) -> None:
        self._due, self._woken_at = None, asyncio.get_running_loop().time()
        for waiting in self._waiting:
            _set_result(waiting, True)
        self._waiting.clear()

    async def wait(self, seconds: float) -> bool:
        """Return True when the signal fires, False if it does not within so many seconds."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[bool] = loop.create_future()
        self._waiting.add(waiting)
        timeout = loop.call_later(seconds, _set_result, waiting, False)
        try:
            return await waiting
        finally:
            timeout.cancel()
            self._waiting.discard(waiting)


def _set_result(waiting: asyncio.Future[bool], news: bool) -> None:
    if not waiting.done():
        waiting.set_result(news)


class EventCounter:
    """Numbers the events of all feeds, so that one id tells where a listener to several feeds stands.

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
        known = self._length - event.offset
        fresh = event.delta[known:] if known >= 0 else ""
        self._pieces.append(fresh)
        self._length += len(fresh)

    def whole(self) -> PartUpdated:
        text = "".join(self._pieces)
        self._pieces = [text]
        delta, self._sent = text[self._sent :], self._length
        return PartUpdated(part=replace(self._part, text=text), delta=delta)


class EventFeed:
    """A bounded log of frames. Each listener reads at its own pace; one that falls too far behind is told so."""

    def __init__(self, counter: EventCounter, *, directory: str, project: str) -> None:
        self.signal = Signal()
        self.closed = False
        self.listeners: dict[Grain, int] = {"fine": 0, "whole": 0}
        self.heard, self.unheard = asyncio.Event(), asyncio.Event()  # whether anybody listens
        self.unheard.set()
        self._counter = counter
        self._head = encode({"directory": directory, "project": project})[:-1] + b',"payload":'
        self._frames: deque[FeedFrame] = deque()
        self._bytes = 0
        self._dropped = 0  # frames that have left the log
        self._dropped_number = 0
        self._growing: dict[PartID, GrowingPart] = {}
        self._grown: dict[PartID, None] = {}
        self._due: asyncio.TimerHandle | None = None
        self._encoded: dict[tuple[int, StreamStyle, int], tuple[bytes, int]] = {}

    def close(self) -> None:
        """Add no more events. A listener that resumes after one of our frames learns that the feed is gone."""
        self._send_whole_parts()
        self.closed = True
        if self._frames:
            self._counter.closed = max(self._counter.closed, self._frames[-1].number)
        self.signal.fire()
        self._counter.signal.fire()

    def join(self, grain: Grain) -> None:
        """Count a new listener."""
        self.listeners[grain] += 1
        self.heard.set()
        self.unheard.clear()

    def leave(self, grain: Grain) -> None:
        """Stop counting a listener."""
        self.listeners[grain] -= 1
        if not any(self.listeners.values()):
            self.heard.clear()
            self.unheard.set()

    async def settle(self) -> None:
        """Pass on to listeners what has happened so far, as far as that is possible without waiting."""
        for _ in range(SETTLE_TURNS):  # for events on their way from the bus
            await asyncio.sleep(0)
        self.signal.flush()
        self._counter.signal.flush()
        await asyncio.sleep(0)

    def lose(self) -> None:
        """Note that events were missed: every listener must read everything again."""
        self._dropped += len(self._frames) + 1
        self._dropped_number = self._counter.next()
        self._frames.clear()
        self._encoded.clear()
        self._growing.clear()
        self._grown.clear()
        self._bytes = 0
        self.signal.fire()
        self._counter.signal.fire()

    def take(self, event: Event, *, relayed: bool = False) -> None:
        """Add an event. One that is `relayed` belongs to another directory."""
        match event:
            case PartGrew():
                self._put(encode_event(event), "fine", relayed=relayed)
                self._grow(event)
            case PartUpdated(part=part):
                self._grown.pop(part.id, None)
                self._growing.pop(part.id, None)
                if isinstance(part, TextPart | ReasoningPart) and part.time and part.time.end is None:
                    self._growing[part.id] = GrowingPart(part)
                self._put(encode_event(event), relayed=relayed)
            case PartRemoved(part_id=part):
                self._growing.pop(part, None)
                self._grown.pop(part, None)
                self._put(encode_event(event), relayed=relayed)
            case _:
                self._send_whole_parts()  # keep the text before the events that follow it
                self._put(encode_event(event), relayed=relayed)

    def position(self) -> int:
        """Return where a listener starts that wants only new events."""
        return self._dropped + len(self._frames)

    def position_after(self, number: int) -> int | None:
        """Return where a listener resumes that has heard everything up to a number, or None if some of it is no
        longer held."""
        if number < self._dropped_number:
            return None
        return self.position() - sum(frame.number > number for frame in self._frames)

    def number_at(self, position: int) -> int | None:
        """Return the number of the next event at a position, None if there is nothing new."""
        if position == self.position():
            return None
        return self._frames[position - self._dropped].number if position >= self._dropped else 0

    def read(self, position: int, style: StreamStyle, *, before: int = NO_LIMIT) -> tuple[bytes, int] | None:
        """Return the bytes to send to a listener at a position, and its next position; None if some of it is no
        longer held.

        A listener that is far behind gets one chunk at a time, so that little waits in its connection. Events from
        the number `before` on are left out: another feed has an event that comes first.
        """
        if position < self._dropped:
            return None
        key = position, style, before
        encoded = self._encoded.get(key)
        if encoded is None:
            encoded = self._encoded[key] = self._encode(*key)
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
        growing = self._growing.get(event.part_id)
        if growing is None:
            return
        growing.grow(event)
        self._grown[event.part_id] = None
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(WHOLE_PART_SECONDS, self._send_whole_parts)

    def _send_whole_parts(self) -> None:
        """Add the whole text of the parts that have grown, for listeners that need it."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        grown, self._grown = self._grown, {}
        if self.listeners["whole"]:
            for part in grown:
                self._put(encode_event(self._growing[part].whole()), "whole")

    def _put(self, body: bytes, grain: Grain | None = None, *, relayed: bool = False) -> None:
        self._frames.append(FeedFrame(self._counter.next(), body, grain, relayed))
        self._bytes += len(body)
        while len(self._frames) > MAX_FRAMES or (self._bytes > MAX_FRAME_BYTES and len(self._frames) > 1):
            gone = self._frames.popleft()
            self._bytes -= len(gone.body)
            self._dropped, self._dropped_number = self._dropped + 1, gone.number
        self._encoded.clear()
        self.signal.fire()
        self._counter.signal.fire()
