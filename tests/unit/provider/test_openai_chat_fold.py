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


def said(reason: str | None = None, **delta: Any) -> Any:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def piece(index: int | None = None, id: str | None = None, name: str | None = None, text: Any = None) -> Any:
    function = {"name": name, "arguments": text}
    call = {"index": index, "id": id, "function": function}
    return said(tool_calls=[{key: value for key, value in call.items() if value is not None}])


def calls(*events: Any) -> list[tuple[str, str, str]]:
    chunks = fold(*events, said("tool_calls"), DONE)
    return [(chunk.call_id, chunk.tool, chunk.raw) for chunk in chunks if isinstance(chunk, ToolCall)]


def finished(*events: Any) -> Finished:
    found = fold(*events)[-1]
    assert isinstance(found, Finished)
    return found


def test_thought_words_and_a_call() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "cost": 0.25}
    assert fold(
        said(role="assistant", content=""),
        said(reasoning_content="hm"),
        said(content="hi"),
        said(content=" there"),
        piece(0, "call_1", "read", ""),
        piece(0, text='{"a":'),
        piece(0, text="1}"),
        said("tool_calls"),
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


def test_thoughts_in_tags() -> None:
    chunks = fold(
        said(content="<thi"), said(content="nk>hm</think>"), said(content="\nhi"), said("stop"), DONE
    )
    assert [chunk for chunk in chunks if isinstance(chunk, ReasoningDelta | TextDelta)] == [
        ReasoningDelta(id="reasoning-1", text="hm"),
        TextDelta(id="text-2", text="hi"),
    ]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thoughts_in_a_field(field: str) -> None:
    chunks = fold(
        said(**{field: "hm", "content": None}), said(**{field: None, "content": "hi"}), said("stop"), DONE
    )
    assert ReasoningDelta(id="reasoning-1", text="hm") in chunks


def test_thoughts_in_a_list() -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "hi"},
    ]
    chunks = fold(said(content=content), said("stop"), DONE)
    assert [chunk.text for chunk in chunks if isinstance(chunk, ReasoningDelta | TextDelta)] == ["hm", "hi"]


def test_details_of_thoughts_are_kept_whole() -> None:
    def detail(**more: Any) -> Any:
        return said(reasoning_details=[{"type": "reasoning.text", "index": 0, "format": "x", **more}])

    late = {"type": "reasoning.encrypted", "data": "abc", "id": "call_1", "index": 1}
    chunks = fold(
        detail(text="h"),
        detail(text="m"),
        detail(text="", signature="sig"),
        said(content="hi"),
        said(
            reasoning_details=[late], tool_calls=[{"index": 0, "id": "call_1", "function": {"name": "read"}}]
        ),
        said("tool_calls"),
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
def test_calls(events: list[Any], expected: list[tuple[str, str, str]]) -> None:
    assert calls(*events) == expected


def test_a_call_without_a_name_is_a_failure() -> None:
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
def test_the_end_says_why(word: str, reason: str) -> None:
    found = finished(said(content="a"), said(word), DONE)
    assert (found.reason, found.raw_reason) == (reason, word)


def test_an_end_without_a_word() -> None:
    assert finished(said(content="a"), DONE).reason == "unknown"
    assert finished(piece(0, "a", "read", "{}"), said("stop"), DONE).reason == "tool-calls"
    assert finished(piece(0, "a", "read", "{}"), DONE).reason == "tool-calls"
    assert finished(said(content="a"), said("stop")).reason == "stop"


def test_what_comes_after_the_end_is_not_heard() -> None:
    chunks = fold(said(content="a"), said("stop"), said("length", content="b"), DONE, said(content="c"))
    assert [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)] == ["a"]


@pytest.mark.parametrize(
    "usage",
    [
        {"usage": {"prompt_tokens": 5}},
        {"x_groq": {"id": "r", "usage": {"prompt_tokens": 5}}, "usage": None},
        {"choices": [{"index": 0, "delta": {}, "usage": {"prompt_tokens": 5}}]},
    ],
)
def test_usage_wherever_it_stands(usage: Any) -> None:
    found = finished(said(content="a"), said("stop"), {"id": "c", "choices": [], **usage}, DONE)
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
def test_a_failure_inside_an_answer(event: Any, kind: str, status: int | None) -> None:
    with pytest.raises(ProviderError) as raised:
        fold(said(content="a"), event)
    assert (raised.value.kind, raised.value.status) == (kind, status)


@pytest.mark.parametrize("events", [[], [said(content="a")], [DONE], [said(role="assistant"), DONE]])
def test_an_answer_that_is_not_whole_is_broken(events: list[Any]) -> None:
    with pytest.raises(ProviderError) as raised:
        fold(*events)
    assert (raised.value.kind, raised.value.retryable) == ("protocol", True)


def test_other_choices_and_odd_fields_are_left_out() -> None:
    other = {"id": 7, "choices": [{"index": 1, "delta": {"content": "no"}}], "prompt_filter_results": []}
    assert (
        finished(other, {"choices": None}, {}, said(content="a", refusal=None), said("stop"), DONE).reason
        == "stop"
    )
