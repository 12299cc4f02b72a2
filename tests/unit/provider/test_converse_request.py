"""Requests to the Converse API."""

import base64
from typing import Any

import pytest

from fake.converse_rules import signature_of
from given.model_requests import READ, request
from given.models import NOVA, ON_BEDROCK, QWEN_ON_BEDROCK
from weft.provider.bedrock.request import to_body
from weft.provider.body import to_bytes
from weft.provider.contract import (
    AssistantModelMessage,
    CallContent,
    MediaContent,
    ModelMessage,
    ReasoningContent,
    ResultContent,
    TextContent,
    ToolModelMessage,
    UserModelMessage,
)
from weft.provider.normalise import INTERRUPTED

MARK = {"cachePoint": {"type": "default"}}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(24)).decode()
PDF = base64.b64encode(b"%PDF-1.7\n" + bytes(24)).decode()
PICTURE = MediaContent(url=f"data:image/png;base64,{PNG}", mime="image/png", filename="a.png")
DOCUMENT = MediaContent(url=f"data:application/pdf;base64,{PDF}", mime="application/pdf", filename="ä/b.pdf")
IMAGE = {"image": {"format": "png", "source": {"bytes": PNG}}}
TOOL = {"toolSpec": {"name": "read", "description": "Read a file.", "inputSchema": {"json": READ.schema}}}


def user_message(words: str) -> UserModelMessage:
    return UserModelMessage(content=(TextContent(text=words),))


def call(id: str, **more: Any) -> CallContent:
    return CallContent(call_id=id, tool="read", input={"path": "a"}, **more)


def result(id: str, output: str = "ok", **more: Any) -> ResultContent:
    return ResultContent(call_id=id, tool="read", output=output, **more)


def reasoning(text: str, **kept: str) -> ReasoningContent:
    return ReasoningContent(text=text, metadata={"bedrock": kept})


def test_a_complete_request_is_encoded() -> None:
    turns: tuple[ModelMessage, ...] = (
        user_message("hello"),
        AssistantModelMessage(
            content=(
                reasoning("hm", signature=signature_of("hm \n"), tail=" \n"),
                reasoning("", redactedData="c2VjcmV0"),
                ReasoningContent(text="foreign", metadata={"anthropic": {"signature": "x"}}),
                call("a/1"),
                TextContent(text="I look."),
            )
        ),
        ToolModelMessage(content=(result("a/1", "no", error=True),)),
        user_message("go on"),
    )
    asked = request(ON_BEDROCK, *turns, tools=(READ,), max_output=1000, temperature=1.5, top_k=7)
    assert to_body(asked) == {
        "inferenceConfig": {"temperature": 1, "maxTokens": 1000},
        "additionalModelRequestFields": {"top_k": 7},
        "toolConfig": {"tools": [TOOL]},
        "system": [{"text": "Be brief."}, MARK],
        "messages": [
            {"role": "user", "content": [{"text": "hello"}]},
            {
                "role": "assistant",
                "content": [
                    {
                        "reasoningContent": {
                            "reasoningText": {"text": "hm \n", "signature": signature_of("hm \n")}
                        }
                    },
                    {"reasoningContent": {"redactedContent": "c2VjcmV0"}},
                    {"text": "I look."},
                    {"toolUse": {"toolUseId": "a_1", "name": "read", "input": {"path": "a"}}},
                    MARK,
                ],
            },
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "a_1", "content": [{"text": "no"}], "status": "error"}},
                    {"text": "go on"},
                    MARK,
                ],
            },
        ],
    }


def test_only_claude_gets_cache_marks_and_only_claude_and_nova_files_in_results() -> None:
    turns = (
        user_message("hello"),
        AssistantModelMessage(content=(call("a"),)),
        ToolModelMessage(content=(result("a", files=(PICTURE,)),)),
    )
    whole = {"toolResult": {"toolUseId": "a", "content": [{"text": "ok"}, IMAGE]}}
    words = {"toolResult": {"toolUseId": "a", "content": [{"text": "ok"}]}}
    last = [to_body(request(model, *turns))["messages"][-1] for model in (ON_BEDROCK, NOVA, QWEN_ON_BEDROCK)]
    assert [each["content"] for each in last] == [[whole, MARK], [whole], [words, IMAGE]]


def test_documents_are_numbered_and_followed_by_a_text() -> None:
    body = to_body(
        request(NOVA, UserModelMessage(content=(DOCUMENT, PICTURE)), UserModelMessage(content=(DOCUMENT,)))
    )
    [message] = body["messages"]
    names = [block["document"]["name"] for block in message["content"] if "document" in block]
    assert (names, message["content"][-1]) == (
        ["document-1", "document-2"],
        {"text": "The document is attached."},
    )


def test_a_call_without_a_result_is_interrupted_and_a_placeholder_tool_is_added() -> None:
    body = to_body(
        request(QWEN_ON_BEDROCK, user_message("hello"), AssistantModelMessage(content=(call("a"),)))
    )
    assert body["messages"][-1]["content"] == [
        {"toolResult": {"toolUseId": "a", "content": [{"text": INTERRUPTED}]}}
    ]
    assert [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"]] == ["_noop"]


@pytest.mark.parametrize(
    ("model", "options", "fields", "most"),
    [
        (
            ON_BEDROCK,
            {"reasoningConfig": {"type": "enabled", "budgetTokens": 4000}},
            {"thinking": {"type": "enabled", "budget_tokens": 4000}},
            5000,
        ),
        (
            ON_BEDROCK,
            {"reasoningConfig": {"type": "adaptive", "maxReasoningEffort": "high"}},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
            1000,
        ),
        (
            NOVA,
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}},
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}},
            1000,
        ),
        (
            ON_BEDROCK,
            {"anthropicBeta": ["context-1m-2025-08-07"], "additionalModelRequestFields": {"a": 1}},
            {"anthropic_beta": ["context-1m-2025-08-07"], "a": 1},
            1000,
        ),
    ],
)
def test_options_are_translated_for_each_model_family(
    model: Any, options: dict[str, Any], fields: dict[str, Any], most: int
) -> None:
    body = to_body(request(model, options=options, max_output=1000))
    assert (body["additionalModelRequestFields"], body["inferenceConfig"]["maxTokens"]) == (fields, most)


def test_options_of_the_api_are_sent_unchanged() -> None:
    guard = {"guardrailIdentifier": "g", "guardrailVersion": "1"}
    body = to_body(
        request(NOVA, options={"guardrailConfig": guard, "unknown": 1}, tool_choice="required", tools=(READ,))
    )
    assert body == {
        "guardrailConfig": guard,
        "toolConfig": {"tools": [TOOL], "toolChoice": {"any": {}}},
        "system": [{"text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"text": "hello"}]}],
    }


def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter_one() -> None:
    turns: list[ModelMessage] = []
    before = b""
    for number in range(6):
        turns.append(
            UserModelMessage(
                content=(TextContent(text=f"prompt {number}"), DOCUMENT)
                if number == 1
                else (TextContent(text="p"),)
            )
        )
        for grown in (
            (),
            (
                AssistantModelMessage(
                    content=(reasoning("t", signature=signature_of("t")), call(f"call_{number}"))
                ),
                ToolModelMessage(content=(result(f"call_{number}"),)),
                AssistantModelMessage(content=(TextContent(text="done"),)),
                user_message("and?"),
            ),
        ):
            turns.extend(grown)
            sent = to_bytes(to_body(request(ON_BEDROCK, *turns, tools=(READ,)))).replace(
                b"," + to_bytes(MARK), b""
            )
            assert sent.startswith(before)
            before = sent.removesuffix(b"]}]}")
