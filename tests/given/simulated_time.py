"""An event loop with simulated time, which jumps to the next timer when nothing else can run.

Hours of waiting take no real time, the same seed gives the same run, and a deadlock raises an error instead of hanging.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class StuckError(Exception):
    """A deadlock: a task waits, and no timer or task is left that could wake it."""


class _AdvancingSelector(selectors.DefaultSelector):
    """A selector that advances the time instead of waiting."""

    def __init__(self, leap: Callable[[float], None]) -> None:
        super().__init__()
        self._advance = leap

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout == 0:
            return found
        if timeout is None:
            raise StuckError("everybody waits, and nothing will happen any more")
        self._advance(timeout)
        return found


class _InlineExecutor(ThreadPoolExecutor):
    """An executor that runs work immediately: the duration of real threads is not reproducible."""

    def submit(self, work: Callable[..., T], /, *given: Any, **named: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(work(*given, **named))
        except BaseException as error:  # noqa: BLE001  for whoever waits for it
            done.set_exception(error)
        return done


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._passed = 0.0
        super().__init__(_AdvancingSelector(self._advance))
        self.set_default_executor(_InlineExecutor(1))

    def time(self) -> float:
        return self._passed

    async def shutdown_default_executor(self, _timeout: float | None = None) -> None:
        """There are no threads to wait for."""

    def _advance(self, seconds: float) -> None:
        self._passed += seconds


class SimulatedClock:
    """The clock of a simulated loop."""

    def __init__(self, begin: int) -> None:
        self._begin = begin

    def now(self) -> int:
        return self._begin + int(asyncio.get_running_loop().time() * 1000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def simulate(coroutine: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(coroutine)
