"""The bus: a bounded log of events that every listener reads at its own pace.

Publishing never waits. A listener that falls behind further than the log reaches gets `CursorLostError`, and has to read the
sessions again; no event is dropped silently. Consecutive growth of one part may be merged.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import CursorLostError
from weft.model.event import Event, PartGrew, PublishedEvent, SessionEvent
from weft.model.session import hide_share_secret

LOG_SIZE = 8192


class Watcher(Struct, frozen=True):
    """A function to call for events of some kinds, or for all if `kinds` is empty."""

    call: Callable[[Any], None]
    kinds: frozenset[type[Event]]


class Bus:
    """Keeps the last `size` events, each with a cursor."""

    def __init__(self, size: int = LOG_SIZE) -> None:
        self._log: deque[PublishedEvent] = deque(maxlen=size)
        self._cursor = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._watchers: list[Watcher] = []
        self._watchers_of: dict[type[Event], list[Watcher]] = {}  # of each type that was published

    @property
    def cursor(self) -> int:
        """The cursor of the last published event."""
        return self._cursor

    def publish(self, *events: Event, directory: str) -> None:
        """Append events to the log, call every watcher, and wake every listener."""
        for event in events:
            kind = type(event)
            public = to_public_event(event) if isinstance(event, SessionEvent) else event
            self._cursor += 1
            self._log.append(PublishedEvent(cursor=self._cursor, directory=directory, event=public))
            watchers = self._watchers_of.get(kind)
            for watcher in self._find_watchers(kind) if watchers is None else watchers:
                watcher.call(public)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def watch(self, watcher: Callable[[Any], None], *kinds: type[Event]) -> None:
        """Call `watcher` with every event, or with those of some kinds, synchronously when it is published."""
        self._watchers.append(Watcher(watcher, frozenset(kinds)))
        self._watchers_of.clear()

    def _find_watchers(self, kind: type[Event]) -> list[Watcher]:
        found = [watcher for watcher in self._watchers if not watcher.kinds or kind in watcher.kinds]
        self._watchers_of[kind] = found
        return found

    def listen(self, after: int | None = None) -> "BusListener":
        """Return a listener to all events from now on, or after a cursor. Raise `CursorLostError` if the log no longer has them."""
        listener = BusListener(self, self._cursor if after is None else after)
        listener.check()
        return listener

    def _list_after(self, cursor: int) -> list[PublishedEvent]:
        missing = self._cursor - cursor
        if missing > len(self._log) or missing < 0:
            raise CursorLostError(cursor, self._log[0].cursor if self._log else self._cursor)
        # From the end, because a deque takes longer to find an index the farther it is from both ends.
        newest = list(islice(reversed(self._log), missing))
        newest.reverse()
        return newest

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)


def to_public_event(event: Event) -> Event:
    """Return the event without the secret of a share, which is stored with the session but never published."""
    if isinstance(event, SessionEvent):
        info = hide_share_secret(event.info)
        return event if info is event.info else replace(event, info=info)
    return event


class BusListener:
    """One reader of the bus. `cursor` is that of the last event it has read."""

    def __init__(self, bus: Bus, cursor: int) -> None:
        self._bus = bus
        self.cursor = cursor

    def check(self) -> None:
        """Raise `CursorLostError` if the log no longer has the events after the cursor."""
        self._bus._list_after(self.cursor)  # noqa: SLF001  listener and bus belong together

    async def take(self) -> list[PublishedEvent]:
        """Wait for new events and return them all, with consecutive growth of one part merged."""
        while not (published := self._bus._list_after(self.cursor)):  # noqa: SLF001
            await self._bus._wait()  # noqa: SLF001
        self.cursor = published[-1].cursor
        return merge_growth(published)

    async def __aiter__(self) -> AsyncIterator[PublishedEvent]:
        while True:
            for published in await self.take():
                yield published


def merge_growth(published: list[PublishedEvent]) -> list[PublishedEvent]:
    """Merge consecutive growth of the same part."""
    merged: list[PublishedEvent] = []
    for each in published:
        last = merged[-1].event if merged else None
        event = each.event
        if isinstance(last, PartGrew) and isinstance(event, PartGrew) and follows(last, event):
            merged[-1] = replace(each, event=replace(last, delta=last.delta + event.delta))
        else:
            merged.append(each)
    return merged


def join_growth(growth: Iterable[PartGrew]) -> list[PartGrew]:
    """Merge growth that starts where the growth before it ends."""
    joined: list[PartGrew] = []
    for each in growth:
        if joined and follows(joined[-1], each):
            joined[-1] = replace(joined[-1], delta=joined[-1].delta + each.delta)
        else:
            joined.append(each)
    return joined


def follows(first: PartGrew, second: PartGrew) -> bool:
    """Return True if the second growth starts where the first one ends."""
    return (
        (first.part_id, first.message_id, first.field) == (second.part_id, second.message_id, second.field)
        and first.session_id == second.session_id
        and first.offset + len(first.delta) == second.offset
    )
