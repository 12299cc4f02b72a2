"""Which Postgres servers and databases a store refuses."""

import pytest

from weft.errors import StoreError
from weft.store.postgres.connection import check_server

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
