"""Convert events of Chat Completions, as different servers send them, to chunks."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

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
from weft.provider.openai_chat.stream import OpenAIChatFold
from weft.provider.sse import SseEvent
from weft.testing.provider_harness import check_order

DONE = "[DONE]"


def fold(*events: Any) -> list[AnyChunk]:
    folding = OpenAIChatFold("openrouter")
    chunks: list[AnyChunk] = []
    for event in events:
        data = event.encode() if isinstance(event, str) else msgspec.json.encode(event)
        chunks += folding.feed(SseEvent("", data))
    chunks += folding.end()
    check_order(chunks, whole=True)
    return chunks


def delta_event(reason: str | None = None, **delta: Any) -> Any:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def piece(index: int | None = None, id: str | None = None, name: str | None = None, text: Any = None) -> Any:
    function = {"name": name, "arguments": text}
    call = {"index": index, "id": id, "function": function}
    return delta_event(tool_calls=[{key: value for key, value in call.items() if value is not None}])


def calls(*events: Any) -> list[tuple[str, str, str]]:
    chunks = fold(*events, delta_event("tool_calls"), DONE)
    return [(chunk.call_id, chunk.tool, chunk.raw) for chunk in chunks if isinstance(chunk, ToolCall)]


def fold_to_end(*events: Any) -> Finished:
    found = fold(*events)[-1]
    assert isinstance(found, Finished)
    return found


def test_thoughts_text_and_a_call_are_read() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "cost": 0.25}
    assert fold(
        delta_event(role="assistant", content=""),
        delta_event(reasoning_content="hm"),
        delta_event(content="hi"),
        delta_event(content=" there"),
        piece(0, "call_1", "read", ""),
        piece(0, text='{"a":'),
        piece(0, text="1}"),
        delta_event("tool_calls"),
        {"id": "c", "choices": [], "usage": usage},
        DONE,
    ) == [
        Started(),
        ReasoningStart(id="reasoning-1"),
        ReasoningDelta(id="reasoning-1", text="hm"),
        ReasoningEnd(id="reasoning-1"),
        TextStart(id="text-2"),
        TextDelta(id="text-2", text="hi"),
        TextDelta(id="text-2", text=" there"),
        TextEnd(id="text-2"),
        ToolInputStart(call_id="call_1", tool="read"),
        ToolInputDelta(call_id="call_1", text='{"a":'),
        ToolInputDelta(call_id="call_1", text="1}"),
        ToolCall(call_id="call_1", tool="read", raw='{"a":1}'),
        Finished(
            reason="tool-calls",
            raw_reason="tool_calls",
            usage=Usage(input=5, output=3, cost=Decimal("0.25"), raw=usage),
        ),
    ]


def test_thoughts_in_tags_are_read() -> None:
    chunks = fold(
        delta_event(content="<thi"),
        delta_event(content="nk>hm</think>"),
        delta_event(content="\nhi"),
        delta_event("stop"),
        DONE,
    )
    assert [chunk for chunk in chunks if isinstance(chunk, ReasoningDelta | TextDelta)] == [
        ReasoningDelta(id="reasoning-1", text="hm"),
        TextDelta(id="text-2", text="hi"),
    ]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thoughts_in_a_field_are_read(field: str) -> None:
    chunks = fold(
        delta_event(**{field: "hm", "content": None}),
        delta_event(**{field: None, "content": "hi"}),
        delta_event("stop"),
        DONE,
    )
    assert ReasoningDelta(id="reasoning-1", text="hm") in chunks


def test_thoughts_in_a_list_are_read() -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "hi"},
    ]
    chunks = fold(delta_event(content=content), delta_event("stop"), DONE)
    assert [chunk.text for chunk in chunks if isinstance(chunk, ReasoningDelta | TextDelta)] == ["hm", "hi"]


def test_reasoning_details_are_merged_and_kept() -> None:
    def detail(**more: Any) -> Any:
        return delta_event(reasoning_details=[{"type": "reasoning.text", "index": 0, "format": "x", **more}])

    late = {"type": "reasoning.encrypted", "data": "abc", "id": "call_1", "index": 1}
    chunks = fold(
        detail(text="h"),
        detail(text="m"),
        detail(text="", signature="sig"),
        delta_event(content="hi"),
        delta_event(
            reasoning_details=[late], tool_calls=[{"index": 0, "id": "call_1", "function": {"name": "read"}}]
        ),
        delta_event("tool_calls"),
        DONE,
    )
    kept = [chunk.metadata for chunk in chunks if isinstance(chunk, ReasoningEnd)]
    whole = {"type": "reasoning.text", "index": 0, "format": "x", "text": "hm", "signature": "sig"}
    assert kept == [
        {"openrouter": {"reasoning_details": [whole]}},
        {"openrouter": {"reasoning_details": [late]}},
    ]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([piece(0, "a", "read"), piece(1, "b", "bash", "{}")], [("a", "read", "{}"), ("b", "bash", "{}")]),
        (
            [piece(None, "a", "read", "{}"), piece(None, "b", "bash", "{}")],
            [("a", "read", "{}"), ("b", "bash", "{}")],
        ),
        (
            [piece(0, "a", "read", "{}"), piece(0, "b", "bash", "{}")],
            [("a", "read", "{}"), ("b", "bash", "{}")],
        ),
        (
            [piece(0, None, "read", "{}"), piece(1, None, "bash", "{}")],
            [("c_0", "read", "{}"), ("c_1", "bash", "{}")],
        ),
        (
            [piece(None, None, "read", "{}"), piece(None, None, "bash")],
            [("c_0", "read", "{}"), ("c_1", "bash", "{}")],
        ),
        (
            [piece(0, "a"), piece(0, text='{"x"'), piece(0, name="read", text=":1}")],
            [("a", "read", '{"x":1}')],
        ),
        ([piece(0, "a", "read", '{"x"'), piece(0, "a", "read", ":1}")], [("a", "read", '{"x":1}')]),
        ([piece(0, "a", "read", '{"x"'), piece(0, "", "", ":1}")], [("a", "read", '{"x":1}')]),
        ([piece(0, "a", "read", {"x": 1})], [("a", "read", '{"x":1}')]),
        ([piece(0, "a", "read", '{"x": ')], [("a", "read", '{"x": ')]),
        (
            [
                piece(0, "a", "read", '{"x"'),
                piece(1, "b", "bash", "{"),
                piece(0, text=":1}"),
                piece(1, text="}"),
            ],
            [("a", "read", '{"x":1}'), ("b", "bash", "{}")],
        ),
    ],
    ids=[
        "in turn",
        "no index",
        "all at index 0",
        "no id",
        "neither",
        "the name last",
        "all repeated",
        "empty words repeated",
        "an object",
        "cut short",
        "at once",
    ],
)
def test_calls_are_collected_from_their_pieces(
    events: list[Any], expected: list[tuple[str, str, str]]
) -> None:
    assert calls(*events) == expected


def test_a_call_without_a_name_is_an_error() -> None:
    with pytest.raises(ProviderError, match="without a name") as raised:
        calls(piece(0, "a", text="{}"))
    assert raised.value.kind == "protocol"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content-filter"),
        ("eos", "stop"),
        ("STOP", "stop"),
        ("error", "error"),
        ("abort", "other"),
    ],
)
def test_finish_reasons_are_translated(word: str, reason: str) -> None:
    found = fold_to_end(delta_event(content="a"), delta_event(word), DONE)
    assert (found.reason, found.raw_reason) == (reason, word)


def test_a_missing_finish_reason_is_unknown_unless_there_are_calls() -> None:
    assert fold_to_end(delta_event(content="a"), DONE).reason == "unknown"
    assert fold_to_end(piece(0, "a", "read", "{}"), delta_event("stop"), DONE).reason == "tool-calls"
    assert fold_to_end(piece(0, "a", "read", "{}"), DONE).reason == "tool-calls"
    assert fold_to_end(delta_event(content="a"), delta_event("stop")).reason == "stop"


def test_content_after_the_end_is_ignored() -> None:
    chunks = fold(
        delta_event(content="a"),
        delta_event("stop"),
        delta_event("length", content="b"),
        DONE,
        delta_event(content="c"),
    )
    assert [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)] == ["a"]


@pytest.mark.parametrize(
    "usage",
    [
        {"usage": {"prompt_tokens": 5}},
        {"x_groq": {"id": "r", "usage": {"prompt_tokens": 5}}, "usage": None},
        {"choices": [{"index": 0, "delta": {}, "usage": {"prompt_tokens": 5}}]},
    ],
)
def test_usage_is_found_in_every_place_that_servers_use(usage: Any) -> None:
    found = fold_to_end(
        delta_event(content="a"), delta_event("stop"), {"id": "c", "choices": [], **usage}, DONE
    )
    assert found.usage == Usage(input=5, raw={"prompt_tokens": 5})


@pytest.mark.parametrize(
    ("event", "kind", "status"),
    [
        (
            {"error": {"code": 502, "message": "Upstream"}, "choices": [{"finish_reason": "error"}]},
            "server",
            502,
        ),
        ({"error": {"message": "boom"}}, "server", None),
        ({"error": "boom"}, "server", None),
        ({"object": "error", "message": "too long", "code": 400}, "bad-request", 400),
        ({"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}, "rate-limit", 429),
    ],
)
def test_an_error_event_raises_an_error_of_its_kind(event: Any, kind: str, status: int | None) -> None:
    with pytest.raises(ProviderError) as raised:
        fold(delta_event(content="a"), event)
    assert (raised.value.kind, raised.value.status) == (kind, status)


@pytest.mark.parametrize(
    "events", [[], [delta_event(content="a")], [DONE], [delta_event(role="assistant"), DONE]]
)
def test_an_incomplete_answer_is_an_error(events: list[Any]) -> None:
    with pytest.raises(ProviderError) as raised:
        fold(*events)
    assert (raised.value.kind, raised.value.retryable) == ("protocol", True)


def test_other_choices_and_unknown_fields_are_ignored() -> None:
    other = {"id": 7, "choices": [{"index": 1, "delta": {"content": "no"}}], "prompt_filter_results": []}
    assert (
        fold_to_end(
            other, {"choices": None}, {}, delta_event(content="a", refusal=None), delta_event("stop"), DONE
        ).reason
        == "stop"
    )
