"""A clock for tests that moves only when a test moves it."""

import asyncio
from heapq import heappop, heappush


class HandClock:
    """A clock that stands still until a test moves it with `turn` or `set`. A sleeper wakes when its time is reached."""

    def __init__(self, now: int = 1_790_000_000_000) -> None:
        self._now = now
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0
        self._sleeper_added = asyncio.Event()

    def now(self) -> int:
        return self._now

    def set(self, now: int) -> None:
        """Set the time, also backwards. Setting it back wakes nobody."""
        self._now = now
        while self._sleepers and self._sleepers[0][0] <= now:
            waiting = heappop(self._sleepers)[2]
            if not waiting.done():
                waiting.set_result(None)

    def turn(self, ms: int) -> None:
        """Move the time forward."""
        self.set(self._now + ms)

    async def somebody_sleeps(self, at_least: float) -> None:
        """Return once a task sleeps for at least this many seconds, so that moving the clock wakes it."""
        while not any(
            until - self._now >= at_least * 1000 for until, _, waiting in self._sleepers if not waiting.done()
        ):
            self._sleeper_added.clear()
            await self._sleeper_added.wait()

    async def sleep(self, seconds: float) -> None:
        self._count += 1
        waiting = asyncio.get_running_loop().create_future()
        heappush(self._sleepers, (self._now + round(seconds * 1000), self._count, waiting))
        self._sleeper_added.set()
        await waiting
