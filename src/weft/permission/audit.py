"""The audit: takes down every decision at once, and has it in the log within a second. No run waits for it."""

import asyncio
from collections import deque
from contextlib import suppress

from weft.errors import StoreError
from weft.host.clock import Clock
from weft.permission.entry import Entry
from weft.permission.log import LogFiles

FLUSH_SECONDS = 1.0
MOST = 10_000


class Audit:
    """Without `files` nothing is written down. A log that cannot be written to holds up nobody: it is tried again."""

    def __init__(self, files: LogFiles | None) -> None:
        self._files = files
        self._waiting: deque[Entry] = deque()
        self._lost = 0
        self._noted = asyncio.Event()
        self._writing = asyncio.Lock()

    def note(self, entry: Entry) -> None:
        if self._files is None:
            return
        if len(self._waiting) >= MOST:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(entry)
        self._noted.set()

    async def flush(self, *, to_disk: bool = False) -> None:
        """Write what waits. Raises `StoreError`, and it waits on."""
        async with self._writing:
            self._noted.clear()
            entries, lost = list(self._waiting), self._lost
            if self._files is None or not entries:
                return
            told = [Entry(time=entries[0].time, what="lost", count=lost)] if lost else []
            await asyncio.to_thread(self._files.append, [*told, *entries], flush=to_disk)
            for _ in entries:
                self._waiting.popleft()
            self._lost -= lost

    async def settle(self) -> None:
        """Have what a person said on the disk itself, if it can be written at all; else it is tried again."""
        with suppress(StoreError):
            await self.flush(to_disk=True)

    async def keep_flushing(self, clock: Clock) -> None:
        while True:
            await self._noted.wait()
            await clock.sleep(FLUSH_SECONDS)
            with suppress(StoreError):
                await self.flush()
