"""The journal: the only way to write. It stores events, then publishes them.

The growth of a part that is being streamed is the one exception: it is published at once, and stored with the next commit to its
session or at most `FLUSH_SECONDS` later. A crash loses no more than that. On a full disk as much growth is stored as fits; the
rest waits and is retried, and does not keep anything else from being stored.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from weakref import WeakValueDictionary

from msgspec.structs import replace

from weft.bus import Bus, follows
from weft.errors import StoreError
from weft.host.clock import Clock
from weft.host.tasks import open_tasks, run_to_completion
from weft.model.event import (
    Durable,
    Event,
    MessageUpdated,
    PartGrew,
    PartUpdated,
    SessionCreated,
    SessionDeleted,
    SessionUpdated,
    session_of,
)
from weft.model.ids import MessageID, SessionID
from weft.model.message import AnyMessage
from weft.model.session import Session, TrashBundle
from weft.model.transcript import Transcript
from weft.store.contract import Store

FLUSH_SECONDS = 0.25
# If growth does not fit on the disk, it is stored in pieces of this size.
PIECE_CHARS = 4096


class Journal:
    """Stores and publishes events of one directory. Open it with `open_journal`, which stores waiting growth at the end."""

    def __init__(self, store: Store, bus: Bus, *, directory: str) -> None:
        self._store = store
        self._bus = bus
        self._directory = directory
        self._waiting_growth: dict[SessionID, list[PartGrew]] = {}
        self._growth_arrived = asyncio.Event()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def commit(self, *events: Event, into: Transcript | None = None) -> None:
        """Store the durable events, all or nothing, then publish all events in order.

        The stored events are folded `into` a transcript, even if the caller is cancelled meanwhile, so that the transcript is always
        what is stored.
        """
        durable = [event for event in events if isinstance(event, Durable)]
        if durable:
            await run_to_completion(self._store_and_publish(durable, events, into))
        else:
            self._bus.publish(*events, directory=self._directory)

    async def _store_and_publish(
        self, durable: list[Durable], events: tuple[Event, ...], into: Transcript | None = None
    ) -> None:
        sessions = {session for event in durable if (session := session_of(event)) is not None}
        async with self._lock_all(sessions):
            await self._store_with_growth(sorted(sessions), durable)
            if into is not None:
                into.feed(*durable)
            self._bus.publish(*events, directory=self._directory)

    async def _store_with_growth(self, sessions: list[SessionID], durable: list[Durable]) -> None:
        """Store the waiting growth, except of parts that the events replace, then the events.

        If both do not fit on the disk, store only the events. The growth waits on.
        """
        waiting = {session: self._waiting_growth.pop(session, []) for session in sessions}
        replaced = {event.part.id for event in durable if isinstance(event, PartUpdated)}
        needed = {
            session: [event for event in events if event.part_id not in replaced]
            for session, events in waiting.items()
        }
        growth = [event for events in needed.values() for event in events]
        try:
            try:
                await self._store.apply(*growth, *durable)
            except StoreError:
                if not growth:
                    raise
                await self._store.apply(*durable)
                self._put_back(needed)
        except BaseException:
            self._put_back(waiting)
            raise

    async def begin(self, session: Session, *history: Durable) -> None:
        """Store a new session with its history, all or nothing, but publish only the session.

        Nobody knows the session yet, so listeners read its messages from the store. Publishing thousands of events would push
        everything else out of the bus.
        """
        await run_to_completion(
            self._store_and_publish([SessionCreated(info=session), *history], to_creation_events(session))
        )

    async def discard(self, sessions: Sequence[SessionID], *, at: int) -> TrashBundle:
        """Move sessions to the trash, and publish that they are deleted, in reverse order."""
        return await run_to_completion(self._discard_and_publish(sessions, at))

    async def _discard_and_publish(self, sessions: Sequence[SessionID], at: int) -> TrashBundle:
        async with self._lock_all(sessions):
            for session in sessions:
                await self._store_growth(session)
            trashed = await self._store.discard(sessions, at=at)
            deleted = [SessionDeleted(info=session) for session in reversed(trashed.sessions)]
            self._bus.publish(*deleted, directory=self._directory)
        return trashed

    async def restore(self, bundle: str) -> TrashBundle:
        """Restore sessions from the trash, and publish them in order."""
        return await run_to_completion(self._restore_and_publish(bundle))

    async def _restore_and_publish(self, bundle: str) -> TrashBundle:
        trashed = await self._store.restore(bundle)
        created = [event for session in trashed.sessions for event in to_creation_events(session)]
        self._bus.publish(*created, directory=self._directory)
        return trashed

    def grow(self, growth: PartGrew) -> None:
        """Publish growth now, and store it soon."""
        waiting = self._waiting_growth.setdefault(growth.session_id, [])
        if waiting and follows(waiting[-1], growth):
            waiting[-1] = replace(waiting[-1], delta=waiting[-1].delta + growth.delta)
        else:
            waiting.append(growth)
        self._growth_arrived.set()
        self._bus.publish(growth, directory=self._directory)

    async def edit(self, session: SessionID, editor: Callable[[Session], Session]) -> Session:
        """Change a session atomically, and return it."""
        return await run_to_completion(self._edit_and_publish(session, editor))

    async def _edit_and_publish(self, session: SessionID, editor: Callable[[Session], Session]) -> Session:
        async with self._lock(session):
            edited = await self._store.edit(session, editor)
            self._bus.publish(SessionUpdated(info=edited), directory=self._directory)
        return edited

    async def edit_message(
        self,
        session: SessionID,
        message: MessageID,
        editor: Callable[[AnyMessage], AnyMessage],
        *,
        into: Transcript | None = None,
    ) -> None:
        """Change a stored message atomically within this process. Do nothing if it is gone."""
        await run_to_completion(self._edit_message_and_publish(session, message, editor, into))

    async def _edit_message_and_publish(
        self,
        session: SessionID,
        message: MessageID,
        editor: Callable[[AnyMessage], AnyMessage],
        into: Transcript | None,
    ) -> None:
        async with self._lock(session):
            found = await self._store.find_message(session, message)
            if found is None:
                return
            edited = MessageUpdated(info=editor(found.info))
            await self._store.apply(edited)
            if into is not None:
                into.feed(edited)
            self._bus.publish(edited, directory=self._directory)

    async def flush(self) -> None:
        """Store all waiting growth. If some cannot be stored, store the rest, then raise `StoreError`."""
        self._growth_arrived.clear()
        failed: StoreError | None = None
        for session in list(self._waiting_growth):
            try:
                await self.flush_session(session)
            except StoreError as error:
                failed = error
        if failed is not None:
            raise failed

    async def flush_session(self, session: SessionID) -> None:
        """Store the waiting growth of one session. Raise `StoreError` if not all of it can be stored."""
        await run_to_completion(self._lock_and_store_growth(session))

    async def _lock_and_store_growth(self, session: SessionID) -> None:
        async with self._lock(session):
            await self._store_growth(session)

    async def _store_growth(self, session: SessionID) -> None:
        """Store as much growth as fits. Raise `StoreError` if that is not all; the rest waits."""
        waiting = self._waiting_growth.pop(session, [])
        if not waiting:
            return
        try:
            try:
                await self._store.apply(*waiting)
            except StoreError:
                waiting = [piece for growth in waiting for piece in _split(growth)]
                while waiting:
                    await self._store.apply(waiting[0])
                    del waiting[0]
        except BaseException:
            self._put_back({session: waiting})
            raise

    def _put_back(self, growth: Mapping[SessionID, list[PartGrew]]) -> None:
        """Let growth that was not stored wait again, before newer growth."""
        for session, waiting in growth.items():
            if waiting:
                self._waiting_growth[session] = waiting + self._waiting_growth.get(session, [])
                self._growth_arrived.set()

    async def keep_flushing(self, clock: Clock) -> None:
        """Store growth every `FLUSH_SECONDS` until cancelled."""
        while True:
            await self._growth_arrived.wait()
            await clock.sleep(FLUSH_SECONDS)
            # On a full disk the growth waits on. The next commit, which somebody awaits, raises the error.
            with suppress(StoreError):
                await self.flush()

    @asynccontextmanager
    async def _lock_all(self, sessions: Iterable[SessionID]) -> AsyncIterator[None]:
        """Lock sessions, so that events are published in the order in which they were stored."""
        async with AsyncExitStack() as locks:
            for session in sorted(set(sessions)):
                await locks.enter_async_context(self._lock(session))
            yield

    def _lock(self, session: SessionID) -> asyncio.Lock:
        lock = self._locks.get(session)
        if lock is None:
            self._locks[session] = lock = asyncio.Lock()
        return lock


def _split(growth: PartGrew) -> list[PartGrew]:
    """Split growth into pieces that may fit on a nearly full disk."""
    starts = range(0, len(growth.delta), PIECE_CHARS)
    return [
        replace(growth, delta=growth.delta[start : start + PIECE_CHARS], offset=growth.offset + start)
        for start in starts
    ]


def to_creation_events(session: Session) -> tuple[Event, ...]:
    """Return the events for a new session.

    As in OpenCode, `session.updated` follows `session.created`: OpenCode's terminal listens to `session.updated` only.
    """
    return SessionCreated(info=session), SessionUpdated(info=session)


@asynccontextmanager
async def open_journal(store: Store, bus: Bus, clock: Clock, *, directory: str) -> AsyncIterator[Journal]:
    """Open a journal that stores growth every `FLUSH_SECONDS`, and all that waits when it is closed."""
    journal = Journal(store, bus, directory=directory)
    async with open_tasks() as tasks:
        flushing = tasks.create_task(journal.keep_flushing(clock))
        try:
            yield journal
        finally:
            flushing.cancel()
            await run_to_completion(_close(journal, flushing))


async def _close(journal: Journal, flushing: asyncio.Task[None]) -> None:
    # A flush under way may have taken growth that it has not stored yet. Wait for it first.
    await asyncio.wait([flushing])
    await journal.flush()
