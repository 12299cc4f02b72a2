"""Listen to the events of a server: reconnect when cut off, and make up for missed events."""

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any, Final

import httpx2
from msgspec import Struct

from weft.client.http import NO_SERVER_HINT, Backoff, ServerConnection
from weft.errors import CursorLostError, DocumentError, UnreachableError, WeftError
from weft.model.client_tool import ClientToolRequest
from weft.model.event import (
    Event,
    MessageRemoved,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    PermissionAsked,
    PublishedEvent,
    QuestionAsked,
    SessionCreated,
    SessionDeleted,
    SessionIdled,
    SessionUpdated,
    StatusChanged,
    ToolRequested,
    session_of,
)
from weft.model.event_wire import RESYNC, UnknownEvent, event_from_plain
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import MessageWithParts
from weft.model.part import AnyPart, ReasoningPart, TextPart
from weft.model.permission import PermissionRequest, QuestionRequest
from weft.model.session import AnyStatus, Idle, SessionInfo
from weft.model.transcript import Transcript, grow_part
from weft.model.wire import parse

MAX_TRACKED: Final = 200


class ServerState(Struct, frozen=True, kw_only=True):
    """The state of a server: all sessions, the messages of the tracked ones, statuses and open requests.

    `running` are the sessions whose runs this client waits for. Such a run may not have begun yet, so an idle session does not
    mean that its run has ended.
    """

    sessions: Mapping[SessionID, SessionInfo]
    messages: Mapping[SessionID, list[MessageWithParts]]
    status: Mapping[SessionID, AnyStatus]
    permissions: Iterable[PermissionRequest] = ()
    questions: Iterable[QuestionRequest] = ()
    tool_requests: Iterable[ClientToolRequest] = ()
    running: Collection[SessionID] = ()


class TrackedSession:
    """What the events said about one session.

    `expects_end` says that the listener waits for the end of a run. `begun_at` is the time from which messages are new to the
    listener, if it is known.
    """

    def __init__(self) -> None:
        self.info: SessionInfo | None = None
        self.transcript = Transcript()
        self.status: AnyStatus | None = None
        self.expects_end = False
        self.begun_at: int | None = None

    def find_start(self) -> int | None:
        """Return the time from which messages are reported. Earlier messages are not new to the listener."""
        if self.begun_at is not None:
            return self.begun_at
        messages = self.transcript.messages()
        if messages:
            return messages[0].info.time.created
        return self.info.time.updated if self.info else None


class SessionTracker:
    """Tracks the sessions that events are about, to find out which events were missed."""

    def __init__(self) -> None:
        self._tracked: OrderedDict[SessionID, TrackedSession] = OrderedDict()
        self._requests: set[str] = set()

    def sessions(self) -> list[SessionID]:
        return list(self._tracked)

    def feed(self, event: Event) -> None:
        session = session_of(event)
        if session is None:
            return
        known = self._tracked.setdefault(session, TrackedSession())
        self._tracked.move_to_end(session)
        match event:
            case SessionCreated(info=info):
                known.info, known.begun_at = info, 0
            case SessionUpdated(info=info):
                known.info = info
            case SessionDeleted():
                del self._tracked[session]
            case StatusChanged(status=status):
                known.status = status
                known.expects_end &= not isinstance(status, Idle)
            case PermissionAsked(request=permission):
                self._requests.add(permission.id)
            case QuestionAsked(request=question):
                self._requests.add(question.id)
            case ToolRequested(request=call):
                self._requests.add(call.id)
            case _:
                known.transcript.feed(event)
        while len(self._tracked) > MAX_TRACKED:
            self._tracked.popitem(last=False)

    def expect(self, session: SessionID, since: int | None = None) -> None:
        """Expect a run in a session, so that its end is reported even if no other event of it arrives."""
        known = self._tracked.setdefault(session, TrackedSession())
        known.expects_end = True
        if known.find_start() is None:
            known.begun_at = since

    def to_growth(self, event: Event) -> list[Event]:
        """Return `PartGrew` in place of an update that adds text to a part. OpenCode 1.1.34 sends the whole part with each piece of
        text, but a listener that prints text needs the piece. Other events stay as they are.
        """
        if not isinstance(event, PartUpdated) or event.delta is None:
            return [event]
        known = self._tracked.get(event.part.session_id)
        found = known.transcript.find(event.part.message_id) if known else None
        before = next((part for part in found.parts if part.id == event.part.id), None) if found else None
        return [event] if _find_growth(before, event.part) is None else list(_diff_part(before, event.part))

    def add_offset(self, properties: dict[str, Any]) -> dict[str, Any]:
        """Add the offset, which OpenCode 1.18 does not send, to the properties of growth: the length of the text so far."""
        session, message = SessionID(str(properties.get("sessionID"))), properties.get("messageID")
        known = self._tracked.get(session)
        found = known.transcript.find(MessageID(str(message))) if known else None
        parts = {part.id: part for part in found.parts} if found else {}
        part = parts.get(PartID(str(properties.get("partID"))))
        length = len(part.text) if isinstance(part, TextPart | ReasoningPart) else 0
        return {**properties, "offset": length}

    def find_new_children(self, sessions: Mapping[SessionID, SessionInfo]) -> list[SessionInfo]:
        """Return new children of the tracked sessions, oldest first."""
        tracked = set(self._tracked)
        found: list[SessionInfo] = []
        for session in sorted(sessions.values(), key=lambda each: each.time.created):
            if session.parent_id in tracked and session.id not in tracked:
                tracked.add(session.id)
                found.append(session)
        return found

    def find_missed(self, state: ServerState) -> Iterator[Event]:
        """Return the events that lead from what is known to this state. New children were reported before."""
        for id, known in list(self._tracked.items()):
            info = state.sessions.get(id)
            if info is None:
                if known.info is not None:
                    yield SessionDeleted(info=known.info)
                continue
            if known.info is not None and known.info != info:
                yield SessionUpdated(info=info)
            status = state.status.get(id, Idle())
            # Report first that a run has begun, so that its messages are shown as part of it. The end of a run comes last, below.
            if not isinstance(status, Idle):
                yield from _diff_status(id, known, status)
            yield from _diff_messages(id, known, state.messages.get(id, []))
        for permission in state.permissions:
            if permission.id not in self._requests and permission.session_id in self._tracked:
                yield PermissionAsked(request=permission)
        for question in state.questions:
            if question.id not in self._requests and question.session_id in self._tracked:
                yield QuestionAsked(request=question)
        for call in state.tool_requests:
            if call.id not in self._requests and call.session_id in self._tracked:
                yield ToolRequested(request=call)
        for id, known in list(self._tracked.items()):
            if id not in state.running and isinstance(state.status.get(id, Idle()), Idle):
                yield from _diff_status(id, known, Idle())


def _diff_messages(
    session: SessionID, known: TrackedSession, messages: list[MessageWithParts]
) -> Iterator[Event]:
    since = known.find_start()
    ids = {message.info.id for message in messages}
    for reported in known.transcript.messages():
        if reported.info.id not in ids:
            yield MessageRemoved(session_id=session, message_id=reported.info.id)
    for message in messages:
        if since is not None and message.info.time.created >= since:
            yield from _diff_message(known.transcript.find(message.info.id), message)


def _diff_message(reported: MessageWithParts | None, message: MessageWithParts) -> Iterator[Event]:
    if reported is None or reported.info != message.info:
        yield MessageUpdated(info=message.info)
    before = {part.id: part for part in reported.parts} if reported else {}
    for part in message.parts:
        yield from _diff_part(before.pop(part.id, None), part)
    for id in before:
        yield PartRemoved(session_id=message.info.session_id, message_id=message.info.id, part_id=id)


def _diff_part(known_part: AnyPart | None, part: AnyPart) -> Iterator[Event]:
    """Report added text as growth, so that a listener that prints it can continue."""
    if known_part == part:
        return
    growth = _find_growth(known_part, part)
    if growth is not None and known_part is not None:
        yield growth
        known_part = grow_part(known_part, growth)
    if known_part != part:
        yield PartUpdated(part=part)


def _find_growth(known_part: AnyPart | None, part: AnyPart) -> PartGrew | None:
    if not isinstance(known_part, TextPart | ReasoningPart) or not isinstance(part, TextPart | ReasoningPart):
        return None
    if len(part.text) <= len(known_part.text) or not part.text.startswith(known_part.text):
        return None
    return PartGrew(
        session_id=part.session_id,
        message_id=part.message_id,
        part_id=part.id,
        field="text",
        delta=part.text[len(known_part.text) :],
        offset=len(known_part.text),
    )


def _diff_status(session: SessionID, known: TrackedSession, status: AnyStatus) -> Iterator[Event]:
    is_expected_end = known.expects_end and isinstance(status, Idle)
    is_unknown = known.status is None and not known.expects_end
    if is_unknown or (known.status == status and not is_expected_end):
        return
    yield StatusChanged(session_id=session, status=status)
    if isinstance(status, Idle):
        yield SessionIdled(session_id=session)


MAX_FRAME_BYTES: Final = 256 * 1024 * 1024


class EventFrame(Struct, frozen=True):
    """One frame of the event stream: its id, if the server sends one, and its data."""

    id: str | None
    data: bytes


class EventFrameReader:
    """Splits bytes into frames. A frame that is cut off is dropped. One of more than `limit` bytes raises `DocumentError`."""

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._length = 0
        self._id: str | None = None
        self._data: list[bytes] = []
        self._data_length = 0

    def feed(self, data: bytes) -> list[EventFrame]:
        *lines, rest = data.split(b"\n")
        frames: list[EventFrame] = []
        for line in lines:
            whole = b"".join([*self._pieces, line]).removesuffix(b"\r")
            self._pieces.clear()
            self._length = 0
            frame = self._take(whole)
            if frame is not None:
                frames.append(frame)
        self._pieces.append(rest)
        self._length += len(rest)
        if self._length + self._data_length > self._limit:
            raise DocumentError("event", f"it is larger than {self._limit} bytes")
        return frames

    def _take(self, line: bytes) -> EventFrame | None:
        if not line:
            frame = EventFrame(self._id, b"\n".join(self._data)) if self._data else None
            self._id, self._data, self._data_length = None, [], 0
            return frame
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._data_length += len(value) + 1
        elif name == b"id":
            self._id = value.decode("latin-1")
        return None


PATH: Final = "/event"
SILENCE_SECONDS: Final = 45.0  # OpenCode 1.1.34 sends a heartbeat every 30 seconds, weft every 10
QUEUE_SIZE: Final = 4096
CONNECTED: Final = "server.connected"
CONNECTION_EVENTS: Final = frozenset({CONNECTED, "server.heartbeat"})
PART_GREW: Final = "message.part.delta"
CURSORS_PER_SERVER: Final = 1 << 96
MAX_COUNT_DIGITS: Final = 28  # every number with so few digits is below `CURSORS_PER_SERVER`

GatherState = Callable[[SessionTracker], Awaitable[ServerState]]


class Connected(Struct, frozen=True):
    """The stream is connected. `complete` means that no event was missed since the last connection."""

    complete: bool


class CursorMap:
    """Maps event ids to numeric cursors. An id is a name and a number: the name is that of a server process, or of the log of a cluster."""

    def __init__(self) -> None:
        self._servers: list[str] = []

    def to_cursor(self, id: str | None, before: int) -> int:
        """Return the cursor of an event that follows `before`.

        If the event has no id, or one without a number, that is the cursor `before`: resuming there repeats the event. From a
        server that sends no ids it is a new cursor that cannot be resumed.
        """
        server, _, count = (id or "").rpartition(".")
        if not server or not count.isdecimal() or len(count) > MAX_COUNT_DIGITS:
            return before if self._servers else before + 1
        if server not in self._servers:
            self._servers.append(server)
        return (self._servers.index(server) + 1) * CURSORS_PER_SERVER + int(count)

    def to_id(self, cursor: int) -> str:
        index, count = divmod(cursor, CURSORS_PER_SERVER)
        if not 0 < index <= len(self._servers):
            raise CursorLostError(cursor, len(self._servers) * CURSORS_PER_SERVER)
        return f"{self._servers[index - 1]}.{count}"


async def read_frames(
    connection: ServerConnection, after: str | None
) -> AsyncGenerator[EventFrame | Connected]:
    """Yield frames, and reconnect as often as needed. Raise `UnreachableError` if the server is gone for too long. If the server
    refuses the request, raise its error.
    """
    backoff, first = Backoff(connection.options.patience), after is None
    while True:
        reason = "the stream of events ended"
        try:
            async with connection.stream(PATH, after=after, silence=SILENCE_SECONDS) as chunks:
                reader, resumed = EventFrameReader(), after is not None
                async for chunk in chunks:
                    for frame in reader.feed(chunk):
                        if _is_connected(frame):
                            backoff.reset()
                            connection.notice_back()
                            # If the server no longer holds the events, the next frame is a resync.
                            yield Connected(first or resumed)
                            first = False
                        after = frame.id or after
                        yield frame
        except httpx2.TransportError as error:
            reason = str(error) or type(error).__name__
        if not await backoff.wait():
            raise UnreachableError(f"{connection.url}: {reason}", hint=NO_SERVER_HINT)
        if backoff.attempts > 1:  # after a mere interruption, the first attempt succeeds
            connection.notice_gone()


def _is_connected(frame: EventFrame) -> bool:
    """Return True if the frame says that the stream is connected. The type is at the beginning of the data."""
    return b'"server.connected"' in frame.data[:64]


class EventListener:
    """Reads the event stream into a queue, and fills gaps from the state of the server."""

    def __init__(
        self, connection: ServerConnection, cursors: CursorMap, gather: GatherState, after: int | None
    ) -> None:
        self.queue: asyncio.Queue[PublishedEvent | WeftError | None] = asyncio.Queue(QUEUE_SIZE)
        self.ended = False
        self.connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tracker = SessionTracker()
        self.gaps = 0
        self._connection = connection
        self._cursors = cursors
        self._gather = gather
        self._resume_after = after
        self._after = None if after is None else cursors.to_id(after)
        self._cursor = after or 0
        self._has_events = False
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        """Read until cancelled. Put the final error into the queue."""
        try:
            async for each in read_frames(self._connection, self._after):
                await self._handle(each)
        except WeftError as error:
            await self.queue.put(error)
        finally:
            self._set_connected()
            self.ended = True
            if self.queue.empty():
                self.queue.put_nowait(None)  # wake the reader

    async def fill_gap(self) -> None:
        """Report the events that were missed during a run, its end among them. The gap itself was reported before.

        Put an error into the queue if the state cannot be read.
        """
        try:
            async with self._lock:
                await self._put_missed()
        except WeftError as error:
            await self.queue.put(error)

    async def catch_up(self, reason: str) -> None:
        """Report a gap, and then the events that were missed in it."""
        async with self._lock:
            await self._put(None, UnknownEvent(named=RESYNC, properties={"reason": reason}))
            await self._put_missed()

    async def _put_missed(self) -> None:
        state = await self._gather(self.tracker)
        for child in self.tracker.find_new_children(state.sessions):
            await self._put(None, SessionCreated(info=child))
        # Now the new children are tracked, so this state has their messages, too.
        state = await self._gather(self.tracker)
        for event in list(self.tracker.find_missed(state)):
            await self._put(None, event)

    async def _handle(self, each: EventFrame | Connected) -> None:
        if isinstance(each, Connected):
            if not each.complete:
                self.gaps += 1
                await self.catch_up("the server does not number its events")
            return
        event = self._to_event(each)
        if event is None:
            pass
        elif isinstance(event, UnknownEvent) and event.named == RESYNC:
            if self._resume_after is not None and not self._has_events:
                raise CursorLostError(self._resume_after, self._cursors.to_cursor(each.id, self._cursor))
            self.gaps += 1
            await self.catch_up(str(event.properties.get("reason", "")))
        else:
            async with self._lock:
                for converted in [event] if self._connection.is_weft else self.tracker.to_growth(event):
                    await self._put(each.id, converted)
        self._set_connected()

    def _set_connected(self) -> None:
        if not self.connected.done():
            self.connected.set_result(None)

    def _to_event(self, frame: EventFrame) -> Event | None:
        """Return the event of a frame, or None for events about the connection. An event that cannot be read becomes unknown."""
        try:
            plain = parse(frame.data, where="event")
        except DocumentError:
            return None
        named = plain.get("type") if isinstance(plain, dict) else None
        if not isinstance(named, str) or named in CONNECTION_EVENTS:
            return None
        properties = plain.get("properties")
        if named == PART_GREW and isinstance(properties, dict) and "offset" not in properties:
            plain = {**plain, "properties": self.tracker.add_offset(properties)}
        try:
            return event_from_plain(plain)
        except DocumentError:
            return UnknownEvent(named=named, properties=properties if isinstance(properties, dict) else {})

    async def _put(self, id: str | None, event: Event) -> None:
        self._has_events = True
        self.tracker.feed(event)
        self._cursor = self._cursors.to_cursor(id, self._cursor)
        await self.queue.put(
            PublishedEvent(cursor=self._cursor, directory=self._connection.directory, event=event)
        )


class EventStream:
    """The events of a listener. Listening stops when this is closed or garbage collected."""

    def __init__(self, listener: EventListener, task: asyncio.Task[None]) -> None:
        self._listener = listener
        self._stop = weakref.finalize(self, task.cancel)
        self._stop.atexit = False

    def __aiter__(self) -> AsyncIterator[PublishedEvent]:
        return self

    async def __anext__(self) -> PublishedEvent:
        listener = self._listener
        next_item = None if listener.ended and listener.queue.empty() else await listener.queue.get()
        if next_item is None:
            raise StopAsyncIteration
        if isinstance(next_item, WeftError):
            raise next_item
        return next_item

    async def aclose(self) -> None:
        self._stop()
