"""Listening to a server: one connection for each listener, made again whenever it is cut, and nothing missed."""

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Final

import httpx2
from msgspec import Struct

from weft.client.frames import Frame, FrameReader
from weft.client.heard import RESYNC, Heard, Now
from weft.client.http import Line, Waits
from weft.errors import CursorLostError, DocumentError, UnreachableError, WeftError
from weft.model.event import Event, SessionCreated, Told
from weft.model.event_wire import UnknownEvent, event_from_plain
from weft.model.wire import parse

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
