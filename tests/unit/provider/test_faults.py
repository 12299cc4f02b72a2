"""Classify the errors of model APIs."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from given.damage import damaged_bytes, damaged_values, to_json
from weft.errors import ProviderAuthError, ProviderError
from weft.provider.faults import MAX_BODY_LENGTH, MAX_MESSAGE_LENGTH, parse_error, parse_wait

NOW = 1_792_567_695_000  # Wed, 21 Oct 2026 07:28:15 GMT

RECORDED: list[dict[str, Any]] = msgspec.json.decode(
    (Path(__file__).parents[2] / "golden" / "provider" / "faults.json").read_bytes()
)


@pytest.mark.parametrize("failure", RECORDED, ids=lambda failure: failure["name"])
def test_recorded_errors_have_the_expected_kind(failure: dict[str, Any]) -> None:
    error = parse_error(failure["status"], failure["headers"], failure["body"].encode())
    assert (error.kind, error.retryable, error.wait_ms) == (
        failure["kind"],
        failure["retryable"],
        failure["wait_ms"],
    )
    assert failure["status"] in (None, error.status)
    assert error.body == failure["body"]
    assert str(error)


LAYERS = {
    "error": {
        "message": "no",
        "code": "429",
        "type": "x",
        "details": [{"@type": "RetryInfo", "retryDelay": "12.5s"}],
        "metadata": {"raw": '{"error": {"message": "upstream", "code": 500}}'},
        "innererror": {"code": "content_filter"},
    },
    "response": {"error": {"code": "server_error", "status": "503"}, "status_code": 404},
}
WAITS = st.sampled_from(
    ["1e999", "nan", "-1", "9" * 5000, "Wed, 21 Oct 2026 07:28:15 GMT", "Wed, 99 Oct 99999999999"]
)


@given(
    st.none() | st.integers(0, 999),
    st.dictionaries(
        st.sampled_from(["Retry-After", "retry-after-ms", "Date", "x-amzn-errortype", "x-should-retry"]),
        WAITS | st.text(max_size=20),
    ),
    damaged_values([LAYERS]).map(to_json)
    | damaged_bytes(to_json(LAYERS))
    | st.sampled_from(RECORDED).flatmap(lambda failure: damaged_bytes(failure["body"].encode())),
)
@example(None, {}, b'{"error": {"code": "%s"}}' % (b"1" * 5000))
@example(None, {}, b'{"response":' * 900 + b"{}" + b"}" * 900)
def test_whatever_an_error_contains_is_an_error(
    status: int | None, headers: dict[str, str], body: bytes
) -> None:
    error = parse_error(status, headers, body)
    assert isinstance(error, ProviderError)
    assert str(error)
    assert error.wait_ms is None or error.wait_ms >= 0


@pytest.mark.parametrize("status", [429, 529])
def test_a_rate_limit_that_mentions_tokens_is_not_an_overflow(status: int) -> None:
    body = b'{"error": {"message": "Too many tokens: please reduce the length of the messages or try again in a minute"}}'
    error = parse_error(status, {}, body)
    assert (error.kind, error.retryable) == ("rate-limit" if status == 429 else "overload", True)


def test_an_error_quotes_the_message_of_the_provider() -> None:
    nested = parse_error(400, {}, b'{"error": {"message": "no such field"}}')
    plain = parse_error(400, {}, b'{"error": "no such field"}')
    page = parse_error(502, {}, b"<html>Bad Gateway</html>")
    words = parse_error(500, {}, b"boom")
    assert [str(each) for each in (nested, plain, page, words)] == [
        "no such field",
        "no such field",
        "the server answered 502 with a web page",
        "the server answered 500: boom",
    ]


def test_the_stored_body_of_an_error_is_bounded() -> None:
    error = parse_error(500, {}, b"x" * 1_000_000)
    assert (len(error.body), len(str(error)) < MAX_MESSAGE_LENGTH + 100) == (MAX_BODY_LENGTH, True)


@pytest.mark.parametrize(
    ("headers", "ms"),
    [
        ({}, None),
        ({"retry-after-ms": "1500"}, 1500),
        ({"retry-after-ms": "700000"}, 700_000),
        ({"retry-after": "30"}, 30_000),
        ({"retry-after": "0.0001"}, 1),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:20 GMT"}, 5000),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:20 GMT", "date": "some day"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:20 GMT", "date": "Wed, 21 Oct 2026 07:28:30 GMT"}, 0),
    ],
)
def test_retry_headers_give_the_time_to_wait(headers: dict[str, str], ms: int | None) -> None:
    assert parse_wait(headers, lambda: NOW) == ms


def test_the_error_type_of_amazon_is_read_from_a_header() -> None:
    headers = {"X-Amzn-ErrorType": "ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/"}
    error = parse_error(400, headers, b'{"message": "Too many requests, please wait before trying again."}')
    assert (error.kind, error.retryable) == ("rate-limit", True)


def test_the_default_kind_of_an_error_depends_on_its_class() -> None:
    assert (ProviderError("boom").kind, ProviderAuthError("p", "no key").kind) == ("unknown", "auth")


def test_a_long_message_is_classified_in_little_time() -> None:
    body = {"error": {"message": ". the tokens a" * 20_000}}
    before = time.process_time()
    assert parse_error(None, {}, msgspec.json.encode(body)).kind == "server"
    assert time.process_time() - before < 2
