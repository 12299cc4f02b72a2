"""Convert pieces of a Gemini answer to chunks."""

from typing import Any

import msgspec
import pytest

from given.history_strategies import SIGNATURE
from weft.errors import ProviderError
from weft.provider.chunk import (
    AnyChunk,
    Finished,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Started,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolInputDelta,
    ToolInputStart,
    Usage,
)
from weft.provider.gemini.stream import GeminiFold
from weft.provider.sse import SseEvent

COUNTS = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 60,
    "toolUsePromptTokenCount": 5,
    "candidatesTokenCount": 30,
    "thoughtsTokenCount": 20,
    "totalTokenCount": 155,
}
USED = Usage(input=45, output=30, reasoning=20, cache_read=60, raw=COUNTS)
SIGNED = {"google": {"thoughtSignature": SIGNATURE}}


def fold(*events: dict[str, Any]) -> list[AnyChunk]:
    made = GeminiFold({"read_it": "read it"}, "call_3")
    fed = [chunk for event in events for chunk in made.feed(SseEvent("", msgspec.json.encode(event)))]
    return [*fed, *made.end()]


def piece(*parts: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
    candidate = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": reason} if reason else {})], **more}


def finished_chunk(reason: Any, raw: str, usage: Usage = Usage()) -> Finished:  # noqa: B008 - a frozen value
    return Finished(reason=reason, raw_reason=raw, usage=usage)


def test_a_complete_answer_is_read() -> None:
    chunks = fold(
        piece({"text": "**Look**", "thought": True}, responseId="r1"),
        piece({"text": " at it", "thought": True}),
        piece({"text": "One "}, {"text": "moment."}),
        piece({"functionCall": {"name": "read", "args": {"path": "a"}}, "thoughtSignature": SIGNATURE}),
        piece({"functionCall": {"id": "fc-7", "name": "read_it"}}),
        piece({"text": ""}, reason="STOP", usageMetadata=COUNTS),
    )
    assert chunks == [
        Started(),
        ReasoningStart(id="1"),
        ReasoningDelta(id="1", text="**Look**"),
        ReasoningDelta(id="1", text=" at it"),
        ReasoningEnd(id="1"),
        TextStart(id="2"),
        TextDelta(id="2", text="One "),
        TextDelta(id="2", text="moment."),
        TextEnd(id="2"),
        ToolInputStart(call_id="r1_0", tool="read"),
        ToolInputDelta(call_id="r1_0", text='{"path":"a"}'),
        ToolCall(call_id="r1_0", tool="read", raw='{"path":"a"}', metadata=SIGNED),
        ToolInputStart(call_id="fc-7", tool="read it"),
        ToolInputDelta(call_id="fc-7", text="{}"),
        ToolCall(call_id="fc-7", tool="read it", raw="{}", metadata={"google": {"callId": "fc-7"}}),
        finished_chunk("tool-calls", "STOP", USED),
    ]


def test_a_signature_on_an_empty_piece_belongs_to_the_text_before_it() -> None:
    chunks = fold(piece({"text": "4"}), piece({"text": "", "thoughtSignature": SIGNATURE}, reason="STOP"))
    assert chunks == [
        Started(),
        TextStart(id="1"),
        TextDelta(id="1", text="4"),
        TextEnd(id="1", metadata=SIGNED),
        finished_chunk("stop", "STOP"),
    ]


def test_two_signed_pieces_stay_separate() -> None:
    chunks = fold(
        piece({"text": "a", "thoughtSignature": SIGNATURE}),
        piece({"text": "b", "thoughtSignature": "b3RoZXI="}, reason="STOP"),
    )
    assert chunks[1:-1] == [
        TextStart(id="1"),
        TextDelta(id="1", text="a"),
        TextEnd(id="1", metadata=SIGNED),
        TextStart(id="2"),
        TextDelta(id="2", text="b"),
        TextEnd(id="2", metadata={"google": {"thoughtSignature": "b3RoZXI="}}),
    ]


def test_calls_without_ids_get_distinct_ids() -> None:
    call = {"functionCall": {"name": "read", "args": None}}
    same = {"functionCall": {"id": "same", "name": "read"}}
    chunks = fold(piece(call, call, same, same, reason="STOP"))
    calls = [(chunk.call_id, chunk.raw) for chunk in chunks if isinstance(chunk, ToolCall)]
    assert calls == [("call_3_0", "{}"), ("call_3_1", "{}"), ("same", "{}"), ("same_3", "{}")]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content-filter"),
        ("PROHIBITED_CONTENT", "content-filter"),
        ("RECITATION", "content-filter"),
        ("OTHER", "other"),
        ("SOMETHING_NEW", "other"),
    ],
)
def test_finish_reasons_are_translated(raw: str, reason: str) -> None:
    assert fold(piece({"text": "a"}, reason=raw))[-1] == finished_chunk(reason, raw)


def test_a_blocked_prompt_is_an_error() -> None:
    chunks = fold(
        {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9}}
    )
    usage = Usage(input=9, raw={"promptTokenCount": 9})
    assert chunks == [Started(usage=usage), finished_chunk("content-filter", "PROHIBITED_CONTENT", usage)]


@pytest.mark.parametrize(
    ("raw", "retryable"), [("MALFORMED_FUNCTION_CALL", True), ("UNEXPECTED_TOOL_CALL", False)]
)
def test_a_malformed_call_is_an_error(raw: str, retryable: bool) -> None:
    candidate = {"finishReason": raw, "finishMessage": "print(x)"}
    with pytest.raises(ProviderError, match=rf"{raw}\): print\(x\)") as caught:
        fold({"candidates": [candidate]})
    assert caught.value.retryable is retryable


@pytest.mark.parametrize(
    ("event", "kind", "status"),
    [
        (
            {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}},
            "overload",
            503,
        ),
        ({"error": {"code": 429, "message": "Slow.", "status": "RESOURCE_EXHAUSTED"}}, "rate-limit", 429),
        ({"error": {"code": 500, "message": "Oh.", "status": "INTERNAL"}}, "server", 500),
        (piece({"functionCall": {"args": {}}}), "protocol", None),
    ],
)
def test_an_error_inside_the_answer_is_raised(event: Any, kind: str, status: int | None) -> None:
    with pytest.raises(ProviderError) as caught:
        fold(piece({"text": "a"}), event)
    assert (caught.value.kind, caught.value.status) == (kind, status)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"<html>", b'{"candidates": 3}'])
def test_unreadable_events_are_an_error(data: bytes) -> None:
    with pytest.raises(ProviderError, match="cannot be read"):
        GeminiFold({}, "call").feed(SseEvent("", data))


def test_an_answer_without_an_end_is_a_retryable_error() -> None:
    with pytest.raises(ProviderError, match="broke off") as caught:
        fold(piece({"text": "a"}))
    assert caught.value.retryable


def test_usage_may_arrive_after_the_end() -> None:
    made = GeminiFold({}, "call")
    made.feed(SseEvent("", msgspec.json.encode(piece({"text": "a"}, reason="STOP"))))
    assert not made.done
    made.feed(SseEvent("", msgspec.json.encode({"usageMetadata": COUNTS})))
    assert made.done
    assert made.end()[-1] == finished_chunk("stop", "STOP", USED)
