"""Signals that ask a run to end: the first is heeded, and the run is settled; the second ends the process at once."""

import asyncio
import signal
from collections.abc import Generator
from contextlib import contextmanager

from weft.host.exit import LastResort, heed_signals

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What settling an aborted run may take. A tool that does not heed even that is left behind, and named.
SETTLE_SECONDS = 8.0
# What closing may take once a run is settled.
END_SECONDS = 1.5


class Stop:
    """`signal` is the first one that came. Whoever has a run to settle waits for it; else what goes on is cancelled."""

    def __init__(self, last_resort: LastResort, *, settle_seconds: float = SETTLE_SECONDS) -> None:
        self.signal: int | None = None
        self._settle_seconds = settle_seconds
        self._last_resort = last_resort
        self._main: asyncio.Task[object] | None = None
        self._came = asyncio.Event()
        self._heeded = False

    @contextmanager
    def listening(self) -> Generator[None]:
        """While this is open signals come here."""
        self._main = asyncio.current_task()
        with heed_signals(SIGNALS, self._hear, self._last_resort, seconds=self._settle_seconds):
            yield

    async def wait(self) -> int:
        """The signal, when it comes. From now on it cancels nothing by itself."""
        self._heeded = True
        await self._came.wait()
        assert self.signal is not None, "it came"
        return self.signal

    def done(self, code: int) -> None:
        """The run is settled and shown: from here on the process has little time to end."""
        self._last_resort.end_within(END_SECONDS, code)

    def _hear(self, number: int) -> None:
        self.signal = number
        if self._heeded:
            self._came.set()
        elif self._main is not None:
            self._main.cancel()
