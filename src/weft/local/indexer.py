"""Tell the store which messages changed, so that its search index is up to date when somebody searches."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from weft.bus import Bus
from weft.errors import CursorLostError
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
from weft.store.contract import Store

# Short enough to find recent messages, and long enough not to slow down a long run.
INDEX_INTERVAL_SECONDS = 2.0


class BackgroundIndexer:
    """Collects changes from the bus, and hands them to the store every few seconds."""

    def __init__(self, store: Store, bus: Bus, clock: Clock) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._changed: dict[SessionID, set[MessageID]] = {}
        self._listener = bus.listen(None)

    async def follow(self) -> None:
        """Index changes until cancelled."""
        while True:
            await self._receive()
            await self._clock.sleep(INDEX_INTERVAL_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Add the collected changes to the index."""
        changed, self._changed = self._changed, {}
        if changed:
            await self._store.update_index(changed)

    async def _receive(self) -> None:
        try:
            published = await self._listener.take()
        except CursorLostError:
            self._listener = self._bus.listen(None)
            return
        for item in published:
            self._note_change(item.event)

    def _note_change(self, event: Event) -> None:
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
        if self._bus.cursor > self._listener.cursor:
            await self._receive()
        await self.flush()


@asynccontextmanager
async def open_indexer(store: Store, bus: Bus, clock: Clock) -> AsyncIterator[BackgroundIndexer]:
    """Index changes in the background of the body."""
    indexer = BackgroundIndexer(store, bus, clock)
    async with open_tasks() as tasks:
        follower = tasks.create_task(indexer.follow())
        try:
            yield indexer
        finally:
            follower.cancel()
            await asyncio.wait([follower])
            await indexer.close()
