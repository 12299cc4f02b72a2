"""The bus: a bounded log of events that every listener reads at its own pace.

Publishing never waits. A listener that falls behind further than the log reaches gets `CursorLostError`, and has to read the
sessions again; no event is dropped silently. Consecutive growth of one part may be merged.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from msgspec.structs import replace

from weft.errors import CursorLostError
from weft.model.event import Event, PartGrew, PublishedEvent, SessionCreated, SessionDeleted, SessionUpdated
from weft.model.session import hide_share_secret

LOG_SIZE = 8192


class Bus:
    """Keeps the last `held` events, each with a cursor."""

    def __init__(self, held: int = LOG_SIZE) -> None:
        self._log: deque[PublishedEvent] = deque(maxlen=held)
        self._cursor = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._watching: list[Callable[[Event], None]] = []

    @property
    def cursor(self) -> int:
        """The cursor of the last published event."""
        return self._cursor

    def publish(self, *events: Event, directory: str) -> None:
        for event in map(to_public_event, events):
            self._cursor += 1
            self._log.append(PublishedEvent(cursor=self._cursor, directory=directory, event=event))
            for see in self._watching:
                see(event)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    def watch(self, see: Callable[[Event], None]) -> None:
        """Call `see` with every event, synchronously when it is published."""
        self._watching.append(see)

    def listen(self, after: int | None = None) -> "BusListener":
        """Return a listener to all events from now on, or after a cursor. Raise `CursorLostError` if the log no longer has them."""
        listener = BusListener(self, self._cursor if after is None else after)
        listener.check()
        return listener

    def _list_after(self, cursor: int) -> list[PublishedEvent]:
        missing = self._cursor - cursor
        if missing > len(self._log) or missing < 0:
            raise CursorLostError(cursor, self._log[0].cursor if self._log else self._cursor)
        return [self._log[index] for index in range(len(self._log) - missing, len(self._log))]

    async def _wait(self) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)


def to_public_event(event: Event) -> Event:
    """Return the event without the secret of a share, which is stored with the session but never published."""
    if isinstance(event, SessionCreated | SessionUpdated | SessionDeleted):
        info = hide_share_secret(event.info)
        return event if info is event.info else replace(event, info=info)
    return event


class BusListener:
    """One reader of the bus. `cursor` is that of the last event it has read."""

    def __init__(self, bus: Bus, cursor: int) -> None:
        self._bus = bus
        self.cursor = cursor

    def check(self) -> None:
        self._bus._list_after(self.cursor)  # noqa: SLF001  listener and bus belong together

    async def take(self) -> list[PublishedEvent]:
        """Wait for new events and return them all, with consecutive growth of one part merged."""
        while not (news := self._bus._list_after(self.cursor)):  # noqa: SLF001
            await self._bus._wait()  # noqa: SLF001
        self.cursor = news[-1].cursor
        return merge_growth(news)

    async def __aiter__(self) -> AsyncIterator[PublishedEvent]:
        while True:
            for each in await self.take():
                yield each


def merge_growth(news: list[PublishedEvent]) -> list[PublishedEvent]:
    """Merge consecutive growth of the same part."""
    merged: list[PublishedEvent] = []
    for each in news:
        last = merged[-1].event if merged else None
        event = each.event
        if isinstance(last, PartGrew) and isinstance(event, PartGrew) and follows(last, event):
            merged[-1] = replace(each, event=replace(last, delta=last.delta + event.delta))
        else:
            merged.append(each)
    return merged


def follows(first: PartGrew, second: PartGrew) -> bool:
    """Return True if the second growth starts where the first one ends."""
    return (
        (first.part_id, first.message_id, first.field) == (second.part_id, second.message_id, second.field)
        and first.session_id == second.session_id
        and first.offset + len(first.delta) == second.offset
    )
