"""Convert events of Anthropic's Messages API to chunks."""

from typing import Any

import msgspec
import pytest

from weft.errors import ProviderError
from weft.provider.anthropic.stream import AnthropicFold
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
from weft.provider.sse import SseEvent
from weft.testing.provider_harness import check_order

START = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3, "output_tokens": 1}}}
END = [
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]


def fold(*events: Any, ended: bool = True) -> list[AnyChunk]:
    folding = AnthropicFold()
    chunks = [
        chunk
        for event in events
        for chunk in folding.feed(SseEvent(event.get("type", ""), msgspec.json.encode(event)))
    ]
    if ended:
        chunks += folding.end()
        check_order(chunks, whole=True)
    return chunks


def begin(index: int, kind: str, **more: Any) -> Any:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **more}}


def delta(index: int, kind: str, **more: Any) -> Any:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **more}}


def stop(index: int) -> Any:
    return {"type": "content_block_stop", "index": index}


def test_thoughts_text_and_a_call_are_read() -> None:
    chunks = fold(
        START,
        {"type": "ping"},
        begin(0, "thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "thinking_delta", thinking=" so \n"),
        delta(0, "thinking_delta", thinking="\n"),
        delta(0, "signature_delta", signature="si"),
        delta(0, "signature_delta", signature="g"),
        stop(0),
        begin(1, "redacted_thinking", data="secret"),
        stop(1),
        begin(2, "text", text=""),
        delta(2, "text_delta", text="hi"),
        stop(2),
        begin(3, "tool_use", id="toolu_1", name="read", input={}),
        delta(3, "input_json_delta", partial_json=""),
        delta(3, "input_json_delta", partial_json='{"a":'),
        delta(3, "input_json_delta", partial_json="1}"),
        stop(3),
        begin(4, "server_tool_use", id="srv_1", name="web_search"),
        stop(4),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 20, "cache_read_input_tokens": 5, "cache_creation_input_tokens": None},
        },
        {"type": "message_stop"},
        *END,
    )
    assert chunks[: chunks.index(TextStart(id="m:2"))] == [
        Started(usage=Usage(input=3, output=1, raw={"input_tokens": 3, "output_tokens": 1})),
        ReasoningStart(id="m:0"),
        ReasoningDelta(id="m:0", text="hm"),
        ReasoningDelta(id="m:0", text=" so \n"),
        ReasoningDelta(id="m:0", text="\n"),
        ReasoningEnd(id="m:0", metadata={"anthropic": {"signature": "sig", "tail": " \n\n"}}),
        ReasoningStart(id="m:1", metadata={"anthropic": {"redactedData": "secret"}}),
        ReasoningEnd(id="m:1", metadata={"anthropic": {"redactedData": "secret"}}),
    ]
    raw = {"input_tokens": 3, "output_tokens": 20, "cache_read_input_tokens": 5}
    assert chunks[chunks.index(TextStart(id="m:2")) :][:9] == [
        TextStart(id="m:2"),
        TextDelta(id="m:2", text="hi"),
        TextEnd(id="m:2"),
        ToolInputStart(call_id="toolu_1", tool="read"),
        ToolInputDelta(call_id="toolu_1", text='{"a":'),
        ToolInputDelta(call_id="toolu_1", text="1}"),
        ToolCall(call_id="toolu_1", tool="read", raw='{"a":1}'),
        Finished(
            reason="tool-calls",
            raw_reason="tool_use",
            usage=Usage(input=3, output=20, cache_read=5, raw=raw),
            metadata={"anthropic": {"cacheCreationInputTokens": 0}},
        ),
    ]


def test_open_blocks_are_closed_at_the_end() -> None:
    chunks = fold(
        START, begin(0, "text"), delta(0, "text_delta", text="a"), begin(1, "tool_use", name="read"), *END
    )
    assert [type(chunk).__name__ for chunk in chunks[-3:]] == ["TextEnd", "ToolCall", "Finished"]
    assert chunks[-2] == ToolCall(call_id="m_1", tool="read", raw="{}")


def test_events_that_compatible_servers_omit_are_not_required() -> None:
    chunks = fold(
        START,
        delta(0, "text_delta", text="a"),
        begin(1, "tool_use", id="t", name="read", input={"x": 1}),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    )
    assert chunks[1:5] == [
        TextStart(id="m:0"),
        TextDelta(id="m:0", text="a"),
        ToolInputStart(call_id="t", tool="read"),
        TextEnd(id="m:0"),
    ]
    assert chunks[5] == ToolCall(call_id="t", tool="read", raw='{"x":1}')


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content-filter"),
        ("pause_turn", "other"),
        ("something new", "other"),
        (None, "unknown"),
    ],
)
def test_stop_reasons_are_translated(word: str | None, reason: str) -> None:
    end = {"type": "message_delta", "delta": {"stop_reason": word}, "usage": {"output_tokens": 1}}
    finished = fold(START, end, {"type": "message_stop"})[-1]
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.raw_reason) == (reason, word or "")


@pytest.mark.parametrize(
    ("event", "kind", "status"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overload", 529),
        ({"type": "error", "error": {"type": "api_error", "message": "Internal"}}, "server", 500),
        ({"error": {"message": "boom"}}, "server", None),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "bad"}}, "bad-request", 400),
    ],
)
def test_an_error_event_raises_an_error_of_its_kind(event: Any, kind: str, status: int | None) -> None:
    with pytest.raises(ProviderError) as raised:
        fold(START, event)
    assert (raised.value.kind, raised.value.status) == (kind, status)


def test_an_answer_without_an_end_is_incomplete() -> None:
    for events in ([START], [START, begin(0, "text")], []):
        with pytest.raises(ProviderError, match="broke off") as raised:
            fold(*events)
        assert raised.value.retryable
