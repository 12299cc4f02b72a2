"""The event log in Postgres. The statement that stores events also appends them to the log; readers read it by position.

An event gets its position from that statement or soon afterwards ("placing"). The transaction that gives positions notifies the
listeners, with a position and nothing else. Postgres lets only one notifying transaction commit at a time, so each process makes at
most one in `PLACE_SECONDS`: it stores and places growth, or places what others have stored.
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
from weft.store.rows import to_ascii, to_bytes, to_text

# Events are placed, and listeners notified, at most once in this time.
PLACE_SECONDS: Final = 0.01
MAX_PLACED: Final = 5_000
RECONNECT_SECONDS: Final = 1.0
POLL_SECONDS: Final = 1.0
UNHEARD_POLL_SECONDS: Final = 0.1

PLACE = "SELECT {schema}.place_events($1)"
READ = """SELECT name, last, trimmed, position, writer, directory, session, body,
extract(epoch FROM clock_timestamp() - written)::double precision, owner, owner_position, by_owner
FROM {schema}.event_log
LEFT JOIN LATERAL (SELECT * FROM {schema}.event WHERE position > $1 ORDER BY position LIMIT $2) AS event ON true
ORDER BY position"""
READ_OWN = """SELECT coalesce(last, 0), coalesce(trimmed, 0), position, writer, directory, session, body,
extract(epoch FROM clock_timestamp() - written)::double precision, event.owner, owner_position, by_owner
FROM (SELECT) AS one LEFT JOIN {schema}.principal_log ON principal_log.owner = $3
LEFT JOIN LATERAL (
    SELECT * FROM {schema}.event WHERE owner = $3 AND owner_position > $1 ORDER BY owner_position LIMIT $2
) AS event ON true
ORDER BY owner_position"""
# If no event is left up to that position, all of them were trimmed.
SELECT_OWN_LAST = """SELECT coalesce(max(owner_position), (SELECT trimmed FROM {schema}.principal_log WHERE owner = $1), 0)
FROM {schema}.event WHERE owner = $1 AND owner_position IS NOT NULL AND position <= $2"""
SELECT_HEAD = "SELECT name, last, trimmed FROM {schema}.event_log"
TRIM = "SELECT {schema}.trim_events($1, $2)"
APPEND = "{{schema}}.append_events(${}, ${}, ${}, ${}, ${})"
APPEND_PLACED = f"{{{{schema}}}}.append_placed(${{}}, ${{}}, ${{}}, ${{}}, ${{}}, {MAX_PLACED})"


def with_log(call: str, values: int, append: str = APPEND) -> str:
    """Return a statement that calls a function and, if that answers null, appends to the log.

    If the log already has the batch, the statement does nothing. That happens after a lost connection: the statement was repeated, and
    its first attempt reaches the server only now. Carried out, it would undo what was written since.
    """
    appended = append.format(*range(values + 1, values + 6))
    is_late = f"EXISTS (SELECT FROM {{schema}}.event WHERE batch = ${values + 1})"
    return f"""SELECT called.answer, CASE WHEN called.answer IS NULL THEN {appended} END
FROM (SELECT CASE WHEN NOT {is_late} THEN {call} END AS answer OFFSET 0) AS called"""


class PostgresLog:
    """Writes, places and reads the events of one database. `writer` is the name of this process in the log."""

    def __init__(self, database: Database, clock: Clock, *, writer: str) -> None:
        self._database = database
        self._clock = clock
        self.writer = to_bytes(writer)
        self._appended = asyncio.Event()
        self._placed_at = 0.0

    def to_arguments(self, batch: LogBatch, number: int) -> tuple[Any, ...]:
        """Return the last arguments of a statement made by `with_log`. `number` is that of the write that the batch belongs to."""
        return (
            number,
            self.writer,
            to_bytes(batch.directory),
            [None if entry.session is None else to_ascii(entry.session) for entry in batch.entries],
            [entry.body for entry in batch.entries],
        )

    def may_place(self) -> bool:
        """Return True if this process has given no positions for `PLACE_SECONDS`."""
        return self._until_next_place() <= 0

    def _until_next_place(self) -> float:
        return self._placed_at + PLACE_SECONDS - asyncio.get_running_loop().time()

    def note_appended(self, *, placed: bool = False) -> None:
        """Have appended events placed soon, unless they are `placed` already. Call this after every append."""
        if placed:
            self._placed_at = asyncio.get_running_loop().time()
        else:
            self._appended.set()

    async def keep_placing(self) -> None:
        """Place appended events until cancelled. Events that cannot be placed now are placed with the next ones, by any node."""
        while True:
            await self._appended.wait()
            while (seconds := self._until_next_place()) > 0:
                await self._clock.sleep(seconds)
            self._appended.clear()
            with suppress(StoreError):
                await self.place()

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
        try:
            return int(await self._database.fetch_value(PLACE, MAX_PLACED, urgent=True))
        finally:
            self._placed_at = asyncio.get_running_loop().time()

    async def read(self, after: int, *, limit: int) -> list[LoggedEvent]:
        rows = await self._database.fetch(READ, after, limit, urgent=True)
        (_, last, trimmed, *_) = rows[0]
        if not trimmed <= after <= last:
            raise CursorLostError(after, trimmed)
        return [_to_event(*row) for (_, _, _, *row) in rows if row[0] is not None]

    async def read_own(self, owner: str, after: int, *, limit: int) -> list[LoggedEvent]:
        rows = await self._database.fetch(READ_OWN, after, limit, owner)
        (last, trimmed, *_) = rows[0]
        if not trimmed <= after <= last:
            raise CursorLostError(after, trimmed)
        return [_to_event(*row) for (_, _, *row) in rows if row[0] is not None]

    async def find_own_last(self, owner: str, position: int) -> int:
        return int(await self._database.fetch_value(SELECT_OWN_LAST, owner, position))

    async def get_head(self) -> LogHead:
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


def _to_event(position: int, writer: bytes, directory: bytes, *rest: Any) -> LoggedEvent:
    session, body, seconds, owner, owner_position, by_owner = rest
    return LoggedEvent(
        position,
        to_text(writer),
        to_text(directory),
        session,
        body,
        seconds,
        owner,
        owner_position or 0,
        by_owner,
    )
