"""The inbox: what callers want of sessions is stored, taken by the node that can do it, done, and answered through the log.

`Inbox` uses nothing but the Protocol `ClusterStore`, a clock and the function that does the work, so that it can be driven by a
simulation as well.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Literal

from weft.cluster.operation import OPERATIONS, decode_outcome, encode_error, is_failure
from weft.errors import (
    ConflictError,
    EndingError,
    HandedOverError,
    LeaseLostError,
    SessionBusyError,
    StoreError,
)
from weft.host.clock import Clock
from weft.host.tasks import wait_or_sleep
from weft.model.ids import SessionID
from weft.model.wire import encode
from weft.store.cluster import ClusterStore, Delivery, InboxStore, NewDelivery

MAX_TAKEN: Final = 64
# Notifications may be lost, so deliveries and outcomes are also looked for this often.
POLL_SECONDS: Final = 1.0
# How long an operation that is not `patient` waits for a node to take it.
IMPATIENT_SECONDS: Final = 30.0
# How often a repeatable delivery is tried while the store, its directory or its repository cannot be reached. Each try waits
# for that first.
MAX_TRIES: Final = 5

# Does a delivery and returns its outcome. The function that it is given reports an outcome to the caller at once, before the
# delivery is done.
Perform = Callable[[Delivery, Callable[[bytes], Awaitable[None]]], Awaitable[bytes]]
Fate = Literal["finish", "give back"]


def choose_fate(delivery: Delivery, error: Exception) -> Fate:
    """Decide what happens to a delivery that failed: report the error to its caller, or let another node try (pure)."""
    match error:
        case HandedOverError() | LeaseLostError() | EndingError():
            # The node that has the session now answers. If the operation must not be repeated, it answers with an error.
            return "give back"
        case SessionBusyError() if OPERATIONS[delivery.kind].joins:
            return "give back"
        case ConflictError(kind="directory" | "workspace") if (
            delivery.repeatable and delivery.takes < MAX_TRIES
        ):
            # Another node, or this one at the next attempt, may be able to open the directory or to reach the repository.
            return "give back"
        case StoreError() if delivery.repeatable and delivery.takes < MAX_TRIES:
            # Its caller may have been told that the prompt is stored, so it has to be answered.
            return "give back"
        case _:
            return "finish"


def is_interrupted(delivery: Delivery) -> bool:
    """Return True if a node that died may have done a part of a delivery that must not be done twice (pure)."""
    return delivery.takes > 1 and not delivery.repeatable


class Inbox:
    """The deliveries that this node stores for its callers, and those that it does for all."""

    def __init__(self, store: ClusterStore, clock: Clock, *, node: str, perform: Perform) -> None:
        self._store = store
        self._clock = clock
        self._node = node
        self._perform = perform
        self._wake = asyncio.Event()
        self._outcomes: dict[str, list[asyncio.Event]] = {}
        self._working: dict[int, asyncio.Task[None]] = {}

    @property
    def working(self) -> int:
        """How many deliveries are being done here."""
        return len(self._working)

    def notice(self, key: str) -> None:
        """Note that something happened to a delivery: it was stored, or has an outcome."""
        self._wake.set()
        for waiting in self._outcomes.get(key, ()):
            waiting.set()

    async def call(
        self,
        session: SessionID,
        kind: str,
        arguments: Any,
        *,
        directory: str,
        key: str | None = None,
        store: InboxStore | None = None,
    ) -> Any:
        """Have something done to a session by the node that can do it. Return the result, or raise the error.

        `store` is the caller's part of the inbox; by default it is the whole. An operation that was sent before with the same key is
        not repeated if it is done or in progress. If it failed and is repeatable, it is tried again.
        """
        store = store or self._store
        if await store.is_run_outside(session):
            raise SessionBusyError(session, "a process that is no node of this cluster")
        operation, key = OPERATIONS[kind], key or f"{session}/{kind}/{secrets.token_hex(8)}"
        body, own_key, attempt = encode(arguments), key, 1
        while True:
            delivery = NewDelivery(own_key, session, directory, kind, operation.repeatable, body)
            is_new, outcome = await self._put_and_wait(store, delivery, patient=operation.patient)
            if is_new or not operation.repeatable or not is_failure(outcome):
                return decode_outcome(kind, outcome)
            attempt += 1
            own_key = f"{key}/{attempt}"

    async def _put_and_wait(
        self, store: InboxStore, delivery: NewDelivery, *, patient: bool
    ) -> tuple[bool, bytes]:
        """Store a delivery, and return whether it is new, and its outcome."""
        key, changed = delivery.key, asyncio.Event()
        self._outcomes.setdefault(key, []).append(changed)
        try:
            is_new = await store.put(delivery)
            self._wake.set()
            return is_new, await self._wait(store, key, changed, patient=patient)
        finally:
            self._outcomes[key].remove(changed)
            if not self._outcomes[key]:
                del self._outcomes[key]

    async def _wait(self, store: InboxStore, key: str, changed: asyncio.Event, *, patient: bool) -> bytes:
        deadline = self._clock.now() + IMPATIENT_SECONDS * 1000
        while True:
            changed.clear()
            state = await store.find_state(key)
            if state is None:
                raise StoreError("the request is gone from the inbox", hint="send it again")
            if state.outcome is not None:
                return state.outcome
            if not patient and not state.taken and self._clock.now() > deadline and await store.withdraw(key):
                raise StoreError(
                    "no live node can do this", hint="weft cluster status lists the nodes; start one that can"
                )
            await wait_or_sleep(changed, self._clock, POLL_SECONDS)

    async def work(self, tasks: asyncio.TaskGroup) -> None:
        """Take and do deliveries until cancelled. They are looked for when something was stored, and every second."""
        while True:
            self._wake.clear()
            with suppress(StoreError):
                while taken := await self._store.take(self._node, most=MAX_TAKEN):
                    for delivery in taken:
                        self._begin(delivery, tasks)
            await wait_or_sleep(self._wake, self._clock, POLL_SECONDS)

    def _begin(self, delivery: Delivery, tasks: asyncio.TaskGroup) -> None:
        if delivery.number in self._working:
            return  # our heartbeat was late, so the store took us for dead and gave it to us again
        task = tasks.create_task(self._do(delivery))
        self._working[delivery.number] = task
        task.add_done_callback(lambda _: self._working.pop(delivery.number, None))

    async def _do(self, delivery: Delivery) -> None:
        async def tell(outcome: bytes) -> None:
            if delivery.outcome is None:
                await self._store.finish(self._node, delivery, outcome, done=False)
                self.notice(delivery.key)

        try:
            if is_interrupted(delivery):
                raise ConflictError(
                    "session", delivery.session, f"was being changed ({delivery.kind}) when its node died",
                    hint="look at what it did, then send the request again if it is still needed",
                )  # fmt: skip
            outcome = await self._perform(delivery, tell)
        except Exception as error:  # noqa: BLE001  it is told to the caller
            if choose_fate(delivery, error) == "give back":
                await self._end(lambda: self._store.give_back(self._node, delivery.number))
                return
            outcome = encode_error(error)
        await self._end(lambda: self._store.finish(self._node, delivery, outcome, done=True))
        self.notice(delivery.key)

    async def _end(self, store: Callable[[], Awaitable[object]]) -> None:
        """Store what became of a delivery, however long the store cannot be reached: the caller waits, and nobody else takes what a
        live node has."""
        while True:
            try:
                await store()
            except StoreError:
                await self._clock.sleep(POLL_SECONDS)
            else:
                return

    async def close(self) -> None:
        """Stop doing deliveries. What is not done is given back when the node leaves."""
        tasks = list(self._working.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
