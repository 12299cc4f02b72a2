"""The journal: the one write door. What happened is stored, and then told.

Growth of a part that is being streamed is the one thing told before it is stored: told at once, stored with the next
commit to its session or at most `FLUSH_SECONDS` later. A crash costs that much text and no more. On a full disk as much
of it is stored as fits; the rest waits and is tried again and again, and keeps nothing else from being stored.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from weakref import WeakValueDictionary

from msgspec.structs import replace

from weft.bus import Bus, follows
from weft.errors import StoreError
from weft.host.clock import Clock
from weft.host.tasks import open_tasks, undivided
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
from weft.model.session import Session, Trashed
from weft.model.transcript import Transcript
from weft.store.contract import Store

FLUSH_SECONDS = 0.25
# Growth that cannot be stored at once is stored in pieces of so many characters, as many as there is room for.
PIECE = 4096


class Journal:
    """Open one with `open_journal`, so that nothing stays unwritten when it closes."""

    def __init__(self, store: Store, bus: Bus, *, directory: str) -> None:
        self._store = store
        self._bus = bus
        self._directory = directory
        self._grown: dict[SessionID, list[PartGrew]] = {}
        self._has_grown = asyncio.Event()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def commit(self, *events: Event, into: Transcript | None = None) -> None:
        """Store what is durable, all or nothing, then tell everything in order.

        What was stored is folded `into` the transcript of whoever works on the session, also if they are cancelled
        meanwhile: what they know is what is stored.
        """
        durable = [event for event in events if isinstance(event, Durable)]
        if durable:
            await undivided(self._store_and_tell(durable, events, into))
        else:
            self._bus.publish(*events, directory=self._directory)

    async def _store_and_tell(
        self, durable: list[Durable], events: tuple[Event, ...], into: Transcript | None = None
    ) -> None:
        sessions = {found for event in durable if (found := session_of(event)) is not None}
        async with self._holding(sessions):
            await self._store_with_growth(sorted(sessions), durable)
            if into is not None:
                into.feed(*durable)
            self._bus.publish(*events, directory=self._directory)

    async def _store_with_growth(self, sessions: list[SessionID], durable: list[Durable]) -> None:
        """Store events, and ahead of them the growth that waits, none of parts that they replace. If there is no room
        for both, the growth waits on."""
        taken = {session: self._grown.pop(session, []) for session in sessions}
        replaced = {event.part.id for event in durable if isinstance(event, PartUpdated)}
        needed = {
            session: [each for each in growth if each.part_id not in replaced]
            for session, growth in taken.items()
        }
        growth = [each for waiting in needed.values() for each in waiting]
        try:
            try:
                await self._store.apply(*growth, *durable)
            except StoreError:
                if not growth:
                    raise
                await self._store.apply(*durable)
                self._put_back(needed)
        except BaseException:
            self._put_back(taken)
            raise

    async def begin(self, session: Session, *history: Durable) -> None:
        """Store a new session together with its history, all or nothing, and announce the session alone.

        Nobody has heard of it, so whoever wants its messages reads them: to tell of thousands would push all else
        out of the bus.
        """
        await undivided(self._store_and_tell([SessionCreated(info=session), *history], announce(session)))

    async def discard(self, sessions: Sequence[SessionID], *, at: int) -> Trashed:
        """Put sessions into the trash, and tell that they are gone, the last of them first."""
        return await undivided(self._discard_and_tell(sessions, at))

    async def _discard_and_tell(self, sessions: Sequence[SessionID], at: int) -> Trashed:
        async with self._holding(sessions):
            for session in sessions:
                await self._store_growth(session)
            trashed = await self._store.discard(sessions, at=at)
            gone = [SessionDeleted(info=session) for session in reversed(trashed.sessions)]
            self._bus.publish(*gone, directory=self._directory)
        return trashed

    async def restore(self, bundle: str) -> Trashed:
        """Bring sessions back from the trash, and tell that they are there, the first of them first."""
        return await undivided(self._restore_and_tell(bundle))

    async def _restore_and_tell(self, bundle: str) -> Trashed:
        trashed = await self._store.restore(bundle)
        there = [event for session in trashed.sessions for event in announce(session)]
        self._bus.publish(*there, directory=self._directory)
        return trashed

    def grow(self, growth: PartGrew) -> None:
        """Tell now, store soon."""
        waiting = self._grown.setdefault(growth.session_id, [])
        if waiting and follows(waiting[-1], growth):
            waiting[-1] = replace(waiting[-1], delta=waiting[-1].delta + growth.delta)
        else:
            waiting.append(growth)
        self._has_grown.set()
        self._bus.publish(growth, directory=self._directory)

    async def edit(self, session: SessionID, editor: Callable[[Session], Session]) -> Session:
        """Change a session in one step, whoever else is changing it."""
        return await undivided(self._edit_and_tell(session, editor))

    async def _edit_and_tell(self, session: SessionID, editor: Callable[[Session], Session]) -> Session:
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
        """Change a message as it stands in the store, whoever else in this process is changing it. One that is gone stays
        gone."""
        await undivided(self._edit_message_and_tell(session, message, editor, into))

    async def _edit_message_and_tell(
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
        """Store all growth that waits. A session whose growth cannot be stored does not hold up the others."""
        self._has_grown.clear()
        failed: StoreError | None = None
        for session in list(self._grown):
            try:
                await self.flush_session(session)
            except StoreError as error:
                failed = error
        if failed is not None:
            raise failed

    async def flush_session(self, session: SessionID) -> None:
        """Store the growth of one session that waits; `StoreError` if not all of it can be stored."""
        await undivided(self._lock_and_store_growth(session))

    async def _lock_and_store_growth(self, session: SessionID) -> None:
        async with self._lock(session):
            await self._store_growth(session)

    async def _store_growth(self, session: SessionID) -> None:
        """Store as much as fits, and raise `StoreError` if that is not all: the rest waits."""
        waiting = self._grown.pop(session, [])
        if not waiting:
            return
        try:
            try:
                await self._store.apply(*waiting)
            except StoreError:
                waiting = [piece for growth in waiting for piece in _pieces(growth)]
                while waiting:
                    await self._store.apply(waiting[0])
                    del waiting[0]
        except BaseException:
            self._put_back({session: waiting})
            raise

    def _put_back(self, growth: Mapping[SessionID, list[PartGrew]]) -> None:
        """It was not stored: it waits, ahead of what has come since."""
        for session, waiting in growth.items():
            if waiting:
                self._grown[session] = waiting + self._grown.get(session, [])
                self._has_grown.set()

    async def keep_flushing(self, clock: Clock) -> None:
        while True:
            await self._has_grown.wait()
            await clock.sleep(FLUSH_SECONDS)
            # A full disk must not end what only wanted to write early: the growth waits, and the next commit,
            # which somebody is waiting for, says what is wrong.
            with suppress(StoreError):
                await self.flush()

    @asynccontextmanager
    async def _holding(self, sessions: Iterable[SessionID]) -> AsyncIterator[None]:
        """Held per session, so that what was stored first is told first."""
        async with AsyncExitStack() as held:
            for session in sorted(set(sessions)):
                await held.enter_async_context(self._lock(session))
            yield

    def _lock(self, session: SessionID) -> asyncio.Lock:
        lock = self._locks.get(session)
        if lock is None:
            self._locks[session] = lock = asyncio.Lock()
        return lock


def _pieces(growth: PartGrew) -> list[PartGrew]:
    """The same growth in pieces that are small enough to fit where little room is left."""
    starts = range(0, len(growth.delta), PIECE)
    return [
        replace(growth, delta=growth.delta[start : start + PIECE], offset=growth.offset + start)
        for start in starts
    ]


def announce(session: Session) -> tuple[Event, ...]:
    """Return the events that tell of a new session. Like OpenCode, we follow `session.created` with `session.updated`:
    OpenCode's terminal listens to the second alone."""
    return SessionCreated(info=session), SessionUpdated(info=session)


@asynccontextmanager
async def open_journal(store: Store, bus: Bus, clock: Clock, *, directory: str) -> AsyncIterator[Journal]:
    journal = Journal(store, bus, directory=directory)
    async with open_tasks() as tasks:
        flushing = tasks.create_task(journal.keep_flushing(clock))
        try:
            yield journal
        finally:
            flushing.cancel()
            await undivided(_close(journal, flushing))


async def _close(journal: Journal, flushing: asyncio.Task[None]) -> None:
    # The one under way may have taken growth out and not stored it yet: it ends first.
    await asyncio.wait([flushing])
    await journal.flush()
