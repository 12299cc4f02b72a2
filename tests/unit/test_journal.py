"""The journal: an event is published only after it is stored, in order, whatever happens."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from weft.bus import Bus, BusListener
from weft.errors import LeaseLostError, NotFoundError, StoreError
from weft.journal import GROWTH_SECONDS, LOG_SECONDS, Journal, choose_log_time, open_journal
from weft.model.event import (
    Durable,
    Event,
    MessageUpdated,
    PartGrew,
    PartUpdated,
    SessionCreated,
    SessionIdled,
    SessionUpdated,
)
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import UserMessage
from weft.model.part import Moment, TextPart
from weft.model.session import SessionInfo, SessionTime
from weft.model.transcript import Transcript
from weft.store.contract import NO_LEASES, SessionEditor
from weft.store.lease import LeaseToken
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock

HERE = "/home/ada/loom"
FLUSH_MS = round(GROWTH_SECONDS * 1000)
ONE, TWO = SessionID("ses_1"), SessionID("ses_2")


class FailingStore(MemoryStore):
    """Refuses to write for a session, as a full disk would, until it is reset."""

    def __init__(self) -> None:
        super().__init__()
        self.full_for: set[SessionID] = set()

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        if any(
            isinstance(event, PartGrew | SessionCreated) and get_session_id(event) in self.full_for
            for event in events
        ):
            raise StoreError("no space left")
        await super().apply(*events, leases=leases)


class SlowStore(MemoryStore):
    """Writes when the gate is open; `begun` counts the writes that have begun."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.begun = 0

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        self.begun += 1
        await self.gate.wait()
        await super().apply(*events, leases=leases)

    async def edit(
        self,
        session: SessionID,
        editor: SessionEditor,
        *events: Durable,
        leases: Sequence[LeaseToken] = NO_LEASES,
    ) -> SessionInfo:
        self.begun += 1
        await self.gate.wait()
        return await super().edit(session, editor, *events, leases=leases)


class TakenOverStore(MemoryStore):
    """A store in which another process can take over a lease, as if the first one had been taken for dead."""

    def take_over(self, session: SessionID) -> None:
        self._leases[session] = LeaseToken(session, -1), "another process"


def get_session_id(event: PartGrew | SessionCreated) -> SessionID:
    return event.session_id if isinstance(event, PartGrew) else event.info.id


def session(id: SessionID, title: str = "") -> SessionInfo:
    return SessionInfo(id=id, title=title, time=SessionTime(created=1, updated=1))


def message(of: SessionID) -> MessageUpdated:
    return MessageUpdated(info=UserMessage(id=MessageID(f"msg_{of}"), session_id=of, time=Moment(created=1)))


def part(text: str, of: SessionID = ONE) -> PartUpdated:
    return PartUpdated(
        part=TextPart(id=PartID(f"prt_{of}"), session_id=of, message_id=MessageID(f"msg_{of}"), text=text)
    )


def growth(delta: str, offset: int, of: SessionID = ONE) -> PartGrew:
    return PartGrew(
        session_id=of,
        message_id=MessageID(f"msg_{of}"),
        part_id=PartID(f"prt_{of}"),
        field="text",
        delta=delta,
        offset=offset,
    )


class JournalHarness:
    """A journal on a store, with a manual clock and a listener."""

    def __init__(self, journal: Journal, clock: HandClock, bus: Bus) -> None:
        self.journal = journal
        self.clock = clock
        self._bus = bus
        self._listener: BusListener = bus.listen(after=0)

    async def take_events(self) -> list[Event]:
        """Return the events published since the last call."""
        if self._listener.cursor == self._bus.cursor:
            return []
        return [each.event for each in await self._listener.take()]

    async def pass_time(self, ms: int) -> None:
        await let_tasks_run()
        self.clock.turn(ms)
        await let_tasks_run()


async def let_tasks_run() -> None:
    """Let all tasks run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def open_harness(store: MemoryStore) -> AsyncIterator[JournalHarness]:
    bus, clock = Bus(), HandClock()
    async with open_journal(store, bus, clock, directory=HERE) as journal:
        yield JournalHarness(journal, clock, bus)


async def text_in(store: MemoryStore, of: SessionID = ONE) -> str:
    [whole] = await store.list_messages(of)
    [found] = whole.parts
    assert isinstance(found, TextPart)
    return found.text


# --- committing ---


async def test_committed_events_are_stored_and_published_in_order() -> None:
    store = MemoryStore()
    async with open_harness(store) as harness:
        events = (SessionCreated(info=session(ONE)), message(ONE), SessionIdled(session_id=ONE), part("a"))
        await harness.journal.commit(*events)
        assert await harness.take_events() == list(events)
        assert await store.get_session(ONE) == session(ONE)
        assert await text_in(store) == "a"


async def test_events_that_are_not_durable_are_published_and_not_stored() -> None:
    store = SlowStore()
    async with open_harness(store) as harness:
        await harness.journal.commit(SessionIdled(session_id=ONE))
        assert await harness.take_events() == [SessionIdled(session_id=ONE)]
        assert store.begun == 0


async def test_nothing_is_published_before_it_is_stored() -> None:
    store = SlowStore()
    async with open_harness(store) as harness, asyncio.TaskGroup() as tasks:
        tasks.create_task(harness.journal.commit(SessionCreated(info=session(ONE))))
        await let_tasks_run()
        assert store.begun == 1
        assert await harness.take_events() == []
        store.gate.set()
        await let_tasks_run()
        assert await harness.take_events() == [SessionCreated(info=session(ONE))]


async def test_events_that_could_not_be_stored_are_not_published() -> None:
    store = FailingStore()
    store.full_for = {ONE}
    async with open_harness(store) as harness:
        with pytest.raises(StoreError, match="no space left"):
            await harness.journal.commit(SessionCreated(info=session(ONE)), SessionIdled(session_id=ONE))
        assert await harness.take_events() == []
        assert await store.list_sessions() == []


async def test_events_are_published_in_the_order_of_their_commits() -> None:
    store = SlowStore()
    async with open_harness(store) as harness, asyncio.TaskGroup() as tasks:
        for title in "abc":
            tasks.create_task(harness.journal.commit(SessionUpdated(info=session(ONE, title))))
        await let_tasks_run()
        assert store.begun == 1, "one at a time for one session"
        store.gate.set()
        await let_tasks_run()
        assert await harness.take_events() == [SessionUpdated(info=session(ONE, title)) for title in "abc"]
        assert (await store.get_session(ONE)).title == "c"


async def test_commits_to_different_sessions_do_not_wait_for_each_other() -> None:
    store = SlowStore()
    async with open_harness(store) as harness, asyncio.TaskGroup() as tasks:
        tasks.create_task(harness.journal.commit(SessionCreated(info=session(ONE))))
        tasks.create_task(harness.journal.commit(SessionCreated(info=session(TWO))))
        await let_tasks_run()
        assert store.begun == 2
        store.gate.set()


async def test_locks_of_several_sessions_are_taken_in_one_order_so_that_no_two_writers_block_each_other() -> (
    None
):
    store = SlowStore()
    store.gate.set()
    async with open_harness(store) as harness:
        journal = harness.journal
        await journal.commit(SessionCreated(info=session(ONE)), SessionCreated(info=session(TWO)))
        store.gate.clear()
        begun = store.begun
        editing = [asyncio.ensure_future(journal.edit(ONE, lambda stored: stored))]
        await let_tasks_run()
        # It waits for the first lock, and does not hold the second yet.
        discarding = asyncio.ensure_future(journal.discard([TWO, ONE], at=1))
        await let_tasks_run()
        editing.append(asyncio.ensure_future(journal.edit(TWO, lambda stored: stored)))
        await let_tasks_run()
        both_begun = store.begun - begun
        store.gate.set()
        await asyncio.gather(discarding, *editing, return_exceptions=True)
    assert both_begun == 2


async def test_a_cancelled_commit_is_still_stored_and_published() -> None:
    store = SlowStore()
    async with open_harness(store) as harness, asyncio.TaskGroup() as tasks:
        committing = tasks.create_task(harness.journal.commit(SessionCreated(info=session(ONE))))
        await let_tasks_run()
        committing.cancel()
        await let_tasks_run()
        committing.cancel()
        await let_tasks_run()
        assert not committing.done()
        store.gate.set()
        await let_tasks_run()
        assert committing.cancelled()
        assert await store.get_session(ONE) == session(ONE)
        assert await harness.take_events() == [SessionCreated(info=session(ONE))]


async def test_stored_events_are_in_the_transcript_even_if_the_caller_is_cancelled() -> None:
    store, known = SlowStore(), Transcript()
    async with open_harness(store) as harness, asyncio.TaskGroup() as tasks:
        committing = tasks.create_task(harness.journal.commit(message(ONE), part("a"), into=known))
        await let_tasks_run()
        assert known.messages() == []
        committing.cancel()
        store.gate.set()
        await let_tasks_run()
        assert committing.cancelled()
        assert known.messages() == await store.list_messages(ONE) != []


async def test_events_that_could_not_be_stored_are_not_in_the_transcript() -> None:
    store, known = FailingStore(), Transcript()
    async with open_harness(store) as harness:
        store.full_for.add(ONE)
        with pytest.raises(StoreError):
            await harness.journal.commit(SessionCreated(info=session(ONE)), message(ONE), into=known)
        assert known.messages() == []


# --- editing ---


def append_title(title: str) -> Callable[[SessionInfo], SessionInfo]:
    return lambda before: replace(before, title=before.title + title)


async def test_an_edit_is_stored_published_and_returned() -> None:
    store = MemoryStore()
    await store.apply(SessionCreated(info=session(ONE)))
    async with open_harness(store) as harness:
        edited = await harness.journal.edit(ONE, append_title("x"))
        assert edited == session(ONE, "x") == await store.get_session(ONE)
        assert await harness.take_events() == [SessionUpdated(info=edited)]


async def test_concurrent_edits_build_on_each_other() -> None:
    store = SlowStore()
    store.gate.set()
    await store.apply(SessionCreated(info=session(ONE)))
    async with open_harness(store) as harness:
        async with asyncio.TaskGroup() as tasks:
            for letter in "abc":
                tasks.create_task(harness.journal.edit(ONE, append_title(letter)))
        assert await harness.take_events() == [
            SessionUpdated(info=session(ONE, title)) for title in ("a", "ab", "abc")
        ]


async def test_a_cancelled_edit_is_completed_and_published() -> None:
    store = SlowStore()
    store.gate.set()
    await store.apply(SessionCreated(info=session(ONE)))
    store.gate.clear()
    async with open_harness(store) as harness, asyncio.TaskGroup() as tasks:
        editing = tasks.create_task(harness.journal.edit(ONE, append_title("x")))
        await let_tasks_run()
        editing.cancel()
        store.gate.set()
        await let_tasks_run()
        assert editing.cancelled()
        assert await harness.take_events() == [SessionUpdated(info=session(ONE, "x"))]


async def test_a_failed_edit_publishes_nothing() -> None:
    async with open_harness(MemoryStore()) as harness:
        with pytest.raises(NotFoundError):
            await harness.journal.edit(ONE, append_title("x"))
        assert await harness.take_events() == []


# --- growth ---


async def with_a_part(store: MemoryStore, of: SessionID = ONE) -> None:
    await store.apply(SessionCreated(info=session(of)), message(of), part("", of))


async def test_growth_is_published_at_once_and_stored_within_the_flush_interval() -> None:
    store = MemoryStore()
    await with_a_part(store)
    async with open_harness(store) as harness:
        harness.journal.grow(growth("ab", 0))
        assert await harness.take_events() == [growth("ab", 0)]
        harness.journal.grow(growth("cd", 2))
        assert await harness.take_events() == [growth("cd", 2)]
        await harness.pass_time(FLUSH_MS - 1)
        assert await text_in(store) == ""
        await harness.pass_time(1)
        assert await text_in(store) == "abcd"


def test_the_intervals_in_which_growth_is_stored_are_at_most_a_quarter_of_a_second() -> None:
    assert max(GROWTH_SECONDS, LOG_SECONDS) <= 0.25, (
        "README: a killed process loses no more than a quarter of a second of streamed text"
    )


def test_the_log_is_written_regularly_and_growth_is_collected_after_a_slow_write() -> None:
    assert choose_log_time(now=10 + LOG_SECONDS / 4, logged=10) == 10 + LOG_SECONDS
    assert choose_log_time(now=20, logged=10) == 20 + LOG_SECONDS / 2


async def test_growth_is_stored_in_every_interval() -> None:
    store = MemoryStore()
    await with_a_part(store)
    async with open_harness(store) as harness:
        for at, letter in enumerate("weft"):
            harness.journal.grow(growth(letter, at))
            await harness.pass_time(FLUSH_MS)
            assert await text_in(store) == "weft"[: at + 1]


async def test_growth_is_stored_before_the_next_commit_to_its_session() -> None:
    store = MemoryStore()
    await with_a_part(store)
    async with open_harness(store) as harness:
        harness.journal.grow(growth("ab", 0))
        await harness.journal.commit(message(ONE))
        assert await text_in(store) == "ab"


async def test_a_commit_that_replaces_the_part_supersedes_its_growth() -> None:
    store = MemoryStore()
    await with_a_part(store)
    async with open_harness(store) as harness:
        harness.journal.grow(growth("ab  ", 0))
        await harness.journal.commit(part("ab"))
        await harness.pass_time(FLUSH_MS)
        assert await text_in(store) == "ab"


async def test_consecutive_growth_is_stored_as_one() -> None:
    applied: list[tuple[Durable, ...]] = []

    class CountingStore(MemoryStore):
        async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
            applied.append(events)
            await super().apply(*events, leases=leases)

    store = CountingStore()
    await with_a_part(store)
    async with open_harness(store) as harness:
        for at, letter in enumerate("weaving"):
            harness.journal.grow(growth(letter, at))
        await harness.pass_time(FLUSH_MS)
        assert applied[1:] == [(growth("weaving", 0),)]


async def test_waiting_growth_is_stored_when_the_journal_closes() -> None:
    store = MemoryStore()
    await with_a_part(store)
    async with open_harness(store) as harness:
        harness.journal.grow(growth("ab", 0))
    assert await text_in(store) == "ab"


async def test_growth_waits_if_the_store_fails() -> None:
    store = FailingStore()
    await with_a_part(store)
    async with open_harness(store) as harness:
        store.full_for = {ONE}
        harness.journal.grow(growth("ab", 0))
        await harness.pass_time(FLUSH_MS)
        harness.journal.grow(growth("cd", 2))
        await harness.pass_time(FLUSH_MS)
        assert await text_in(store) == ""
        store.full_for = set()
        await harness.pass_time(FLUSH_MS)
        assert await text_in(store) == "abcd"


async def test_growth_waits_if_a_commit_fails_and_the_error_is_raised() -> None:
    store = FailingStore()
    await with_a_part(store)
    async with open_harness(store) as harness:
        store.full_for = {ONE}
        harness.journal.grow(growth("ab", 0))
        with pytest.raises(StoreError):
            await harness.journal.commit(SessionCreated(info=session(ONE)))
        store.full_for = set()
        await harness.journal.commit(message(ONE))
        assert await text_in(store) == "ab"


async def test_growth_that_does_not_fit_waits_and_blocks_no_commit() -> None:
    store = FailingStore()
    await with_a_part(store)
    async with open_harness(store) as harness:
        store.full_for = {ONE}
        harness.journal.grow(growth("ab", 0))
        await harness.journal.commit(message(ONE))
        assert await text_in(store) == ""
        store.full_for = set()
        await harness.journal.flush()
        assert await text_in(store) == "ab"


async def test_a_session_that_cannot_be_stored_does_not_block_the_others() -> None:
    store = FailingStore()
    await with_a_part(store, ONE)
    await with_a_part(store, TWO)
    async with open_harness(store) as harness:
        store.full_for = {ONE}
        harness.journal.grow(growth("ab", 0, ONE))
        harness.journal.grow(growth("cd", 0, TWO))
        with pytest.raises(StoreError):
            await harness.journal.flush()
        assert await text_in(store, TWO) == "cd"
        store.full_for = set()


async def test_growth_that_cannot_be_stored_when_the_journal_closes_raises_an_error() -> None:
    store = FailingStore()
    await with_a_part(store)

    async def fill_the_disk_and_close() -> None:
        async with open_harness(store) as harness:
            store.full_for = {ONE}
            harness.journal.grow(growth("ab", 0))

    with pytest.raises(StoreError, match="no space left"):
        await fill_the_disk_and_close()


async def test_closing_waits_for_the_flush_in_progress() -> None:
    store = SlowStore()
    store.gate.set()
    await with_a_part(store)
    store.gate.clear()

    async def write_and_close() -> None:
        async with open_harness(store) as harness:
            harness.journal.grow(growth("ab", 0))
            await harness.pass_time(FLUSH_MS)

    async with asyncio.TaskGroup() as tasks:
        closing = tasks.create_task(write_and_close())
        await let_tasks_run()
        await let_tasks_run()
        await let_tasks_run()
        assert not closing.done()
        store.gate.set()
    assert await text_in(store) == "ab"
    assert store.begun == 2, "and does not write it again"


async def test_an_error_in_the_body_is_raised_unchanged() -> None:
    store = MemoryStore()
    await with_a_part(store)

    async def get_missing_session() -> None:
        async with open_harness(store) as harness:
            harness.journal.grow(growth("ab", 0))
            await store.get_session(SessionID("ses_none"))

    with pytest.raises(NotFoundError):
        await get_missing_session()
    assert await text_in(store) == "ab"


# --- leases ---


async def test_a_writer_that_lost_the_lease_stores_and_publishes_nothing() -> None:
    store = TakenOverStore()
    await with_a_part(store)
    async with open_harness(store) as harness, harness.journal.lease(ONE, "me"):
        await harness.journal.commit(part("a"))
        store.take_over(ONE)
        await harness.take_events()
        for work in (
            harness.journal.commit(part("b"), SessionIdled(session_id=ONE)),
            harness.journal.edit(ONE, append_title("x")),
            harness.journal.edit_message(ONE, MessageID("msg_ses_1"), lambda info: replace(info, agent="x")),
        ):
            with pytest.raises(LeaseLostError) as lost:
                await work
            assert (lost.value.session, lost.value.owner) == (ONE, "another process")
        assert await harness.take_events() == []
        assert await text_in(store) == "a"
        assert await store.get_session(ONE) == session(ONE)


async def test_a_write_to_another_session_does_not_name_that_lease() -> None:
    store = TakenOverStore()
    async with open_harness(store) as harness, harness.journal.lease(ONE, "me"):
        store.take_over(ONE)
        await harness.journal.commit(SessionCreated(info=session(TWO)))
        assert await store.get_session(TWO) == session(TWO)


@pytest.mark.parametrize("how", ["commit", "flush", "close"])
async def test_growth_of_a_lost_session_is_dropped_and_that_of_another_is_not(how: str) -> None:
    store = TakenOverStore()
    await with_a_part(store, ONE)
    await with_a_part(store, TWO)
    async with open_harness(store) as harness, harness.journal.lease(ONE, "me"):
        harness.journal.grow(growth("lost", 0, ONE))
        harness.journal.grow(growth("kept", 0, TWO))
        store.take_over(ONE)
        if how == "commit":
            with pytest.raises(LeaseLostError):
                await harness.journal.commit(message(ONE), message(TWO))
            assert (await text_in(store, ONE), await text_in(store, TWO)) == ("", "")
        elif how == "flush":
            with pytest.raises(LeaseLostError):
                await harness.journal.flush()
            assert (await text_in(store, ONE), await text_in(store, TWO)) == ("", "kept")
        else:
            await harness.pass_time(FLUSH_MS)
    assert (await text_in(store, ONE), await text_in(store, TWO)) == ("", "kept")
