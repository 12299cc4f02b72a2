"""The bus: events in motion. One bounded log that every listener reads at its own pace.

Publishing never waits. A listener that falls behind by more than the log holds is told so (`CursorLostError`) and
has to read the sessions again; nothing is ever dropped silently. Growth of one part may be merged on the way.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from msgspec.structs import replace

from weft.errors import CursorLostError
from weft.model.event import Event, PartGrew, SessionCreated, SessionDeleted, SessionUpdated, Told
from weft.model.session import without_secret

HELD = 8192


class Bus:
    def __init__(self, held: int = HELD) -> None:
        self._log: deque[Told] = deque(maxlen=held)
        self._cursor = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._watching: list[Callable[[Event], None]] = []

    @property
    def cursor(self) -> int:
        """Where the stream stands: the cursor of the last event told."""
        return self._cursor

    def publish(self, *events: Event, directory: str) -> None:
        for event in map(as_told, events):
            self._cursor += 1
            self._log.append(Told(cursor=self._cursor, directory=directory, event=event))
            for see in self._watching:
                see(event)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    def watch(self, see: Callable[[Event], None]) -> None:
        """Have this called with every event, in the very moment it is told; what it tells comes right after."""
        self._watching.append(see)

    def listen(self, after: int | None = None) -> "Listener":
        """Listen from now on, or from just after a cursor. Raises `CursorLostError` when that is no longer held."""
        listener = Listener(self, self._cursor if after is None else after)
        listener.check()
        return listener

    def _held_after(self, cursor: int) -> list[Told]:
        missing = self._cursor - cursor
        if missing > len(self._log) or missing < 0:
            raise CursorLostError(cursor, self._log[0].cursor if self._log else self._cursor)
        return [self._log[index] for index in range(len(self._log) - missing, len(self._log))]

    async def _news(self) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)


def as_told(event: Event) -> Event:
    """An event as others may hear it: the secret of a share is stored with a session, and told to nobody."""
    if isinstance(event, SessionCreated | SessionUpdated | SessionDeleted):
        told = without_secret(event.info)
        return event if told is event.info else replace(event, info=told)
    return event


class Listener:
    """One reader of the bus; `cursor` is the last event it has taken."""

    def __init__(self, bus: Bus, cursor: int) -> None:
        self._bus = bus
        self.cursor = cursor

    def check(self) -> None:
        self._bus._held_after(self.cursor)  # noqa: SLF001  the listener is the bus's other half

    async def take(self) -> list[Told]:
        """All that is new, at least one event, neighbouring growth of one part merged."""
        while not (news := self._bus._held_after(self.cursor)):  # noqa: SLF001
            await self._bus._news()  # noqa: SLF001
        self.cursor = news[-1].cursor
        return merged(news)

    async def __aiter__(self) -> AsyncIterator[Told]:
        while True:
            for told in await self.take():
                yield told


def merged(news: list[Told]) -> list[Told]:
    """The same story with fewer words: neighbouring growth of one part becomes one."""
    told: list[Told] = []
    for each in news:
        last = told[-1].event if told else None
        event = each.event
        if isinstance(last, PartGrew) and isinstance(event, PartGrew) and follows(last, event):
            told[-1] = replace(each, event=replace(last, delta=last.delta + event.delta))
        else:
            told.append(each)
    return told


def follows(first: PartGrew, second: PartGrew) -> bool:
    """Whether the second growth starts where the first one ended."""
    return (
        (first.part_id, first.message_id, first.field) == (second.part_id, second.message_id, second.field)
        and first.session_id == second.session_id
        and first.offset + len(first.delta) == second.offset
    )
