"""Requests to servers of the Chat Completions API."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fake.openai import STRICT, ServerDialect, check
from fake.refusing import RefusedError
from given.model_requests import request
from given.models import CLAUDE, GPT, LOCAL, MISTRAL, ROUTED
from weft.model.catalog import Interleaved, Model
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
from weft.provider.normalise import NO_OUTPUT
from weft.provider.openai_chat.request import to_body
from weft.testing.provider_harness import READ

MARK = {"cache_control": {"type": "ephemeral"}}
PNG = "iVBORw0KGgoAAAAAAAAAAAAAAAAAAAAA"
HELLO = UserModelMessage(content=(TextContent(text="hello"),))
CALL = CallContent(call_id="call_1", tool="read", input={"path": "a"})
RESULT = ToolModelMessage(content=(ResultContent(call_id="call_1", tool="read", output="text"),))
WIRE_CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path":"a"}'}}
PICTURE = MediaContent(url=f"data:image/jpeg;base64,{PNG}", mime="image/jpeg")
WIRE_PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


def messages(model: Model, *turns: Any, manners: ServerDialect = STRICT, **more: Any) -> Any:
    body = to_body(request(model, *turns, tools=(READ,), **more))
    check(msgspec.json.decode(to_bytes(body)), manners)
    return body["messages"][1:]


def model_with_reasoning_field(field: str) -> Model:
    return replace(LOCAL, capabilities=replace(LOCAL.capabilities, interleaved=Interleaved(field=field)))


def test_a_complete_request_is_encoded() -> None:
    turn = AssistantModelMessage(content=(ReasoningContent(text="hm"), TextContent(text="I look"), CALL))
    asked = request(
        LOCAL,
        HELLO,
        turn,
        RESULT,
        tools=(READ,),
        system=("who you are", "where you are"),
        max_output=1000,
        temperature=0.5,
        top_k=20,
        options={"reasoningEffort": "low", "chat_template_args": {"x": 1}, "baseURL": "no"},
    )
    assert to_body(asked) == {
        "model": "qwen3",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 1000,
        "temperature": 0.5,
        "top_k": 20,
        "reasoning_effort": "low",
        "chat_template_args": {"x": 1},
        "tools": [
            {
                "type": "function",
                "function": {"name": "read", "description": "Read a file.", "parameters": READ.schema},
            }
        ],
        "tool_choice": "auto",
        "messages": [
            {"role": "system", "content": "who you are\n\nwhere you are"},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "I look", "tool_calls": [WIRE_CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "text"},
        ],
    }


def test_openai_gets_its_own_parameter_names() -> None:
    body = to_body(request(GPT, HELLO, max_output=10, top_k=3))
    assert (body["max_completion_tokens"], "max_tokens" in body, "top_k" in body) == (10, False, False)


def test_a_call_may_have_no_text() -> None:
    [_, call, result] = messages(GPT, HELLO, AssistantModelMessage(content=(CALL,)), replace(RESULT))
    assert call == {"role": "assistant", "content": None, "tool_calls": [WIRE_CALL]}
    assert result == {"role": "tool", "tool_call_id": "call_1", "content": "text"}


def test_files_are_encoded_by_kind() -> None:
    paper = MediaContent(
        url="data:application/pdf;base64,JVBERi0xAAAA", mime="application/pdf", filename="a.pdf"
    )
    [encoded_messages] = messages(GPT, UserModelMessage(content=(TextContent(text="see"), PICTURE, paper)))
    assert encoded_messages["content"] == [
        {"type": "text", "text": "see"},
        WIRE_PICTURE,
        {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xAAAA"},
        },
    ]


def test_a_message_with_text_alone_is_one_string() -> None:
    texts = tuple(TextContent(text=text) for text in ("see these files:", " ", "a.txt", "b.txt"))
    encoded_messages = messages(
        LOCAL, UserModelMessage(content=texts), AssistantModelMessage(content=texts), HELLO
    )
    assert [message["content"] for message in encoded_messages] == [
        "see these files:\n\na.txt\n\nb.txt",
        "see these files:\n\na.txt\n\nb.txt",
        "hello",
    ]


def test_images_of_a_result_follow_it() -> None:
    shown = ToolModelMessage(
        content=(ResultContent(call_id="call_1", tool="read", output="", files=(PICTURE,)),)
    )
    [_, _, result, after] = messages(GPT, HELLO, AssistantModelMessage(content=(CALL,)), shown)
    assert result["content"] == NO_OUTPUT
    assert after == {
        "role": "user",
        "content": [{"type": "text", "text": "Files from the call of read:"}, WIRE_PICTURE],
    }


def test_mistral_gets_short_ids_and_its_own_order_of_messages() -> None:
    shown = ToolModelMessage(
        content=(ResultContent(call_id="call_1", tool="read", output="x", files=(PICTURE,)),)
    )
    encoded_messages = messages(
        MISTRAL,
        HELLO,
        AssistantModelMessage(content=(CALL,)),
        shown,
        HELLO,
        manners=ServerDialect(mistral=True),
    )
    assert [(message["role"], message.get("tool_call_id")) for message in encoded_messages] == [
        ("user", None),
        ("assistant", None),
        ("tool", "call10000"),
        ("assistant", None),
        ("user", None),
        ("assistant", None),
        ("user", None),
    ]
    assert encoded_messages[3] == encoded_messages[5] == {"role": "assistant", "content": "Done."}
    assert "stream_options" not in to_body(request(MISTRAL, HELLO))


def test_long_ids_are_shortened_for_openai() -> None:
    long = replace(CALL, call_id="x" * 80)
    [_, call, result] = messages(
        GPT,
        HELLO,
        AssistantModelMessage(content=(long,)),
        ToolModelMessage(content=(ResultContent(call_id="x" * 80, tool="read", output="y"),)),
    )
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert len(result["tool_call_id"]) <= 40


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ((ReasoningContent(text="a"), ReasoningContent(text="b"), CALL), "ab"),
        ((CALL,), " "),
        ((TextContent(text="x"),), None),
    ],
)
def test_thoughts_are_sent_back_in_the_field_of_the_model(content: Any, expected: str | None) -> None:
    manners = ServerDialect(message_fields=frozenset({"reasoning_content"}))
    encoded_messages = messages(
        model_with_reasoning_field("reasoning_content"),
        HELLO,
        AssistantModelMessage(content=content),
        RESULT,
        HELLO,
        manners=manners,
    )
    assert encoded_messages[1].get("reasoning_content") == expected


def test_thoughts_are_not_sent_by_default() -> None:
    thought = ReasoningContent(text="a", metadata={"ollama": {"x": 1}})
    assert set(
        messages(LOCAL, HELLO, AssistantModelMessage(content=(thought, TextContent(text="b"))), HELLO)[1]
    ) == {
        "role",
        "content",
    }


def test_reasoning_details_are_sent_back_to_a_router() -> None:
    details = [{"type": "reasoning.encrypted", "data": "abc", "index": 0}]
    kept = {"openrouter": {"reasoning_details": details}}
    thought = ReasoningContent(text="", metadata=kept)
    manners = ServerDialect(message_fields=frozenset({"reasoning_details"}), marks=True)
    with_thought = AssistantModelMessage(content=(thought, replace(CALL, metadata=kept)))
    with_call = AssistantModelMessage(content=(replace(CALL, metadata=kept),))
    for turn in (with_thought, with_call):
        [_, answer, _] = messages(ROUTED, HELLO, turn, RESULT, manners=manners)
        assert answer["reasoning_details"] == details


def test_claude_behind_a_router_gets_cache_marks() -> None:
    turn = AssistantModelMessage(content=(TextContent(text="I look"), CALL))
    body = to_body(request(ROUTED, HELLO, turn, RESULT, tools=(READ,), system=("a", "b", "c")))
    check(msgspec.json.decode(to_bytes(body)), ServerDialect(marks=True))

    def text_blocks(text: str, **mark: Any) -> list[Any]:
        return [{"type": "text", "text": text, **mark}]

    assert body["messages"] == [
        {"role": "system", "content": text_blocks("a", **MARK)},
        {"role": "system", "content": text_blocks("b", **MARK)},
        {"role": "system", "content": text_blocks("c")},
        {"role": "user", "content": text_blocks("hello")},
        {"role": "assistant", "content": text_blocks("I look", **MARK), "tool_calls": [WIRE_CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": text_blocks("text", **MARK)},
    ]


def test_litellm_gets_a_placeholder_tool() -> None:
    proxy = replace(LOCAL, provider_id="my-LiteLLM")
    turns = (HELLO, AssistantModelMessage(content=(CALL,)), RESULT)
    [tool] = to_body(request(proxy, *turns))["tools"]
    assert tool["function"]["name"] == "_noop"
    assert "tools" not in to_body(request(proxy, HELLO))
    assert "tools" not in to_body(request(LOCAL, *turns))
    assert "tools" in to_body(request(LOCAL, *turns, options={"litellmProxy": True}))


def test_a_lone_surrogate_is_replaced() -> None:
    broken = replace(CALL, input={"path": "\ud83d"})
    encoded_messages = UserModelMessage(content=(TextContent(text="\ud83d half"),))
    raw = to_bytes(to_body(request(GPT, encoded_messages, AssistantModelMessage(content=(broken,)), RESULT)))
    assert b"\xef\xbf\xbd half" in raw
    assert b"ud83d" not in raw


def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter_one() -> None:
    for model in (GPT, LOCAL, MISTRAL, CLAUDE):
        turns: list[Any] = [HELLO]
        sent = []
        for number in range(30):
            sent.append(to_body(request(model, *turns, tools=(READ,))))
            id = f"call_{number}"
            turns += [AssistantModelMessage(content=(TextContent(text="x"), replace(CALL, call_id=id)))]
            turns += [ToolModelMessage(content=(ResultContent(call_id=id, tool="read", output="x"),))]

        def strip_cache_marks(body: Any) -> bytes:
            return to_bytes(body).replace(b',"cache_control":{"type":"ephemeral"}', b"").removesuffix(b"]}")

        for before, after in pairwise(sent):
            assert strip_cache_marks(after).startswith(strip_cache_marks(before))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda body: body["messages"].pop(3),
        lambda body: body["messages"].pop(2),
        lambda body: body["messages"].append(body["messages"][3]),
        lambda body: body["messages"][1].update(content=""),
        lambda body: body["messages"][1].update(role="person"),
        lambda body: body["messages"][2].update(reasoning_content="x"),
        lambda body: body["messages"][2]["tool_calls"][0]["function"].update(arguments="{"),
        lambda body: body["messages"][2]["tool_calls"][0].update(id="x" * 41),
        lambda body: body["messages"].append({"role": "system", "content": "late"}),
        lambda body: body.update(promptCacheKey="x"),
        lambda body: body.update(tools=[]),
        lambda body: body.pop("tools"),
    ],
)
def test_the_fake_refuses_the_same_as_the_api(spoil: Any) -> None:
    good = msgspec.json.decode(
        to_bytes(to_body(request(GPT, HELLO, AssistantModelMessage(content=(CALL,)), RESULT, tools=(READ,))))
    )
    check(good)
    spoil(good)
    with pytest.raises(RefusedError):
        check(good)
