"""The event log in Postgres: written with what it describes, in one order for all, without a gap and without a repeat."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace

from given.postgres import get_server, make_url
from given.postgres_proxy import open_postgres_proxy
from weft.bus import Bus
from weft.errors import CursorLostError, LeaseLostError, NewerFormatError, NotFoundError
from weft.host.clock import SystemClock
from weft.journal import open_journal
from weft.model.event import MessageUpdated, PartGrew, PartUpdated, SessionCreated, SessionIdled
from weft.model.event_wire import event_from_json
from weft.model.ids import SessionID
from weft.model.transcript import Transcript
from weft.store.event_log import LogBatch, LogEntry, LoggedEvent
from weft.store.postgres.connection import load_driver
from weft.store.postgres.migration import get_newest_version
from weft.store.postgres.store import PostgresStore, open_postgres_store
from weft.store.url import open_store
from weft.testing.store_samples import SESSION, growth, prompt, session, text

HERE = "/work"
APPEND = "SELECT {}.append_events($1, 'x', '/work', ARRAY['ses_x'], ARRAY[$2::bytea])"
APPEND_PLACED = "SELECT {}.append_placed($1, 'x', '/work', ARRAY['ses_x'], ARRAY[$2::bytea], 9)"
IS_BLOCKED = (
    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)))"
)


@pytest.fixture
def url() -> str:
    return make_url(get_server().get_url())


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    async with open_postgres_store(url) as opened:
        yield opened


def batch(*words: str) -> LogBatch:
    return LogBatch(HERE, [LogEntry(SESSION, word.encode()) for word in words])


async def read_all(store: PostgresStore, after: int = 0) -> list[LoggedEvent]:
    await store.place()
    return await store.read(after, limit=1000)


def bodies(events: list[LoggedEvent]) -> list[str]:
    return [event.body.decode() for event in events]


async def test_an_event_whose_transaction_commits_late_is_not_skipped(url: str, store: PostgresStore) -> None:
    schema, driver = url.partition("schema=")[2], load_driver()
    late, early = [await driver.connect(get_server().get_url()) for _ in range(2)]
    try:
        transaction = late.transaction()
        await transaction.start()
        await late.fetch(APPEND.format(schema), 1, b"late")
        await early.fetch(APPEND.format(schema), 2, b"early")
        first = await read_all(store)
        assert [(event.position, event.body) for event in first] == [(1, b"early")]
        await transaction.commit()
        assert [(event.position, event.body) for event in await read_all(store, after=1)] == [(2, b"late")]
        assert bodies(await read_all(store)) == ["early", "late"]
    finally:
        await late.close()
        await early.close()


async def test_an_event_that_gets_its_position_at_once_follows_all_stored_before(
    url: str, store: PostgresStore
) -> None:
    schema, driver = url.partition("schema=")[2], load_driver()
    one, two = [await driver.connect(get_server().get_url()) for _ in range(2)]
    try:
        await one.fetch(APPEND.format(schema), 1, b"stored before")
        assert await two.fetchval(APPEND_PLACED.format(schema), 2, b"placed") is True
        # Sent again after a lost answer, it changes nothing, and leaves no gap.
        assert await two.fetchval(APPEND_PLACED.format(schema), 2, b"placed") is False
        async with one.transaction():
            assert await one.fetchval(APPEND_PLACED.format(schema), 3, b"not committed yet") is True
            # Nobody waits for the transaction that assigns positions. A position becomes visible with its event.
            assert await two.fetchval(APPEND_PLACED.format(schema), 4, b"placed later") is False
            assert bodies(await store.read(0, limit=9)) == ["stored before", "placed"]
        found = await read_all(store)
    finally:
        await one.close()
        await two.close()
    assert [(event.position, event.body) for event in found] == [
        (1, b"stored before"), (2, b"placed"), (3, b"not committed yet"), (4, b"placed later"),
    ]  # fmt: skip


async def test_an_event_does_not_get_a_position_before_many_earlier_events(
    url: str, store: PostgresStore
) -> None:
    schema, driver = url.partition("schema=")[2], load_driver()
    connection = await driver.connect(get_server().get_url())
    try:
        for number, body in enumerate((b"one", b"two", b"three")):
            await connection.fetch(APPEND.format(schema), number, body)
        placed = APPEND_PLACED.format(schema).replace("9)", "2)")
        assert await connection.fetchval(placed, 9, b"four") is False
    finally:
        await connection.close()
    assert bodies(await read_all(store)) == ["one", "two", "three", "four"]


async def test_storing_and_logging_are_one_change(store: PostgresStore) -> None:
    await store.apply(SessionCreated(info=session()), log=batch("created"))
    async with store.lease(SESSION, "me") as token:
        await store.apply(MessageUpdated(info=prompt()), leases=[token], log=batch("prompt"))
    with pytest.raises(LeaseLostError):
        await store.apply(MessageUpdated(info=prompt()), leases=[token], log=batch("refused"))
    edited = await store.edit(SESSION, lambda info: info, log=lambda info: batch(info.id))
    with pytest.raises(NotFoundError):
        await store.restore("no such bundle", log=lambda _: batch("refused"))
    trashed = await store.discard([SESSION], at=5, log=lambda bundle: batch(bundle.id))
    assert bodies(await read_all(store)) == ["created", "prompt", edited.id, trashed.id]


async def test_a_statement_that_a_lost_connection_interrupted_is_logged_once(url: str) -> None:
    async with open_store(url):
        pass
    async with open_postgres_proxy(url) as proxy, open_postgres_store(proxy.url) as store:
        await store.apply(SessionCreated(info=session()), log=batch("created"))
        proxy.cut_after(0)  # the answer to the next statement, or to the one that places: both are repeated
        for number in range(10):
            await store.apply(MessageUpdated(info=prompt()), log=batch(str(number)))
        await proxy.cut.wait()
        assert bodies(await read_all(store)) == ["created", *map(str, range(10))]


async def trim(store: PostgresStore, *, seconds: float, most: int) -> int:
    """Trim the log, and return how many events were removed. While events are being placed, none is, so try again until some are."""
    for _ in range(1000):
        if removed := await store.trim(seconds=seconds, most=most):
            return removed
        await asyncio.sleep(0.01)
    return 0


async def test_a_trimmed_log_refuses_a_listener_that_comes_too_late(store: PostgresStore) -> None:
    for number in range(5):
        await store.apply(log=batch(str(number)))
    assert bodies(await read_all(store, after=3)) == ["3", "4"]
    assert await trim(store, seconds=3600, most=2) == 3
    assert bodies(await store.read(3, limit=9)) == ["3", "4"]
    for lost in (2, 6):
        with pytest.raises(CursorLostError):
            await store.read(lost, limit=9)
    assert await trim(store, seconds=0, most=9) == 2
    assert await store.read(5, limit=9) == []


async def test_listeners_are_woken_again_after_the_server_cut_them_off(
    url: str, store: PostgresStore
) -> None:
    schema = url.partition("schema=")[2]
    woken = asyncio.Event()
    async with store.listen(woken.set):
        await woken.wait()  # when the connection was made
        woken.clear()
        await store.apply(log=batch("one"))
        await woken.wait()
        woken.clear()
        get_server().query(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%{schema}%'"
        )
        await woken.wait()
        woken.clear()
        await store.apply(log=batch("two"))
        await woken.wait()
    assert bodies(await read_all(store)) == ["one", "two"]


async def test_folding_the_log_gives_what_the_journal_stored(
    store: PostgresStore,
) -> None:
    async with open_journal(store, Bus(), SystemClock(), directory=HERE) as journal:
        await journal.commit(SessionCreated(info=session()))
        async with journal.lease(SESSION, "me"):
            await journal.commit(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "On")))
            for offset, piece in ((2, "ce "), (5, "upon "), (10, "a time")):
                journal.grow(growth("prt_1", piece, offset))
            await journal.commit(SessionIdled(session_id=SESSION))
        # Events published under the lease are logged before it is released.
        events = [event_from_json(event.body) for event in await read_all(store)]
    transcript = Transcript()
    transcript.feed(*events)
    assert transcript.messages() == await store.list_messages(SESSION)
    assert isinstance(events[-1], SessionIdled)
    assert [event.delta for event in events if isinstance(event, PartGrew)] == ["ce upon a time"]
    assert {event.directory for event in await read_all(store)} == {HERE}


async def test_growth_is_logged_while_another_session_is_written_to(url: str, store: PostgresStore) -> None:
    schema, other = url.partition("schema=")[2], SessionID("ses_2")
    slow = await load_driver().connect(get_server().get_url())
    try:
        async with AsyncExitStack() as stack:
            journal = await stack.enter_async_context(
                open_journal(store, Bus(), SystemClock(), directory=HERE)
            )
            for id in (SESSION, other):
                await journal.commit(
                    SessionCreated(info=session(id)),
                    MessageUpdated(info=prompt(of=id)),
                    PartUpdated(part=text("prt_1", "", session=id)),
                )
                await stack.enter_async_context(journal.lease(id, "me"))
            async with slow.transaction():
                await slow.fetch(f"SELECT FROM {schema}.lease WHERE session = '{SESSION}' FOR UPDATE")
                writing = asyncio.create_task(journal.commit(MessageUpdated(info=prompt())))
                while not await slow.fetchval(IS_BLOCKED):
                    pass
                for id in (SESSION, other):
                    journal.grow(replace(growth("prt_1", "words", 0), session_id=id))
                while not (grown := [event for event in await read_all(store) if b"words" in event.body]):
                    pass
                assert ([event.session for event in grown], writing.done()) == ([other], False)
            await writing
        grown = [event for event in await read_all(store) if b"words" in event.body]
        assert [event.session for event in grown] == [other, SESSION]
    finally:
        await slow.close()


async def test_a_writer_that_lost_the_lease_logs_nothing(store: PostgresStore, url: str) -> None:
    schema = url.partition("schema=")[2]
    async with open_journal(store, Bus(), SystemClock(), directory=HERE) as journal:
        await journal.commit(SessionCreated(info=session()))
        before = bodies(await read_all(store))
        async with journal.lease(SESSION, "me"):
            get_server().query(f"UPDATE {schema}.lease SET generation = generation + 1, owner = 'other'")
            journal.grow(growth("prt_1", "x", 0))
            await journal.commit(SessionIdled(session_id=SESSION))
            with pytest.raises(LeaseLostError):
                await journal.flush()
        await journal.flush()
    assert bodies(await read_all(store)) == before


async def test_a_newer_schema_is_used_if_it_permits_old_nodes(url: str, store: PostgresStore) -> None:
    schema = url.partition("schema=")[2]
    get_server().query(f"UPDATE {schema}.weft_store SET version = 99")
    async with open_store(url) as opened:
        assert await opened.list_sessions() == []
    get_server().query(f"UPDATE {schema}.weft_store SET needs = {get_newest_version() + 1}")
    with pytest.raises(NewerFormatError):
        async with open_store(url):
            pass
