"""The code of a cluster in a simulation: nodes are killed, paused and cut off, messages are lost, doubled and late.

Time, network and database are simulated, everything else is real, and the same seed gives the same run. What must hold is in
`given/simulated_cluster.py`. More seeds, or one of them again:

    WEFT_SIMULATION=0-5000 pytest tests/integration/test_cluster_simulation.py -k nothing_acknowledged
    WEFT_SIMULATION=4711 pytest tests/integration/test_cluster_simulation.py -k nothing_acknowledged
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from given.engine import open_engine, text_prompt
from given.simulated_cluster import LEASE_SECONDS, RETRY_SECONDS, SimulatedCluster
from given.simulated_driver import Machine, NetworkFaults, SimulatedDriver, SimulatedStore, make_address
from given.simulated_postgres import SCHEMA, DeliveryRow, NodeRow, Rows, SimulatedPostgres, Transaction
from given.simulated_time import simulate
from weft.bus import Bus
from weft.cluster.follower import LogFollower
from weft.cluster.node_api import NodeApi
from weft.errors import StoreError
from weft.host.tasks import open_tasks
from weft.journal import Journal, open_journal
from weft.model.event import Durable, MessageUpdated, PartUpdated, SessionCreated
from weft.model.failure import StorageFailure
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage
from weft.model.part import TextPart
from weft.model.session import SessionInfo
from weft.provider.scripted import Say
from weft.session.settle import to_settling_events
from weft.store.cluster import NewDelivery, NodeRecord
from weft.store.contract import SessionEditor, Store
from weft.store.postgres import event_log
from weft.store.postgres.cluster import PostgresCluster
from weft.store.postgres.connection import Database
from weft.store.postgres.event_log import PostgresLog
from weft.store.postgres.lease import LeaseKeeper
from weft.testing.store_chain import CHAINS
from weft.testing.store_contract import CHECKS
from weft.testing.store_samples import SESSION, growth, prompt, session, text

pytestmark = pytest.mark.slow

CI_SEEDS = 40
# A planted mistake must be found by one of this many seeds.
PLANTED_SEEDS = 80


def read_seeds(given: str) -> range:
    first, _, last = given.partition("-")
    return range(int(first), int(last or int(first) + 1))


# Read at import: tests do not see this variable.
SEEDS = read_seeds(os.environ.get("WEFT_SIMULATION", f"0-{CI_SEEDS}"))


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_or_done_twice(seed: int) -> None:
    cluster = SimulatedCluster(seed)
    simulate(cluster.run())
    again = (
        f"WEFT_SIMULATION={seed} pytest tests/integration/test_cluster_simulation.py -k nothing_acknowledged"
    )
    assert cluster.wrong == [], f"run it again: {again}"
    assert len(cluster.acknowledged) == cluster.settings.prompts


def test_the_same_seed_gives_the_same_run() -> None:
    runs = [SimulatedCluster(3), SimulatedCluster(3)]
    for run in runs:
        simulate(run.run())
    first, second = (
        [(row.written, row.writer, row.directory, len(row.body)) for row in run.server.placed] for run in runs
    )
    assert first == second
    assert len(first) > 20


# --- planted mistakes ---

Plant = Callable[[SimulatedCluster, pytest.MonkeyPatch], None]


def plant_writes_of_old_generations(cluster: SimulatedCluster, _: pytest.MonkeyPatch) -> None:
    """The database does not compare generations."""

    async def find_none(*_: Any) -> None:
        return None

    cluster.server.find_lost_lease = find_none  # type: ignore[method-assign]


def plant_no_polling(_: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes trust notifications."""
    monkeypatch.setattr("weft.cluster.inbox.POLL_SECONDS", 1e6)
    monkeypatch.setattr("weft.store.postgres.event_log.POLL_SECONDS", 1e6)


def plant_positions_of_a_sequence(cluster: SimulatedCluster, _: pytest.MonkeyPatch) -> None:
    """An event has the number that it got when it was written, not one that it gets after its commit."""
    server = cluster.server

    async def read(_: Transaction, after: int, limit: int) -> Rows:
        rows = sorted(server.events.values(), key=lambda row: row.id)
        head = ("simulated", rows[-1].id if rows else 0, 0)
        found = [row for row in rows if row.id > after][:limit]
        return [
            (
                *head,
                row.id,
                row.writer,
                row.directory,
                row.session,
                row.body,
                server.now() - row.written,
                "",
                None,
                True,
            )
            for row in found
        ] or [(*head, *[None] * 9)]

    server.statements[event_log.READ.replace("{schema}", SCHEMA)] = read


def plant_positions_without_a_lock(cluster: SimulatedCluster, _: pytest.MonkeyPatch) -> None:
    """Two nodes give positions at the same time."""
    server = cluster.server

    async def place(transaction: Transaction, most: int) -> Rows:
        rows = sorted(server.unplaced, key=lambda row: row.id)[:most]
        last = len(server.placed)

        def change() -> None:
            for number, row in enumerate(rows, 1):
                row.position = last + number
                server.placed.append(row)
                with suppress(ValueError):
                    server.unplaced.remove(row)
            for wake in list(server.listeners):
                wake()

        transaction.changes.append(change)
        return [(last + len(rows),)]

    server.statements[event_log.PLACE.replace("{schema}", SCHEMA)] = place


def plant_double_claims(cluster: SimulatedCluster, _: pytest.MonkeyPatch) -> None:
    """A node takes what another one is doing."""
    server = cluster.server

    def may_take(me: NodeRow, row: DeliveryRow) -> bool:
        held = server.find_live_lease(row.session)
        return row.done is None and row.taker != me.id and (held is None or held.owner == me.owner)

    server.may_take = may_take  # type: ignore[method-assign]


def plant_leases_that_nobody_renews(_: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(_: LeaseKeeper) -> None:
        pass

    monkeypatch.setattr(LeaseKeeper, "renew", forget)


def plant_dead_runs_that_nobody_settles(_: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.run.runner.ClosedHistories.has_open", lambda *_: False)
    monkeypatch.setattr("weft.run.runner.to_settling_events", lambda _: [])


def plant_deliveries_that_end_with_the_acknowledgement(
    _: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt is done when it is stored, not when it is answered."""
    finish = PostgresCluster.finish

    async def finish_early(
        self: PostgresCluster, node: str, delivery: Any, outcome: bytes | None, *, done: bool
    ) -> bool:
        del done
        return await finish(self, node, delivery, outcome, done=True)

    monkeypatch.setattr(PostgresCluster, "finish", finish_early)


def plant_a_new_id_for_each_attempt(_: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    send = NodeApi._send_prompt

    async def send_anew(self: NodeApi, session: SessionID, kind: str, input: Any) -> Any:
        return await send(self, session, kind, replace(input, message_id=None))

    monkeypatch.setattr(NodeApi, "_send_prompt", send_anew)


def plant_a_reader_that_resumes_one_too_late(_: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    read = LogFollower.read

    async def read_late(self: LogFollower, after: int, till: int) -> Sequence[Any]:
        return await read(self, min(after + 1, till), till)

    monkeypatch.setattr(LogFollower, "read", read_late)


PLANTED: tuple[Plant, ...] = (
    plant_writes_of_old_generations,
    plant_no_polling,
    plant_positions_of_a_sequence,
    plant_positions_without_a_lock,
    plant_double_claims,
    plant_leases_that_nobody_renews,
    plant_dead_runs_that_nobody_settles,
    plant_deliveries_that_end_with_the_acknowledgement,
    plant_a_new_id_for_each_attempt,
    plant_a_reader_that_resumes_one_too_late,
)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.removeprefix("plant_"))
def test_a_planted_mistake_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(PLANTED_SEEDS):
        cluster = SimulatedCluster(seed)
        cluster.plant = lambda planted: plant(planted, monkeypatch)
        try:
            simulate(cluster.run())
        except ExceptionGroup:
            return  # the mistake broke the simulation itself
        if cluster.wrong:
            return
    raise AssertionError(f"no seed below {PLANTED_SEEDS} finds it")


# --- the simulated database keeps the promises of a real one ---


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    async with open_tasks() as tasks:
        server = SimulatedPostgres(tasks, commit_delay=lambda: 0)
        yield Machine(server, Random(1), NetworkFaults())


@pytest.fixture
async def store(machine: Machine) -> SimulatedStore:
    return await open_simulated_store(machine)


async def open_simulated_store(
    machine: Machine, kind: type[SimulatedStore] = SimulatedStore
) -> SimulatedStore:
    database = Database(make_address(LEASE_SECONDS, RETRY_SECONDS), SimulatedDriver(machine), machine)
    await database.open()
    log = PostgresLog(database, machine, writer="me")
    return kind(database, LeaseKeeper(database, machine), log)


# The documents are kept in a store in memory, below the functions of the database: there is no chain of them here.
@pytest.mark.parametrize(
    "check", [check for check in CHECKS if check not in CHAINS], ids=lambda check: check.__name__
)
async def test_the_simulated_store_passes_the_store_contract(
    check: Callable[[Store], Awaitable[None]], store: Store
) -> None:
    await check(store)


async def test_growth_that_could_not_be_stored_under_the_lease_is_not_stored_later(
    machine: Machine, store: SimulatedStore
) -> None:
    async with open_journal(store, Bus(), machine, directory="/work") as journal:
        await journal.commit(SessionCreated(info=session()))
        async with journal.lease(SESSION, "me"):
            await journal.commit(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "On")))
            journal.grow(growth("prt_1", "ce", 2))
            machine.cut()
            flushing = asyncio.create_task(
                flush_often(journal)
            )  # one of these waits until the lease has ended
        machine.join()
        before = await store.list_messages(SESSION)
        await flushing
        await journal.flush()
        assert await store.list_messages(SESSION) == before


class RefusingStore(SimulatedStore):
    """Refuses to store the end of an answer, twice: by the step, and when that has failed."""

    left = 2

    async def apply(self, *events: Durable, **more: Any) -> None:
        self._refuse(events)
        await super().apply(*events, **more)

    async def edit(
        self, session: SessionID, editor: SessionEditor, *events: Durable, **more: Any
    ) -> SessionInfo:
        self._refuse(events)
        return await super().edit(session, editor, *events, **more)

    def _refuse(self, events: Sequence[Durable]) -> None:
        infos = [event.info for event in events if isinstance(event, MessageUpdated)]
        if self.left and any(isinstance(each, AssistantMessage) and each.time.completed for each in infos):
            self.left -= 1
            raise StoreError("it does not answer")


async def test_an_answer_that_could_not_be_stored_leaves_nothing_open_once_the_store_works_again(
    machine: Machine,
) -> None:
    store = await open_simulated_store(machine, RefusingStore)
    async with open_engine([Say(text="woven")], store=store, skip_waits=True) as engine:
        made = await engine.api.create_session(SessionInput(title="Cloth"))
        await engine.api.prompt(made.id, text_prompt("weave"))
        answer = (await store.list_messages(made.id))[-1]
    assert isinstance(answer.info, AssistantMessage)
    assert isinstance(answer.info.error, StorageFailure)
    assert [part.text for part in answer.parts if isinstance(part, TextPart)] == ["woven"]
    assert to_settling_events([answer]) == []


async def flush_often(journal: Journal) -> None:
    for _ in range(4):
        with suppress(StoreError):
            await journal.flush_session(SESSION)


def test_a_node_that_leaves_does_not_return_a_delivery_that_another_node_is_taking() -> None:
    simulate(take_from_a_node_that_leaves())


async def take_from_a_node_that_leaves() -> None:
    seconds = 0.0
    async with open_tasks() as tasks:
        server = SimulatedPostgres(tasks, commit_delay=lambda: seconds)
        store = await open_simulated_store(Machine(server, Random(1), NetworkFaults()))
        for name in ("a", "b"):
            await store.cluster.join(NodeRecord(name, name, name, "", "1", ("/work",)))
        await store.cluster.put(NewDelivery("one", SESSION, "/work", "prompt", True, b"{}"))
        (first,) = await store.cluster.take("a", most=9)
        await asyncio.sleep(LEASE_SECONDS)  # it was paused, and is taken for dead
        await store.cluster.beat("b")
        wrong: list[str] = []
        server.on_take = lambda row, node: wrong.append(f"{node} took {row.key} from {row.taker}")
        seconds = 1.0
        taking = tasks.create_task(store.cluster.take("b", most=9))
        await asyncio.sleep(0.5)
        seconds = 0.0
        await store.cluster.leave("a")
        assert ([each.number for each in await taking], wrong) == ([first.number], [])
        assert server.deliveries["one"].taker == "b"


async def test_a_node_receives_a_delivery_that_it_took_even_if_the_first_answer_was_lost(
    machine: Machine, store: SimulatedStore
) -> None:
    await store.cluster.join(NodeRecord("n", "me", "n", "", "1", ("/work",)))
    for key in ("one", "two"):
        await store.cluster.put(NewDelivery(key, SESSION, "/work", "prompt", True, b"{}"))
        machine.lost_answers = 1
        assert key in [delivery.key for delivery in await store.cluster.take("n", most=9)]


def test_a_node_receives_a_delivery_that_a_late_statement_took_for_it() -> None:
    simulate(take_late())


async def take_late() -> None:
    async with open_tasks() as tasks:
        machine = Machine(SimulatedPostgres(tasks, commit_delay=lambda: 0), Random(1), NetworkFaults())
        store = await open_simulated_store(machine)
        await store.cluster.join(NodeRecord("n", "me", "n", "", "1", ("/work",)))
        machine.late_seconds = 1.0
        taking = tasks.create_task(store.cluster.take("n", most=9))
        await asyncio.sleep(0.1)
        # The connection is lost, and the statement repeated. What was sent first reaches the server all the same, but later.
        machine.cut()
        machine.join()
        assert await taking == []
        await store.cluster.put(NewDelivery("one", SESSION, "/work", "prompt", True, b"{}"))
        await asyncio.sleep(1.0)
        (late,) = await store.cluster.take("n", most=9)
        assert late.key == "one"
        assert await store.cluster.take("n", most=9, known=[late.number]) == []
