"""Streams that a provider damaged, changed or made up: each wire either reads them or raises a `ProviderError`."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from given.damage import damaged_values, to_json
from given.examples import examples
from weft.errors import ProviderError
from weft.provider.anthropic.stream import AnthropicFold
from weft.provider.bedrock.stream import ConverseFold
from weft.provider.chunk import AnyChunk
from weft.provider.gemini.stream import GeminiFold
from weft.provider.openai_chat.stream import OpenAIChatFold
from weft.provider.openai_responses.stream import ResponsesFold
from weft.provider.sse import SseEvent


class Fold(Protocol):
    def feed(self, sse_event: Any, /) -> Iterable[AnyChunk]: ...
    def end(self) -> Iterable[AnyChunk]: ...


Events = list[dict[str, Any]]
CALL = {"id": "call_1", "name": "echo"}
ANTHROPIC: Events = [
    {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "so"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", **CALL, "input": {}}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]
CHAT: Events = [
    {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "hello"}}]},
    {"choices": [{"index": 0, "delta": {"reasoning_content": "so"}}]},
    {
        "choices": [
            {
                "delta": {
                    "tool_calls": [
                        {"index": 0, "id": "call_1", "function": {"name": "echo", "arguments": "{"}}
                    ]
                }
            }
        ]
    },
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    {
        "choices": [],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}},
    },
]
RESPONSES: Events = [
    {"type": "response.created", "response": {"id": "r"}},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "i"}},
    {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "delta": "hello"},
    {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message", "id": "i"}},
    {
        "type": "response.output_item.added",
        "output_index": 1,
        "item": {"type": "function_call", "id": "f", "call_id": "call_1", "name": "echo", "arguments": ""},
    },
    {"type": "response.function_call_arguments.delta", "item_id": "f", "output_index": 1, "delta": "{}"},
    {
        "type": "response.output_item.done",
        "output_index": 1,
        "item": {"type": "function_call", "id": "f", "call_id": "call_1", "name": "echo", "arguments": "{}"},
    },
    {"type": "response.completed", "response": {"id": "r", "usage": {"input_tokens": 3, "output_tokens": 2}}},
]
GEMINI: Events = [
    {"candidates": [{"content": {"parts": [{"text": "so", "thought": True, "thoughtSignature": "s"}]}}]},
    {
        "candidates": [
            {"content": {"parts": [{"text": "hello"}, {"functionCall": {"name": "echo", "args": {}}}]}}
        ]
    },
    {
        "candidates": [{"finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2},
    },
]
CONVERSE: Events = [
    {"messageStart": {"role": "assistant"}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "hello"}}},
    {"contentBlockStop": {"contentBlockIndex": 0}},
    {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "t", "name": "echo"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": "{}"}}}},
    {
        "contentBlockDelta": {
            "contentBlockIndex": 2,
            "delta": {"reasoningContent": {"text": "so", "signature": "s"}},
        }
    },
    {"contentBlockStop": {"contentBlockIndex": 1}},
    {"messageStop": {"stopReason": "tool_use"}},
    {"metadata": {"usage": {"inputTokens": 3, "outputTokens": 2}}},
]
WIRES: Mapping[str, tuple[Callable[[], Fold], Events]] = {
    "anthropic": (AnthropicFold, ANTHROPIC),
    "chat": (OpenAIChatFold, CHAT),
    "responses": (lambda: ResponsesFold({}), RESPONSES),
    "gemini": (lambda: GeminiFold({}, "echo"), GEMINI),
    "converse": (ConverseFold, CONVERSE),
}


@st.composite
def damaged_streams(draw: st.DrawFn) -> tuple[str, list[SseEvent]]:
    """Return a wire, and its events in another order, some twice and some not at all, with odd values in them, and one cut off."""
    wire = draw(st.sampled_from(sorted(WIRES)))
    events = WIRES[wire][1]
    chosen = draw(st.lists(st.sampled_from(events), max_size=12) | st.just(events))
    changed = draw(damaged_values(chosen))
    made = []
    for event in changed if isinstance(changed, list) else [changed]:
        is_named = (
            isinstance(event, dict) and len(event) == 1 and isinstance(next(iter(event.values())), dict)
        )
        name, body = next(iter(event.items())) if is_named else ("", event)
        made.append(SseEvent(name=name, data=to_json(body)))
    if made and draw(st.booleans()):
        made[-1] = SseEvent(name=made[-1].name, data=made[-1].data[: draw(st.integers(0, 80))])
    return wire, made


@given(stream=damaged_streams())
@examples(250, suppress_health_check=[HealthCheck.too_slow])
def test_any_stream_is_read_or_refused(stream: tuple[str, list[SseEvent]]) -> None:
    wire, events = stream
    fold, chunks = WIRES[wire][0](), list[AnyChunk]()
    try:
        for event in events:
            chunks += fold.feed(event)
        chunks += fold.end()
    except ProviderError:
        return
    assert chunks


@pytest.mark.parametrize("wire", WIRES)
def test_the_stream_of_each_wire_is_complete_before_it_is_damaged(wire: str) -> None:
    make_fold, events = WIRES[wire]
    fold, chunks = make_fold(), list[AnyChunk]()
    for event in events:
        name, body = next(iter(event.items())) if wire == "converse" else ("", event)
        chunks += fold.feed(SseEvent(name=name, data=json.dumps(body).encode()))
    chunks += fold.end()
    assert {"ToolCall", "Finished"} <= {type(chunk).__name__ for chunk in chunks}


@pytest.mark.parametrize(
    "event",
    [b'{"type":"response.output_item.added","item":true}', b'{"type":"response.completed","response":true}'],
)
def test_an_item_or_a_response_that_is_not_an_object_is_refused(event: bytes) -> None:
    with pytest.raises(ProviderError, match="cannot be read"):
        ResponsesFold({}).feed(SseEvent(name="", data=event))
