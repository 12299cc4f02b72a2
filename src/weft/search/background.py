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
from weft.search.library import SessionLibrary

# Often enough to find recent messages, and rare enough not to slow down a long run.
EVERY_SECONDS = 2.0


class BackgroundIndexer:
    """Collects changes from the bus, and adds them to the index every few seconds."""

    def __init__(self, library: SessionLibrary, bus: Bus, clock: Clock) -> None:
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
            # A change that is missed here is noticed by its stamp at the next search.
            with suppress(IndexFailedError, OSError):
                await asyncio.to_thread(self._library.update_messages, session, messages)

    async def _listen(self) -> None:
        try:
            received = await self._listening.take()
        except CursorLostError:
            self._listening = self._bus.listen(None)
            return
        for each in received:
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
        """Take the remaining events from the bus and add their changes to the index."""
        if self._bus.cursor > self._listening.cursor:
            await self._listen()
        await self.flush()


@asynccontextmanager
async def open_indexer(library: SessionLibrary, bus: Bus, clock: Clock) -> AsyncIterator[BackgroundIndexer]:
    """Index changes in the background of the body."""
    indexer = BackgroundIndexer(library, bus, clock)
    async with open_tasks() as tasks:
        following = tasks.create_task(indexer.follow())
        try:
            yield indexer
        finally:
            following.cancel()
            await asyncio.wait([following])
            await indexer.close()
