"""Which Postgres servers and databases a store refuses, and how it uses one behind a pooler."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from weft.errors import StoreError
from weft.store.postgres.address import parse_address
from weft.store.postgres.connection import STATEMENT_CACHE_SIZE, Database, check_server
from weft.testing.clock import HandClock

PLACE = "postgres://host:5432/db"


def test_postgres_14_and_later_are_accepted() -> None:
    check_server(PLACE, 140_000, "14.0", "UTF8")
    check_server(PLACE, 150_018, "15.18", "UTF8")


@pytest.mark.parametrize(
    ("number", "version", "encoding", "message", "way_out"),
    [
        (130_022, "13.22", "UTF8", "is Postgres 13.22, and weft needs 14 or later", "upgrade the server"),
        (150_000, "15.0", "SQL_ASCII", "has the encoding SQL_ASCII, and weft needs UTF8", "--encoding=UTF8"),
    ],
)
def test_an_old_server_and_another_encoding_are_refused_with_a_way_out(
    number: int, version: str, encoding: str, message: str, way_out: str
) -> None:
    with pytest.raises(StoreError) as refused:
        check_server(PLACE, number, version, encoding)
    assert str(refused.value) == f"{PLACE} {message}"
    assert way_out in refused.value.hint


SERVER_PID, POOLER_PID = 7, 1


class FakeConnection:
    def __init__(self, pid: int) -> None:
        self._pid = pid

    async def fetch(self, _: str) -> list[tuple[Any, ...]]:
        return [(150_018, "15.18", SERVER_PID, "UTF8")]

    def get_server_pid(self) -> int:
        return self._pid

    async def close(self) -> None:
        """Nothing is open."""


class FakeDriver:
    """What `Database.open` uses of asyncpg. A pooler gives its clients process ids of its own."""

    InterfaceError = InternalClientError = ConnectionError
    PostgresError: type[Exception] = ConnectionError

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.cache_size = -1

    async def connect(self, _: str, **__: Any) -> FakeConnection:
        return FakeConnection(self._pid)

    async def create_pool(self, _: str, *, statement_cache_size: int, **__: Any) -> FakeConnection:
        self.cache_size = statement_cache_size
        return FakeConnection(self._pid)


@pytest.mark.parametrize(
    ("pid", "settings", "keeps_statements", "hears"),
    [
        (SERVER_PID, "", True, True),
        (SERVER_PID, "?pgbouncer=0", True, True),
        (SERVER_PID, "?pgbouncer=1", False, False),
        (POOLER_PID, "", False, False),
        (POOLER_PID, "?pgbouncer=1", False, False),
        (POOLER_PID, "?pgbouncer=0", True, False),
        (POOLER_PID, "?pgbouncer=0&direct=db.example", True, True),
        (POOLER_PID, "?direct=db.example", False, True),
    ],
)
async def test_a_pooler_may_keep_prepared_statements_but_passes_no_notifications_on(
    pid: int, settings: str, keeps_statements: bool, hears: bool
) -> None:
    driver = FakeDriver(pid)
    database = Database(parse_address(f"postgres://host/db{settings}"), driver, HandClock())
    await database.open()
    assert driver.cache_size == (STATEMENT_CACHE_SIZE if keeps_statements else 0)
    assert database.hears_notifications == hears
    await database.close()


class DeadlockError(Exception):
    sqlstate = "40P01"


class PoolWithErrors(FakeConnection):
    """Answers each attempt with the next of some errors: of the pool itself, or, if it is a deadlock, of a connection."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__(SERVER_PID)
        self._errors = list(errors)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator["PoolWithErrors"]:
        if self._errors and not isinstance(self._errors[0], DeadlockError):
            raise self._errors.pop(0)
        yield self

    async def fetch(self, _: str) -> list[tuple[Any, ...]]:
        if self._errors:
            raise self._errors.pop(0)
        return []


class DriverWithErrors(FakeDriver):
    PostgresError = DeadlockError

    def __init__(self, *errors: Exception) -> None:
        super().__init__(SERVER_PID)
        self._errors = errors

    async def create_pool(self, _: str, **__: Any) -> FakeConnection:
        return PoolWithErrors(*self._errors)


class ImpatientClock(HandClock):
    async def sleep(self, seconds: float) -> None:
        self.turn(round(seconds * 1000))


@pytest.mark.parametrize(
    "errors",
    [(), (DeadlockError(),), (OSError(),), (DeadlockError(), OSError()), (OSError(), DeadlockError())],
)
async def test_a_statement_that_was_not_carried_out_is_not_repeated(errors: tuple[Exception, ...]) -> None:
    database = Database(
        parse_address("postgres://host/db?retry=60"), DriverWithErrors(*errors), ImpatientClock()
    )
    await database.open()
    assert (await database.send("SELECT 1")).repeated is False
    await database.close()
