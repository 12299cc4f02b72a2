"""The event log in Postgres: appended to by the statement that stores events, placed soon afterwards, read by position.

A notification carries a position and nothing else. It is sent by the transaction that gives positions, never by one that
stores sessions, because Postgres lets only one notifying transaction commit at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from weft.errors import CursorLostError, StoreError
from weft.host.clock import Clock
from weft.host.tasks import open_tasks
from weft.store.event_log import LogBatch, LoggedEvent, LogHead
from weft.store.postgres.connection import Database
from weft.store.rows import to_ascii, to_bytes

# Events are placed, and listeners notified, at most once in this time.
PLACE_SECONDS: Final = 0.01
MAX_PLACED: Final = 5_000
RECONNECT_SECONDS: Final = 1.0
POLL_SECONDS: Final = 1.0
UNHEARD_POLL_SECONDS: Final = 0.1

PLACE = "SELECT {schema}.place_events($1)"
READ = """SELECT name, last, trimmed, position, writer, directory, session, body,
extract(epoch FROM clock_timestamp() - written)::double precision
FROM {schema}.event_log
LEFT JOIN LATERAL (SELECT * FROM {schema}.event WHERE position > $1 ORDER BY position LIMIT $2) AS event ON true
ORDER BY position"""
SELECT_HEAD = "SELECT name, last, trimmed FROM {schema}.event_log"
TRIM = "SELECT {schema}.trim_events($1, $2)"
APPEND = "{{schema}}.append_events(${}, ${}, ${}, ${}, ${})"


def with_log(call: str, values: int) -> str:
    """Return a statement that calls a function and, if that answers null, appends to the log."""
    append = APPEND.format(*range(values + 1, values + 6))
    return f"""SELECT called.answer, CASE WHEN called.answer IS NULL THEN {append} END
FROM (SELECT {call} AS answer OFFSET 0) AS called"""


class PostgresLog:
    """Writes, places and reads the events of one database. `writer` is the name of this process in the log."""

    def __init__(self, database: Database, clock: Clock, *, writer: str) -> None:
        self._database = database
        self._clock = clock
        self.writer = to_bytes(writer)
        self._appended = asyncio.Event()

    def to_arguments(self, batch: LogBatch, number: int) -> tuple[Any, ...]:
        """Return the last arguments of a statement with a log. The batch has the number of the write that it belongs to."""
        return (
            number,
            self.writer,
            to_bytes(batch.directory),
            [None if entry.session is None else to_ascii(entry.session) for entry in batch.entries],
            [entry.body for entry in batch.entries],
        )

    def note_appended(self) -> None:
        """Have events placed soon. Call this after something was appended."""
        self._appended.set()

    async def keep_placing(self) -> None:
        """Place what was appended, until cancelled. What cannot be placed now is placed by whoever does so next."""
        while True:
            await self._appended.wait()
            self._appended.clear()
            with suppress(StoreError):
                await self.place()
            await self._clock.sleep(PLACE_SECONDS)

    async def close(self) -> None:
        """Place what was appended last."""
        if self._appended.is_set():
            with suppress(StoreError):
                await self.place()

    @property
    def poll_seconds(self) -> float:
        """How often listeners look by themselves. A pooler passes no notifications on, so they look more often there."""
        return POLL_SECONDS if self._database.hears_notifications else UNHEARD_POLL_SECONDS

    async def place(self) -> int:
        return int(await self._database.fetch_value(PLACE, MAX_PLACED))

    async def read(self, after: int, *, limit: int) -> list[LoggedEvent]:
        rows = await self._database.fetch(READ, after, limit)
        (_, last, trimmed, *_) = rows[0]
        if not trimmed <= after <= last:
            raise CursorLostError(after, trimmed)
        return [
            LoggedEvent(
                position,
                writer.decode("utf-8", "surrogatepass"),
                directory.decode("utf-8", "surrogatepass"),
                session,
                body,
                seconds,
            )
            for (_, _, _, position, writer, directory, session, body, seconds) in rows
            if position is not None
        ]

    async def find_head(self) -> LogHead:
        ((name, last, trimmed),) = await self._database.fetch(SELECT_HEAD)
        return LogHead(name, last, trimmed)

    async def trim(self, *, seconds: float, most: int) -> int:
        return int(await self._database.fetch_value(TRIM, seconds, most))

    @asynccontextmanager
    async def listen(self, wake: Callable[[], None]) -> AsyncIterator[None]:
        """Call `wake` each time that events were placed. The connection is made again when it is lost."""
        async with open_tasks() as tasks:
            listening = tasks.create_task(self._keep_listening(wake))
            try:
                yield
            finally:
                listening.cancel()

    async def _keep_listening(self, wake: Callable[[], None]) -> None:
        channel = f"{self._database.address.schema}_events"
        while True:
            with suppress(StoreError):
                async with self._database.open_listener(channel, wake) as lost:
                    wake()  # for what happened before
                    await lost.wait()
            await self._clock.sleep(RECONNECT_SECONDS)
