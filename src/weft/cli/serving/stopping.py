"""The end of a server: by a signal, in good order and within bounds."""

import asyncio
import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import uvicorn

from weft.cli.exit import Exit
from weft.cli.serving.log import Log
from weft.host.exit import LastResort, heed_signals
from weft.server.asgi import Server

# For runs to be settled and connections to be closed, after the grace; the latter alone.
SETTLE_SECONDS: Final = 20
CLOSE_SECONDS: Final = 5


class Stopping:
    """At the first signal nobody is let in any more, runs may go on for the `grace`, then those that are left are settled,
    and every connection is closed; a second signal ends the process at once."""

    def __init__(self, server: Server, listener: uvicorn.Server, *, grace: float, log: Log) -> None:
        self._server = server
        self._listener = listener
        self._grace = grace
        self._log = log
        self.tasks: asyncio.TaskGroup | None = None

    @contextmanager
    def listening(self) -> Generator[None]:
        """While this is open signals come here. The last resort is never disarmed: it goes with the process, and what
        keeps that from ending is what it is for."""
        seconds = self._grace + SETTLE_SECONDS
        with heed_signals(
            (signal.SIGINT, signal.SIGTERM), self._hear, LastResort(), seconds=seconds, code=Exit.FAILED
        ):
            yield

    def _hear(self, number: int) -> None:
        if self.tasks is None:  # it has hardly begun
            LastResort().end_now(128 + number)
            return
        for listening in self._listener.servers:
            listening.close()  # connections that are there stay
        self.tasks.create_task(self._settle())
        self._log.note(
            f"ending: runs may go on for {self._grace:g} s and are then settled; once more ends at once"
        )

    async def _settle(self) -> None:
        try:
            await self._server.leave(self._grace)
        finally:
            self._listener.should_exit = True
