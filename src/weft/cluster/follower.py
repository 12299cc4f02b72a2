"""Follow the event log: pass on every event once and in order, woken by notifications, and by a clock if these are lost."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from weft.errors import CursorLostError, StoreError
from weft.host.clock import Clock
from weft.host.tasks import wait_or_sleep
from weft.model.wire import parse
from weft.store.event_log import EventLog, LoggedEvent

PAGE_SIZE: Final = 1000
# A listener that missed more events than this reads its sessions again instead.
MAX_MISSED: Final = 20_000
WAIT_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 0.2

OnMessage = Callable[[str], None]
ReadPage = Callable[[int, int], Awaitable[Sequence[LoggedEvent]]]


class LogFollower:
    """Reads the log from where it ends now. `on_message` is called with the key in each message between nodes.

    It passes on the events of all principals; the receiver decides by their owner who may see them.
    """

    def __init__(self, log: EventLog, clock: Clock, *, writer: str, on_message: OnMessage) -> None:
        self._log = log
        self._clock = clock
        self._writer = writer
        self._on_message = on_message
        self._wake = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.name = ""
        self.position = 0
        self.delay = 0.0  # the largest delay of an event of another node since it was last asked for

    async def start(self) -> None:
        """Find out where the log ends."""
        head = await self._log.get_head()
        self.name, self.position = head.name, head.last

    async def follow(self, deliver: Callable[[LoggedEvent], None]) -> None:
        """Pass on events until cancelled. If some were trimmed before they were read, go to the end of the log and raise `CursorLostError`."""
        async with self._log.listen(self._wake.set):
            while True:
                try:
                    await self._pass_on_all(deliver)
                    await wait_or_sleep(self._wake, self._clock, self._log.poll_seconds)
                    if not self._wake.is_set():
                        await self._log.place()  # events of writers that died before they placed them
                except StoreError:
                    await self._clock.sleep(RETRY_SECONDS)
                except CursorLostError:
                    await self.start()
                    raise

    async def _pass_on_all(self, deliver: Callable[[LoggedEvent], None]) -> None:
        self._wake.clear()
        while page := await self._log.read(self.position, limit=PAGE_SIZE):
            for event in page:
                self.position = event.position
                if event.directory:
                    if event.writer != self._writer:
                        self.delay = max(self.delay, event.seconds)
                    deliver(event)
                else:
                    self._on_message(str(parse(event.body)["properties"]["key"]))
            self._release_waiters()
            if len(page) < PAGE_SIZE:
                return

    async def catch_up(self) -> None:
        """Return when everything that was stored so far was passed on, or after a moment."""
        with suppress(StoreError):
            last = await self._log.place()
            self._wake.set()
            await self.wait_for(last)

    async def wait_for(self, position: int) -> bool:
        if position <= self.position:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((position, waiter))
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                await waiter
        return position <= self.position

    def _release_waiters(self) -> None:
        for position, waiter in self._waiters:
            if position <= self.position and not waiter.done():
                waiter.set_result(None)
        self._waiters = [each for each in self._waiters if not each[1].done()]


async def read_missed(read: ReadPage, after: int, till: int) -> list[LoggedEvent]:
    """Return the events after one position up to another. Raise `CursorLostError` if that is not possible.

    `read` returns a page: the events after a position, at most so many.
    """
    if till - after > MAX_MISSED:
        raise CursorLostError(after, till - MAX_MISSED)
    found: list[LoggedEvent] = []
    while after < till:
        page = await read(after, min(PAGE_SIZE, till - after))
        if not page:
            raise CursorLostError(after, till)
        found += [event for event in page if event.directory]
        after += len(page)  # positions have no gaps
    return found
