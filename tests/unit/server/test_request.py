"""Requests are read within limits, and invalid ones are refused with the reason."""

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from weft.errors import DocumentError, InvalidInputError
from weft.model.input import SessionInput
from weft.server.request import (
    MAX_BODY_BYTES,
    MAX_DEPTH,
    BodyTooLargeError,
    decode_body,
    decode_query,
    find_directory,
    is_too_deep,
    read_body,
)
from weft.server.route import DirectoryCall, Route

JSON = "application/json"


async def nothing(_: DirectoryCall) -> None:
    """Nothing."""


def route(**more: Any) -> Route:
    return Route(method="POST", path="/", name="x", about="", run=nothing, **more)


def sends(*pieces: bytes) -> Callable[[], Awaitable[Any]]:
    left = list(pieces)

    async def receive() -> Any:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return receive


async def test_a_body_may_come_in_pieces() -> None:
    assert await read_body(sends(b"a", b"", b"bc"), {}) == b"abc"


async def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    with pytest.raises(BodyTooLargeError):
        await read_body(sends(), {"content-length": str(MAX_BODY_BYTES + 1)})
    with pytest.raises(BodyTooLargeError):
        await read_body(sends(b"x" * MAX_BODY_BYTES, b"x"), {})


def test_a_body_becomes_what_the_route_takes() -> None:
    assert (
        decode_body(route(takes=SessionInput), b'{"title":"t","more":1}', f"{JSON}; charset=utf-8").title
        == "t"
    )
    assert decode_body(route(takes=SessionInput, optional=True), b" ", "") is None
    assert decode_body(route(), b"whatever", "text/plain") is None


@pytest.mark.parametrize(
    ("raw", "kind", "reason"),
    [
        (b"", JSON, "missing"),
        (b"{}", "text/plain", "application/json"),
        (b"{}", "", "application/json"),
        (b"{", JSON, "not JSON"),
        (b'{"title":3}', JSON, "title"),
        (b"[" * 100_000, JSON, "deep"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(raw: bytes, kind: str, reason: str) -> None:
    with pytest.raises((InvalidInputError, DocumentError), match=reason):
        decode_body(route(takes=SessionInput), raw, kind)


Nested = st.recursive(
    st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(Nested, st.integers(0, 2 * MAX_DEPTH))
def test_depth_is_counted_outside_of_strings(value: Any, more: int) -> None:
    for _ in range(more):
        value = ['"[{\\', value]
    assert is_too_deep(json.dumps(value).encode()) == (depth(value) > MAX_DEPTH)


class Query(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(le=200)] | None = None


class Looked(Struct, frozen=True, kw_only=True):
    pattern: str


def test_a_query_is_typed_and_what_is_unknown_is_passed_over() -> None:
    assert decode_query(Query, b"limit=3&other=%FF&limit=4") == Query(limit=4)


@pytest.mark.parametrize(
    ("kind", "query", "words"),
    [
        (Query, b"limit=many", "limit: it is expected to be `int`"),
        (Query, b"limit=201", "limit: it is expected to be `int` <= 200"),
        (Looked, b"", "pattern: it is missing"),
    ],
)
def test_what_is_wrong_with_a_query_is_told_by_its_name(kind: type[Struct], query: bytes, words: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        decode_query(kind, query)
    assert str(refused.value) == words


@pytest.mark.parametrize(
    ("query", "header", "found"),
    [
        (b"directory=/a%20b", "", "/a b"),
        (b"directory=%2Fa%2520b", "/other", "/a b"),
        (b"", "/tmp/%C3%BC", "/tmp/ü"),
        (b"", "/plain path", "/plain path"),
        (b"directory=", "", "/here"),
    ],
)
def test_a_directory_is_meant_however_it_is_written(query: bytes, header: str, found: str) -> None:
    headers = {"x-opencode-directory": header} if header else {}
    assert (find_directory(query, headers) or "/here") == found
