"""The thread that writes a SQLite database: operations that wait at the same time share one commit."""

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeVar

import apsw

from weft.errors import ClosedError, StoreError
from weft.store.sqlite.connection import make_store_error, select
from weft.store.sqlite.database import DatabaseFile

T = TypeVar("T")

# `durable`: on the disk itself before it is acknowledged. `soon`: a killed process loses nothing, a power cut may lose the last
# moments. `background`: like `soon`, in a transaction of its own, when nobody else waits.
Urgency = Literal["durable", "soon", "background"]
Operation = Callable[[apsw.Connection], T]

# A log of more pages is moved even without a pause. With a lower limit, reading a session that was just forked would compete with
# the move.
MAX_LOG_PAGES = 4000
# A commit that many operations share must not keep the first of them waiting for long.
MAX_OPERATIONS = 256


class WriteRequest:
    """An operation that waits for its commit, and the future of the task that waits for it."""

    __slots__ = ("error", "future", "loop", "operation", "result", "urgency")

    def __init__(self, operation: Operation[Any], urgency: Urgency, loop: asyncio.AbstractEventLoop) -> None:
        self.operation = operation
        self.urgency = urgency
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: Exception | None = None

    def settle(self) -> None:
        """Hand over the result, in the thread of the event loop."""
        if self.future.done():
            return  # the task was cancelled
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class LoopWaker:
    """Hands results over to an event loop, through a counter of the kernel.

    The usual way, `call_soon_threadsafe`, goes through two sockets, which take a tenth of the CPU of a small commit. But the counter
    has to be closed, so it is for the loop that opens and closes the store.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._finished: deque[WriteRequest] = deque()
        self._counter = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(self._counter, self._handle_wake)

    def wake(self, requests: Iterable[WriteRequest]) -> None:
        """Hand over finished requests. Any thread may call this."""
        self._finished.extend(requests)
        os.eventfd_write(self._counter, 1)

    def close(self) -> None:
        """Hand over what is left, in the thread of the event loop. Nobody may call `wake` afterwards."""
        self._settle()
        self.loop.remove_reader(self._counter)
        os.close(self._counter)

    def _handle_wake(self) -> None:
        os.eventfd_read(self._counter)
        self._settle()

    def _settle(self) -> None:
        while self._finished:
            self._finished.popleft().settle()


class DatabaseWriter:
    """Runs operations on the one connection of this process that writes.

    Each operation takes effect completely or, if it raises, not at all; the others of its commit are not affected. A result is
    handed over after the commit. `commits` counts transactions.
    """

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._requests: SimpleQueue[WriteRequest | None] = SimpleQueue()
        self._background: deque[WriteRequest] = deque()
        self._thread: threading.Thread | None = None
        self._connection: apsw.Connection | None = None
        self._synchronous = ""
        self._log_pages = 0
        self._waker: LoopWaker | None = None
        self._starting = threading.Lock()
        self._closing = False
        self.commits = 0

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand results over to the caller's event loop through a `LoopWaker`, if the system can. The caller has to `detach` it."""
        if sys.platform == "linux":
            self._waker = LoopWaker(loop)

    def detach(self) -> None:
        """Close the `LoopWaker`, after `close`."""
        if self._waker is not None:
            self._waker.close()
            self._waker = None

    async def run(self, operation: Operation[T], urgency: Urgency = "durable") -> T:
        """Run an operation and return its result once it is committed.

        Raise what the operation raises, `StoreError` if the database refuses it, and `ClosedError` after `close`.
        """
        if self._closing:
            raise ClosedError("the store is closed")
        request = WriteRequest(operation, urgency, asyncio.get_running_loop())
        self._requests.put(request)
        if self._thread is None:
            self._start()
        result: T = await request.future
        return result

    def _start(self) -> None:
        with self._starting:  # several event loops may use one store
            if self._thread is None:
                # A daemon: what was acknowledged is committed, so the end of the process need not wait.
                self._thread = threading.Thread(target=self._work, name="weft-sqlite", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Finish what waits, move the log into the database, and close the connection. It blocks."""
        self._closing = True
        if self._thread is not None:
            self._requests.put(None)
            self._thread.join()

    # --- in the thread ---

    def _work(self) -> None:
        open_for_work = True
        while open_for_work or self._background:
            waiting = self._take(wait=open_for_work and not self._background)
            if None in waiting:
                open_for_work = False
            requests = [request for request in waiting if request is not None]
            self._background.extend(request for request in requests if request.urgency == "background")
            if batch := [request for request in requests if request.urgency != "background"]:
                self._commit(batch)
            elif self._background:
                self._commit([self._background.popleft()])
            elif open_for_work:
                self._move_log()
        self._disconnect()

    def _take(self, *, wait: bool) -> list[WriteRequest | None]:
        """Return everything that waits. With `wait`, wait for something, or until it is time to move the log."""
        taken: list[WriteRequest | None] = []
        if wait:
            with suppress(Empty):
                taken.append(
                    self._requests.get(timeout=self._file.options.idle_seconds if self._log_pages else None)
                )
        while len(taken) < MAX_OPERATIONS and not self._requests.empty():  # nobody else takes from it
            taken.append(self._requests.get_nowait())
        return taken

    def _commit(self, batch: list[WriteRequest]) -> None:
        """Run operations in one transaction, and hand over their results."""
        try:
            connection = self._connect()
            self._set_synchronous(connection, "FULL" if _has_durable(batch) else "NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            for request in batch:
                self._run(connection, request, alone=len(batch) == 1)
            if connection.in_transaction:
                connection.execute("COMMIT")
                self.commits += 1
        except Exception as error:  # noqa: BLE001  whatever it is, those who wait must not wait for ever
            failure = self._make_store_error(error) if isinstance(error, apsw.Error) else error
            for request in batch:
                request.error = request.error or failure
            self._roll_back()
        self._wake_loops(batch)
        if self._log_pages > MAX_LOG_PAGES:
            self._move_log()

    def _run(self, connection: apsw.Connection, request: WriteRequest, *, alone: bool) -> None:
        """Run one operation in a savepoint; without one if it is `alone`, because then the transaction is its own."""
        if not alone:
            connection.execute("SAVEPOINT operation")
        try:
            request.result = request.operation(connection)
        except Exception as error:  # anything that a caller's function raises is raised in the caller
            if isinstance(error, apsw.Error) and not connection.in_transaction:
                raise  # SQLite gave up the whole transaction
            request.error = self._make_store_error(error) if isinstance(error, apsw.Error) else error
            connection.execute("ROLLBACK" if alone else "ROLLBACK TO operation")
        if not alone:
            connection.execute("RELEASE operation")

    def _wake_loops(self, batch: list[WriteRequest]) -> None:
        """Wake each event loop once, however many of its operations are done."""
        for loop in {request.loop for request in batch}:
            own = [request for request in batch if request.loop is loop]
            if self._waker is not None and self._waker.loop is loop:
                self._waker.wake(own)
                continue
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(_settle, own)

    def _connect(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = self._file.connect_for_writing()
            self._connection.set_wal_hook(self._note_log)
            self._synchronous = ""
        return self._connection

    def _note_log(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _set_synchronous(self, connection: apsw.Connection, level: str) -> None:
        if level != self._synchronous:
            select(connection, f"PRAGMA synchronous = {level}")
            self._synchronous = level

    def _move_log(self) -> None:
        """Move the log into the database as far as readers allow, without waiting for them."""
        if self._connection is not None and self._log_pages:
            self._log_pages = 0  # if it fails, the next commit counts again
            with suppress(apsw.Error):
                select(self._connection, "PRAGMA wal_checkpoint(PASSIVE)")

    def _roll_back(self) -> None:
        """Leave no transaction open. If that fails, connect again."""
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._move_log()
            with suppress(apsw.Error):
                self._connection.close()
            self._connection = None

    def _make_store_error(self, error: apsw.Error) -> StoreError:
        number = 0 if self._connection is None else self._connection.system_errno
        return make_store_error(error, self._file.path, number)


def _has_durable(batch: list[WriteRequest]) -> bool:
    return any(request.urgency == "durable" for request in batch)


def _settle(requests: list[WriteRequest]) -> None:
    for request in requests:
        request.settle()
