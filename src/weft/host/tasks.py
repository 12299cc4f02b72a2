"""Tasks with a parent, work that a cancel does not interrupt, and deadlines."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from weft.errors import DeadlineError
from weft.host.clock import Clock


@asynccontextmanager
async def open_tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that raises what was raised: the body's own error, else that of the first task that failed."""
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


async def undivided(work: Coroutine[Any, Any, T]) -> T:
    """Do it to the end, and only then be cancelled."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # looked at: the cancelled one has nobody left to tell
        raise cancelled
    return task.result()


# Time is counted in pieces: one in which the machine slept, or somebody was waited for, is not taken for working time.
PIECE = 10.0

_around: ContextVar[tuple["Deadline", ...]] = ContextVar("deadlines_around", default=())


class Deadline:
    """So many seconds of work for something, which may be done in several goes; None for no end."""

    def __init__(self, what: str, seconds: float | None, clock: Clock) -> None:
        self._what = what
        self._seconds = seconds
        self._left = seconds
        self._clock = clock
        self._holds = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Time counts while this is open. Raises `DeadlineError` once none is left, what went on in it cancelled."""
        if self._seconds is None or self._left is None:
            yield
            return
        around, scope = _around.set((*_around.get(), self)), asyncio.timeout(None)
        try:
            async with scope, open_tasks() as tasks:
                watching = tasks.create_task(self._watch(scope))
                try:
                    yield
                finally:
                    watching.cancel()
        except TimeoutError as error:
            if not scope.expired():
                raise  # somebody else's
            raise DeadlineError(self._what, self._seconds) from error
        finally:
            _around.reset(around)

    async def _watch(self, scope: asyncio.Timeout) -> None:
        while self._left is not None and self._left > 0:
            piece, began = min(self._left, PIECE), self._clock.now()
            passed = piece
            try:
                await self._clock.sleep(piece)
            except asyncio.CancelledError:
                passed = min(piece, max(0, self._clock.now() - began) / 1000)
                raise
            finally:
                self._left -= 0 if self._holds else passed
        scope.reschedule(asyncio.get_running_loop().time())

    @property
    def left(self) -> float | None:
        """The seconds of work that are left, to within ten; None for no end."""
        return self._left

    def hold(self) -> None:
        self._holds += 1

    def release(self) -> None:
        self._holds -= 1


@contextmanager
def off_the_clock() -> Iterator[None]:
    """While this is open no deadline around it runs: for whoever waits for a person."""
    around = _around.get()
    for deadline in around:
        deadline.hold()
    try:
        yield
    finally:
        for deadline in around:
            deadline.release()


def find_time_left() -> float | None:
    """Return the seconds of work until the first deadline around the caller; None if there is none."""
    return min((deadline.left for deadline in _around.get() if deadline.left is not None), default=None)
