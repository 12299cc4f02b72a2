"""The clock. Runs, stores and sessions read the time and sleep through a clock, so that tests can turn it."""

import asyncio
from typing import Protocol

from weft.host.now import now


class Clock(Protocol):
    """Reads the time and sleeps. Tests advance one by hand."""

    def now(self) -> int:
        """Return milliseconds since 1970."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> int:
        return now()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
