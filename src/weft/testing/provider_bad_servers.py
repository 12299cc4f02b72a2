"""Checks for providers with a server that misbehaves: a typed error, in time, and no unbounded buffer."""

import struct
import zlib
from collections.abc import Awaitable, Callable
from typing import Final

from weft.errors import FaultKind, ProviderError
from weft.provider.endpoint import StreamDeadlines
from weft.provider.scripted import Say, UseTool
from weft.provider.sse import MAX_EVENT_BYTES
from weft.testing.fake_model_api import Reply
from weft.testing.provider_harness import ServerProviderHarness, collect_answer, make_request

SHORT: Final = StreamDeadlines(connect=5, first_byte=0.05, between=0.05)
MB: Final = b"x" * 1024 * 1024
REFUSALS: Final[dict[int, tuple[FaultKind, bool]]] = {
    400: ("bad-request", False),
    401: ("auth", False),
    404: ("not-found", False),
    429: ("rate-limit", True),
    500: ("server", True),
    503: ("overload", True),
    529: ("overload", True),
}


async def expect_failure(
    harness: ServerProviderHarness, deadlines: StreamDeadlines | None = None
) -> ProviderError:
    """Send one request and return its error."""
    provider = harness.provider if deadlines is None else harness.with_deadlines(deadlines)
    answer = await collect_answer(provider, make_request(harness.model))
    assert answer.error is not None, f"no failure, but {answer.chunks}"
    assert harness.request_count == 1, "a stream must send exactly one request"
    return answer.error


async def a_refusal_has_the_kind_of_its_status(harness: ServerProviderHarness) -> None:
    for status, (kind, retryable) in REFUSALS.items():
        harness.server.requests.clear()
        harness.server.refuse(status, "no, because of this", retry_after="7")
        error = await expect_failure(harness)
        assert (error.kind, error.status, error.retryable) == (kind, status, retryable)
        assert (str(error), error.wait_ms) == ("no, because of this", 7000)
        assert "no, because" in error.body


async def a_refusal_without_text_names_its_status(harness: ServerProviderHarness) -> None:
    harness.server.send(status=502, kind="text/html")
    error = await expect_failure(harness)
    assert (error.kind, error.status, str(error)) == ("server", 502, "the server answered 502")


async def a_web_page_is_not_an_answer(harness: ServerProviderHarness) -> None:
    harness.server.send(b"<!doctype html><title>Welcome</title>", kind="text/html; charset=utf-8")
    error = await expect_failure(harness)
    assert (error.kind, error.retryable, error.status) == ("protocol", False, 200)
    assert "web page" in str(error)


async def a_document_is_not_a_stream(harness: ServerProviderHarness) -> None:
    harness.server.send(b'{"fine": true}', kind="application/json")
    assert (await expect_failure(harness)).kind == "protocol"


async def a_refusal_with_status_200_is_a_refusal(harness: ServerProviderHarness) -> None:
    harness.server.send(harness.server.dialect.refusal(429, "slow down"), kind="application/json")
    error = await expect_failure(harness)
    assert (error.kind, str(error)) == ("rate-limit", "slow down")


async def an_empty_body_is_not_an_answer(harness: ServerProviderHarness) -> None:
    harness.server.send()
    error = await expect_failure(harness)
    assert (error.kind, error.retryable) == ("protocol", True)


async def invalid_json_is_not_an_answer(harness: ServerProviderHarness) -> None:
    first = harness.server.dialect.frames([Say(text="a b")])[0]
    for bad in (b"{nonsense}", b"[1, 2]", b'"a"', b"[" * 100_000):
        harness.server.requests.clear()
        harness.server.send(first, harness.server.dialect.wrapped(bad))
        assert (await expect_failure(harness)).kind == "protocol"


async def a_truncated_stream_is_not_an_answer(harness: ServerProviderHarness) -> None:
    frames = b"".join(harness.server.dialect.frames([Say(text="one two three")]))
    for cut in range(1, len(frames) // 2, 37):
        harness.server.requests.clear()
        harness.server.send(frames[:cut])
        error = await expect_failure(harness)
        assert error.kind in {"protocol", "network"}
        assert error.retryable, f"{error}: an answer that was cut off must be retryable"


async def an_answer_without_an_end_is_a_failure(harness: ServerProviderHarness) -> None:
    frames = harness.server.dialect.frames([Say(text="one two three")])
    harness.server.send(*frames[:4])
    error = await expect_failure(harness)
    assert (error.kind, error.retryable) == ("protocol", True)


async def a_second_end_of_an_answer_is_ignored(harness: ServerProviderHarness) -> None:
    frames = harness.server.dialect.frames([Say(text="one two")])
    harness.server.send(*frames, *frames)
    answer = await collect_answer(harness.provider, make_request(harness.model))
    assert (answer.error, answer.text()) == (None, "one two")


async def a_call_without_a_name_is_a_failure(harness: ServerProviderHarness) -> None:
    harness.server.send(*harness.server.dialect.nameless_call())
    error = await expect_failure(harness)
    assert (error.kind, error.retryable) == ("protocol", False)


async def a_failure_inside_an_answer_is_raised(harness: ServerProviderHarness) -> None:
    frames = harness.server.dialect.frames([Say(text="one two")])
    harness.server.send(*frames[:3], harness.server.dialect.failure("Overloaded"))
    error = await expect_failure(harness)
    assert (error.kind, error.retryable, str(error)) == ("overload", True, "Overloaded")


async def chunk_boundaries_do_not_change_the_answer(harness: ServerProviderHarness) -> None:
    raw = b"".join(
        harness.server.dialect.frames([Say(text="五 👩‍👩‍👧"), UseTool(tool="read", input={"path": "五"})])
    )
    whole = None
    for size in (1, 7, len(raw)):
        harness.server.send(*(raw[start : start + size] for start in range(0, len(raw), size)))
        answer = await collect_answer(harness.provider, make_request(harness.model))
        assert answer.error is None
        assert whole in (None, answer.chunks)
        whole = answer.chunks


async def any_line_ending_is_accepted(harness: ServerProviderHarness) -> None:
    raw = b"".join(harness.server.dialect.frames([Say(text="one two")]))
    for end in (b"\r\n", b"\r"):
        harness.server.send(b": hello" + end, raw.replace(b"\n", end))
        answer = await collect_answer(harness.provider, make_request(harness.model))
        assert (answer.error, answer.text()) == (None, "one two")


async def silence_before_the_answer_times_out(harness: ServerProviderHarness) -> None:
    harness.server.hang()
    error = await expect_failure(harness, SHORT)
    assert (error.kind, error.retryable) == ("timeout", True)
    await harness.server.wait_for_disconnect()


async def silence_after_the_headers_times_out(harness: ServerProviderHarness) -> None:
    harness.server.hang(Say(text="a"), pieces=0)
    assert (await expect_failure(harness, SHORT)).kind == "timeout"
    await harness.server.wait_for_disconnect()


async def silence_within_the_answer_times_out(harness: ServerProviderHarness) -> None:
    harness.server.hang(Say(text="one two three"), pieces=3)
    error = await expect_failure(harness, StreamDeadlines(connect=5, first_byte=30, between=0.05))
    assert (error.kind, error.retryable) == ("timeout", True)
    await harness.server.wait_for_disconnect()


async def silence_after_the_end_of_the_answer_is_not_a_failure(harness: ServerProviderHarness) -> None:
    frames = harness.server.dialect.frames([Say(text="one two")])
    harness.server.hang(Say(text="one two"), pieces=len(frames))
    answer = await collect_answer(harness.provider, make_request(harness.model))
    # If the last event does not mark the end, the provider waits for the end of the stream, which does not come.
    assert answer.text() == "one two"


async def a_dropped_connection_is_reported(harness: ServerProviderHarness) -> None:
    async def drop(reply: Reply) -> None:
        await reply.begin()
        for frame in harness.server.dialect.frames([Say(text="one two three")])[:3]:
            await reply.write(frame)
        reply.drop()

    harness.server.answer(drop)
    error = await expect_failure(harness)
    assert (error.kind, error.retryable) == ("network", True)


async def a_server_that_does_not_run_is_reported(harness: ServerProviderHarness) -> None:
    harness.server.url = "http://127.0.0.1:1/v1"
    answer = await collect_answer(harness.with_deadlines(StreamDeadlines()), make_request(harness.model))
    error = answer.error
    assert error is not None
    # A local server does not come back by itself: the user must start it.
    assert (str(error), error.kind, error.retryable, error.hint) == (
        "nothing listens at 127.0.0.1:1: the connection was refused",
        "network",
        False,
        "is the server running?",
    )


async def an_endless_line_is_refused(harness: ServerProviderHarness) -> None:
    async def flood(reply: Reply) -> None:
        await reply.begin()
        await reply.write(b'data: {"a": "')
        for _ in range(2 * MAX_EVENT_BYTES // len(MB)):
            await reply.write(MB)

    harness.server.answer(flood)
    error = await expect_failure(harness)
    assert (error.kind, error.retryable) == ("protocol", False)


async def a_damaged_frame_is_not_an_answer(harness: ServerProviderHarness) -> None:
    frames = harness.server.dialect.frames([Say(text="one two three")])
    for place in (9, 20, len(frames[2]) // 2, len(frames[2]) - 1):
        damaged = bytearray(frames[2])
        damaged[place] ^= 1
        harness.server.requests.clear()
        harness.server.send(*frames[:2], bytes(damaged), *frames[3:])
        assert (await expect_failure(harness)).kind == "protocol"


async def lines_instead_of_frames_are_refused(harness: ServerProviderHarness) -> None:
    harness.server.send(b'data: {"choices": []}\n\n', kind="text/event-stream")
    error = await expect_failure(harness)
    assert (error.kind, error.retryable) == ("protocol", False)


async def an_endless_frame_is_refused(harness: ServerProviderHarness) -> None:
    prelude = struct.pack(">II", 2 * MAX_EVENT_BYTES, 0)
    harness.server.send(prelude + struct.pack(">I", zlib.crc32(prelude)), b"x" * 1000)
    error = await expect_failure(harness)
    assert (error.kind, error.retryable) == ("protocol", False)


BAD_SERVER_CHECKS: tuple[Callable[[ServerProviderHarness], Awaitable[None]], ...] = (
    a_refusal_has_the_kind_of_its_status,
    a_refusal_without_text_names_its_status,
    a_web_page_is_not_an_answer,
    a_document_is_not_a_stream,
    a_refusal_with_status_200_is_a_refusal,
    an_empty_body_is_not_an_answer,
    invalid_json_is_not_an_answer,
    a_truncated_stream_is_not_an_answer,
    an_answer_without_an_end_is_a_failure,
    a_second_end_of_an_answer_is_ignored,
    a_call_without_a_name_is_a_failure,
    a_failure_inside_an_answer_is_raised,
    chunk_boundaries_do_not_change_the_answer,
    silence_before_the_answer_times_out,
    silence_after_the_headers_times_out,
    silence_within_the_answer_times_out,
    silence_after_the_end_of_the_answer_is_not_a_failure,
    a_dropped_connection_is_reported,
    a_server_that_does_not_run_is_reported,
)
# For APIs with server-sent events, and for APIs with Amazon's frames.
SSE_CHECKS: tuple[Callable[[ServerProviderHarness], Awaitable[None]], ...] = (
    any_line_ending_is_accepted,
    an_endless_line_is_refused,
)
FRAME_CHECKS: tuple[Callable[[ServerProviderHarness], Awaitable[None]], ...] = (
    a_damaged_frame_is_not_an_answer,
    lines_instead_of_frames_are_refused,
    an_endless_frame_is_refused,
)
