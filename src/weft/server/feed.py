"""The feed: the events of one directory, as frames of an event stream. Each event is encoded once for all listeners.

A listener of `deltas` understands growth and receives each piece of a text as it arrives. A listener of `whole` parts receives the
whole part at most ten times a second: sent with every piece, as OpenCode 1.1.34 does, a long answer costs gigabytes. A listener
of `view`s is our page: it receives text as rendered blocks, and only the messages of the sessions that it shows.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from weft.api.change_log import ChangeLog
from weft.api.cluster import Cluster
from weft.model.event import (
    Event,
    MessageRemoved,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    SessionDeleted,
    SessionDiffed,
)
from weft.model.event_wire import encode_event
from weft.model.ids import PartID, SessionID
from weft.model.part import AnyPart, ReasoningPart, TextPart
from weft.model.wire import encode
from weft.page.view import BlockCache, GrowingView, is_open, to_failure, to_info_view, to_part_view
from weft.server.early_growth import EarlyGrowth

MAX_FRAMES = 8192
MAX_FRAME_BYTES = 64 * 1024 * 1024
WHOLE_PART_SECONDS = 0.1
# If the model pauses, a listener of whole parts gets the last pieces after this time.
PAUSE_SECONDS = 0.15
# Shorter than a pulse of the connections to models, so that pieces of answers that arrived together do not wait again.
WAKE_SECONDS = 0.008
MAX_DIGITS = 20
# The lower bits of a number count the events since its position in the change log was reached.
COUNT_BITS = 32
CHUNK_BYTES = 1 << 20
NO_LIMIT = sys.maxsize
FLUSH_TURNS = 2

Granularity = Literal["deltas", "whole", "view"]
# What every listener but our page receives.
PLAIN: frozenset[Granularity] = frozenset({"deltas", "whole"})
DELTAS: frozenset[Granularity] = frozenset({"deltas"})
WHOLE: frozenset[Granularity] = frozenset({"whole"})
VIEW: frozenset[Granularity] = frozenset({"view"})
# A text that takes long to render is rendered less often, so that this takes at most a twentieth of the time.
VIEW_PAUSE_FACTOR = 20


class FeedFrame(Struct, frozen=True):
    """One event as JSON, with a number that is unique over all feeds.

    A frame with an `audience` is for listeners of these granularities only. A `relayed` frame came from the feed of another
    directory, where listeners to all directories have received it. A frame `about` the content of a session is for a page that
    shows this session. A listener may resume after the `id`, if there is one.
    """

    number: int
    id: str
    body: bytes
    audience: frozenset[Granularity] | None = None
    relayed: bool = False
    about: SessionID | None = None


class StreamStyle(Struct, frozen=True, kw_only=True):
    """How a listener receives events: in which granularity, and whether `wrapped` in an object that names the directory.

    `sessions` are those whose content a listener of views receives.
    """

    granularity: Granularity
    wrapped: bool
    sessions: frozenset[str] = frozenset()

    def wants(self, frame: FeedFrame) -> bool:
        """Return True if a listener receives a frame."""
        if (self.wrapped and frame.relayed) or (frame.about is not None and frame.about not in self.sessions):
            return False
        return frame.audience is None or self.granularity in frame.audience


class Signal:
    """Wakes all waiting tasks. When many events arrive it wakes them at most once in `WAKE_SECONDS`."""

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

    `name` distinguishes our ids from those before a restart. `closed` is the last number of a feed that was closed. `listeners`
    counts those to any feed. With a `cluster`, ids have the position in its log instead of our number, so that a listener can resume on any node.
    With a `log` of changes, numbers begin with a position in it. Everything up to that was given a lower number, so a listener can resume there
    after a restart.
    """

    def __init__(self, name: str, cluster: Cluster | None = None) -> None:
        self.name = cluster.name if cluster is not None else name
        self.cluster = cluster
        self.position = 0
        self.log: ChangeLog | None = None
        self._log_position = 0
        self._least = 0  # the next number is not lower
        self.signal = Signal()
        self.last = 0
        self.closed = 0
        self.listeners = 0
        self.ended = False
        # Whether a page, or a listener of deltas, has ever listened to any feed. It stays true after it has left: one that reconnects
        # needs what happened meanwhile.
        self.has_pages = False
        self.has_delta_listeners = False

    async def open_log(self, log: ChangeLog) -> None:
        """Use a log of changes from now on, before there are events. Raise `StoreError` if it cannot be written."""
        await log.register(self.name)
        self.log, self._log_position = log, log.position
        self._reach(log.position)
        self.next()

    def next(self) -> int:
        self.last = max(self.last + 1, self._least)
        return self.last

    def note_published(self) -> None:
        """Note how far the log was published. Call this after an event of a bus was put into a feed."""
        if self.log is not None and (position := self.log.position) != self._log_position:
            self._log_position = position
            # Other events up to there may be published, but not in a feed yet. The tasks that do that are about to run.
            asyncio.get_running_loop().call_soon(self._reach, position)

    def _reach(self, position: int) -> None:
        self._least = position << COUNT_BITS

    def make_id(self) -> str:
        """Return the id of the event that was numbered last."""
        return f"{self.name}.{self.last if self.cluster is None else self.position}"

    def end(self) -> None:
        """Ask every listener to leave: no more events will follow."""
        self.ended = True
        self.signal.wake()

    def find(self, id: str) -> int | None:
        """Return the number in an id; None if it is not one of ours, or if a later event was lost with a closed feed."""
        name, number = parse_number(id)
        return number if name == self.name and self.closed <= number <= self.last else None


def parse_number(id: str) -> tuple[str, int]:
    """Return the name of the server and the number in an id. The name of something else is empty."""
    name, _, digits = id.rpartition(".")
    # Checked first: Python refuses to convert thousands of digits.
    if not digits.isascii() or not digits.isdecimal() or len(digits) > MAX_DIGITS:
        return "", 0
    return name, int(digits)


class GrowingPart:
    """A part whose text arrives in pieces. They are joined only when a listener needs the whole.

    `next_at` is when the whole may be sent again.
    """

    def __init__(self, part: TextPart | ReasoningPart) -> None:
        self.next_at = 0.0
        self.part = part
        self._pieces = [part.text]
        self._length = self._sent = len(part.text)

    def grow(self, event: PartGrew) -> None:
        overlap = self._length - event.offset
        text = event.delta[overlap:] if overlap >= 0 else ""
        self._pieces.append(text)
        self._length += len(text)

    def to_part(self) -> TextPart | ReasoningPart:
        """Return the whole part."""
        text = "".join(self._pieces)
        self._pieces = [text]
        return replace(self.part, text=text)

    def to_event(self) -> PartUpdated:
        """Return the whole part, with the text that was added since the last call."""
        part = self.to_part()
        delta, self._sent = part.text[self._sent :], self._length
        return PartUpdated(part=part, delta=delta)


def list_gone(event: Event, growing: Mapping[PartID, GrowingPart | GrowingView]) -> list[PartID]:
    """Return the growing parts that an event removes, alone or with their message or session."""
    match event:
        case PartRemoved(part_id=id):
            return [id] if id in growing else []
        case MessageRemoved(session_id=session, message_id=message):
            removed = session, message
            return [
                id for id, each in growing.items() if (each.part.session_id, each.part.message_id) == removed
            ]
        case SessionDeleted(info=info):
            return [id for id, each in growing.items() if each.part.session_id == info.id]
        case _:
            return []


class ViewWriter:
    """Turns events into what our page shows. Each text is rendered here once for all pages."""

    def __init__(self, put: Callable[[bytes, SessionID | None], None], cache: BlockCache) -> None:
        self._put = put
        self._cache = cache
        self._growing: dict[PartID, GrowingView] = {}
        self._changed: dict[PartID, SessionID] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next_at = 0.0

    def clear(self) -> None:
        self._growing.clear()
        self._changed.clear()

    def grow(self, event: PartGrew, growing: GrowingPart | None) -> None:
        """Note that a text grew. What was added is sent at most ten times a second."""
        part = self._growing.get(event.part_id)
        if part is not None:
            part.grow(event.delta, event.offset)
        elif growing is not None:  # it began before a page listened
            self._growing[event.part_id] = GrowingView(growing.to_part())
        else:
            return
        self._changed[event.part_id] = event.session_id
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, self._next_at - loop.time()), self.flush)

    def flush(self) -> None:
        """Send what was added to texts since the last time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        started = loop.time()
        changed, self._changed = self._changed, {}
        for part, session in changed.items():
            growth = self._growing[part].take()
            self._put(_encode_view("weft.part.grew", growth), session)
        ended = loop.time()
        self._next_at = ended + max(WHOLE_PART_SECONDS, (ended - started) * VIEW_PAUSE_FACTOR)

    def update(self, event: PartUpdated) -> None:
        """Send a part as the page shows it while it is closed."""
        part = event.part
        self._changed.pop(part.id, None)
        self._growing.pop(part.id, None)
        if isinstance(part, TextPart | ReasoningPart) and is_open(part):
            self._growing[part.id] = GrowingView(part)
        view = to_part_view(part, self._cache)
        if view is not None:
            properties = {"sessionID": part.session_id, "messageID": part.message_id, "part": view}
            self._put(_encode_view("weft.part.updated", properties), part.session_id)

    def add(self, event: Event) -> None:
        """Send an event other than a new text or a part. Texts of changed files are left out: a page asks for them."""
        for part in list_gone(event, self._growing):
            del self._growing[part]
            self._changed.pop(part, None)
        self.flush()
        match event:
            case MessageUpdated(info=info):
                properties = {"info": to_info_view(info), "failure": to_failure(info)}
                self._put(_encode_view(event.type, properties), info.session_id)
            case MessageRemoved() | PartRemoved():
                self._put(encode_event(event), event.session_id)
            case SessionDiffed():
                self._put(_encode_view(event.type, {"sessionID": event.session_id}), event.session_id)
            case _:
                self._put(encode_event(event), None)


def _encode_view(type: str, properties: object) -> bytes:
    return encode({"type": type, "properties": properties})


class EventFeed:
    """A bounded log of frames. Each listener reads at its own pace; one that falls too far behind loses its position."""

    def __init__(
        self, counter: EventCounter, *, directory: str, project: str, cache: BlockCache | None = None
    ) -> None:
        self.signal = Signal()
        self.closed = False
        self.listeners: dict[Granularity, int] = {"deltas": 0, "whole": 0, "view": 0}
        self.has_listeners = asyncio.Event()
        self.has_no_listeners = asyncio.Event()  # always the opposite of `has_listeners`
        self.has_no_listeners.set()
        self._counter = counter
        self.directory = directory
        self.project = project
        self.early = EarlyGrowth()
        self._head = encode({"directory": directory, "project": project})[:-1] + b',"payload":'
        self._frames: deque[FeedFrame] = deque()
        self._bytes = 0
        self._dropped = 0  # frames that have left the log
        self._dropped_number = 0
        self._growing_parts: dict[PartID, GrowingPart] = {}
        self._changed_parts: dict[PartID, None] = {}
        self._unknown_parts: dict[PartID, list[PartGrew]] = {}  # what they grew by since they were asked for
        self._timer: asyncio.TimerHandle | None = None
        self._views = ViewWriter(self._put_view, cache or BlockCache())
        self._encoded_chunks: dict[tuple[int, StreamStyle, int], tuple[bytes, int]] = {}

    def close(self) -> None:
        """Add no more events. A listener that resumes after one of our frames learns that the feed is gone."""
        self._send_whole_parts()
        self._views.flush()
        self.closed = True
        if self._frames:
            self._counter.closed = max(self._counter.closed, self._frames[-1].number)
        self.signal.fire()
        self._counter.signal.fire()

    def add_listener(self, granularity: Granularity) -> None:
        """Count a new listener."""
        self.listeners[granularity] += 1
        self._counter.listeners += 1
        self._counter.has_pages |= granularity == "view"
        self._counter.has_delta_listeners |= granularity == "deltas"
        self.has_listeners.set()
        self.has_no_listeners.clear()

    def remove_listener(self, granularity: Granularity) -> None:
        """Stop counting a listener."""
        self.listeners[granularity] -= 1
        self._counter.listeners -= 1
        if not any(self.listeners.values()):
            self.has_listeners.clear()
            self.has_no_listeners.set()

    async def flush_listeners(self) -> None:
        """Let listeners send what has happened so far, as far as that is possible without waiting."""
        if not self._counter.listeners:
            return
        for _ in range(FLUSH_TURNS):  # for events on their way from the bus
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
        self._views.clear()
        self._bytes = 0
        self.signal.fire()
        self._counter.signal.fire()

    def add(self, event: Event, *, relayed: bool = False, id: str | None = None) -> None:
        """Add an event. One that is `relayed` belongs to another directory. `id` is given if it is not the usual one."""
        has_views = self._counter.has_pages and not relayed
        if type(event) is PartGrew:  # most events are
            if self._counter.has_delta_listeners:
                self._put(encode_event(event), DELTAS, relayed=relayed, id=id)
            self._grow(event)
            if has_views:
                self._views.grow(event, self._growing_parts.get(event.part_id))
            return
        # If a page listens, it gets a frame of its own, after the text that grew before the event. Otherwise one frame is for all; but a
        # page that comes later must not receive an event about messages in this form.
        is_detail = isinstance(event, MessageUpdated | MessageRemoved | PartRemoved | SessionDiffed)
        audience = PLAIN if has_views or is_detail else None
        match event:
            case PartUpdated(part=part):
                self._changed_parts.pop(part.id, None)
                self._growing_parts.pop(part.id, None)
                self._unknown_parts.pop(part.id, None)
                if isinstance(part, TextPart | ReasoningPart) and part.time and part.time.end is None:
                    self._growing_parts[part.id] = GrowingPart(part)
                self._put(encode_event(event), PLAIN, relayed=relayed, id=id)
                if has_views:
                    self._views.update(event)
                return
            case PartRemoved(part_id=part):
                self._unknown_parts.pop(part, None)
            case _:
                pass
        for gone in list_gone(event, self._growing_parts):
            del self._growing_parts[gone]
            self._changed_parts.pop(gone, None)
        self._send_whole_parts()  # keep the text before the events that follow it
        self._put(encode_event(event), audience, relayed=relayed, id=id)
        if has_views:
            self._views.add(event)

    def asks_for(self, growth: PartGrew) -> bool:
        """Return True, once for each part, if a listener of whole parts needs a part that grows and is not known here.

        That happens on a node that begins to listen while another one is answering. `add_part` is to follow.
        """
        id = growth.part_id
        if not self.listeners["whole"] or id in self._growing_parts or id in self._unknown_parts:
            return False
        self._unknown_parts[id] = []
        return True

    def add_part(self, id: PartID, part: AnyPart | None) -> None:
        """Add the part that was asked for, as it was stored; None if it is gone. An update that came meanwhile is newer."""
        grown = self._unknown_parts.pop(id, None)
        if grown is None:
            return
        if isinstance(part, TextPart | ReasoningPart) and part.time and part.time.end is None:
            self._growing_parts[id] = GrowingPart(part)
            for growth in grown:
                self._grow(growth)

    def list_growing(self) -> list[TextPart | ReasoningPart]:
        """Return the parts that are growing, with the text that listeners were shown so far."""
        return [part.to_part() for part in self._growing_parts.values()]

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
        """Return the number of the next event at a position: None if there is nothing new, 0 if it is no longer held."""
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
        pieces: list[bytes] = []
        size, end = 0, self.position()
        while position < end and size < CHUNK_BYTES:
            frame = self._frames[position - self._dropped]
            if frame.number >= before:
                break
            position += 1
            if style.wants(frame):
                pieces.append(self.to_frame(frame.id, frame.body, style))
                size += len(pieces[-1])
        return b"".join(pieces), position

    def to_frame(self, id: str, body: bytes, style: StreamStyle) -> bytes:
        """Return an encoded event as it is sent to a listener. Without an id it is not resumed after."""
        payload = self._head + body + b"}" if style.wrapped else body
        line = b"id: " + id.encode() + b"\n" if id else b""
        return line + b"data: " + payload + b"\n\n"

    def _grow(self, event: PartGrew) -> None:
        if event.part_id in self._unknown_parts:
            self._unknown_parts[event.part_id].append(event)
        part = self._growing_parts.get(event.part_id)
        if part is None:
            return
        part.grow(event)
        self._changed_parts[event.part_id] = None
        loop = asyncio.get_running_loop()
        # The first piece that arrives after `next_at` sends the whole part. A timer at `next_at` would send an older text.
        if loop.time() >= part.next_at:
            self._send_whole_part(event.part_id)
        elif self._timer is None:
            self._timer = loop.call_later(PAUSE_SECONDS, self._send_paused_parts)

    def _send_paused_parts(self) -> None:
        """Send the parts that have grown and whose next piece, which would have sent them, has not come for a while."""
        loop = asyncio.get_running_loop()
        self._timer = None
        for part in [id for id in self._changed_parts if loop.time() >= self._growing_parts[id].next_at]:
            self._send_whole_part(part)
        if self._changed_parts:
            self._timer = loop.call_later(PAUSE_SECONDS, self._send_paused_parts)

    def _send_whole_parts(self) -> None:
        """Send all parts that have grown."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for part in list(self._changed_parts):
            self._send_whole_part(part)

    def _send_whole_part(self, id: PartID) -> None:
        """Add the whole text of a part for listeners that need it."""
        part = self._growing_parts[id]
        part.next_at = asyncio.get_running_loop().time() + WHOLE_PART_SECONDS
        del self._changed_parts[id]
        if self.listeners["whole"]:
            self._put(encode_event(part.to_event()), WHOLE)

    def _put_view(self, body: bytes, about: SessionID | None) -> None:
        self._put(body, VIEW, about=about)

    def _put(
        self,
        body: bytes,
        audience: frozenset[Granularity] | None = None,
        *,
        relayed: bool = False,
        about: SessionID | None = None,
        id: str | None = None,
    ) -> None:
        number = self._counter.next()
        frame_id = self._counter.make_id() if id is None else id
        self._frames.append(FeedFrame(number, frame_id, body, audience, relayed, about))
        self._bytes += len(body)
        while len(self._frames) > MAX_FRAMES or (self._bytes > MAX_FRAME_BYTES and len(self._frames) > 1):
            frame = self._frames.popleft()
            self._bytes -= len(frame.body)
            self._dropped, self._dropped_number = self._dropped + 1, frame.number
        self._encoded_chunks.clear()
        self.signal.fire()
        self._counter.signal.fire()
