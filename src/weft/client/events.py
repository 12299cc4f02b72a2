"""Listen to a server's events: reconnect when cut off, and miss nothing."""

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

from weft.client.http import Line, Waits
from weft.errors import CursorLostError, DocumentError, UnreachableError, WeftError
from weft.model.event import (
    Event,
    MessageRemoved,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    PermissionAsked,
    QuestionAsked,
    SessionCreated,
    SessionDeleted,
    SessionRested,
    SessionUpdated,
    StatusChanged,
    Told,
    session_of,
)
from weft.model.event_wire import UnknownEvent, event_from_plain
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import MessageWithParts
from weft.model.part import AnyPart, ReasoningPart, TextPart
from weft.model.permission import PermissionRequest, QuestionRequest
from weft.model.session import AnyStatus, Busy, Idle, Session
from weft.model.transcript import Transcript, grown
from weft.model.wire import parse

FOLLOWED: Final = 200
# Told in place of what was missed; what is other than was told comes after it.
RESYNC: Final = "server.resync"


class Now(Struct, frozen=True, kw_only=True):
    """How things stand: the sessions there are, the messages of those that are followed, what is done and asked. Of a
    run that is `awaited` by other means it is not known yet whether it has begun: nothing is said of its end."""

    sessions: Mapping[SessionID, Session]
    messages: Mapping[SessionID, list[MessageWithParts]]
    status: Mapping[SessionID, AnyStatus]
    permissions: Iterable[PermissionRequest] = ()
    questions: Iterable[QuestionRequest] = ()
    awaited: Collection[SessionID] = ()


class Known:
    """What was told of one session."""

    def __init__(self) -> None:
        self.info: Session | None = None
        self.transcript = Transcript()
        self.status: AnyStatus | None = None
        self.begun: int | None = None

    def since(self) -> int | None:
        """From when on its messages were told: earlier ones are nobody's news."""
        if self.begun is not None:
            return self.begun
        told = self.transcript.messages()
        if told:
            return told[0].info.time.created
        return self.info.time.updated if self.info else None


class Heard:
    """The sessions that events were about, the last ones of them."""

    def __init__(self) -> None:
        self._known: OrderedDict[SessionID, Known] = OrderedDict()
        self._asked: set[str] = set()

    def sessions(self) -> list[SessionID]:
        return list(self._known)

    def note(self, event: Event) -> None:
        session = session_of(event)
        if session is None:
            return
        known = self._known.setdefault(session, Known())
        self._known.move_to_end(session)
        match event:
            case SessionCreated(info=info):
                known.info, known.begun = info, 0
            case SessionUpdated(info=info):
                known.info = info
            case SessionDeleted():
                del self._known[session]
            case StatusChanged(status=status):
                known.status = status
            case PermissionAsked(request=permission):
                self._asked.add(permission.id)
            case QuestionAsked(request=question):
                self._asked.add(question.id)
            case _:
                known.transcript.feed(event)
        while len(self._known) > FOLLOWED:
            self._known.popitem(last=False)

    def expect(self, session: SessionID, since: int | None = None) -> None:
        """A run is about to begin there, and its end is news even if nothing else of it is heard."""
        known = self._known.setdefault(session, Known())
        known.status = Busy()
        if known.since() is None:
            known.begun = since

    def as_growth(self, event: Event) -> list[Event]:
        """Growth as OpenCode 1.1.34 tells it, the whole part with each piece, as growth: whoever writes text out needs
        the piece alone. What is no growth stays as it is."""
        if not isinstance(event, PartUpdated) or event.delta is None:
            return [event]
        known = self._known.get(event.part.session_id)
        found = known.transcript.find(event.part.message_id) if known else None
        before = next((part for part in found.parts if part.id == event.part.id), None) if found else None
        return [event] if _growth(before, event.part) is None else list(_grown(before, event.part))

    def placed(self, properties: dict[str, Any]) -> dict[str, Any]:
        """Growth as OpenCode 1.18 tells it, with the place it grows from: there the text so far ends."""
        session, message = SessionID(str(properties.get("sessionID"))), properties.get("messageID")
        known = self._known.get(session)
        found = known.transcript.find(MessageID(str(message))) if known else None
        parts = {part.id: part for part in found.parts} if found else {}
        part = parts.get(PartID(str(properties.get("partID"))))
        length = len(part.text) if isinstance(part, TextPart | ReasoningPart) else 0
        return {**properties, "offset": length}

    def children(self, sessions: Mapping[SessionID, Session]) -> list[Session]:
        """Sessions that came to be below those followed, oldest first."""
        below = set(self._known)
        fresh: list[Session] = []
        for session in sorted(sessions.values(), key=lambda each: each.time.created):
            if session.parent_id in below and session.id not in below:
                below.add(session.id)
                fresh.append(session)
        return fresh

    def missed(self, now: Now) -> Iterator[Event]:
        """What must have happened for things to stand as they do. What came to be below has been told already."""
        for id, known in list(self._known.items()):
            info = now.sessions.get(id)
            if info is None:
                if known.info is not None:
                    yield SessionDeleted(info=known.info)
                continue
            if known.info is not None and known.info != info:
                yield SessionUpdated(info=info)
            yield from _said(id, known, now.messages.get(id, []))
        for permission in now.permissions:
            if permission.id not in self._asked and permission.session_id in self._known:
                yield PermissionAsked(request=permission)
        for question in now.questions:
            if question.id not in self._asked and question.session_id in self._known:
                yield QuestionAsked(request=question)
        for id, known in list(self._known.items()):
            if id not in now.awaited:
                yield from _done(id, known, now.status.get(id, Idle()))


def _said(session: SessionID, known: Known, messages: list[MessageWithParts]) -> Iterator[Event]:
    since = known.since()
    there = {message.info.id for message in messages}
    for told in known.transcript.messages():
        if told.info.id not in there:
            yield MessageRemoved(session_id=session, message_id=told.info.id)
    for message in messages:
        if since is not None and message.info.time.created >= since:
            yield from _changed(known.transcript.find(message.info.id), message)


def _changed(told: MessageWithParts | None, message: MessageWithParts) -> Iterator[Event]:
    if told is None or told.info != message.info:
        yield MessageUpdated(info=message.info)
    before = {part.id: part for part in told.parts} if told else {}
    for part in message.parts:
        yield from _grown(before.pop(part.id, None), part)
    for id in before:
        yield PartRemoved(session_id=message.info.session_id, message_id=message.info.id, part_id=id)


def _grown(told: AnyPart | None, part: AnyPart) -> Iterator[Event]:
    """What was added to a text comes as growth: whoever writes it out goes on where they are."""
    if told == part:
        return
    growth = _growth(told, part)
    if growth is not None and told is not None:
        yield growth
        told = grown(told, growth)
    if told != part:
        yield PartUpdated(part=part)


def _growth(told: AnyPart | None, part: AnyPart) -> PartGrew | None:
    if not isinstance(told, TextPart | ReasoningPart) or not isinstance(part, TextPart | ReasoningPart):
        return None
    if len(part.text) <= len(told.text) or not part.text.startswith(told.text):
        return None
    return PartGrew(
        session_id=part.session_id,
        message_id=part.message_id,
        part_id=part.id,
        field="text",
        delta=part.text[len(told.text) :],
        offset=len(told.text),
    )


def _done(session: SessionID, known: Known, status: AnyStatus) -> Iterator[Event]:
    if known.status is None or known.status == status:
        return
    yield StatusChanged(session_id=session, status=status)
    if isinstance(status, Idle):
        yield SessionRested(session_id=session)


MOST_BYTES: Final = 256 * 1024 * 1024


class Frame(Struct, frozen=True):
    """One event: where it stands, if the server says so, and what it says."""

    id: str | None
    data: bytes


class FrameReader:
    """Takes in bytes and gives the frames that became whole. One that is cut off is never given."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._length = 0
        self._id: str | None = None
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[Frame]:
        *lines, rest = data.split(b"\n")
        frames: list[Frame] = []
        for line in lines:
            whole = b"".join([*self._pieces, line]).removesuffix(b"\r")
            self._pieces.clear()
            self._length = 0
            frame = self._take(whole)
            if frame is not None:
                frames.append(frame)
        self._pieces.append(rest)
        self._length += len(rest)
        if self._length > MOST_BYTES:
            raise DocumentError("event", "a line without an end")
        return frames

    def _take(self, line: bytes) -> Frame | None:
        if not line:
            frame = Frame(self._id, b"\n".join(self._data)) if self._data else None
            self._id, self._data = None, []
            return frame
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"id":
            self._id = value.decode("latin-1")
        return None


PATH: Final = "/event"
SILENCE: Final = 45.0  # OpenCode 1.1.34 says that it is there every 30 seconds, weft every 10
HELD: Final = 4096
CONNECTED: Final = "server.connected"
ITS_OWN: Final = frozenset({CONNECTED, "server.heartbeat"})
GREW: Final = "message.part.delta"
PER_SERVER: Final = 1 << 48

Gather = Callable[[Heard], Awaitable[Now]]


class Joined(Struct, frozen=True):
    """A connection stands; `whole` when nothing was missed since the last one."""

    whole: bool


class Cursors:
    """Where one stands as a number: a server's ids are a name of its own and a count, and the next server begins anew."""

    def __init__(self) -> None:
        self._servers: list[str] = []

    def number(self, id: str | None, before: int) -> int:
        """The number of an event, from the one before it. What has no id can be counted, and not be gone back to."""
        server, _, count = (id or "").rpartition(".")
        if not server or not count.isdecimal():
            return before if self._servers else before + 1
        if server not in self._servers:
            self._servers.append(server)
        return (self._servers.index(server) + 1) * PER_SERVER + int(count)

    def id(self, cursor: int) -> str:
        place, count = divmod(cursor, PER_SERVER)
        if not 0 < place <= len(self._servers):
            raise CursorLostError(cursor, len(self._servers) * PER_SERVER)
        return f"{self._servers[place - 1]}.{count}"


async def frames(line: Line, after: str | None) -> AsyncGenerator[Frame | Joined]:
    """Frames as they come, over as many connections as it takes. Raises `UnreachableError` when there is nobody for too
    long, and whatever the server refuses it with."""
    waits, first = Waits(line.terms.patience), after is None
    while True:
        reason = "the stream of events ended"
        try:
            async with line.stream(PATH, after=after, silence=SILENCE) as chunks:
                reader, whole = FrameReader(), after is not None
                async for chunk in chunks:
                    for frame in reader.feed(chunk):
                        kind = _type_of(frame)
                        if kind == CONNECTED:
                            waits.reset()
                            line.notice_back()
                            # Whether all is there is known from what comes next: a resync, or not.
                            yield Joined(first or whole)
                            first = False
                        after = frame.id or after
                        yield frame
        except httpx2.TransportError as error:
            reason = str(error) or type(error).__name__
        if not await waits.wait():
            raise UnreachableError(f"{line.url}: {reason}")
        if waits.tried > 1:  # a connection that is merely cut is there again at once
            line.notice_gone()


def _type_of(frame: Frame) -> str:
    head = frame.data[:64]
    return CONNECTED if b'"server.connected"' in head else ""


class Listening:
    """One listener at work: what it hears goes into a queue, a gap is filled in from how things stand."""

    def __init__(self, line: Line, cursors: Cursors, gather: Gather, after: int | None) -> None:
        self.queue: asyncio.Queue[Told | WeftError | None] = asyncio.Queue(HELD)
        self.over = False
        self.joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.heard = Heard()
        self.gaps = 0
        self._line = line
        self._cursors = cursors
        self._gather = gather
        self._asked = after
        self._after = None if after is None else cursors.id(after)
        self._cursor = after or 0
        self._told = False
        self._telling = asyncio.Lock()

    async def run(self) -> None:
        """For as long as somebody listens. What goes wrong for good is what the listener is told last."""
        try:
            async for each in frames(self._line, self._after):
                await self._take(each)
        except WeftError as error:
            await self.queue.put(error)
        finally:
            self._join()
            self.over = True
            if self.queue.empty():
                self.queue.put_nowait(None)  # for who waits

    async def make_up(self) -> None:
        """After a run with a gap: its end may have been in it. That there was one is told already. What keeps us from
        catching up is the listener's to know."""
        try:
            async with self._telling:
                await self._tell_missed()
        except WeftError as error:
            await self.queue.put(error)

    async def catch_up(self, reason: str) -> None:
        """Tell what happened while nobody listened: that there was a gap, then what is other than was told."""
        async with self._telling:
            await self._put(None, UnknownEvent(named=RESYNC, properties={"reason": reason}))
            await self._tell_missed()

    async def _tell_missed(self) -> None:
        now = await self._gather(self.heard)
        for child in self.heard.children(now.sessions):
            await self._put(None, SessionCreated(info=child))
        now = await self._gather(self.heard)
        for event in list(self.heard.missed(now)):
            await self._put(None, event)

    async def _take(self, each: Frame | Joined) -> None:
        if isinstance(each, Joined):
            if not each.whole:
                self.gaps += 1
                await self.catch_up("the server does not number its events")
            return
        event = self._event(each)
        if event is None:
            pass
        elif isinstance(event, UnknownEvent) and event.named == RESYNC:
            if self._asked is not None and not self._told:
                raise CursorLostError(self._asked, self._cursors.number(each.id, self._cursor))
            self.gaps += 1
            await self.catch_up(str(event.properties.get("reason", "")))
        else:
            async with self._telling:
                for told in [event] if self._line.ours else self.heard.as_growth(event):
                    await self._put(each.id, told)
        self._join()

    def _join(self) -> None:
        if not self.joined.done():
            self.joined.set_result(None)

    def _event(self, frame: Frame) -> Event | None:
        """The event in a frame; None for what a server says of the connection. One that we cannot read is kept as it is."""
        try:
            plain = parse(frame.data, where="event")
        except DocumentError:
            return None
        if not isinstance(plain, dict) or plain.get("type") in ITS_OWN:
            return None
        properties = plain.get("properties")
        if plain.get("type") == GREW and isinstance(properties, dict) and "offset" not in properties:
            plain = {**plain, "properties": self.heard.placed(properties)}
        try:
            return event_from_plain(plain)
        except DocumentError:
            return _unreadable(plain)

    async def _put(self, id: str | None, event: Event) -> None:
        self._told = True
        self.heard.note(event)
        self._cursor = self._cursors.number(id, self._cursor)
        await self.queue.put(Told(cursor=self._cursor, directory=self._line.directory, event=event))


def _unreadable(plain: dict[str, Any]) -> UnknownEvent | None:
    named, properties = plain.get("type"), plain.get("properties")
    if not isinstance(named, str):
        return None
    return UnknownEvent(named=named, properties=properties if isinstance(properties, dict) else {})


class Events:
    """What a listener hears. Whoever drops it listens no more."""

    def __init__(self, listening: Listening, task: asyncio.Task[None]) -> None:
        self._listening = listening
        self._stop = weakref.finalize(self, task.cancel)
        self._stop.atexit = False

    def __aiter__(self) -> AsyncIterator[Told]:
        return self

    async def __anext__(self) -> Told:
        at = self._listening
        told = None if at.over and at.queue.empty() else await at.queue.get()
        if told is None:
            raise StopAsyncIteration
        if isinstance(told, WeftError):
            raise told
        return told

    async def aclose(self) -> None:
        self._stop()
