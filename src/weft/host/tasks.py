"""Task groups, parts that are opened on demand, work that cancellation does not interrupt, and deadlines."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from weft.errors import DeadlineError
from weft.host.clock import Clock


@asynccontextmanager
async def open_tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """Open a task group that raises the original error: that of the body, or of the first task that failed."""
    raised: Exception | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            try:
                yield tasks
            except Exception as error:
                raised = error
                raise
    except BaseExceptionGroup as group:
        raise raised or group.exceptions[0] from None


T = TypeVar("T")


class OnDemand(Generic[T]):
    """A part with tasks of its own that is made when it is first used. `found` is None until then."""

    def __init__(self, make: Callable[[asyncio.TaskGroup], T], tasks: asyncio.TaskGroup) -> None:
        self._make = make
        self._tasks = tasks
        self.found: T | None = None

    def get(self) -> T:
        if self.found is None:
            self.found = self._make(self._tasks)
        return self.found


@asynccontextmanager
async def open_on_demand(
    make: Callable[[asyncio.TaskGroup], T], close: Callable[[T], Awaitable[None]]
) -> AsyncIterator[OnDemand[T]]:
    """Open a part on demand. Leaving the context closes it, if it was made, and waits for its tasks."""
    async with open_tasks() as tasks:
        part = OnDemand(make, tasks)
        try:
            yield part
        finally:
            if part.found is not None:
                await close(part.found)


class UncancellableTask(asyncio.Task[T]):
    """A task that runs to its end. A task that waits for it and is cancelled is cancelled when this one has ended."""

    def cancel(self, msg: Any | None = None) -> bool:
        del msg
        return False


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end even if this task is cancelled. Raise the cancellation afterwards."""
    task = UncancellableTask(work, loop=asyncio.get_running_loop())
    try:
        return await task
    except asyncio.CancelledError:
        if not task.cancelled():
            task.exception()  # marks it as retrieved; the caller is cancelled and cannot see it
        raise


async def wait_or_sleep(event: asyncio.Event, clock: Clock, seconds: float) -> None:
    """Wait for an event, but not longer than some seconds."""
    async with open_tasks() as tasks:
        waiting, sleeping = tasks.create_task(event.wait()), tasks.create_task(clock.sleep(seconds))
        await asyncio.wait((waiting, sleeping), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        sleeping.cancel()


# Time is counted in steps, so that a step in which the machine slept or weft waited for a person does not count.
STEP_SECONDS = 10.0

_active_deadlines: ContextVar[tuple["Deadline", ...]] = ContextVar("active_deadlines", default=())


class Deadline:
    """A limit of working time over one or more blocks. `seconds` is None for no limit; `what` names the work in errors."""

    def __init__(self, what: str, seconds: float | None, clock: Clock) -> None:
        self._what = what
        self._seconds = seconds
        self._left = seconds
        self._clock = clock
        self._pauses = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Count the time of this block. Raise `DeadlineError` when none is left, and cancel the block."""
        if self._seconds is None or self._left is None:
            yield
            return
        active, scope = _active_deadlines.set((*_active_deadlines.get(), self)), asyncio.timeout(None)
        try:
            async with scope, open_tasks() as tasks:
                watcher = tasks.create_task(self._watch(scope))
                try:
                    yield
                finally:
                    watcher.cancel()
        except TimeoutError as error:
            if not scope.expired():
                raise  # not from this deadline
            raise DeadlineError(self._what, self._seconds) from error
        finally:
            _active_deadlines.reset(active)

    async def _watch(self, scope: asyncio.Timeout) -> None:
        while self._left is not None and self._left > 0:
            step, start = min(self._left, STEP_SECONDS), self._clock.now()
            passed = step
            try:
                await self._clock.sleep(step)
            except asyncio.CancelledError:
                passed = min(step, max(0, self._clock.now() - start) / 1000)
                raise
            finally:
                self._left -= 0 if self._pauses else passed
        scope.reschedule(asyncio.get_running_loop().time())

    @property
    def left(self) -> float | None:
        """Return the remaining seconds, up to `STEP_SECONDS` too many; None for no limit."""
        return self._left

    def pause(self) -> None:
        self._pauses += 1

    def resume(self) -> None:
        self._pauses -= 1


@contextmanager
def pause_deadlines() -> Iterator[None]:
    """Stop all surrounding deadlines during the block, for code that waits for a person."""
    active = _active_deadlines.get()
    for deadline in active:
        deadline.pause()
    try:
        yield
    finally:
        for deadline in active:
            deadline.resume()


def find_time_left() -> float | None:
    """Return the seconds until the first surrounding deadline, None if there is none."""
    return min(
        (deadline.left for deadline in _active_deadlines.get() if deadline.left is not None), default=None
    )
