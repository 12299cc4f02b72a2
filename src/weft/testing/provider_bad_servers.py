"""Checks for providers with a server that misbehaves: a typed error, in time, and no unbounded buffer."""

import struct
import zlib
from collections.abc import Awaitable, Callable
from typing import Final

from weft.errors import FaultKind, ProviderError
from weft.provider.endpoint import StreamDeadlines
from weft.provider.scripted import Say, UseTool
from weft.provider.sse import MAX_EVENT_BYTES
from weft.testing.fake_server import Reply
from weft.testing.provider_stand import ServerStand, asking, hear

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


async def expect_failure(stand: ServerStand, deadlines: StreamDeadlines | None = None) -> ProviderError:
    """Send one request and return its error."""
    provider = stand.provider if deadlines is None else stand.within(deadlines)
    heard = await hear(provider, asking(stand.model))
    assert heard.error is not None, f"no failure, but {heard.chunks}"
    assert stand.asked() == 1, "a stream must send exactly one request"
    return heard.error


async def a_refusal_is_of_its_kind(stand: ServerStand) -> None:
    for status, (kind, retryable) in REFUSALS.items():
        stand.server.requests.clear()
        stand.server.refuse(status, "no, because of this", retry_after="7")
        error = await expect_failure(stand)
        assert (error.kind, error.status, error.retryable) == (kind, status, retryable)
        assert (str(error), error.wait_ms) == ("no, because of this", 7000)
        assert "no, because" in error.body


async def a_refusal_without_words_says_its_status(stand: ServerStand) -> None:
    stand.server.send(status=502, kind="text/html")
    error = await expect_failure(stand)
    assert (error.kind, error.status, str(error)) == ("server", 502, "the server answered 502")


async def a_web_page_is_not_an_answer(stand: ServerStand) -> None:
    stand.server.send(b"<!doctype html><title>Welcome</title>", kind="text/html; charset=utf-8")
    error = await expect_failure(stand)
    assert (error.kind, error.retryable, error.status) == ("protocol", False, 200)
    assert "web page" in str(error)


async def a_document_is_not_a_stream(stand: ServerStand) -> None:
    stand.server.send(b'{"fine": true}', kind="application/json")
    assert (await expect_failure(stand)).kind == "protocol"


async def a_refusal_with_a_good_status_is_one(stand: ServerStand) -> None:
    stand.server.send(stand.server.dialect.refusal(429, "slow down"), kind="application/json")
    error = await expect_failure(stand)
    assert (error.kind, str(error)) == ("rate-limit", "slow down")


async def nothing_is_not_an_answer(stand: ServerStand) -> None:
    stand.server.send()
    error = await expect_failure(stand)
    assert (error.kind, error.retryable) == ("protocol", True)


async def wrong_json_is_not_an_answer(stand: ServerStand) -> None:
    first = stand.server.dialect.frames([Say(text="a b")])[0]
    for bad in (b"{nonsense}", b"[1, 2]", b'"a"', b"[" * 100_000):
        stand.server.requests.clear()
        stand.server.send(first, stand.server.dialect.wrapped(bad))
        assert (await expect_failure(stand)).kind == "protocol"


async def half_a_line_is_not_an_answer(stand: ServerStand) -> None:
    frames = b"".join(stand.server.dialect.frames([Say(text="one two three")]))
    for cut in range(1, len(frames) // 2, 37):
        stand.server.requests.clear()
        stand.server.send(frames[:cut])
        error = await expect_failure(stand)
        assert error.kind in {"protocol", "network"}
        assert error.retryable, f"{error}: an answer that was cut off must be retryable"


async def an_answer_without_an_end_is_broken(stand: ServerStand) -> None:
    frames = stand.server.dialect.frames([Say(text="one two three")])
    stand.server.send(*frames[:4])
    error = await expect_failure(stand)
    assert (error.kind, error.retryable) == ("protocol", True)


async def an_answer_that_ends_twice_ends_once(stand: ServerStand) -> None:
    frames = stand.server.dialect.frames([Say(text="one two")])
    stand.server.send(*frames, *frames)
    heard = await hear(stand.provider, asking(stand.model))
    assert (heard.error, heard.text()) == (None, "one two")


async def a_call_without_a_name_is_a_failure(stand: ServerStand) -> None:
    stand.server.send(*stand.server.dialect.nameless_call())
    error = await expect_failure(stand)
    assert (error.kind, error.retryable) == ("protocol", False)


async def a_failure_inside_an_answer_is_raised(stand: ServerStand) -> None:
    frames = stand.server.dialect.frames([Say(text="one two")])
    stand.server.send(*frames[:3], stand.server.dialect.failure("Overloaded"))
    error = await expect_failure(stand)
    assert (error.kind, error.retryable, str(error)) == ("overload", True, "Overloaded")


async def bytes_cut_anywhere_are_the_same_answer(stand: ServerStand) -> None:
    raw = b"".join(
        stand.server.dialect.frames([Say(text="五 👩‍👩‍👧"), UseTool(tool="read", input={"path": "五"})])
    )
    whole = None
    for size in (1, 7, len(raw)):
        stand.server.send(*(raw[start : start + size] for start in range(0, len(raw), size)))
        heard = await hear(stand.provider, asking(stand.model))
        assert heard.error is None
        assert whole in (None, heard.chunks)
        whole = heard.chunks


async def lines_may_end_as_they_like(stand: ServerStand) -> None:
    raw = b"".join(stand.server.dialect.frames([Say(text="one two")]))
    for end in (b"\r\n", b"\r"):
        stand.server.send(b": hello" + end, raw.replace(b"\n", end))
        heard = await hear(stand.provider, asking(stand.model))
        assert (heard.error, heard.text()) == (None, "one two")


async def silence_before_the_answer_has_an_end(stand: ServerStand) -> None:
    stand.server.hang()
    error = await expect_failure(stand, SHORT)
    assert (error.kind, error.retryable) == ("timeout", True)
    await stand.server.left()


async def silence_after_the_head_has_an_end(stand: ServerStand) -> None:
    stand.server.hang(Say(text="a"), pieces=0)
    assert (await expect_failure(stand, SHORT)).kind == "timeout"
    await stand.server.left()


async def silence_within_the_answer_has_an_end(stand: ServerStand) -> None:
    stand.server.hang(Say(text="one two three"), pieces=3)
    error = await expect_failure(stand, StreamDeadlines(connect=5, first_byte=30, between=0.05))
    assert (error.kind, error.retryable) == ("timeout", True)
    await stand.server.left()


async def silence_after_the_last_word_is_no_failure(stand: ServerStand) -> None:
    frames = stand.server.dialect.frames([Say(text="one two")])
    stand.server.hang(Say(text="one two"), pieces=len(frames))
    heard = await hear(stand.provider, asking(stand.model))
    # If the last event does not mark the end, the provider waits for the end of the stream, which does not come.
    assert heard.text() == "one two"


async def a_dropped_connection_is_told(stand: ServerStand) -> None:
    async def drop(reply: Reply) -> None:
        await reply.begin()
        for frame in stand.server.dialect.frames([Say(text="one two three")])[:3]:
            await reply.write(frame)
        reply.drop()

    stand.server.answer(drop)
    error = await expect_failure(stand)
    assert (error.kind, error.retryable) == ("network", True)


async def a_server_that_is_not_there_is_told(stand: ServerStand) -> None:
    stand.server.url = "http://127.0.0.1:1/v1"
    heard = await hear(stand.within(StreamDeadlines()), asking(stand.model))
    error = heard.error
    assert error is not None
    # A local server does not come back by itself: the user must start it.
    assert (str(error), error.kind, error.retryable, error.hint) == (
        "nothing listens at 127.0.0.1:1: the connection was refused",
        "network",
        False,
        "is the server running?",
    )


async def a_line_without_end_is_refused(stand: ServerStand) -> None:
    async def flood(reply: Reply) -> None:
        await reply.begin()
        await reply.write(b'data: {"a": "')
        for _ in range(2 * MAX_EVENT_BYTES // len(MB)):
            await reply.write(MB)

    stand.server.answer(flood)
    error = await expect_failure(stand)
    assert (error.kind, error.retryable) == ("protocol", False)


async def a_damaged_frame_is_not_an_answer(stand: ServerStand) -> None:
    frames = stand.server.dialect.frames([Say(text="one two three")])
    for place in (9, 20, len(frames[2]) // 2, len(frames[2]) - 1):
        damaged = bytearray(frames[2])
        damaged[place] ^= 1
        stand.server.requests.clear()
        stand.server.send(*frames[:2], bytes(damaged), *frames[3:])
        assert (await expect_failure(stand)).kind == "protocol"


async def lines_are_not_frames(stand: ServerStand) -> None:
    stand.server.send(b'data: {"choices": []}\n\n', kind="text/event-stream")
    error = await expect_failure(stand)
    assert (error.kind, error.retryable) == ("protocol", False)


async def a_frame_without_end_is_refused(stand: ServerStand) -> None:
    prelude = struct.pack(">II", 2 * MAX_EVENT_BYTES, 0)
    stand.server.send(prelude + struct.pack(">I", zlib.crc32(prelude)), b"x" * 1000)
    error = await expect_failure(stand)
    assert (error.kind, error.retryable) == ("protocol", False)


BAD_SERVERS: tuple[Callable[[ServerStand], Awaitable[None]], ...] = (
    a_refusal_is_of_its_kind,
    a_refusal_without_words_says_its_status,
    a_web_page_is_not_an_answer,
    a_document_is_not_a_stream,
    a_refusal_with_a_good_status_is_one,
    nothing_is_not_an_answer,
    wrong_json_is_not_an_answer,
    half_a_line_is_not_an_answer,
    an_answer_without_an_end_is_broken,
    an_answer_that_ends_twice_ends_once,
    a_call_without_a_name_is_a_failure,
    a_failure_inside_an_answer_is_raised,
    bytes_cut_anywhere_are_the_same_answer,
    silence_before_the_answer_has_an_end,
    silence_after_the_head_has_an_end,
    silence_within_the_answer_has_an_end,
    silence_after_the_last_word_is_no_failure,
    a_dropped_connection_is_told,
    a_server_that_is_not_there_is_told,
)
# For APIs with server-sent events, and for APIs with Amazon's frames.
IN_LINES: tuple[Callable[[ServerStand], Awaitable[None]], ...] = (
    lines_may_end_as_they_like,
    a_line_without_end_is_refused,
)
IN_FRAMES: tuple[Callable[[ServerStand], Awaitable[None]], ...] = (
    a_damaged_frame_is_not_an_answer,
    lines_are_not_frames,
    a_frame_without_end_is_refused,
)
