"""The inbox in Postgres: what waits is taken or withdrawn, never both, and listeners are told once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

from given.postgres import make_url
from weft.errors import NotFoundError
from weft.model.event import SessionCreated, SessionUpdated
from weft.model.ids import SessionID
from weft.model.wire import parse
from weft.store.cluster import NewDelivery, NodeRecord
from weft.store.event_log import LogBatch, LogEntry
from weft.store.ownership import OwnedStore
from weft.store.postgres.address import parse_address
from weft.store.postgres.store import PostgresStore, open_postgres_store
from weft.testing.store_samples import SESSION, session

OUTCOME = b'{"error":{"name":"ConflictError"}}'
WAITS = b'{"type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"busy","waits":"x"}}}'


@pytest.fixture
def url() -> str:
    return make_url()


@pytest.fixture
async def stores(url: str) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(open_postgres_store(url)) for _ in range(2)]
        await one.apply(SessionCreated(info=session()))
        yield one, two


async def join(store: PostgresStore, name: str, *roots: str) -> None:
    await store.cluster.join(NodeRecord(name, name, name, "", "1", roots))


async def put_delivery(store: PostgresStore, key: str = "k") -> None:
    await store.cluster.put(NewDelivery(key, SESSION, "/work", "prompt", True, b"{}"))


async def list_sent_events(store: PostgresStore) -> list[tuple[str, Any]]:
    """Return the events that listeners of the session got, each with the status in it."""
    await store.place()
    events = [parse(event.body) for event in await store.read(0, limit=1000) if event.session == SESSION]
    return [(event["type"], event["properties"].get("status")) for event in events]


async def test_a_prompt_is_taken_or_withdrawn_never_both(stores: tuple[PostgresStore, PostgresStore]) -> None:
    one, two = stores
    await join(one, "n", "/work")
    for number in range(10):
        await put_delivery(one, f"k{number}")
        taken, withdrawn = await asyncio.gather(
            one.cluster.take("n", most=9),
            two.inbox.withdraw_all(SESSION, kinds=["prompt"], outcome=OUTCOME),
        )
        state = await two.inbox.find_state(f"k{number}")
        assert state is not None
        assert (bool(taken), withdrawn, state.outcome) in ((True, False, None), (False, True, OUTCOME))
        for delivery in taken:
            assert await one.cluster.finish("n", delivery, b"{}", done=True)
    assert await list_sent_events(one) == []  # no listener was told that it waits


async def test_a_prompt_that_a_node_is_taking_is_not_withdrawn(
    url: str, stores: tuple[PostgresStore, PostgresStore]
) -> None:
    one, two = stores
    address = parse_address(url)
    await join(one, "n", "/work")
    await put_delivery(one)
    node, other = [await asyncpg.connect(address.dsn) for _ in range(2)]
    taking = node.transaction()
    await taking.start()
    assert len(await node.fetch(f"SELECT * FROM {address.schema}.take_deliveries('n', 9)")) == 1
    async with asyncio.TaskGroup() as tasks:
        withdrawal = tasks.create_task(two.inbox.withdraw_all(SESSION, kinds=["prompt"], outcome=OUTCOME))
        while not await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110  Postgres tells nobody
            await asyncio.sleep(0.01)
        await taking.commit()
    assert not withdrawal.result()
    await node.close()
    await other.close()


async def test_listeners_are_told_once_that_a_session_waits_and_once_that_it_does_not(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    one, two = stores
    await join(one, "n", "/elsewhere")
    await put_delivery(one)
    assert await two.cluster.list_untold(["submit"]) == {}
    assert await two.cluster.list_untold(["prompt"]) == {SESSION: "/work"}
    told = await asyncio.gather(*(each.cluster.tell_waiting(SESSION, WAITS) for each in (one, two, one, two)))
    assert sorted(told) == [False, False, False, True]
    waits = ("session.status", {"type": "busy", "waits": "x"})
    idle = [("session.status", {"type": "idle"}), ("session.idle", None)]
    assert (await list_sent_events(one), await one.cluster.list_untold(["prompt"])) == ([waits], {})
    assert await two.inbox.withdraw_all(SESSION, kinds=["prompt"], outcome=OUTCOME)
    assert not await two.inbox.withdraw_all(SESSION, kinds=["prompt"], outcome=OUTCOME)
    assert await list_sent_events(one) == [waits, *idle]
    # For a delivery that a node takes, its run or its failure publishes the end.
    await put_delivery(one, "again")
    assert await one.cluster.tell_waiting(SESSION, WAITS)
    await join(two, "m", "/work")
    (taken,) = await two.cluster.take("m", most=9)
    assert not await two.inbox.withdraw_all(SESSION, kinds=["prompt"], outcome=OUTCOME)
    assert await two.inbox.is_begun(SESSION)
    busy = ("session.status", {"type": "busy"})
    assert await list_sent_events(one) == [waits, *idle, waits, busy]
    await two.cluster.finish("m", taken, OUTCOME, done=True)
    assert await list_sent_events(one) == [waits, *idle, waits, busy, *idle]


async def test_the_first_attempt_of_a_repeated_write_changes_nothing_if_it_arrives_late(
    stores: tuple[PostgresStore, PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, sent = stores[0], list[Any]()
    send = store.database.send

    async def note(sql: str, *values: Any, urgent: bool = False) -> Any:
        sent.append((sql, values))
        return await send(sql, *values, urgent=urgent)

    monkeypatch.setattr(store.database, "send", note)
    for title in ("first", "second"):
        batch = LogBatch("/work", [LogEntry(SESSION, title.encode())])
        await store.apply(SessionUpdated(info=session(title=title)), log=batch)
    sql, values = sent[0]
    await send(sql, *values)  # the server gets the first one once more
    assert (await store.get_session(SESSION)).title == "second"


async def test_a_lease_that_a_leaving_node_did_not_release_counts_as_abandoned(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    one, two = stores
    await join(one, "n", "/work")
    async with one.lease(SESSION, "n"):
        await one.cluster.leave("n")
        # It does not count as the lease of a process outside the cluster, which would refuse callers until it expires.
        assert not await two.inbox.is_run_outside(SESSION)
        assert [each.session for each in await two.cluster.list_abandoned()] == [SESSION]


@pytest.mark.parametrize("place_now", [False, True])
async def test_the_log_and_the_inbox_of_a_principal_are_its_own(place_now: bool) -> None:
    url = make_url()
    async with AsyncExitStack() as stack:
        whole = await stack.enter_async_context(open_postgres_store(url))
        ada, ben = [
            OwnedStore(await stack.enter_async_context(open_postgres_store(url, principal=name)), name)
            for name in ("ada", "ben")
        ]
        ids = {ada: SessionID("ses_ada"), ben: SessionID("ses_ben")}
        for number, store in enumerate((ada, ben, ada)):
            entries = [LogEntry(ids[store], b"%d" % number), LogEntry(None, b"about no session")]
            logged = LogBatch("/work", entries, place_now)
            await store.apply(SessionCreated(info=session(ids[store])), log=logged)
        await whole.apply(log=LogBatch("/work", [LogEntry("ses_ada", b"by the administrator")]))
        last = await whole.place()
        assert [await store.find_own_last(store.owner, last) for store in (ada, ben)] == [5, 2]
        read = [
            (each.body, each.owner_position, each.by_owner) for each in await ada.read_own("ada", 1, limit=9)
        ]
        assert read == [
            (b"about no session", 2, True),
            (b"2", 3, True),
            (b"about no session", 4, True),
            (b"by the administrator", 5, False),
        ]
        assert [each.body for each in await ben.read_own("ben", 0, limit=9)] == [b"1", b"about no session"]
        with pytest.raises(NotFoundError):
            await ben.read_own("ada", 0, limit=9)
        # Row-level security has the same effect on a query without the condition.
        inner = await stack.enter_async_context(open_postgres_store(url, principal="ben"))
        assert [each.body for each in await inner.read_own("ada", 0, limit=9)] == []
        await ada.inbox.put(NewDelivery("ses_ada/prompt/1", ids[ada], "/work", "prompt", True, b"{}"))
        for call in (
            ben.inbox.find_state("ses_ada/prompt/1"),
            ben.inbox.withdraw("ses_ada/prompt/1"),
            ben.inbox.withdraw_all(ids[ada], kinds=["prompt"], outcome=OUTCOME),
            ben.inbox.put(NewDelivery("ses_ada/prompt/2", ids[ada], "/work", "prompt", True, b"{}")),
        ):
            with pytest.raises(NotFoundError):
                await call
        assert await inner.inbox.find_state("ses_ada/prompt/1") is None
        assert not await inner.inbox.withdraw_all(ids[ada], kinds=["prompt"], outcome=OUTCOME)
        assert (await ada.inbox.list_waiting("/work"), await ben.inbox.list_waiting("/work")) == (
            [ids[ada]],
            [],
        )
        await join(whole, "n", "/work")
        (taken,) = await whole.cluster.take("n", most=9)
        assert taken.owner == "ada"
