"""Convert events of ConverseStream to chunks."""

from typing import Any

import msgspec
import pytest

from weft.errors import ProviderError
from weft.provider.bedrock.stream import ConverseFold
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

USED = {
    "inputTokens": 7,
    "outputTokens": 5,
    "totalTokens": 60,
    "cacheReadInputTokens": 40,
    "cacheWriteInputTokens": 8,
}


def event(name: str, **fields: Any) -> SseEvent:
    return SseEvent(name, msgspec.json.encode(fields))


def delta_event(index: int, **delta: Any) -> SseEvent:
    return event("contentBlockDelta", delta=delta, contentBlockIndex=index)


def stop(index: int) -> SseEvent:
    return event("contentBlockStop", contentBlockIndex=index)


def fold(*events: SseEvent) -> list[AnyChunk]:
    made = ConverseFold()
    return [chunk for each in events for chunk in made.feed(each)] + list(made.end())


START = event("messageStart", role="assistant")


def test_a_complete_answer_is_read() -> None:
    call = {"toolUse": {"toolUseId": "t1", "name": "read"}}
    chunks = fold(
        START,
        delta_event(0, reasoningContent={"text": "hm "}),
        delta_event(0, reasoningContent={"text": "\n"}),
        delta_event(0, reasoningContent={"signature": "sig"}),
        stop(0),
        delta_event(1, reasoningContent={"redactedContent": "c2VjcmV0"}),
        stop(1),
        delta_event(2, text="I "),
        delta_event(2, text="look."),
        stop(2),
        event("contentBlockStart", start=call, contentBlockIndex=3),
        delta_event(3, toolUse={"input": ""}),
        delta_event(3, toolUse={"input": '{"path":'}),
        delta_event(3, toolUse={"input": '"a"}'}),
        stop(3),
        event("messageStop", stopReason="tool_use"),
        event("metadata", usage=USED, metrics={"latencyMs": 1}, trace={"guardrail": {}}),
    )
    assert chunks == [
        Started(),
        ReasoningStart(id="reasoning-1"),
        ReasoningDelta(id="reasoning-1", text="hm "),
        ReasoningDelta(id="reasoning-1", text="\n"),
        ReasoningEnd(id="reasoning-1", metadata={"bedrock": {"signature": "sig", "tail": " \n"}}),
        ReasoningStart(id="reasoning-2"),
        ReasoningEnd(id="reasoning-2", metadata={"bedrock": {"redactedData": "c2VjcmV0"}}),
        TextStart(id="text-3"),
        TextDelta(id="text-3", text="I "),
        TextDelta(id="text-3", text="look."),
        TextEnd(id="text-3"),
        ToolInputStart(call_id="t1", tool="read"),
        ToolInputDelta(call_id="t1", text='{"path":'),
        ToolInputDelta(call_id="t1", text='"a"}'),
        ToolCall(call_id="t1", tool="read", raw='{"path":"a"}'),
        Finished(
            reason="tool-calls",
            raw_reason="tool_use",
            usage=Usage(input=7, output=5, cache_read=40, cache_write=8, raw=USED),
            metadata={"bedrock": {"usage": {"cacheWriteInputTokens": 8}, "trace": {"guardrail": {}}}},
        ),
    ]


@pytest.mark.parametrize(
    ("stop_reason", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "content-filter"),
        ("content_filtered", "content-filter"),
        ("malformed_tool_use", "error"),
        ("something_new", "other"),
        ("", "unknown"),
    ],
)
def test_stop_reasons_are_translated(stop_reason: str, reason: str) -> None:
    last = fold(START, event("messageStop", stopReason=stop_reason), event("metadata"))[-1]
    assert isinstance(last, Finished)
    assert (last.reason, last.raw_reason, last.usage) == (reason, stop_reason, Usage())


def test_an_answer_is_complete_without_usage_but_not_without_a_stop_reason() -> None:
    assert isinstance(fold(START, event("messageStop", stopReason="end_turn"))[-1], Finished)
    for events in ((START, delta_event(0, text="a")), (START, event("metadata", usage=USED))):
        with pytest.raises(ProviderError) as caught:
            fold(*events)
        assert (caught.value.kind, caught.value.retryable) == ("protocol", True)


@pytest.mark.parametrize(
    ("name", "message", "kind", "status"),
    [
        ("throttlingException", "Too many tokens, please wait before trying again.", "rate-limit", 429),
        ("validationException", "Input is too long for requested model.", "overflow", 400),
        ("modelStreamErrorException", "boom", "server", 424),
        ("internalServerException", "boom", "server", 500),
        ("serviceUnavailableException", "boom", "overload", 503),
    ],
)
def test_an_error_in_the_stream_has_its_kind(name: str, message: str, kind: str, status: int) -> None:
    with pytest.raises(ProviderError) as caught:
        fold(START, delta_event(0, text="a"), event(name, message=message))
    assert (caught.value.kind, caught.value.status, str(caught.value)) == (kind, status, message)


def test_unknown_events_are_ignored() -> None:
    later = event("contentBlockStart", start={"image": {"format": "png"}}, contentBlockIndex=0)
    assert fold(START, later, event("new"), event("messageStop", stopReason="end_turn"))[0] == Started()
