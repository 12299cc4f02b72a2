"""Keep shares on other servers up to date in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from weft.bus import Bus
from weft.errors import NotFoundError, StoreError, WeftError
from weft.host.tasks import open_tasks
from weft.model.event import Event, SessionCreated, SessionIdled, SessionUpdated, SessionWarned, session_of
from weft.model.ids import SessionID
from weft.share.contract import GoneError, ShareContext
from weft.share.records import ShareRecord, ShareRecords
from weft.share.revoke import ShareRevoker

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.share.sender import ShareSender

SYNC_DELAY_SECONDS = 1.0
CLOSE_TIMEOUT_SECONDS = 8.0


class ShareSync:
    """Sends changes a second after they happen. Changes that could not be sent are sent again with the next one, or at the end."""

    def __init__(self, context: ShareContext, bus: Bus) -> None:
        self._context = context
        self._senders: dict[SessionID, ShareSender] = {}
        self._changed: set[SessionID] = set()  # since the shares were last looked at
        self._outdated = True  # another process may have shared a session since the shares were read
        self._wake = asyncio.Event()
        self._unsent: set[SessionID] = set()
        # `catch_up` must not overtake what `follow` is just finding or sending.
        self._finding, self._sending = asyncio.Lock(), asyncio.Lock()
        # Most sessions are not shared. Called for each event, this costs less than a listener that wakes up for it.
        bus.watch(self._note)

    async def send(self, record: ShareRecord) -> None:
        """Send everything that the other server does not have yet. Raise `SharingError` on failure."""
        await self._get_sender(record).send()

    def forget(self, session: SessionID) -> None:
        """Stop sending a session."""
        self._senders.pop(session, None)
        self._unsent.discard(session)

    async def follow(self) -> None:
        """Follow the events and send changes until cancelled."""
        while True:
            await self._find_unsent()
            if self._unsent:
                await self._context.clock.sleep(SYNC_DELAY_SECONDS)
                await self.flush()
            await self._wake.wait()

    async def flush(self) -> None:
        """Send the sessions that have unsent changes."""
        async with self._sending:
            for session in list(self._unsent):
                sender = self._senders.get(session)
                self._unsent.discard(session)  # now, because it may change while it is sent
                if sender is None:
                    continue
                try:
                    await self._try_send(sender)
                except BaseException:
                    self._unsent.add(session)
                    raise

    async def catch_up(self) -> None:
        """Send everything that was not sent yet. OpenCode loses this when a process ends, and so loses a short run completely."""
        await self._find_unsent()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                await self.flush()
        except TimeoutError:
            return  # it is sent the next time

    def _note(self, event: Event) -> None:
        session = session_of(event)
        if session is None or isinstance(event, SessionWarned):
            return
        if isinstance(event, SessionCreated | SessionUpdated):
            if event.info.share is None and session not in self._senders:
                return  # whoever shares a session, here or in another process, notes that in its document
            self._outdated = True
        elif isinstance(event, SessionIdled):
            self._outdated = True
        self._changed.add(session)
        if self._outdated or session in self._senders:
            self._wake.set()

    async def _find_unsent(self) -> None:
        """Find the shared sessions that changed."""
        async with self._finding:
            self._wake.clear()
            changed, self._changed = self._changed, set()  # what changes from now on is found the next time
            if self._outdated:
                self._outdated = False
                try:
                    await self._load_shares()
                except BaseException:  # cancelled, and `catch_up` follows
                    self._outdated = True
                    self._changed |= changed
                    raise
            self._unsent |= changed & self._senders.keys()

    async def _load_shares(self) -> None:
        now = self._context.clock.now()
        try:
            records = await ShareRecords(self._context.store).list_all()
        except WeftError:
            return  # unreadable records must not end a run; listing the shares reports the error
        remote = [record for record in records if record.target == "remote" and not record.is_expired(now)]
        shared = {record.session_id: record for record in remote}
        for session in self._senders.keys() - shared.keys():
            self.forget(session)
        for record in shared.values():
            self._get_sender(record)

    def _get_sender(self, record: ShareRecord) -> ShareSender:
        from weft.share.sender import ShareSender  # noqa: PLC0415  few sessions are shared

        sender = self._senders.get(record.session_id)
        if sender is None or sender.record.id != record.id:
            sender = self._senders[record.session_id] = ShareSender(self._context, record)
        return sender

    async def _try_send(self, sender: ShareSender) -> None:
        record = sender.record
        try:
            await self.send(record)
        except NotFoundError:
            self.forget(record.session_id)  # the session was removed, and its share was revoked before
        except WeftError as error:
            if self._senders.get(record.session_id) is sender:  # otherwise it was revoked meanwhile
                await self._handle_error(sender, error)

    async def _handle_error(self, sender: ShareSender, error: WeftError) -> None:
        record = sender.record
        if isinstance(error, GoneError):
            with suppress(StoreError):
                await self._drop_gone(record)
            return
        self._unsent.add(record.session_id)
        if not sender.warned:
            sender.warned = True
            await self._warn(record.session_id, f"what is shown at {record.url} is behind: {error}")

    async def _drop_gone(self, record: ShareRecord) -> None:
        context = self._context
        revoker = ShareRevoker(store=context.store, journal=context.journal, remote=context.remote)
        await revoker.revoke(record, forget=True)
        self.forget(record.session_id)
        await self._warn(record.session_id, f"it is no longer shared: {record.url} is gone")

    async def _warn(self, session: SessionID, message: str) -> None:
        await self._context.journal.commit(SessionWarned(session_id=session, message=message))


@asynccontextmanager
async def open_share_sync(context: ShareContext, bus: Bus) -> AsyncIterator[ShareSync]:
    """Keep shares up to date while the block runs, and send what is left at the end."""
    sync = ShareSync(context, bus)
    async with open_tasks() as tasks:
        follower = tasks.create_task(sync.follow())
        try:
            yield sync
        finally:
            follower.cancel()
            await asyncio.wait([follower])
            await sync.catch_up()
