"""Convert events of the Responses API to chunks."""

from typing import Any

import msgspec
import pytest

from fake.responses import ResponsesDialect
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
from weft.provider.openai_responses.stream import ResponsesFold, to_usage
from weft.provider.scripted import End, Say, Think, UseTool
from weft.provider.sse import SseEvent, SseReader

CREATED = {"type": "response.created", "response": {"id": "resp_1"}}
COUNTS = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    "output_tokens": 50,
    "output_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 150,
}
USED = Usage(input=30, output=30, reasoning=20, cache_read=60, cache_write=10, raw=COUNTS)
BARE = Usage(raw=None)


def fold(*events: dict[str, Any]) -> list[AnyChunk]:
    made = ResponsesFold({"read_it": "read it"})
    return [
        chunk
        for event in events
        for chunk in made.feed(SseEvent(event.get("type", ""), msgspec.json.encode(event)))
    ]


def fold_script(*moves: Any) -> list[AnyChunk]:
    reader, made = SseReader(), ResponsesFold({})
    frames = ResponsesDialect().frames(moves)
    return [chunk for frame in frames for event in reader.feed(frame) for chunk in made.feed(event)]


def item(kind: str, index: int, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": fields}


def end(kind: str = "completed", **response: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": response}


def test_a_complete_answer_is_read() -> None:
    usage = Usage(input=30, output=30, reasoning=20, cache_read=60, cache_write=10)
    chunks = fold_script(
        Think(text="Look at it."),
        Say(text="One moment."),
        UseTool(tool="read", input={"path": "a"}),
        End(usage=usage),
    )
    secret = "gAAAAABMTpMb29rIGF0IGl0Lg=="
    assert chunks == [
        Started(),
        ReasoningStart(id="reasoning-0-0", metadata={"openai": {"itemId": "rs_1"}}),
        ReasoningDelta(id="reasoning-0-0", text="Look"),
        ReasoningDelta(id="reasoning-0-0", text=" at"),
        ReasoningDelta(id="reasoning-0-0", text=" it."),
        ReasoningEnd(
            id="reasoning-0-0", metadata={"openai": {"itemId": "rs_1", "reasoningEncryptedContent": secret}}
        ),
        TextStart(id="text-1", metadata={"openai": {"itemId": "msg_2"}}),
        TextDelta(id="text-1", text="One"),
        TextDelta(id="text-1", text=" moment."),
        TextEnd(id="text-1", metadata={"openai": {"itemId": "msg_2"}}),
        ToolInputStart(call_id="call_4", tool="read"),
        ToolInputDelta(call_id="call_4", text='{"path":"a"}'),
        ToolCall(call_id="call_4", tool="read", raw='{"path":"a"}', metadata={"openai": {"itemId": "fc_3"}}),
        Finished(
            reason="tool-calls",
            raw_reason="completed",
            usage=USED,
            metadata={"openai": {"responseId": "resp_4", "serviceTier": "default"}},
        ),
    ]


def test_items_are_identified_by_index_if_ids_change() -> None:
    chunks = fold(
        CREATED,
        item("added", 0, type="message", id="a", phase="final_answer"),
        {"type": "response.output_text.delta", "output_index": 0, "item_id": "b", "delta": "Hi"},
        {"type": "response.output_text.delta", "output_index": 0, "item_id": "c", "delta": "!"},
        item("done", 0, type="message", id="d", phase="final_answer", content=[]),
        end(),
    )
    kept = {"openai": {"itemId": "a", "phase": "final_answer"}}
    assert chunks == [
        Started(),
        TextStart(id="text-0", metadata=kept),
        TextDelta(id="text-0", text="Hi"),
        TextDelta(id="text-0", text="!"),
        TextEnd(id="text-0", metadata=kept),
        Finished(reason="stop", raw_reason="completed", usage=BARE),
    ]


def test_every_part_of_a_summary_is_a_thought_and_the_last_has_the_encrypted_content() -> None:
    chunks = fold(
        item("added", 0, type="reasoning", id="rs_1", encrypted_content="early"),
        {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0},
        {
            "type": "response.reasoning_summary_text.delta",
            "output_index": 0,
            "summary_index": 0,
            "delta": "a",
        },
        {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1},
        {
            "type": "response.reasoning_summary_text.delta",
            "output_index": 0,
            "summary_index": 1,
            "delta": "b",
        },
        item("done", 0, type="reasoning", id="rs_1", encrypted_content="secret"),
    )
    kept = {"openai": {"itemId": "rs_1"}}
    assert chunks == [
        Started(),
        ReasoningStart(id="reasoning-0-0", metadata=kept),
        ReasoningDelta(id="reasoning-0-0", text="a"),
        ReasoningEnd(id="reasoning-0-0", metadata=kept),
        ReasoningStart(id="reasoning-0-1", metadata=kept),
        ReasoningDelta(id="reasoning-0-1", text="b"),
        ReasoningEnd(
            id="reasoning-0-1", metadata={"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "secret"}}
        ),
    ]


def test_a_thought_without_text_is_kept_for_its_encrypted_content() -> None:
    chunks = fold(
        item("added", 0, type="reasoning", id="rs_1", summary=[]),
        item("done", 0, type="reasoning", id="rs_1", summary=[], encrypted_content="secret"),
    )
    assert chunks == [
        Started(),
        ReasoningStart(id="reasoning-0-0", metadata={"openai": {"itemId": "rs_1"}}),
        ReasoningEnd(
            id="reasoning-0-0", metadata={"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "secret"}}
        ),
    ]


def test_an_answer_with_only_the_final_event_is_read() -> None:
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]},
        {"type": "function_call", "call_id": "c", "name": "read_it", "arguments": ""},
    ]
    assert fold(end(output=output, usage=COUNTS)) == [
        Started(),
        ReasoningStart(id="reasoning-0-0"),
        ReasoningDelta(id="reasoning-0-0", text="hm"),
        ReasoningEnd(id="reasoning-0-0"),
        TextStart(id="text-1"),
        TextDelta(id="text-1", text="Hi"),
        TextEnd(id="text-1"),
        ToolInputStart(call_id="c", tool="read it"),
        ToolCall(call_id="c", tool="read it", raw="{}"),
        Finished(reason="tool-calls", raw_reason="completed", usage=USED),
    ]


def test_a_refusal_becomes_text() -> None:
    chunks = fold(
        item("added", 0, type="message", id=""),
        {"type": "response.refusal.delta", "output_index": 0, "delta": "I cannot."},
        item("done", 0, type="message", content=[{"type": "refusal", "refusal": "I cannot."}]),
        end(),
    )
    assert chunks == [
        Started(),
        TextStart(id="text-0"),
        TextDelta(id="text-0", text="I cannot."),
        TextEnd(id="text-0"),
        Finished(reason="content-filter", raw_reason="refusal", usage=BARE),
    ]


@pytest.mark.parametrize(
    ("why", "reason"),
    [("max_output_tokens", "length"), ("content_filter", "content-filter"), ("new", "other")],
)
def test_a_truncated_answer_closes_its_open_parts(why: str, reason: Any) -> None:
    chunks = fold(
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Hal"},
        item("added", 1, type="function_call", call_id="c", name="read"),
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"pa'},
        item("added", 2, type="function_call", call_id="d", name="read"),
        end("incomplete", incomplete_details={"reason": why}),
    )
    assert chunks == [
        Started(),
        TextStart(id="text-0"),
        TextDelta(id="text-0", text="Hal"),
        ToolInputStart(call_id="c", tool="read"),
        ToolInputDelta(call_id="c", text='{"pa'),
        ToolInputStart(call_id="d", tool="read"),
        TextEnd(id="text-0"),
        ToolCall(call_id="c", tool="read", raw='{"pa'),
        ToolCall(call_id="d", tool="read", raw="{"),
        Finished(reason=reason, raw_reason=why, usage=BARE),
    ]


def test_unknown_events_are_ignored() -> None:
    chunks = fold(
        CREATED,
        {"type": "response.web_search_call.searching", "output_index": 0, "delta": {"x": 1}},
        item("added", 0, type="web_search_call", id="ws_1"),
        item("done", 0, type="web_search_call", id="ws_1"),
        {"type": "keepalive"},
        end(),
    )
    assert chunks == [Started(), Finished(reason="stop", raw_reason="completed", usage=BARE)]


@pytest.mark.parametrize(
    ("event", "kind", "status", "message"),
    [
        (
            {
                "type": "error",
                "error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "Pay."},
            },
            "quota",
            429,
            "Pay.",
        ),
        (
            {"type": "error", "error": {"type": "server_error", "code": None, "message": "Sorry."}},
            "server",
            500,
            "Sorry.",
        ),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "Slow."}, "rate-limit", 429, "Slow."),
        (
            end("failed", error={"code": "context_length_exceeded", "message": "Too long."}),
            "overflow",
            400,
            "Too long.",
        ),
        ({"error": {"type": "server_error", "message": "Odd."}}, "server", 500, "Odd."),
        (
            item("added", 0, type="function_call", call_id="c"),
            "protocol",
            None,
            "the model called a tool without a name or an id",
        ),
    ],
)
def test_an_error_inside_the_answer_is_raised(
    event: Any, kind: str, status: int | None, message: str
) -> None:
    with pytest.raises(ProviderError) as caught:
        fold(CREATED, event)
    error = caught.value
    assert (error.kind, error.status, str(error)) == (kind, status, message)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"x"', b"<html>", b'{"type": 3}'])
def test_unreadable_events_are_an_error(data: bytes) -> None:
    with pytest.raises(ProviderError, match="cannot be read"):
        list(ResponsesFold({}).feed(SseEvent("", data)))


def test_an_answer_without_an_end_is_a_retryable_error() -> None:
    with pytest.raises(ProviderError, match="broke off") as caught:
        ResponsesFold({}).end()
    assert caught.value.retryable


def test_no_token_is_counted_twice() -> None:
    assert to_usage(COUNTS) == USED
    assert to_usage(None) == Usage()
    assert to_usage({"input_tokens": 5}) == Usage(input=5, raw={"input_tokens": 5})
