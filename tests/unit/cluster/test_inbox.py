"""The rules of the inbox: what is given back, what is answered, and outcomes that are the same on the other side."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import cast

import pytest

from given.engine import InstantClock
from weft.cluster.inbox import MAX_TRIES, Inbox, choose_fate, is_interrupted
from weft.cluster.node import ClusterNode, is_served
from weft.cluster.operation import OPERATIONS, decode_outcome, encode_error, encode_value
from weft.errors import (
    ConflictError,
    EndingError,
    HandedOverError,
    InvalidInputError,
    LeaseLostError,
    NotFoundError,
    ServerError,
    SessionBusyError,
    StoreError,
)
from weft.host.clock import SystemClock
from weft.host.tasks import open_tasks
from weft.model.event import StatusChanged
from weft.model.event_wire import encode_event
from weft.model.ids import SessionID
from weft.model.session import Busy
from weft.store.cluster import Delivery, DeliveryState, NewDelivery, NodeRecord
from weft.store.event_log import EventLog, LoggedEvent

SESSION = SessionID("ses_1")


def delivery(kind: str = "prompt", *, takes: int = 1) -> Delivery:
    repeatable = OPERATIONS[kind].repeatable
    return Delivery(1, f"{SESSION}/{kind}", SESSION, "/work", kind, repeatable, b"{}", takes, None)


@pytest.mark.parametrize(
    ("kind", "error", "fate"),
    [
        ("prompt", HandedOverError(SESSION), "give back"),
        ("shell", LeaseLostError(SESSION), "give back"),
        ("prompt", SessionBusyError(SESSION), "give back"),
        ("shell", SessionBusyError(SESSION), "finish"),
        ("shell", EndingError(), "give back"),
        ("prompt", ConflictError("directory", "/work", "cannot be opened"), "give back"),
        ("shell", ConflictError("directory", "/work", "cannot be opened"), "finish"),
        ("prompt", ConflictError("session", SESSION, "is gone"), "finish"),
        ("prompt", NotFoundError("agent", "x"), "finish"),
        ("abort", ValueError("a mistake"), "finish"),
        ("prompt", StoreError("away"), "give back"),
        ("shell", StoreError("away"), "finish"),
    ],
)
def test_a_delivery_is_returned_if_another_node_can_do_it_and_answered_otherwise(
    kind: str, error: Exception, fate: str
) -> None:
    assert choose_fate(delivery(kind), error) == fate


def test_the_caller_is_told_if_the_store_stays_unavailable() -> None:
    fates = [
        choose_fate(delivery(takes=takes), StoreError("away")) for takes in (1, MAX_TRIES - 1, MAX_TRIES)
    ]
    assert fates == ["give back", "give back", "finish"]


def test_a_workspace_that_this_node_cannot_make_is_left_to_other_nodes_for_a_while() -> None:
    error = ConflictError("workspace", "loom", "cannot be fetched")
    fates = [choose_fate(delivery(takes=takes), error) for takes in (1, MAX_TRIES - 1, MAX_TRIES)]
    assert fates == ["give back", "give back", "finish"]
    assert choose_fate(delivery("shell"), error) == "finish"


def test_an_interrupted_delivery_that_must_not_run_twice_is_not_started_again() -> None:
    assert [is_interrupted(delivery(kind, takes=2)) for kind in ("prompt", "abort", "shell", "revert")] == [
        False,
        False,
        True,
        True,
    ]
    assert not is_interrupted(delivery("shell"))


def test_an_outcome_survives_its_encoding() -> None:
    assert decode_outcome("abort", encode_value(True)) is True
    assert decode_outcome("reply_permission", encode_value(None)) is None
    for error in (
        SessionBusyError(SESSION, "process 7"),
        InvalidInputError("parts", "too many", hint="send fewer"),
        NotFoundError("agent", "biuld", near=["build"]),
    ):
        with pytest.raises(type(error)) as raised:
            decode_outcome("prompt", encode_error(error))
        assert (str(raised.value), raised.value.hint) == (str(error), error.hint)
    with pytest.raises(ServerError, match="ValueError: the node failed"):
        decode_outcome("prompt", encode_error(ValueError("a secret")))


def test_a_directory_is_served_with_everything_below_it() -> None:
    assert [
        is_served(path, ["/srv/one", "/srv/two/"]) for path in ("/srv/one", "/srv/two/x", "/srv/onerous")
    ] == [
        True,
        True,
        False,
    ]
    assert is_served("/anything", ["/"])


class OneNodeStore:
    """The part of a `ClusterStore` that one node needs, in memory. It sends no notifications: everything is polled."""

    def __init__(self) -> None:
        self.rows: dict[str, Delivery] = {}
        self.states: dict[str, DeliveryState] = {}
        self.given_back: list[int] = []
        self.was_given_back = asyncio.Event()
        self.failing = 0
        self.failing_to_give_back = 0

    async def is_run_outside(self, session: SessionID) -> bool:
        return session == "ses_elsewhere"

    async def put(self, new: NewDelivery) -> bool:
        if new.key in self.states:
            return False
        number = len(self.states) + 1
        self.rows[new.key] = Delivery(
            number, new.key, new.session, new.directory, new.kind, new.repeatable, new.body, 1, None
        )
        self.states[new.key] = DeliveryState(None, False)
        return True

    async def take(self, _: str, *, most: int, known: Collection[int]) -> list[Delivery]:
        del known
        if self.failing:
            self.failing -= 1
            raise StoreError("away")
        taken, self.rows = list(self.rows.values())[:most], {}
        return taken

    async def finish(self, _: str, taken: Delivery, outcome: bytes | None, *, done: bool) -> bool:
        self.states[taken.key] = DeliveryState(outcome, done)
        return True

    async def give_back(self, _: str, *numbers: int) -> None:
        if self.failing_to_give_back:
            self.failing_to_give_back -= 1
            raise StoreError("away")
        self.given_back += numbers
        self.was_given_back.set()

    async def find_state(self, key: str) -> DeliveryState | None:
        return self.states.get(key)


Tell = Callable[[bytes], Awaitable[None]]


async def test_a_call_is_performed_once_however_often_it_is_sent() -> None:
    store, done = OneNodeStore(), list[str]()

    async def perform(taken: Delivery, _: Tell) -> bytes:
        done.append(taken.key)
        return encode_value(True)

    store.failing = 1  # the store is unavailable for a moment: the node retries
    inbox = Inbox(store, SystemClock(), node="me", perform=perform)  # type: ignore[arg-type]  a part of the port
    async with open_tasks() as tasks:
        working = tasks.create_task(inbox.work(tasks))
        calls = [inbox.call(SESSION, "abort", {}, directory="/work", key="k") for _ in range(3)]
        assert await asyncio.gather(*calls) == [True, True, True]
        with pytest.raises(SessionBusyError):
            await inbox.call(SessionID("ses_elsewhere"), "abort", {}, directory="/work")
        working.cancel()
    assert done == ["k"]


async def test_the_caller_of_a_delivery_in_progress_is_told_early() -> None:
    store, may_end = OneNodeStore(), asyncio.Event()

    async def perform(_: Delivery, tell: Tell) -> bytes:
        await tell(encode_value(True))
        await may_end.wait()
        raise HandedOverError(SESSION)

    inbox = Inbox(store, SystemClock(), node="me", perform=perform)  # type: ignore[arg-type]  a part of the port
    async with open_tasks() as tasks:
        working = tasks.create_task(inbox.work(tasks))
        assert await inbox.call(SESSION, "abort", {}, directory="/work", key="k") is True
        assert inbox.working == 1
        may_end.set()
        await store.was_given_back.wait()
        working.cancel()
    assert store.given_back == [1]


async def test_a_node_taken_for_dead_does_not_restart_a_delivery_it_is_performing() -> None:
    store, may_end, has_begun, begun = OneNodeStore(), asyncio.Event(), asyncio.Event(), list[int]()

    async def perform(taken: Delivery, _: Tell) -> bytes:
        begun.append(taken.takes)
        has_begun.set()
        await may_end.wait()
        return encode_value(True)

    inbox = Inbox(store, SystemClock(), node="me", perform=perform)  # type: ignore[arg-type]  a part of the port
    async with open_tasks() as tasks:
        working = tasks.create_task(inbox.work(tasks))
        calling = tasks.create_task(inbox.call(SESSION, "uncompact", {}, directory="/work", key="k"))
        await has_begun.wait()
        # Its heartbeat was late, so the store gives it its own delivery once more.
        store.rows["k"] = delivery("uncompact", takes=2)._replace(key="k")
        inbox.notice("k")
        for _ in range(50):  # a delivery that began now would be finished by then
            await asyncio.sleep(0)
        assert store.rows == {}
        may_end.set()
        assert await calling is True  # and no error about a dead node
        working.cancel()
    assert begun == [1]


async def test_a_delivery_is_returned_even_if_the_store_is_unavailable_at_first() -> None:
    store = OneNodeStore()
    store.failing_to_give_back = 2

    async def perform(_: Delivery, tell: Tell) -> bytes:
        await tell(encode_value(True))
        raise HandedOverError(SESSION)

    inbox = Inbox(store, InstantClock(), node="me", perform=perform)  # type: ignore[arg-type]  a part of the port
    async with open_tasks() as tasks:
        working = tasks.create_task(inbox.work(tasks))
        assert await inbox.call(SESSION, "abort", {}, directory="/work", key="k") is True
        await store.was_given_back.wait()
        working.cancel()
    assert store.given_back == [1]


async def test_a_failed_delivery_is_retried_when_sent_again_and_a_successful_one_is_not() -> None:
    store, done = OneNodeStore(), list[str]()

    async def perform(taken: Delivery, _: Tell) -> bytes:
        done.append(taken.key)
        if len(done) == 1:
            raise NotFoundError("agent", "x")
        return encode_value(True)

    inbox = Inbox(store, SystemClock(), node="me", perform=perform)  # type: ignore[arg-type]  a part of the port
    async with open_tasks() as tasks:
        working = tasks.create_task(inbox.work(tasks))
        with pytest.raises(NotFoundError):
            await inbox.call(SESSION, "abort", {}, directory="/work", key="k")
        for _ in range(2):
            assert await inbox.call(SESSION, "abort", {}, directory="/work", key="k") is True
        working.cancel()
    assert done == ["k", "k/2"]


class WrittenLog:
    """A log with a few events that nothing is added to."""

    cluster = None
    poll_seconds = 60.0

    def __init__(self, *bodies: bytes) -> None:
        self._events = [
            LoggedEvent(position, "other", "/work", SESSION, body, 0.0)
            for position, body in enumerate(bodies, start=1)
        ]

    @asynccontextmanager
    async def listen(self, _: Callable[[], None]) -> AsyncIterator[None]:
        yield

    async def read(self, after: int, *, limit: int) -> list[LoggedEvent]:
        return self._events[after : after + limit]


async def test_a_status_that_only_a_newer_node_knows_does_not_stop_the_others() -> None:
    newer = b'{"type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"napping"}}}'
    busy = encode_event(StatusChanged(session_id=SESSION, status=Busy()))
    record = NodeRecord("node_1", "me", "n", "", "1", ("/work",))
    node = ClusterNode(cast("EventLog", WrittenLog(newer, busy)), SystemClock(), record, print)
    delivered: list[bytes] = []
    following = asyncio.ensure_future(node.follow(lambda shared: delivered.append(shared.body)))
    await asyncio.wait((following,), timeout=0.1)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert delivered == [newer, busy]
