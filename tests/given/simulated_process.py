"""Processes that share a simulated disk and can die between any two steps: their event loop, their store, and what it recorded."""

import asyncio
import errno
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random
from typing import Any, TypeVar

from given.simulated_disk import DiskFaults, Medium, SimulatedDisk
from given.simulated_records import Records, WrittenBatch
from given.simulated_time import SimulatedLoop, StuckError
from weft.errors import WeftError
from weft.model.event import Durable, Event, PartGrew, SessionDeleted, SessionUpdated
from weft.model.ids import MessageID, SessionID
from weft.model.message import MessageWithParts
from weft.model.session import SessionInfo, TrashBundle
from weft.store.contract import SessionEditor
from weft.store.files.store import FileStore
from weft.store.lease import LeaseToken

T = TypeVar("T")
MAX_TURNS = 100_000
PUBLISHED_WITH_WRITE = (SessionUpdated, SessionDeleted, PartGrew)


class Process:
    """One process: it lives until it ends or dies. A dead one is cancelled, and nothing that it still does reaches the disk."""

    def __init__(self, name: str, random: Random, medium: Medium, records: Records) -> None:
        self.name = name
        self.random = random
        self.records = records
        self.trouble = DiskFaults(random, lambda what: records.tell(f"{name} {what}"))
        self.trouble.die = self.die
        self.disk = SimulatedDisk(medium, self.trouble)
        self.task: asyncio.Task[None] | None = None
        self.stored: dict[int, Durable] = {}
        self.grown: dict[str, list[tuple[float, int]]] = {}
        self.slowest = 0.0
        self.died_at = 0.0

    @property
    def dead(self) -> bool:
        return self.trouble.dead

    def die(self) -> None:
        if not self.dead:
            self.records.tell(f"{self.name} is dead")
            self.trouble.dead = True
            self.died_at = self.records.now()
            if self.task is not None:
                self.task.cancel()

    def choose_delay(self) -> float:
        """Return how long a thread takes: mostly no time, sometimes seconds."""
        if self.dead:
            return 0
        delay = self.random.choice((0, 0, 0, 0.001, 0.001, 0.01, 0.05))
        delay = self.random.uniform(0, 3) if self.random.random() < 0.01 else delay
        self.slowest = max(self.slowest, delay)
        return delay

    @contextmanager
    def record_batch(self, *, edits: bool = False, leased: bool = False) -> Iterator[WrittenBatch]:
        """Record what is written meanwhile. Writes of a dead process are dropped."""
        batch = WrittenBatch(self.name, edits=edits, leased=leased)
        if self.dead:
            yield batch
        else:
            with self.records.record_batch(batch):
                unflushed = self.trouble.unflushed_notes
                try:
                    yield batch
                except OSError:
                    batch.refused = not self.dead
                    batch.may_return = self.trouble.unflushed_notes > unflushed
                    raise

    def see(self, event: Event) -> None:
        """Watch the bus: nothing is published before it is stored, except growth."""
        if self.dead:
            return
        if isinstance(event, PartGrew):
            grown = self.grown.setdefault(event.part_id, [])
            grown.append((asyncio.get_running_loop().time(), event.offset + len(event.delta)))
        elif isinstance(event, Durable) and not self._is_stored(event):
            self.records.expect(False, f"published before it was stored: {event}")
        self.records.hear(event)

    def _is_stored(self, event: Durable) -> bool:
        """Return True if an event is stored, or is published with the write itself."""
        is_known = isinstance(event, PUBLISHED_WITH_WRITE) or id(event) in self.stored
        return is_known or event in self.stored.values()


PROCESS: ContextVar[Process] = ContextVar("PROCESS")


class SeededLoop(SimulatedLoop):
    """A simulated loop in which the work of threads happens at seeded moments, and processes die at a given turn.

    Ready callbacks keep their order: asyncio promises it, so that another order would show mistakes that nobody can make.
    """

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0
        self.powered_at = -1.0
        self.deaths: dict[int, Callable[[], None]] = {}

    def _run_once(self) -> None:
        self.turn += 1
        if self.turn > MAX_TURNS:
            raise StuckError("it does not end")
        if self.turn in self.deaths:
            self.deaths.pop(self.turn)()
        super()._run_once()  # type: ignore[misc]

    def run_in_executor(  # type: ignore[override]
        self, _: Executor | None, work: Callable[..., T], *given: Any
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self.create_future()
        process = PROCESS.get(None)
        self.call_later(process.choose_delay() if process else 0, self._work, process, done, work, given)
        return done

    def _work(self, process: Process | None, done: asyncio.Future[T], work: Any, given: Any) -> None:
        try:
            result, error = work(*given), None
        except Exception as raised:  # noqa: BLE001  for whoever waits for it
            result, error = None, raised
        if process is not None and process.dead:
            error = error or OSError(errno.EIO, "the process is dead")
        self.call_later(process.choose_delay() if process else 0, self._end, done, result, error)

    def _end(self, done: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)


@contextmanager
def use_seeded_system(random: Random, loop: SeededLoop) -> Iterator[None]:
    """Make random names depend on the seed, waiting for another process take no time, and the machine start when its power came."""
    before = os.urandom, time.sleep, time.clock_gettime
    os.urandom, time.sleep, time.clock_gettime = (
        random.randbytes,
        lambda _: None,
        lambda _: loop.time() - loop.powered_at,
    )
    try:
        yield
    finally:
        os.urandom, time.sleep, time.clock_gettime = before


def simulate_processes(run: Callable[[SeededLoop], Coroutine[Any, Any, T]], random: Random) -> T:
    loop = SeededLoop()
    with use_seeded_system(random, loop), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(run(loop))


class RecordedStore(FileStore):
    """The file store, which reports to the records whether each write was done, and what each read found."""

    def __init__(self, root: str, process: Process) -> None:
        super().__init__(root, disk=process.disk)
        self._process = process

    def _apply(self, events: tuple[Durable, ...], leases: Sequence[LeaseToken]) -> None:
        with self._record(*events, leased=bool(leases)):
            super()._apply(events, leases)

    def _edit(
        self,
        id: SessionID,
        editor: SessionEditor,
        events: tuple[Durable, ...],
        leases: Sequence[LeaseToken],
    ) -> SessionInfo:
        def edit(before: SessionInfo) -> SessionInfo:
            edited = editor(before)
            if events or edited != before:  # otherwise nothing is written
                batch.add(*events, SessionUpdated(info=edited))
            return edited

        with self._process.record_batch(edits=True, leased=bool(leases)) as batch:
            edited = super()._edit(id, edit, events, leases)
        self._process.stored.update((_identify(event), event) for event in events)
        return edited

    def _discard(self, sessions: Sequence[SessionID], at: int) -> TrashBundle:
        found = [SessionDeleted(info=self._get_session(id)) for id in sessions]
        with self._record(*found):
            return super()._discard(sessions, at)

    def _list_messages(
        self, session: SessionID, mark: bytes | None, last: int | None, before: MessageID | None
    ) -> list[MessageWithParts]:
        found = super()._list_messages(session, mark, last, before)
        if last is None and before is None and not self._process.dead:
            self._process.records.check_read(session, found)
        return found

    @contextmanager
    def _record(self, *events: Durable, leased: bool = False) -> Iterator[None]:
        with self._process.record_batch(leased=leased) as batch:
            batch.add(*events)
            yield
            self._process.stored.update((_identify(event), event) for event in events)


def _identify(event: Durable) -> int:
    return id(event)


def is_expected(error: BaseException, process: Process) -> bool:
    """Return True if a process may end with this error: it is dead, or its disk failed."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_expected(each, process) for each in error.exceptions)
    return process.dead or (isinstance(error, WeftError) and process.trouble.failed > 0)
