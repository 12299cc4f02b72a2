"""Which Postgres servers and databases a store refuses, and how it uses one behind a pooler."""

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

    InterfaceError = PostgresError = InternalClientError = ConnectionError

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
