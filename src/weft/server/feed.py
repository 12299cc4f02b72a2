"""The feed: what happens in one directory, as frames for every listener. Each event is encoded once, however many listen.

A listener that understands growth (`fine`) is told each piece of a text as it comes. One that does not is told the whole
part, at most ten times a second: told at every piece, as OpenCode 1.1.34 does, a long answer costs gigabytes.
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

HELD = 8192
HELD_BYTES = 64 * 1024 * 1024
BETWEEN_WHOLES = 0.1
BETWEEN_WAKES = 0.01
MOST_DIGITS = 20
PIECE = 1 << 20
ENDLESS = sys.maxsize
TURNS = 2

Grain = Literal["fine", "whole"]


class Frame(Struct, frozen=True):
    """One event as JSON, numbered over all feeds; for listeners of one grain alone, or for all.

    A `relayed` frame came from the feed of another directory. Listeners of all directories hear it there.
    """

    number: int
    body: bytes
    grain: Grain | None = None
    relayed: bool = False


class Style(Struct, frozen=True, kw_only=True):
    """How a listener wants to be told: in which grain, and with the directory around each event or without."""

    grain: Grain
    wrapped: bool


def to_body(event: Event) -> bytes:
    """An event as `{"type", "properties"}`."""
    if isinstance(event, UnknownEvent):
        return encode({"type": event.named, "properties": event.properties})
    properties = encode(getattr(event, event.whole) if event.whole else event)
    return b'{"type":"' + event.type.encode() + b'","properties":' + properties + b"}"


class Signal:
    """Wakes all who wait. In a flood they are woken a hundred times a second and take what came meanwhile."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[bool]] = set()
        self._woken_at = 0.0
        self._due: asyncio.TimerHandle | None = None

    def fire(self) -> None:
        if not self._waiting or self._due is not None:
            return
        loop = asyncio.get_running_loop()
        wait = self._woken_at + BETWEEN_WAKES - loop.time()
        if wait > 0:
            self._due = loop.call_later(wait, self.wake)
        else:
            self.wake()

    def flush(self) -> None:
        """Wake those now who would be woken in a moment."""
        if self._due is not None:
            self._due.cancel()
            self.wake()

    def wake(self) -> None:
        self._due, self._woken_at = None, asyncio.get_running_loop().time()
        for waiting in self._waiting:
            _settle(waiting, True)
        self._waiting.clear()

    async def wait(self, seconds: float) -> bool:
        """Whether there was news; not after so many seconds without any."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[bool] = loop.create_future()
        self._waiting.add(waiting)
        patience = loop.call_later(seconds, _settle, waiting, False)
        try:
            return await waiting
        finally:
            patience.cancel()
            self._waiting.discard(waiting)


def _settle(waiting: asyncio.Future[bool], news: bool) -> None:
    if not waiting.done():
        waiting.set_result(news)


class Numbering:
    """One count over the feeds of all directories, so that one id says where a listener of all of them stands.

    `name` tells its ids from those of before a restart. `closed` is the last number of a feed that is no more.
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
        """There will be no more at all: every listener is to leave."""
        self.ended = True
        self.signal.wake()

    def find(self, id: str) -> int | None:
        """The number in an id of ours, if nothing that came after it is lost with a feed."""
        name, _, digits = id.rpartition(".")
        # No longer than ours can be: beyond some thousand digits Python makes no number of them.
        if name != self.name or not digits.isdecimal() or len(digits) > MOST_DIGITS:
            return None
        number = int(digits)
        return number if self.closed <= number <= self.last else None


class Growing:
    """A part whose text comes in pieces. Nobody joins them before somebody wants to see the whole."""

    def __init__(self, part: TextPart | ReasoningPart) -> None:
        self._part = part
        self._pieces = [part.text]
        self._length = self._told = len(part.text)

    def grow(self, event: PartGrew) -> None:
        known = self._length - event.offset
        fresh = event.delta[known:] if known >= 0 else ""
        self._pieces.append(fresh)
        self._length += len(fresh)

    def whole(self) -> PartUpdated:
        text = "".join(self._pieces)
        self._pieces = [text]
        delta, self._told = text[self._told :], self._length
        return PartUpdated(part=replace(self._part, text=text), delta=delta)


class Feed:
    """A bounded log of frames. Listeners read it at their own pace; one that falls out of it is told so."""

    def __init__(self, numbering: Numbering, *, directory: str, project: str) -> None:
        self.signal = Signal()
        self.closed = False
        self.listeners: dict[Grain, int] = {"fine": 0, "whole": 0}
        self.heard, self.unheard = asyncio.Event(), asyncio.Event()  # whether anybody listens
        self.unheard.set()
        self._numbering = numbering
        self._head = encode({"directory": directory, "project": project})[:-1] + b',"payload":'
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._dropped = 0  # how many frames have left the log
        self._dropped_number = 0
        self._growing: dict[PartID, Growing] = {}
        self._grown: dict[PartID, None] = {}
        self._due: asyncio.TimerHandle | None = None
        self._written: dict[tuple[int, Style, int], tuple[bytes, int]] = {}

    def close(self) -> None:
        """There will be no more; whoever resumes after a frame of ours is told that it is gone."""
        self._tell_wholes()
        self.closed = True
        if self._frames:
            self._numbering.closed = max(self._numbering.closed, self._frames[-1].number)
        self.signal.fire()
        self._numbering.signal.fire()

    def join(self, grain: Grain) -> None:
        """Count a listener."""
        self.listeners[grain] += 1
        self.heard.set()
        self.unheard.clear()

    def leave(self, grain: Grain) -> None:
        """Count a listener no more."""
        self.listeners[grain] -= 1
        if not any(self.listeners.values()):
            self.heard.clear()
            self.unheard.set()

    async def settle(self) -> None:
        """Give what has happened by now to whoever listens, as far as it can be given at once."""
        for _ in range(TURNS):  # from the bus to us
            await asyncio.sleep(0)
        self.signal.flush()
        self._numbering.signal.flush()
        await asyncio.sleep(0)

    def lose(self) -> None:
        """Something happened that we did not hear: whoever listens has to read everything again."""
        self._dropped += len(self._frames) + 1
        self._dropped_number = self._numbering.next()
        self._frames.clear()
        self._written.clear()
        self._growing.clear()
        self._grown.clear()
        self._bytes = 0
        self.signal.fire()
        self._numbering.signal.fire()

    def take(self, event: Event, *, relayed: bool = False) -> None:
        """Tell an event to whoever listens. One that is `relayed` is another directory's."""
        match event:
            case PartGrew():
                self._put(to_body(event), "fine", relayed=relayed)
                self._grow(event)
            case PartUpdated(part=part):
                self._grown.pop(part.id, None)
                self._growing.pop(part.id, None)
                if isinstance(part, TextPart | ReasoningPart) and part.time and part.time.end is None:
                    self._growing[part.id] = Growing(part)
                self._put(to_body(event), relayed=relayed)
            case PartRemoved(part_id=part):
                self._growing.pop(part, None)
                self._grown.pop(part, None)
                self._put(to_body(event), relayed=relayed)
            case _:
                self._tell_wholes()  # so that nothing overtakes the text that came before it
                self._put(to_body(event), relayed=relayed)

    def position(self) -> int:
        """Where a listener begins that wants to hear only what comes."""
        return self._dropped + len(self._frames)

    def position_after(self, number: int) -> int | None:
        """Where a listener goes on that heard everything up to a number; None when some of it is no longer held."""
        if number < self._dropped_number:
            return None
        return self.position() - sum(frame.number > number for frame in self._frames)

    def number_at(self, position: int) -> int | None:
        """The number of what a listener hears next; None when there is nothing new."""
        if position == self.position():
            return None
        return self._frames[position - self._dropped].number if position >= self._dropped else 0

    def read(self, position: int, style: Style, *, before: int = ENDLESS) -> tuple[bytes, int] | None:
        """What to send next to a listener who stands at a position, and where that brings it; None when some of it is
        gone. One that is far behind is given a piece after the other, so that little waits in its connection; and none
        is told what comes after a number that is another feed's."""
        if position < self._dropped:
            return None
        key = position, style, before
        written = self._written.get(key)
        if written is None:
            written = self._written[key] = self._write(*key)
        return written

    def _write(self, position: int, style: Style, before: int) -> tuple[bytes, int]:
        head, tail = (self._head, b"}") if style.wrapped else (b"", b"")
        name = self._numbering.name.encode()
        pieces: list[bytes] = []
        size, end = 0, self.position()
        while position < end and size < PIECE:
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
            self._due = asyncio.get_running_loop().call_later(BETWEEN_WHOLES, self._tell_wholes)

    def _tell_wholes(self) -> None:
        """Tell of the parts that have grown, to those who need them whole."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        grown, self._grown = self._grown, {}
        if self.listeners["whole"]:
            for part in grown:
                self._put(to_body(self._growing[part].whole()), "whole")

    def _put(self, body: bytes, grain: Grain | None = None, *, relayed: bool = False) -> None:
        self._frames.append(Frame(self._numbering.next(), body, grain, relayed))
        self._bytes += len(body)
        while len(self._frames) > HELD or (self._bytes > HELD_BYTES and len(self._frames) > 1):
            gone = self._frames.popleft()
            self._bytes -= len(gone.body)
            self._dropped, self._dropped_number = self._dropped + 1, gone.number
        self._written.clear()
        self.signal.fire()
        self._numbering.signal.fire()
