"""Requests are read within limits, and invalid ones are refused with the reason."""

import json
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct

from given.damage import allow_refusal, damaged_bytes, damaged_values, to_json
from given.request_strategies import operations, values
from weft.errors import DocumentError, InvalidInputError
from weft.model.input import SessionInput
from weft.model.wire import encode
from weft.server.openapi import to_document
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
from weft.server.routes.table import list_routes

JSON = "application/json"


async def answer_nothing(_: DirectoryCall) -> None:
    """Nothing."""


def route(**more: Any) -> Route:
    return Route(method="POST", path="/", name="x", about="", run=answer_nothing, **more)


def make_receive(*pieces: bytes) -> Callable[[], Awaitable[Any]]:
    left = list(pieces)

    async def receive() -> Any:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return receive


async def test_a_body_may_arrive_in_pieces() -> None:
    assert await read_body(make_receive(b"a", b"", b"bc"), {}) == b"abc"


async def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    with pytest.raises(BodyTooLargeError):
        await read_body(make_receive(), {"content-length": str(MAX_BODY_BYTES + 1)})
    with pytest.raises(BodyTooLargeError):
        await read_body(make_receive(b"x" * MAX_BODY_BYTES, b"x"), {})


def test_a_body_is_decoded_to_the_type_of_the_route() -> None:
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
def test_an_invalid_body_is_refused_with_the_reason(raw: bytes, kind: str, reason: str) -> None:
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


def test_a_string_without_an_end_is_searched_once() -> None:
    raw = b"[]" * (MAX_DEPTH + 1) + b'"' + b'\\"' * 1_000_000
    started = time.process_time()
    assert not is_too_deep(raw)
    assert not is_too_deep(raw + b"\\")
    assert time.process_time() - started < 5


class Query(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(le=200)] | None = None


class PatternQuery(Struct, frozen=True, kw_only=True):
    pattern: str


def test_a_query_is_typed_and_unknown_parameters_are_ignored() -> None:
    assert decode_query(Query, b"limit=3&other=%FF&limit=4") == Query(limit=4)


@pytest.mark.parametrize(
    ("kind", "query", "words"),
    [
        (Query, b"limit=many", "limit: it must be `int`"),
        (Query, b"limit=201", "limit: it must be `int` <= 200"),
        (PatternQuery, b"", "pattern: it is missing"),
    ],
)
def test_an_invalid_query_parameter_is_reported_by_name(kind: type[Struct], query: bytes, words: str) -> None:
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
def test_a_directory_is_recognised_in_every_encoding(query: bytes, header: str, found: str) -> None:
    headers = {"x-opencode-directory": header} if header else {}
    assert (find_directory(query, headers) or "/here") == found


DOCUMENT = to_document(list_routes(), version="1")
WITH_BODY = {
    each["operationId"]: each["requestBody"]["content"]["application/json"]["schema"]
    for _, _, each in operations(DOCUMENT, set())
    if "requestBody" in each
}


@st.composite
def damaged_requests(draw: st.DrawFn) -> tuple[str, bytes]:
    """Return the name of an operation, and a body with damage in it."""
    name = draw(st.sampled_from(sorted(WITH_BODY)))
    raw = to_json(draw(damaged_values(draw(values(WITH_BODY[name], DOCUMENT["components"]["schemas"])))))
    return name, draw(damaged_bytes(raw)) if draw(st.booleans()) else raw


@given(damaged=damaged_requests())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_whatever_a_body_contains_is_decoded_or_refused(damaged: tuple[str, bytes]) -> None:
    name, raw = damaged
    [found] = (each for each in list_routes() if isinstance(each, Route) and each.name == name)
    with allow_refusal(InvalidInputError, DocumentError, naming="body"):
        encode(decode_body(found, raw, JSON))


@given(st.text("0123456789abc=&%+;[]\x00\xff", max_size=30), st.sampled_from([Query, PatternQuery]))
def test_whatever_a_query_contains_is_decoded_or_refused(query: str, kind: type[Struct]) -> None:
    raw = query.encode("latin-1")
    find_directory(raw, {})
    with allow_refusal(InvalidInputError, naming=": "):
        decode_query(kind, raw)


async def test_a_length_of_any_number_of_digits_is_compared() -> None:
    with pytest.raises(BodyTooLargeError):
        await read_body(make_receive(), {"content-length": "9" * 5000})
