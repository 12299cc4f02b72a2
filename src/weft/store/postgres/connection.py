"""Connections to Postgres: a pool, typed errors, and repeating what a lost connection interrupted.

No statement relies on the state of a session, so a pooler such as pgbouncer may give each transaction another connection.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import copy
from typing import Any, NamedTuple, Protocol, TypeVar

from weft.errors import ClosedError, ConflictError, InvalidInputError, MissingPackageError, StoreError
from weft.host.clock import Clock
from weft.store.postgres.address import URL_FORM, PostgresAddress

T = TypeVar("T")

REQUIREMENT = "weft[postgres]"
MIN_SERVER_VERSION = 140_000
CONNECT_SECONDS = 10.0
COMMAND_SECONDS = 60.0
CLOSE_SECONDS = 5.0
STATEMENT_CACHE_SIZE = 100
# How many connections of the pool are kept for urgent statements. One is always left for the others.
URGENT_CONNECTIONS = 2
FIRST_DELAY_SECONDS = 0.02
MAX_DELAY_SECONDS = 1.0

PROBE = """SELECT current_setting('server_version_num')::int, current_setting('server_version'), pg_backend_pid(),
current_setting('server_encoding')"""

# A statement that lost against another one, and changed nothing: it is sent again. `23505` is a race of two writers for one key.
LOST_RACE_STATES = ("40001", "40P01", "23505")
# The server is starting, stopping, or has no connection left.
BUSY_STATES = ("57P01", "57P02", "57P03", "53300")
CONNECTION_CLASS = "08"
# The server reads, but this user or this server may not write, or its disk is full.
READ_ONLY_STATES = ("42501", "25006", "53100")
# A row would be written that its writer may not see.
ROW_SECURITY_STATE = "42501"

ERROR_HINTS = {
    "28P01": "check the user and the password in the URL, in PGPASSWORD or in ~/.pgpass",
    "28000": "check the user, and the rules for it in pg_hba.conf",
    "3D000": "create the database with createdb, or correct its name in the URL",
    "42501": "its owner can run: GRANT CREATE ON DATABASE … TO … for a new schema, or GRANT ALL ON SCHEMA … TO …",
    "53100": "free some space on the server and try again; nothing needs a restart",
    "53300": "raise max_connections of the server, lower pool=… in the URL, or use pgbouncer",
    "25006": "this server takes no writes; use the address of the primary server",
}
UNREACHABLE_HINT = "check that the server runs, and its host and port in the URL"


class PostgresConnection(Protocol):
    """What is used of a connection of asyncpg."""

    async def fetch(self, sql: str, *values: Any) -> list[Any]: ...
    async def execute(self, sql: str) -> str: ...
    def transaction(self) -> Any: ...
    def get_server_pid(self) -> int: ...
    async def close(self) -> None: ...
    def terminate(self) -> None: ...


class StatementResult(NamedTuple):
    """The rows of a statement. It was `repeated` if it may have been carried out before, on a connection that was lost."""

    rows: list[Any]
    repeated: bool


def load_driver() -> Any:
    """Import asyncpg. Raise `MissingPackageError` if it is not installed."""
    try:
        import asyncpg  # type: ignore[import-untyped]  # noqa: PLC0415  an optional package
    except ImportError as error:
        raise MissingPackageError("asyncpg", REQUIREMENT) from error
    return asyncpg


class Database:
    """Sends statements to one database. Create one with `open_database`."""

    def __init__(self, address: PostgresAddress, driver: Any, clock: Clock) -> None:
        self.address = address
        self._driver = driver
        self._clock = clock
        self._pool: Any = None
        self._turns = asyncio.Semaphore(max(1, address.pool_size - URGENT_CONNECTIONS))
        self.hears_notifications = True
        self._statements: dict[str, str] = {}
        self._settings = ""
        # Set once a statement has waited for its whole deadline in vain. Until one succeeds, each is tried
        # twice: a run that ends sends many, and if all of them waited it would take minutes.
        self._is_unreachable = False
        self._lost_errors = (driver.InterfaceError, driver.PostgresError, driver.InternalClientError, OSError)

    async def open(self) -> None:
        """Check the server, then open the pool. Raise `StoreError` at once if no server answers."""
        found, given = await self._open_step(self._probe), self.address.pooled
        pooled = found if given is None else given
        # `pgbouncer=0` in the URL says that the pooler keeps prepared statements. It passes no notifications on, even so.
        self.hears_notifications = bool(self.address.direct) or not (found or pooled)
        pool = self._driver.create_pool(
            self.address.dsn,
            min_size=0,
            max_size=self.address.pool_size,
            reset=_keep_as_it_is,
            timeout=CONNECT_SECONDS,
            command_timeout=COMMAND_SECONDS,
            statement_cache_size=0 if pooled else STATEMENT_CACHE_SIZE,
        )
        self._pool = await self._open_step(lambda: pool)

    async def close(self) -> None:
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        await self._close(pool)

    async def _close(self, opened: Any) -> None:
        """Close a connection or a pool. Cut it off if the server does not answer."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await opened.close()
        except (TimeoutError, *self._lost_errors):
            opened.terminate()

    async def fetch(self, sql: str, *values: Any, urgent: bool = False) -> list[Any]:
        """Send a statement that may be repeated, and return its rows."""
        return (await self.send(sql, *values, urgent=urgent)).rows

    async def fetch_value(self, sql: str, *values: Any, urgent: bool = False) -> Any:
        """Return the first value of the first row, None if there is no row."""
        rows = await self.fetch(sql, *values, urgent=urgent)
        return rows[0][0] if rows else None

    async def send(self, sql: str, *values: Any, urgent: bool = False) -> StatementResult:
        """Send a statement. Repeat it after a lost connection or a lost race, until the deadline. Raise `StoreError` if it fails.

        `{schema}` in the statement is replaced. An `urgent` one does not wait behind all the others for a connection: other nodes
        wait for it, and each store sends at most one of its kind at a time.
        """
        statement = self._statements.get(sql)
        if statement is None:
            statement = self._statements[sql] = self.complete(sql)
        deadline, delay, repeated = 0, FIRST_DELAY_SECONDS, False
        while True:
            sent = False
            try:
                async with self._acquire(urgent=urgent) as connection:
                    sent = True
                    rows = await self._execute(connection, statement, values)
                    self._is_unreachable = False
                    return StatementResult(rows, repeated)
            except (TimeoutError, *self._lost_errors) as error:
                deadline = deadline or self._clock.now() + round(self.address.retry_seconds * 1000)
                if not self._is_repeatable(error):
                    raise self._to_store_error(error) from error
                waits_again = self._is_unreachable and delay > FIRST_DELAY_SECONDS
                if waits_again or self._clock.now() + delay * 1000 > deadline:
                    self._is_unreachable = True
                    raise self._to_store_error(error) from error
                repeated = repeated or (sent and _get_state(error) not in LOST_RACE_STATES)
            await self._clock.sleep(delay)
            delay = min(delay * 2, MAX_DELAY_SECONDS)

    async def _execute(
        self, connection: PostgresConnection, statement: str, values: tuple[Any, ...]
    ) -> list[Any]:
        """Send a statement on a connection: alone, or in a transaction that begins with the settings it is bound to."""
        if not self._settings:
            return await connection.fetch(statement, *values)
        try:
            await connection.execute(f"BEGIN; {self._settings}")
            rows = await connection.fetch(statement, *values)
            await connection.execute("COMMIT")
        except self._driver.PostgresError as error:
            await connection.execute("ROLLBACK")
            if _get_state(error) == ROW_SECURITY_STATE:  # the row exists, and is somebody else's
                raise ConflictError("id", "of a document", "cannot be used", hint="use another id") from error
            raise
        except BaseException:
            connection.terminate()  # nobody else may get a connection that is still bound
            raise
        return rows

    def bind(self, settings: str) -> "Database":
        """Return a database that begins every transaction with these `SET LOCAL` statements, on the same connections."""
        bound = copy(self)
        bound._settings = settings  # noqa: SLF001  of the same class
        return bound

    def complete(self, sql: str) -> str:
        return sql.replace("{schema}", self.address.schema)

    @asynccontextmanager
    async def _acquire(self, *, urgent: bool = False) -> AsyncIterator[PostgresConnection]:
        if urgent:
            async with self._get_pool().acquire() as connection:
                yield connection
        else:
            async with self._turns, self._get_pool().acquire() as connection:
                yield connection

    def _get_pool(self) -> Any:
        if self._pool is None:
            raise ClosedError(f"{self.address.place} is closed")
        return self._pool

    @asynccontextmanager
    async def open_transaction(self) -> AsyncIterator[PostgresConnection]:
        """Run the body in a transaction on one connection. It is not repeated."""
        try:
            async with self._acquire() as connection, connection.transaction():
                if self._settings:
                    await connection.execute(self._settings)
                yield connection
        except (TimeoutError, *self._lost_errors) as error:
            raise self._to_store_error(error) from error

    @asynccontextmanager
    async def open_listener(self, channel: str, wake: Callable[[], None]) -> AsyncIterator[asyncio.Event]:
        """Open a connection that calls `wake` at each notification. Yield an event that is set when the connection is lost.

        A pooler that shares connections passes no notifications on, so this goes to the server itself if its address is given.
        """
        try:
            connection: Any = await self._driver.connect(
                self.address.direct or self.address.dsn,
                timeout=CONNECT_SECONDS,
                command_timeout=COMMAND_SECONDS,
                statement_cache_size=0,
            )
        except (TimeoutError, *self._lost_errors) as error:
            raise self._to_store_error(error) from error
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda *_: lost.set())
            try:
                await connection.add_listener(channel, lambda *_: wake())
            except (TimeoutError, *self._lost_errors) as error:
                raise self._to_store_error(error) from error
            yield lost
        finally:
            await self._close(connection)

    async def _probe(self) -> bool:
        """Check the version of the server. Return True if a pooler is between it and us."""
        connection: PostgresConnection = await self._driver.connect(
            self.address.dsn, timeout=CONNECT_SECONDS, command_timeout=COMMAND_SECONDS, statement_cache_size=0
        )
        try:
            ((number, version, pid, encoding),) = await connection.fetch(PROBE)
            # A pooler gives its clients process ids of its own.
            pooled: bool = pid != connection.get_server_pid()
        finally:
            await self._close(connection)
        check_server(self.address.place, number, version, encoding)
        return pooled

    async def _open_step(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run a step of opening. Try again only if the server says that it is starting, stopping or full."""
        deadline, mistake = self._clock.now() + round(self.address.retry_seconds * 1000), ""
        while not mistake:
            try:
                return await work()
            except ValueError as error:  # of the driver, about the URL
                mistake = self._describe(error)
            except (TimeoutError, *self._lost_errors) as error:
                if _get_state(error) not in BUSY_STATES or self._clock.now() > deadline:
                    raise self._to_store_error(error) from error
                await self._clock.sleep(MAX_DELAY_SECONDS / 4)
        # Raised here, because the error of the driver may contain the password.
        raise InvalidInputError("store", mistake, hint=f"use {URL_FORM}")

    def _is_repeatable(self, error: BaseException) -> bool:
        if isinstance(error, self._driver.InterfaceError):
            return "connection is closed" in str(error)
        state = _get_state(error)
        return not state or state in LOST_RACE_STATES or _is_lost(state)

    def _to_store_error(self, error: BaseException) -> StoreError:
        place, state = self.address.place, _get_state(error)
        hint = ERROR_HINTS.get(state, "")
        if isinstance(error, TimeoutError):
            return StoreError(f"{place} did not answer in time", hint=UNREACHABLE_HINT)
        if isinstance(error, socket.gaierror):
            return StoreError(f"the host of {place} cannot be found", hint="check the host in the URL")
        if isinstance(error, OSError):
            reason = error.strerror or "the connection was lost"
            return StoreError(f"no Postgres server answers at {place}: {reason}", hint=UNREACHABLE_HINT)
        if _is_lost(state) or not state:
            return StoreError(
                f"the connection to {place} was lost: {self._describe(error)}",
                hint=hint or "check that the server runs; it may have been restarted",
            )
        return StoreError(f"{place} failed: {self._describe(error)}", hint=hint)

    def _describe(self, error: BaseException) -> str:
        """Return the first line of an error, without secrets."""
        line = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        for secret in self.address.secrets:
            line = line.replace(secret, "…")
        return line


async def _keep_as_it_is(_: Any) -> None:
    """Return a connection to the pool without a statement: it has no state to reset."""


def check_server(place: str, number: int, version: str, encoding: str) -> None:
    """Raise `StoreError` for a server that is too old, or a database with another encoding. `number` is the version as Postgres counts."""
    if number < MIN_SERVER_VERSION:
        raise StoreError(
            f"{place} is Postgres {version}, and weft needs 14 or later",
            hint="upgrade the server, or use another store with --store",
        )
    if encoding != "UTF8":
        raise StoreError(
            f"{place} has the encoding {encoding}, and weft needs UTF8",
            hint="create another database with createdb --encoding=UTF8 --template=template0",
        )


def is_read_only(error: StoreError) -> bool:
    """Return True if a statement failed because it writes."""
    return error.__cause__ is not None and _get_state(error.__cause__) in READ_ONLY_STATES


def _is_lost(state: str) -> bool:
    return state in BUSY_STATES or state.startswith(CONNECTION_CLASS)


def _get_state(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", None) or "")


@asynccontextmanager
async def open_database(address: PostgresAddress, clock: Clock) -> AsyncIterator[Database]:
    """Open a pool of connections. Raise `StoreError` if the server cannot be used, `MissingPackageError` without a driver."""
    database = Database(address, load_driver(), clock)
    await database.open()
    try:
        yield database
    finally:
        await database.close()
