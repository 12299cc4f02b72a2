"""Keep shares on other servers up to date in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from weft.bus import Bus
from weft.errors import CursorLostError, NotFoundError, StoreError, WeftError
from weft.host.tasks import open_tasks
from weft.model.event import Event, SessionRested, SessionUpdated, SessionWarned, session_of
from weft.model.ids import SessionID
from weft.share.contract import GoneError, ShareContext
from weft.share.records import ShareRecord, ShareRecords
from weft.share.revoke import ShareRevoker

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.share.delivery import ShareDelivery

SYNC_SECONDS = 1.0
CLOSING_SECONDS = 8.0


class ShareSync:
    """Sends changes a second after they happen. What could not be sent goes with the next change, or at the end."""

    def __init__(self, context: ShareContext, bus: Bus) -> None:
        self._context = context
        self._bus = bus
        self._listener = bus.listen(None)
        self._deliveries: dict[SessionID, ShareDelivery] = {}
        self._behind: set[SessionID] = set()

    async def send(self, record: ShareRecord) -> None:
        """Send everything that the other server does not have yet. Raise `SharingError` on failure."""
        await self._get_delivery(record).send()

    def forget(self, session: SessionID) -> None:
        """Stop sending a session."""
        self._deliveries.pop(session, None)
        self._behind.discard(session)

    async def follow(self) -> None:
        """Follow the events and send changes until cancelled."""
        await self._load_shares()
        while True:
            self._note(await self._take())
            if self._behind:
                await self._context.clock.sleep(SYNC_SECONDS)
                await self.flush()

    async def flush(self) -> None:
        """Send the sessions that are behind."""
        for session in list(self._behind):
            delivery = self._deliveries.get(session)
            self._behind.discard(session)
            if delivery is not None:
                await self._try(delivery)

    async def catch_up(self) -> None:
        """Send what happened and was not sent yet. OpenCode loses this at the end, and with it all of a short run."""
        if self._is_behind():
            await self._load_shares()
        # Checked again: `follow` may have taken the events meanwhile, and then no more may come.
        if self._is_behind():
            self._note(await self._take())
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await self.flush()
        except TimeoutError:
            return  # it is sent the next time

    def _is_behind(self) -> bool:
        return self._bus.cursor > self._listener.cursor

    async def _take(self) -> list[Event]:
        try:
            events = [each.event for each in await self._listener.take()]
        except CursorLostError:
            self._listener = self._bus.listen(None)
            self._behind |= self._deliveries.keys()
            return []
        if any(isinstance(event, SessionUpdated | SessionRested) for event in events):
            await self._load_shares()  # another process may have shared it meanwhile
        return events

    def _note(self, events: Iterable[Event]) -> None:
        for event in events:
            session = session_of(event)
            if session in self._deliveries and not isinstance(event, SessionWarned):
                self._behind.add(session)

    async def _load_shares(self) -> None:
        now = self._context.clock.now()
        try:
            records = await ShareRecords(self._context.store).list_all()
        except WeftError:
            return  # unreadable records must not end a run; listing the shares reports the error
        remote = [record for record in records if record.target == "remote" and not record.is_over(now)]
        shared = {record.session_id: record for record in remote}
        for session in self._deliveries.keys() - shared.keys():
            self.forget(session)
        for record in shared.values():
            self._get_delivery(record)

    def _get_delivery(self, record: ShareRecord) -> ShareDelivery:
        from weft.share.delivery import ShareDelivery  # noqa: PLC0415  few sessions are shared

        delivery = self._deliveries.get(record.session_id)
        if delivery is None or delivery.record.id != record.id:
            delivery = self._deliveries[record.session_id] = ShareDelivery(self._context, record)
        return delivery

    async def _try(self, delivery: ShareDelivery) -> None:
        record = delivery.record
        try:
            await self.send(record)
        except NotFoundError:
            self.forget(record.session_id)  # the session was removed, and its share was revoked before
        except WeftError as error:
            if self._deliveries.get(record.session_id) is delivery:  # otherwise it was revoked meanwhile
                await self._handle_error(delivery, error)

    async def _handle_error(self, delivery: ShareDelivery, error: WeftError) -> None:
        record = delivery.record
        if isinstance(error, GoneError):
            with suppress(StoreError):
                await self._drop(record)
            return
        self._behind.add(record.session_id)
        if not delivery.warned:
            delivery.warned = True
            await self._warn(record.session_id, f"what is shown at {record.url} is behind: {error}")

    async def _drop(self, record: ShareRecord) -> None:
        context = self._context
        revoker = ShareRevoker(store=context.store, journal=context.journal, remote=context.remote)
        await revoker.revoke(record, forget=True)
        self.forget(record.session_id)
        await self._warn(record.session_id, f"it is shared no more: {record.url} is gone")

    async def _warn(self, session: SessionID, message: str) -> None:
        await self._context.journal.commit(SessionWarned(session_id=session, message=message))


@asynccontextmanager
async def open_share_sync(context: ShareContext, bus: Bus) -> AsyncIterator[ShareSync]:
    """Keep shares up to date while the block runs, and send what is left at the end."""
    sync = ShareSync(context, bus)
    async with open_tasks() as tasks:
        following = tasks.create_task(sync.follow())
        try:
            yield sync
        finally:
            following.cancel()
            await asyncio.wait([following])
            await sync.catch_up()
