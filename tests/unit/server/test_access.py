"""Who has access to a server, and who has not."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.server.access import AccessPolicy, PasswordDelay, decode_basic_auth, strip_port
from weft.server.response import read_headers


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


DOOR = AccessPolicy(password="s3cret", origins=frozenset({"https://mine.example"}))
GOOD = {"host": "127.0.0.1:4096", "authorization": basic("opencode", "s3cret")}


def status(headers: dict[str, str], method: str = "GET", door: AccessPolicy = DOOR) -> int | None:
    refusal = door.check(method, headers)
    return None if refusal is None else refusal.status


def test_with_the_password_access_is_granted() -> None:
    assert status(GOOD) is None
    assert status({**GOOD, "origin": "https://mine.example"}) is None
    assert status({"host": "localhost"}, door=AccessPolicy(password=None)) is None


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Basic",
        "Basic !!!",
        basic("opencode", ""),
        basic("opencode", "s3cre"),
        basic("root", "s3cret"),
        "Bearer s3cret",
    ],
)
def test_without_the_password_access_is_refused(given: str) -> None:
    assert status({**GOOD, "authorization": given}) == 401


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example:4096",
        "",
        "localhost.evil",
        "[::2]:1",
        "[::1].evil.example",
        "localhost:evil.example",
        "127.0.0.2",
    ],
)
def test_a_name_somebody_pointed_at_this_machine_is_refused_whatever_the_password(host: str) -> None:
    assert status({**GOOD, "host": host}) == 403


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:3000", "https://mine.example.evil"]
)
def test_a_page_that_is_not_listed_is_refused_whatever_the_password(origin: str) -> None:
    assert status({**GOOD, "origin": origin}) == 403
    assert DOOR.cors_headers(origin) == {}


def test_a_listed_page_may_ask_first_without_the_password() -> None:
    asked = {"host": "localhost:1", "origin": "https://mine.example"}
    assert status(asked, "OPTIONS") is None
    assert status(asked, "POST") == 401
    assert DOOR.cors_headers("https://mine.example")["access-control-allow-origin"] == "https://mine.example"


@pytest.mark.parametrize(
    ("host", "bare"),
    [
        ("LocalHost:80", "localhost"),
        ("[::1]:80", "[::1]"),
        ("[::1]", "[::1]"),
        ("127.0.0.1", "127.0.0.1"),
        ("localhost:", "localhost"),
        ("a:b:c", "a:b:c"),
    ],
)
def test_a_host_is_compared_without_its_port(host: str, bare: str) -> None:
    assert strip_port(host) == bare


def test_a_header_that_is_sent_twice_is_both_of_them() -> None:
    twice = [(b"host", b"evil.example"), (b"host", b"127.0.0.1"), (b"accept", b"*/*")]
    assert read_headers({"headers": twice}) == {"host": "evil.example, 127.0.0.1", "accept": "*/*"}
    assert status({**GOOD, **read_headers({"headers": twice})}) == 403


@given(st.text())
def test_no_header_can_break_the_access_check(text: str) -> None:
    assert status({"host": text, "authorization": text, "origin": text}) in {401, 403}
    assert isinstance(decode_basic_auth(text), bytes)


def test_password_guessing_is_slowed_down() -> None:
    patience = PasswordDelay()
    pauses = [patience.count_failure() for _ in range(100)]
    assert pauses[:5] == [0.0] * 5
    assert sorted(pauses) == pauses
    assert pauses[-1] == 5.0
    patience.reset()
    assert patience.count_failure() == 0.0
