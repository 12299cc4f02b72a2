"""The journal: the only way to write events. It stores them, then publishes them.

The growth of a part that is being streamed is the one exception: it is published at once, and stored with the next commit to its
session or at most `GROWTH_SECONDS` later. A crash loses no more than that. On a full disk, as much growth is stored as fits. The
rest waits and is tried again, and nothing else has to wait for it.

If the store has an event log, through which other nodes see what happens here, everything that others want to see is also logged:
what is stored, by the statement that stores it, which for growth is every `LOG_SECONDS`; anything else at once, or with the next
growth if its session is just being written to.

If the store has a change log, from which listeners of this process resume after a restart, the journal tells it what is stored and not
published yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from weft.bus import Bus, follows, join_growth, to_public_event
from weft.errors import LeaseLostError, StoreError
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
from weft.model.session import SessionInfo, TrashBundle
from weft.model.transcript import Transcript
from weft.store.contract import Key, SessionEditor, Store
from weft.store.lease import LeaseToken

if TYPE_CHECKING:  # for types alone: starting up is faster without it
    from weft.store.event_log import LogBatch

# A crash may lose this much of an answer. The documents that promise it: git grep -nE 'quarter of a second|250 ms' '*.md'
GROWTH_SECONDS = 0.25
# The same for a store with an event log. The documents that name it: git grep -n '40 ms' docs
LOG_SECONDS = 0.04
# If growth does not fit on the disk, it is stored in pieces of this size.
PIECE_CHARS = 4096

LostLeaseHandler = Callable[[LeaseLostError], None]


def ignore_lost_lease(_: LeaseLostError) -> None:
    """Do nothing: the holder of the lease awaits each write, and gets the error there."""


class HeldLease(Struct, frozen=True):
    """A lease that this journal names when it writes to the session, and the function to call when it is lost."""

    token: LeaseToken
    on_lost: LostLeaseHandler


class SessionEdit(NamedTuple):
    """A change to a session that is stored together with events of it."""

    session: SessionID
    editor: SessionEditor


NO_SESSION = SessionID("")


class UnloggedEvents:
    """Events that were published and wait to be written to the log, in order within each session."""

    def __init__(self) -> None:
        self._waiting: dict[SessionID, list[Event]] = {}

    def add(self, *events: Event) -> None:
        from weft.model.event_wire import is_shared  # noqa: PLC0415  only a store that nodes share has a log

        for event in filter(is_shared, events):
            waiting = self._waiting.setdefault(session_of(event) or NO_SESSION, [])
            last = waiting[-1] if waiting else None
            if isinstance(event, PartGrew) and isinstance(last, PartGrew) and follows(last, event):
                waiting[-1] = replace(last, delta=last.delta + event.delta)
            else:
                waiting.append(event)

    def list_sessions(self) -> list[SessionID]:
        return list(self._waiting)

    def take(self, sessions: Iterable[SessionID]) -> dict[SessionID, list[Event]]:
        return {session: self._waiting.pop(session) for session in sessions if session in self._waiting}

    def put_back(self, taken: Mapping[SessionID, list[Event]]) -> None:
        """Let events that were not logged wait again, before newer ones."""
        for session, events in taken.items():
            self._waiting[session] = events + self._waiting.get(session, [])

    def drop(self, session: SessionID) -> None:
        self._waiting.pop(session, None)


class Journal:
    """Stores and publishes events of one directory. Open it with `open_journal`, which stores waiting growth at the end."""

    def __init__(self, store: Store, bus: Bus, *, directory: str) -> None:
        self._store = store
        self._bus = bus
        self._directory = directory
        self._waiting_growth: dict[SessionID, list[PartGrew]] = {}
        self._has_waiting = asyncio.Event()  # growth waits to be stored, or anything waits for the log
        self._log = store.event_log
        # The block in which to store what is then published. Nothing may be awaited between its end and the publishing.
        self._publishing = nullcontext if store.change_log is None else store.change_log.publishing
        self._unlogged = UnloggedEvents()
        self._urgent = asyncio.Event()  # something waits for the log that is not growth
        self._leases: dict[SessionID, HeldLease] = {}
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
            self.announce(*events)

    def announce(self, *events: Event) -> None:
        """Publish events that are not stored."""
        # Before publishing: a watcher of the bus may announce another event, which comes later in the log.
        if self._log is not None:
            self._unlogged.add(*events)
            self._urgent.set()
            self._has_waiting.set()
        self._bus.publish(*events, directory=self._directory)

    def publish_here(self, *events: Event) -> None:
        """Publish events that other nodes are not to see."""
        self._bus.publish(*events, directory=self._directory)

    async def _store_and_publish(
        self, durable: list[Durable], events: tuple[Event, ...], into: Transcript | None = None
    ) -> None:
        sessions = {session for event in durable if (session := session_of(event)) is not None}
        async with self._lock_all(sessions):
            with self._publishing():
                await self._store_with_growth(sorted(sessions), durable, events)
            if into is not None:
                into.feed(*durable)
            self._bus.publish(*events, directory=self._directory)

    async def _store_with_growth(
        self,
        sessions: list[SessionID],
        durable: list[Durable],
        published: Sequence[Event],
        edit: SessionEdit | None = None,
    ) -> SessionInfo | None:
        """Store the waiting growth, except of parts that the events replace, then the events. Log what is published. Return the
        session if it was edited.

        If both do not fit on the disk, store only the events, and keep the growth waiting.
        """
        waiting = self._take_growth(sessions)
        replaced = {event.part.id for event in durable if isinstance(event, PartUpdated)}
        needed = {
            session: [event for event in events if event.part_id not in replaced]
            for session, events in waiting.items()
        }
        growth = [event for events in needed.values() for event in events]
        try:
            try:
                return await self._write(sessions, [*growth, *durable], published, edit)
            except LeaseLostError:
                raise
            except StoreError:
                if not growth:
                    raise
                edited = await self._write(sessions, durable, published, edit)
                self._put_back(needed)
                return edited
        except LeaseLostError as error:
            del waiting[SessionID(error.session)]  # the new holder has settled what was open
            self._put_back(waiting)
            raise
        except BaseException:
            self._put_back(waiting)
            raise

    async def _write(
        self,
        sessions: Sequence[SessionID],
        events: Sequence[Durable],
        published: Sequence[Event] = (),
        edit: SessionEdit | None = None,
    ) -> SessionInfo | None:
        """Store events of these sessions. Add the published ones to the log, after those that already wait for it."""
        with self._use_leases(sessions) as leases:
            if self._log is None:
                if edit is not None:
                    return await self._store.edit(*edit, *events, leases=leases)
                await self._store.apply(*events, leases=leases)
                return None
            with self._take_unlogged(*sessions, *([] if sessions else [NO_SESSION])) as waiting:
                if edit is not None:
                    return await self._log.edit(
                        *edit,
                        *events,
                        leases=leases,
                        log=lambda info: self._to_batch(*waiting, *published, SessionUpdated(info=info)),
                    )
                batch = self._to_batch(*waiting, *published)._replace(place_now=not published)
                if events or batch.entries:
                    await self._log.apply(*events, leases=leases, log=batch)
                return None

    @contextmanager
    def _take_unlogged(self, *sessions: SessionID) -> Iterator[list[Event]]:
        """Take the events that wait to be logged. If logging fails they wait on, unless another process has taken over their session."""
        taken = self._unlogged.take(sessions)
        try:
            yield [event for events in taken.values() for event in events]
        except LeaseLostError as error:
            taken.pop(SessionID(error.session), None)
            self._unlogged.put_back(taken)
            raise
        except BaseException:
            self._unlogged.put_back(taken)
            raise

    def _to_batch(self, *events: Event) -> LogBatch:
        from weft.model.event_wire import encode_event  # noqa: PLC0415  only a store that nodes share has a log
        from weft.store.event_log import LogBatch, LogEntry  # noqa: PLC0415  the same

        entries = [LogEntry(session_of(event), encode_event(to_public_event(event))) for event in events]
        return LogBatch(self._directory, entries)

    async def begin(self, session: SessionInfo, *history: Durable) -> None:
        """Store a new session with its history, all or nothing, but publish only the session.

        Nobody knows the session yet, so listeners read its messages from the store. Publishing thousands of events would push
        everything else out of the bus.
        """
        await run_to_completion(
            self._store_and_publish([SessionCreated(info=session), *history], to_creation_events(session))
        )

    @asynccontextmanager
    async def lease(
        self, session: SessionID, owner: str, *, on_lost: LostLeaseHandler = ignore_lost_lease
    ) -> AsyncIterator[None]:
        """Hold the lease of a session. Until it ends, everything written to the session through this journal names the lease, so
        that `LeaseLostError` is raised and nothing is stored if another process has taken it over.

        Then `on_lost` is called as well: the refused write may be one of growth, which nobody awaits.
        """
        async with self._store.lease(session, owner) as token:
            self._leases[session] = HeldLease(token, on_lost)
            try:
                yield
            finally:
                try:
                    await self._log_before_release(session)
                finally:
                    del self._leases[session]

    async def _log_before_release(self, session: SessionID) -> None:
        """Store and log everything that waits while this journal holds the lease. Drop the rest if that fails.

        The next holder settles the session, and the store would accept later growth that names no lease.
        """
        if self._log is not None:
            await run_to_completion(self._lock_and_store_or_drop(session))

    async def _lock_and_store_or_drop(self, session: SessionID) -> None:
        # Under one lock: a flush that waits for it would take the growth, and let it wait again when the lease is gone.
        async with self._lock(session):
            try:
                with suppress(StoreError):
                    await self._store_growth(session)
            finally:
                self._waiting_growth.pop(session, None)
                self._unlogged.drop(session)

    def holds(self, session: SessionID) -> bool:
        """Return True if this journal holds the lease of a session."""
        return session in self._leases

    async def put_value(self, session: SessionID, key: Key, value: Any) -> None:
        """Store a private value of a session under its lease. Raise `LeaseLostError` if this journal does not hold the lease."""
        if not self.holds(session):
            raise LeaseLostError(session)
        with self._use_leases([session]) as leases:
            await self._store.update_value(key, lambda _: value, leases=leases)

    @contextmanager
    def _use_leases(self, sessions: Iterable[SessionID]) -> Iterator[list[LeaseToken]]:
        """Yield the leases to name in a write to these sessions, and tell the holder of one that turns out to be lost."""
        held = {session: self._leases[session] for session in sessions if session in self._leases}
        try:
            yield [lease.token for lease in held.values()]
        except LeaseLostError as error:
            if lost := held.get(SessionID(error.session)):
                lost.on_lost(error)
            raise

    async def discard(self, sessions: Sequence[SessionID], *, at: int) -> TrashBundle:
        """Move sessions to the trash, and publish that they are deleted, in reverse order."""
        return await run_to_completion(self._discard_and_publish(sessions, at))

    async def _discard_and_publish(self, sessions: Sequence[SessionID], at: int) -> TrashBundle:
        async with self._lock_all(sessions):
            for session in sessions:
                await self._store_growth(session)
            if self._log is None:
                with self._publishing():
                    trashed = await self._store.discard(sessions, at=at)
            else:
                trashed = await self._log.discard(
                    sessions, at=at, log=lambda bundle: self._to_batch(*to_deletion_events(bundle))
                )
            self._bus.publish(*to_deletion_events(trashed), directory=self._directory)
        return trashed

    async def restore(self, bundle: str) -> TrashBundle:
        """Restore sessions from the trash, and publish them in order."""
        return await run_to_completion(self._restore_and_publish(bundle))

    async def _restore_and_publish(self, bundle: str) -> TrashBundle:
        def list_created(trashed: TrashBundle) -> list[Event]:
            return [event for session in trashed.sessions for event in to_creation_events(session)]

        if self._log is None:
            with self._publishing():
                trashed = await self._store.restore(bundle)
        else:
            trashed = await self._log.restore(bundle, log=lambda found: self._to_batch(*list_created(found)))
        self._bus.publish(*list_created(trashed), directory=self._directory)
        return trashed

    def grow(self, growth: PartGrew) -> None:
        """Publish growth now, and store it soon."""
        waiting = self._waiting_growth.get(growth.session_id)
        if waiting is None:
            self._waiting_growth[growth.session_id] = [growth]
        else:
            waiting.append(growth)
        if self._log is not None:
            self._unlogged.add(growth)
        self._has_waiting.set()
        self._bus.publish(growth, directory=self._directory)

    async def edit(
        self, session: SessionID, editor: SessionEditor, *events: Durable, into: Transcript | None = None
    ) -> SessionInfo:
        """Change a session atomically, and return it. Events of the session are stored with the change, and published before it.

        If the editor changes nothing and there are no events, nothing is published, unless the store has an event log.
        """
        return await run_to_completion(self._edit_and_publish(SessionEdit(session, editor), events, into))

    async def _edit_and_publish(
        self, edit: SessionEdit, events: tuple[Durable, ...], into: Transcript | None
    ) -> SessionInfo:
        async with self._lock(edit.session):
            return await self._store_edit(edit, events, into)

    async def _store_edit(
        self, edit: SessionEdit, events: Sequence[Durable], into: Transcript | None
    ) -> SessionInfo:
        stored: SessionInfo | None = None

        def change(found: SessionInfo) -> SessionInfo:
            nonlocal stored
            stored = found
            return edit.editor(found)

        with self._publishing():
            edited = await self._store_with_growth(
                [edit.session], list(events), events, SessionEdit(edit.session, change)
            )
        assert edited is not None
        if into is not None:
            into.feed(*events)
        # What was logged has to be published: a follower of the log expects the same events from both.
        if events or edited != stored or self._log is not None:
            self._bus.publish(*events, SessionUpdated(info=edited), directory=self._directory)
        return edited

    async def edit_message(
        self,
        session: SessionID,
        message: MessageID,
        editor: Callable[[AnyMessage], AnyMessage],
        *,
        into: Transcript | None = None,
        session_editor: SessionEditor | None = None,
    ) -> None:
        """Change a stored message atomically within this process, with its session if that is to change, too.

        Do nothing to a message that is gone.
        """
        await run_to_completion(
            self._edit_message_and_publish(session, message, editor, into, session_editor)
        )

    async def _edit_message_and_publish(
        self,
        session: SessionID,
        message: MessageID,
        editor: Callable[[AnyMessage], AnyMessage],
        into: Transcript | None,
        session_editor: SessionEditor | None,
    ) -> None:
        async with self._lock(session):
            found = await self._store.find_message(session, message)
            edited = [] if found is None else [MessageUpdated(info=editor(found.info))]
            if session_editor is not None:
                await self._store_edit(SessionEdit(session, session_editor), edited, into)
                return
            if edited:
                # Growth is that of parts, and waits on.
                with self._publishing():
                    await self._write([session], edited, edited)
                if into is not None:
                    into.feed(*edited)
                self._bus.publish(*edited, directory=self._directory)

    async def flush(self, *, skip_busy: bool = False) -> None:
        """Store all waiting growth. If some cannot be stored, store the rest, then raise `StoreError`.

        With `skip_busy`, sessions that are just being written to wait on. Otherwise all would wait for the slowest of these writes.
        """
        self._has_waiting.clear()
        self._urgent.clear()
        sessions = list(dict.fromkeys((*self._waiting_growth, *self._unlogged.list_sessions())))
        if skip_busy and (busy := [session for session in sessions if self._is_busy(session)]):
            sessions = [session for session in sessions if session not in busy]
            self._has_waiting.set()
        if self._log is not None and len(sessions) > 1:
            with suppress(StoreError):  # then each session is stored separately, below
                await run_to_completion(self._store_together(sessions))
                return
        failed: StoreError | None = None
        for session in sessions:
            try:
                await self.flush_session(session)
            except StoreError as error:
                failed = error
        if failed is not None:
            raise failed

    async def _store_together(self, sessions: Sequence[SessionID]) -> None:
        """Store the waiting growth of several sessions, and log what waits, with one statement."""
        async with self._lock_all(sessions):
            waiting = self._take_growth(sessions)
            try:
                await self._write(sessions, [event for events in waiting.values() for event in events])
            except BaseException:
                self._put_back(waiting)
                raise

    async def flush_session(self, session: SessionID) -> None:
        """Store the waiting growth of one session. Raise `StoreError` if not all of it can be stored."""
        await run_to_completion(self._lock_and_store_growth(session))

    async def _lock_and_store_growth(self, session: SessionID) -> None:
        async with self._lock(session):
            await self._store_growth(session)

    async def _store_growth(self, session: SessionID) -> None:
        """Store as much growth as fits. Raise `StoreError` if that is not all; the rest waits."""
        waiting = self._take_growth([session])[session]
        if not waiting and self._log is None:
            return
        try:
            try:
                await self._write([session], waiting)
            except LeaseLostError:
                raise
            except StoreError:
                waiting = [piece for growth in waiting for piece in _split(growth)]
                while waiting:
                    await self._write([session], waiting[:1])
                    del waiting[0]
        except LeaseLostError:
            raise  # the growth is dropped: the new holder has settled what was open
        except BaseException:
            self._put_back({session: waiting})
            raise

    def _take_growth(self, sessions: Iterable[SessionID]) -> dict[SessionID, list[PartGrew]]:
        """Take the growth that waits in these sessions, with consecutive growth of one part merged."""
        return {session: join_growth(self._waiting_growth.pop(session, [])) for session in sessions}

    def _put_back(self, growth: Mapping[SessionID, list[PartGrew]]) -> None:
        """Let growth that was not stored wait again, before newer growth."""
        for session, waiting in growth.items():
            if waiting:
                self._waiting_growth[session] = waiting + self._waiting_growth.get(session, [])
                self._has_waiting.set()

    async def keep_flushing(self, clock: Clock) -> None:
        """Store growth every `GROWTH_SECONDS` until cancelled; with a log every `LOG_SECONDS`, and urgent events at once."""
        loop = asyncio.get_running_loop()  # its time only increases; the clock may be set back
        logged = 0.0
        while True:
            await self._has_waiting.wait()
            if self._log is None:
                await clock.sleep(GROWTH_SECONDS)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(choose_log_time(loop.time(), logged)):
                        await self._urgent.wait()
                logged = loop.time()
            # On a full disk the growth waits on. The next commit, which somebody awaits, raises the error.
            with suppress(StoreError):
                await self.flush(skip_busy=self._log is not None)

    @asynccontextmanager
    async def _lock_all(self, sessions: Iterable[SessionID]) -> AsyncIterator[None]:
        """Lock sessions, so that events are published in the order in which they were stored."""
        async with AsyncExitStack() as locks:
            for session in sorted(set(sessions)):
                await locks.enter_async_context(self._lock(session))
            yield

    def _is_busy(self, session: SessionID) -> bool:
        return (lock := self._locks.get(session)) is not None and lock.locked()

    def _lock(self, session: SessionID) -> asyncio.Lock:
        lock = self._locks.get(session)
        if lock is None:
            self._locks[session] = lock = asyncio.Lock()
        return lock


def choose_log_time(now: float, logged: float) -> float:
    """Return when to write to the log next, if it was last `logged` at this time.

    That is `LOG_SECONDS` later, however long the write took. After a slow write it is half of `LOG_SECONDS` from now, so that some
    growth is collected for the next one.
    """
    return max(logged + LOG_SECONDS, now + LOG_SECONDS / 2)


def _split(growth: PartGrew) -> list[PartGrew]:
    """Split growth into pieces that may fit on a nearly full disk."""
    starts = range(0, len(growth.delta), PIECE_CHARS)
    return [
        replace(growth, delta=growth.delta[start : start + PIECE_CHARS], offset=growth.offset + start)
        for start in starts
    ]


def to_creation_events(session: SessionInfo) -> tuple[Event, ...]:
    """Return the events for a new session.

    As in OpenCode, `session.updated` follows `session.created`: OpenCode's terminal listens to `session.updated` only.
    """
    return SessionCreated(info=session), SessionUpdated(info=session)


def to_deletion_events(trashed: TrashBundle) -> list[Event]:
    """Return the events for sessions that were moved to the trash: children before their parents."""
    return [SessionDeleted(info=session) for session in reversed(trashed.sessions)]


@asynccontextmanager
async def open_journal(store: Store, bus: Bus, clock: Clock, *, directory: str) -> AsyncIterator[Journal]:
    """Open a journal that stores growth regularly (`keep_flushing`), and all that waits when it is closed."""
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
