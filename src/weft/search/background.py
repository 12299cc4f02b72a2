"""Keep the search index up to date in the background of a running weft."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from weft.bus import Bus
from weft.errors import CursorLostError, IndexFailedError
from weft.host.clock import Clock
from weft.host.tasks import open_tasks
from weft.model.event import (
    Event,
    MessageRemoved,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    SessionCreated,
    SessionDeleted,
    SessionUpdated,
    session_of,
)
from weft.model.ids import MessageID, SessionID
from weft.search.library import Library

# Often enough to find what was said a moment ago, seldom enough to cost a long run nothing.
EVERY_SECONDS = 2.0


class Indexer:
    """Collects what changed, and puts it into the index now and then."""

    def __init__(self, library: Library, bus: Bus, clock: Clock) -> None:
        self._library = library
        self._bus = bus
        self._clock = clock
        self._changed: dict[SessionID, set[MessageID]] = {}
        self._listening = bus.listen(None)

    async def follow(self) -> None:
        while True:
            await self._listen()
            await self._clock.sleep(EVERY_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        changed, self._changed = self._changed, {}
        for session, messages in changed.items():
            # What is missed now, for whatever reason, is seen by its stamp when somebody searches.
            with suppress(IndexFailedError, OSError):
                await asyncio.to_thread(self._library.note, session, messages)

    async def _listen(self) -> None:
        try:
            told = await self._listening.take()
        except CursorLostError:
            self._listening = self._bus.listen(None)
            return
        for each in told:
            self._note(each.event)

    def _note(self, event: Event) -> None:
        session = session_of(event)
        if session is None:
            return
        match event:
            case SessionCreated() | SessionUpdated() | SessionDeleted():
                self._changed.setdefault(session, set())
            case MessageUpdated(info=info):
                self._changed.setdefault(session, set()).add(info.id)
            case PartUpdated(part=part):
                self._changed.setdefault(session, set()).add(part.message_id)
            case PartGrew() | PartRemoved() | MessageRemoved():
                self._changed.setdefault(session, set()).add(event.message_id)
            case _:
                pass

    async def close(self) -> None:
        """What happened and was not heard yet is heard, and put in."""
        if self._bus.cursor > self._listening.cursor:
            await self._listen()
        await self.flush()


@asynccontextmanager
async def open_indexer(library: Library, bus: Bus, clock: Clock) -> AsyncIterator[Indexer]:
    indexer = Indexer(library, bus, clock)
    async with open_tasks() as tasks:
        following = tasks.create_task(indexer.follow())
        try:
            yield indexer
        finally:
            following.cancel()
            await asyncio.wait([following])
            await indexer.close()
