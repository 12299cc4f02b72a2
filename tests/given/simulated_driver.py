"""What one machine of a simulated cluster has: a clock, a network to the simulated Postgres, and the driver that uses it.

A machine can be paused, as by SIGSTOP, cut off from the server, and killed. Statements and answers can be lost on the way; a
notification can be lost, late, or come twice.
"""

import asyncio
from collections.abc import Callable, Generator, Sequence
from random import Random
from typing import Any, Self

from msgspec import Struct

from given.engine import NOW
from given.simulated_postgres import READ_DOCUMENTS, SCHEMA, Rows, SimulatedPostgres
from weft.errors import WeftError
from weft.store.postgres.address import PostgresAddress
from weft.store.postgres.store import PostgresStore

DEAD_STATE = "XX000"


class SimulatedPostgresError(Exception):
    """An error that the server reports, with its code."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


class SimulatedInterfaceError(Exception):
    pass


class SimulatedClientError(Exception):
    pass


class NetworkFaults(Struct, frozen=True, kw_only=True):
    """How often a statement, an answer or a notification is lost, how often one comes twice, and how long they take."""

    lost: float = 0.0
    lost_notifications: float = 0.0
    doubled_notifications: float = 0.0
    slow: float = 0.0


class Machine:
    """A machine with one process: its clock, wrong by some milliseconds, and its connections."""

    def __init__(
        self, server: SimulatedPostgres, random: Random, faults: NetworkFaults, *, skew: int = 0
    ) -> None:
        self._server = server
        self._random = random
        self.faults = faults
        self._skew = skew
        self._answers: dict[asyncio.Future[Rows], None] = {}
        self._lost_handlers: list[Callable[[], None]] = []
        self.running = asyncio.Event()
        self.running.set()
        self.died = asyncio.Event()
        self.is_cut = False
        self.lost_answers = 0  # how many of the next answers are lost
        self.late_seconds = 0.0  # how much later than usual the next statement reaches the server

    # --- the clock ---

    def now(self) -> int:
        return NOW + self._skew + int(asyncio.get_running_loop().time() * 1000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.running.wait()

    # --- what happens to it ---

    def cut(self) -> None:
        """Close all connections, and let none be opened until it is joined again."""
        self.is_cut = True
        self._fail_all(ConnectionResetError())

    def join(self) -> None:
        self.is_cut = False

    def kill(self) -> None:
        self.died.set()
        self.running.set()
        self._fail_all(SimulatedPostgresError(DEAD_STATE))

    def _fail_all(self, error: Exception) -> None:
        for answer in list(self._answers):
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # its caller may be gone
        for lost in list(self._lost_handlers):
            lost()

    # --- the network ---

    def _latency(self) -> float:
        slow = self._random.random() < self.faults.slow
        return self._random.uniform(0.0002, 0.3 if slow else 0.001)

    async def fetch(self, sql: str, values: Sequence[Any]) -> Rows:
        await self.running.wait()
        if self.died.is_set():
            raise SimulatedPostgresError(DEAD_STATE)
        if self.is_cut:
            await asyncio.sleep(self._latency())
            raise ConnectionRefusedError
        answer: asyncio.Future[Rows] = asyncio.get_running_loop().create_future()
        self._answers[answer] = None
        self._server.begin(self._carry(sql, values, answer))
        try:
            return await answer
        finally:
            del self._answers[answer]

    async def _carry(self, sql: str, values: Sequence[Any], answer: asyncio.Future[Rows]) -> None:
        """Carry a statement to the server and its answer back, unless either is lost on the way."""
        late, self.late_seconds = self.late_seconds, 0.0
        await asyncio.sleep(self._latency() + late)
        rows: Rows = []
        error: Exception | None = ConnectionResetError()
        if not self.is_cut and self._random.random() >= self.faults.lost:
            try:
                rows, error = await self._server.execute(sql, values), None
            except WeftError as raised:  # of a `MemoryStore`
                error = raised
            await asyncio.sleep(self._latency())
            if self.lost_answers or self._random.random() < self.faults.lost:
                self.lost_answers -= bool(self.lost_answers)
                error = ConnectionResetError()
        await self.running.wait()
        if not answer.done():
            if error is None:
                answer.set_result(rows)
            else:
                answer.set_exception(error)
                answer.exception()  # its caller may be gone

    def listen(self, wake: Callable[[], None], lost: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at each notification that arrives. Return what ends that."""

        def notify() -> None:
            chance = self._random.random()
            if chance >= self.faults.lost_notifications:
                self._server.begin(self._wake_later(wake))
            if chance >= 1 - self.faults.doubled_notifications:
                self._server.begin(self._wake_later(wake))

        def end() -> None:
            if notify in self._server.listeners:
                self._server.listeners.remove(notify)
                self._lost_handlers.remove(end_and_tell)

        def end_and_tell() -> None:
            end()
            lost()

        self._server.listeners.append(notify)
        self._lost_handlers.append(end_and_tell)
        return end

    async def _wake_later(self, wake: Callable[[], None]) -> None:
        await asyncio.sleep(self._latency())
        await self.running.wait()
        if not self.is_cut and not self.died.is_set():
            wake()


class SimulatedConnection:
    """A connection of a pool, or one that listens."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._on_lost: list[Callable[[Any], None]] = []
        self._ends: list[Callable[[], None]] = []

    async def fetch(self, sql: str, *values: Any) -> Rows:
        return await self._machine.fetch(sql, values)

    def get_server_pid(self) -> int:
        return 1

    def add_termination_listener(self, lost: Callable[[Any], None]) -> None:
        self._on_lost.append(lost)

    async def add_listener(self, _: str, wake: Callable[[Any], None]) -> None:
        if self._machine.is_cut:
            raise ConnectionRefusedError
        self._ends.append(
            self._machine.listen(lambda: wake(self), lambda: [lost(self) for lost in self._on_lost] and None)
        )

    async def close(self) -> None:
        self.terminate()

    def terminate(self) -> None:
        for end in self._ends:
            end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class SimulatedPool:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __await__(self) -> Generator[Any, None, "SimulatedPool"]:
        yield from asyncio.sleep(0).__await__()
        return self

    def acquire(self) -> SimulatedConnection:
        return SimulatedConnection(self._machine)

    async def close(self) -> None:
        pass

    def terminate(self) -> None:
        pass


class SimulatedDriver:
    """What `Database` uses of asyncpg, on one machine."""

    InterfaceError = SimulatedInterfaceError
    PostgresError = SimulatedPostgresError
    InternalClientError = SimulatedClientError

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def create_pool(self, _: str, **__: Any) -> SimulatedPool:
        return SimulatedPool(self._machine)

    async def connect(self, _: str, **__: Any) -> SimulatedConnection:
        if self._machine.died.is_set():
            raise SimulatedPostgresError(DEAD_STATE)
        if self._machine.is_cut:
            raise ConnectionRefusedError
        return SimulatedConnection(self._machine)


def make_address(lease_seconds: float, retry_seconds: float) -> PostgresAddress:
    return PostgresAddress(
        dsn="",
        place="the simulation",
        schema=SCHEMA,
        lease_seconds=lease_seconds,
        retry_seconds=retry_seconds,
    )


def _read(method: str) -> Any:
    async def read(self: "SimulatedStore", *given: Any, **named: Any) -> Any:
        return await self.database.fetch_value(READ_DOCUMENTS, method, given, named)

    return read


class SimulatedStore(PostgresStore):
    """The Postgres store, which asks the simulated server for whole documents instead of selecting rows."""

    list_projects = _read("list_projects")
    find_project = _read("find_project")
    list_sessions = _read("list_sessions")
    query_sessions = _read("query_sessions")
    find_session = _read("find_session")
    get_session = _read("get_session")
    list_messages = _read("list_messages")
    find_message = _read("find_message")
    list_diff = _read("list_diff")
    list_todos = _read("list_todos")
    search = _read("search")
    figures = _read("figures")
    update_index = _read("update_index")
    list_trash = _read("list_trash")
    read_bundle = _read("read_bundle")
    find_value = _read("find_value")
    list_keys = _read("list_keys")
    read_log = _read("read_log")
    list_logs = _read("list_logs")
    damage = _read("damage")
