"""Requests to Anthropic's Messages API."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fake.anthropic import check, signature_of, to_redacted
from fake.refusing import RefusedError
from given.model_requests import request
from given.models import CLAUDE
from weft.provider.anthropic.request import to_body
from weft.provider.body import to_bytes
from weft.provider.contract import (
    AssistantModelMessage,
    CallContent,
    MediaContent,
    ReasoningContent,
    ResultContent,
    TextContent,
    ToolModelMessage,
    UserModelMessage,
)
from weft.provider.normalise import CONTINUE_TEXT, INTERRUPTED, NO_OUTPUT
from weft.testing.provider_harness import READ

MARK = {"cache_control": {"type": "ephemeral"}}
PNG = "iVBORw0KGgoAAAAAAAAAAAAAAAAAAAAA"
HELLO = UserModelMessage(content=(TextContent(text="hello"),))
CALL = CallContent(call_id="toolu_1", tool="read", input={"path": "a"})
RESULT = ToolModelMessage(content=(ResultContent(call_id="toolu_1", tool="read", output="text"),))


def reasoning(text: str = "hm", **kept: str) -> ReasoningContent:
    return ReasoningContent(text=text, metadata={"anthropic": {"signature": signature_of(text)} | kept})


def messages(*turns: Any, **more: Any) -> Any:
    body = to_body(request(CLAUDE, *turns, tools=(READ,), **more))
    check(msgspec.json.decode(to_bytes(body)))
    return body["messages"]


def test_a_complete_request_is_encoded() -> None:
    asked = request(
        CLAUDE,
        HELLO,
        AssistantModelMessage(content=(reasoning(), TextContent(text="I look"), CALL)),
        RESULT,
        HELLO,
        tools=(READ,),
        system=("who you are", "", "where you are"),
        max_output=1000,
        temperature=0.5,
        options={"metadata": {"user_id": "u"}, "nonsense": 1},
    )
    body = to_body(asked)
    check(msgspec.json.decode(to_bytes(body)))
    assert body == {
        "model": "claude-sonnet-4",
        "stream": True,
        "max_tokens": 1000,
        "temperature": 0.5,
        "metadata": {"user_id": "u"},
        "tools": [{"name": "read", "description": "Read a file.", "input_schema": READ.schema}],
        "tool_choice": {"type": "auto"},
        "system": [
            {"type": "text", "text": "who you are", **MARK},
            {"type": "text", "text": "where you are", **MARK},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": signature_of("hm")},
                    {"type": "text", "text": "I look"},
                    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}, **MARK},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [{"type": "text", "text": "text"}],
                    },
                    {"type": "text", "text": "hello", **MARK},
                ],
            },
        ],
    }
    assert list(body)[-1] == "messages"


def test_a_thought_is_sent_back_unchanged() -> None:
    signed = ReasoningContent(
        text="so", metadata={"anthropic": {"signature": signature_of("so \n"), "tail": " \n"}}
    )
    kept = ReasoningContent(text="", metadata={"anthropic": {"redactedData": to_redacted("x")}})
    foreign = ReasoningContent(text="not mine", metadata={"openai": {"itemId": "rs_1"}})
    unsigned = ReasoningContent(text="not signed")
    turn = AssistantModelMessage(content=(signed, kept, foreign, unsigned, TextContent(text="a")))
    assert messages(HELLO, turn, HELLO)[1]["content"] == [
        {"type": "thinking", "thinking": "so \n", "signature": signature_of("so \n")},
        {"type": "redacted_thinking", "data": to_redacted("x")},
        {"type": "text", "text": "a", **MARK},
    ]


def test_trailing_thoughts_are_not_sent() -> None:
    alone = AssistantModelMessage(content=(reasoning(),))
    last = AssistantModelMessage(content=(TextContent(text="a"), reasoning()))
    assert [message["role"] for message in messages(HELLO, alone, HELLO)] == ["user"]
    assert messages(HELLO, last, HELLO)[1]["content"] == [{"type": "text", "text": "a", **MARK}]


def test_results_follow_their_calls() -> None:
    turn = AssistantModelMessage(
        content=(CALL, TextContent(text="and then"), replace(CALL, call_id="toolu:2"))
    )
    answer = ToolModelMessage(content=(ResultContent(call_id="toolu:2", tool="read", output="", error=True),))
    encoded_messages = messages(HELLO, turn, answer)
    assert [block["type"] for block in encoded_messages[1]["content"]] == ["text", "tool_use", "tool_use"]
    assert encoded_messages[2]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": [{"type": "text", "text": INTERRUPTED}],
            "is_error": True,
        },
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": NO_OUTPUT, "is_error": True, **MARK},
    ]


def test_files_are_encoded_by_kind() -> None:
    picture = MediaContent(url=f"data:image/jpeg;base64,{PNG}", mime="image/jpeg")
    paper = MediaContent(url="https://example.com/a.pdf", mime="application/pdf", filename="a.pdf")
    sketch = MediaContent(url="data:image/svg+xml,<svg/>", mime="image/svg+xml", filename="a.svg")
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    assert messages(UserModelMessage(content=(picture, paper, sketch)))[0]["content"] == [
        {"type": "image", "source": source},
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}, "title": "a.pdf"},
        {
            "type": "text",
            "text": 'ERROR: Cannot read "a.svg" (this model does not support image input). Inform the user.',
            **MARK,
        },
    ]
    shown = ToolModelMessage(
        content=(ResultContent(call_id="toolu_1", tool="read", output="", files=(picture,)),)
    )
    [result] = messages(HELLO, AssistantModelMessage(content=(CALL,)), shown)[2]["content"]
    assert result["content"] == [{"type": "image", "source": source}]


def test_an_empty_prompt_is_replaced_by_a_request_to_continue() -> None:
    blank = UserModelMessage(content=(TextContent(text=" "),))
    assert messages(blank) == [{"role": "user", "content": [{"type": "text", "text": CONTINUE_TEXT, **MARK}]}]


@pytest.mark.parametrize(
    ("most", "asked", "budget", "expected"),
    [
        (64_000, 32_000, 16_000, (16_000, 48_000)),
        (32_000, 32_000, 31_999, (31_999, 32_000)),
        (8_000, 8_000, 16_000, (7_999, 8_000)),
        (1_000, 1_000, 16_000, (None, 1_000)),
    ],
)
def test_the_thinking_budget_fits_the_output_limit(
    most: int, asked: int, budget: int, expected: tuple[int | None, int]
) -> None:
    model = replace(CLAUDE, limit=replace(CLAUDE.limit, output=most))
    options = {"thinking": {"type": "enabled", "budgetTokens": budget}}
    body = to_body(request(model, HELLO, max_output=asked, temperature=0.2, top_k=5, options=options))
    check(msgspec.json.decode(to_bytes(body)))
    assert (body.get("thinking", {}).get("budget_tokens"), body["max_tokens"]) == expected


def test_a_turn_begun_without_thinking_continues_without_it() -> None:
    options = {"thinking": {"type": "enabled", "budgetTokens": 2000}}
    turns = (HELLO, AssistantModelMessage(content=(CALL,)), RESULT)
    assert "thinking" not in to_body(request(CLAUDE, *turns, tools=(READ,), options=options))
    thinking = (HELLO, AssistantModelMessage(content=(reasoning(), CALL)), RESULT)
    assert "thinking" in to_body(request(CLAUDE, *thinking, tools=(READ,), options=options))


def test_only_the_first_answer_of_a_turn_must_begin_with_a_thought() -> None:
    options = {"thinking": {"type": "enabled", "budgetTokens": 2000}}
    begun = (
        HELLO,
        AssistantModelMessage(content=(reasoning(), CALL)),
        RESULT,
        AssistantModelMessage(content=(CALL,)),
        RESULT,
    )
    body = to_body(request(CLAUDE, *begun, tools=(READ,), options=options))
    check(msgspec.json.decode(to_bytes(body)))
    assert "thinking" in body
    next_turn = (*begun, HELLO, AssistantModelMessage(content=(CALL,)), RESULT)
    assert "thinking" not in to_body(request(CLAUDE, *next_turn, tools=(READ,), options=options))


def test_adaptive_thinking_is_requested_throughout_a_turn() -> None:
    turns = (HELLO, AssistantModelMessage(content=(CALL,)), RESULT)
    body = to_body(request(CLAUDE, *turns, tools=(READ,), options={"thinking": {"type": "adaptive"}}))
    check(msgspec.json.decode(to_bytes(body)))
    assert body["thinking"] == {"type": "adaptive"}


def test_a_history_with_calls_but_without_tools_gets_a_placeholder_tool() -> None:
    body = to_body(request(CLAUDE, HELLO, AssistantModelMessage(content=(CALL,)), RESULT))
    check(msgspec.json.decode(to_bytes(body)))
    assert ([tool["name"] for tool in body["tools"]], body["tool_choice"]) == (["_noop"], {"type": "none"})
    assert "tools" not in to_body(request(CLAUDE, HELLO))


def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter_one() -> None:
    turns: list[Any] = [HELLO]
    sent = []
    for number in range(30):
        sent.append(to_body(request(CLAUDE, *turns, tools=(READ,))))
        id = f"toolu_{number}"
        turns += [AssistantModelMessage(content=(reasoning(), replace(CALL, call_id=id)))]
        turns += [ToolModelMessage(content=(ResultContent(call_id=id, tool="read", output="x"),))]

    def strip_cache_marks(body: Any) -> bytes:
        return to_bytes(body).replace(b',"cache_control":{"type":"ephemeral"}', b"").removesuffix(b"]}")

    for before, after in pairwise(sent):
        assert strip_cache_marks(after).startswith(strip_cache_marks(before))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda body: body["messages"].pop(2),
        lambda body: body["messages"].pop(1),
        lambda body: body["messages"].pop(0),
        lambda body: body["messages"][0]["content"].clear(),
        lambda body: body["messages"][1].update(role="tool"),
        lambda body: body["messages"][1]["content"][0].update(thinking="edited"),
        lambda body: body["messages"][2]["content"].append(body["messages"][2]["content"][0]),
        lambda body: body["messages"].append({"role": "assistant", "content": "half"}),
        lambda body: body["messages"][0]["content"][0].update(MARK),
        lambda body: body["system"].append({"type": "text", "text": ""}),
        lambda body: body.pop("max_tokens"),
        lambda body: body.pop("tools"),
        lambda body: body.update(promptCacheKey="x"),
    ],
)
def test_the_fake_refuses_the_same_as_the_api(spoil: Any) -> None:
    turns = (HELLO, AssistantModelMessage(content=(reasoning(), CALL)), RESULT)
    body = to_body(request(CLAUDE, *turns, tools=(READ,), system=("a", "b")))
    good = msgspec.json.decode(to_bytes(body))
    check(good)
    spoil(good)
    with pytest.raises(RefusedError):
        check(good)
