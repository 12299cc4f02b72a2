"""Tell the store which messages changed, so that its search index is up to date when somebody searches."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from weft.bus import Bus
from weft.host.clock import Clock
from weft.host.tasks import open_tasks
from weft.model.event import (
    Event,
    MessageRemoved,
    MessageUpdated,
    PartRemoved,
    PartUpdated,
    SessionCreated,
    SessionDeleted,
    SessionUpdated,
    session_of,
)
from weft.model.ids import MessageID, SessionID
from weft.store.contract import Store

# A search first reads what the index lacks, so this decides how much that can be, not what is found. Each time costs a few
# milliseconds for every session that changed: with many sessions at work, a fifth of what their tokens cost at 2 seconds.
INDEX_INTERVAL_SECONDS = 10.0
# A part that grows is not among them: it is indexed when it is whole.
CHANGES: Final = (
    SessionCreated,
    SessionUpdated,
    SessionDeleted,
    MessageUpdated,
    MessageRemoved,
    PartUpdated,
    PartRemoved,
)


class BackgroundIndexer:
    """Collects changes from the bus, and hands them to the store every `INDEX_INTERVAL_SECONDS`."""

    def __init__(self, store: Store, bus: Bus, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._changed: dict[SessionID, set[MessageID]] = {}
        self._has_changes = asyncio.Event()
        bus.watch(self._note_change, *CHANGES)

    async def follow(self) -> None:
        """Index changes until cancelled."""
        while True:
            await self._has_changes.wait()
            await self._clock.sleep(INDEX_INTERVAL_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Add the collected changes to the index."""
        changed, self._changed = self._changed, {}
        self._has_changes.clear()
        if changed:
            await self._store.update_index(changed)

    def _note_change(self, event: Event) -> None:
        """Note which session an event is about, and which message if it is about one."""
        session = session_of(event)
        assert session is not None, event
        messages = self._changed.setdefault(session, set())
        match event:
            case MessageUpdated(info=info):
                messages.add(info.id)
            case PartUpdated(part=part):
                messages.add(part.message_id)
            case PartRemoved() | MessageRemoved():
                messages.add(event.message_id)
            case _:
                pass
        self._has_changes.set()


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
            await indexer.flush()
