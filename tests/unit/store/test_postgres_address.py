"""URLs of Postgres stores: what they say, and what is never shown of them."""

import pytest

from weft.errors import InvalidInputError
from weft.model.url import redact_url, to_store_identity
from weft.store.postgres.address import PostgresAddress, parse_address


def test_a_short_url_has_the_default_settings() -> None:
    assert parse_address("postgres://host/db") == PostgresAddress(
        dsn="postgres://host/db",
        place="postgres://host:5432/db",
        secrets=(),
        schema="weft",
        lease_seconds=15.0,
        retry_seconds=10.0,
        pool_size=10,
        pooled=None,
    )


def test_our_settings_are_removed_and_the_rest_goes_to_the_driver() -> None:
    url = "postgresql://u:p%40ss@host:6432/db?sslmode=require&schema=team_1&lease=30&retry=2.5&pool=4&pgbouncer=1"
    assert parse_address(url) == PostgresAddress(
        dsn="postgresql://u:p%40ss@host:6432/db?sslmode=require",
        place="postgresql://host:6432/db?schema=team_1",
        secrets=parse_address(url).secrets,
        schema="team_1",
        lease_seconds=30.0,
        retry_seconds=2.5,
        pool_size=4,
        pooled=True,
    )
    assert sorted(parse_address(url).secrets) == ["p%40ss", "p@ss"]
    assert "ss@" not in repr(parse_address(url))


def test_a_server_on_a_socket_is_named_by_its_directory() -> None:
    address = parse_address("postgres:///db?host=/run/postgresql&port=5433&password=secret")
    assert (address.place, address.secrets) == ("postgres:///run/postgresql:5433/db", ("secret",))
    assert "secret" in address.dsn


@pytest.mark.parametrize(
    "url",
    [
        "postgres:x",
        "postgres:/host/db",
        "postgres://u:pa/ss@host/db",
        "postgres://u:pa?ss@host/db",
        "postgres://u:pa#ss@host/db",
        "postgres://host:port/db",
        "postgres://[host/db",
        "postgres://host/db?schema=a&schema=b",
        "postgres://host/db?schema=pg_mine",
        "postgres://host/db?schema=a.b",
        "postgres://host/db?lease=0",
        "postgres://host/db?lease=-1",
        "postgres://host/db?lease=nan",
        "postgres://host/db?pool=many",
        "postgres://host/db?pool=0",
        "postgres://host/db?pool=0000000019999",
        f"postgres://host/db?pool=000000001{'9' * 5000}",
        "postgres://host/db?pgbouncer=yes",
    ],
)
def test_an_invalid_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_address(url)
    assert "ss@host" not in f"{refused.value} {refused.value.hint}"
    assert refused.value.__context__ is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://u:p@host/db?password=x", "postgres://host/db"),
        ("postgres://u:p/q?r#s@host:1/db", "postgres://host:1/db"),
        ("postgre:u:p@host", "postgre:host"),
        ("https://host/path?key=secret#part", "https://host/path"),
        ("memory:", "memory:"),
        ("file:/home/a@b/x?y", "file:/home/a@b/x?y"),
        ("/home/a@b", "/home/a@b"),
    ],
)
def test_a_url_is_shown_without_user_password_and_query(url: str, shown: str) -> None:
    assert redact_url(url) == shown


def test_a_new_password_or_setting_is_the_same_store_and_another_schema_is_not() -> None:
    store = to_store_identity("postgres://u:p@host/db?schema=team&pool=4")
    assert (
        store
        == to_store_identity("postgres://v:q@host/db?lease=9&schema=team")
        == "postgres://host/db?schema=team"
    )
    assert store != to_store_identity("postgres://u:p@host/db")
    assert to_store_identity("file:/a@b/x?schema=y") == "file:/a@b/x?schema=y"
