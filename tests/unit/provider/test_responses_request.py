"""Requests to the Responses API."""

from typing import Any

import pytest

from fake.responses_rules import RefusedError, check_request
from given.history_strategies import ENCRYPTED, PDF, PNG
from given.model_requests import GPT_4O, GPT_5, READ, model, request
from weft.model.catalog import Modalities
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
    ToolSpec,
    UserModelMessage,
)
from weft.provider.openai_responses.request import to_body

IMAGE = MediaContent(url=f"data:image/png;base64,{PNG}", mime="image/png", filename="a.png")


def user_message(*words: str) -> UserModelMessage:
    return UserModelMessage(content=tuple(TextContent(text=each) for each in words))


def reasoning(text: str, id: str, encrypted: str | None = None) -> ReasoningContent:
    kept = {"itemId": id} | ({"reasoningEncryptedContent": encrypted} if encrypted else {})
    return ReasoningContent(text=text, metadata={"openai": kept})


def call(id: str = "call_1", **input: Any) -> CallContent:
    return CallContent(call_id=id, tool="read", input=input)


def result(id: str = "call_1", output: str = "ok", **more: Any) -> ResultContent:
    return ResultContent(call_id=id, tool="read", output=output, **more)


def items(*messages: ModelMessage) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = to_body(request(GPT_5, *messages, system=()))["input"]
    return made


def test_a_first_prompt_is_encoded_completely() -> None:
    asked = request(
        GPT_5,
        tools=(READ,),
        max_output=32_000,
        options={
            "store": False,
            "reasoningEffort": "medium",
            "reasoningSummary": "auto",
            "textVerbosity": "low",
            "promptCacheKey": "ses_1",
            "thinkingConfig": {"includeThoughts": True},
        },
    )
    assert to_body(asked) == {
        "model": "gpt-5",
        "stream": True,
        "store": False,
        "max_output_tokens": 32_000,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "text": {"verbosity": "low"},
        "prompt_cache_key": "ses_1",
        "tools": [
            {
                "type": "function",
                "name": "read",
                "description": "Read a file.",
                "parameters": READ.schema,
                "strict": False,
            }
        ],
        "tool_choice": "auto",
        "input": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        ],
    }


def test_a_model_without_reasoning_gets_no_reasoning_options() -> None:
    body = to_body(request(GPT_4O, temperature=0.5, top_p=0.9))
    assert body == {
        "model": "gpt-4o",
        "stream": True,
        "store": False,
        "temperature": 0.5,
        "top_p": 0.9,
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        ],
    }


def test_a_reasoning_model_gets_a_temperature_only_if_reasoning_is_off() -> None:
    assert "temperature" not in to_body(request(GPT_5, temperature=0.5))
    encoded = to_body(request(GPT_5, temperature=0.5, options={"reasoningEffort": "none"}))
    assert encoded["temperature"] == 0.5


def test_encrypted_reasoning_is_sent_back_without_ids_in_its_place() -> None:
    answer = AssistantModelMessage(
        content=(
            reasoning("First.", "rs_1"),
            reasoning("Then.", "rs_1", ENCRYPTED),
            TextContent(text="Reading.", metadata={"openai": {"itemId": "msg_1", "phase": "commentary"}}),
            reasoning("", "rs_2", "gAAAAAB-other"),
            call(path="a"),
        )
    )
    assert items(user_message("hi"), answer, ToolModelMessage(content=(result(),)))[1:] == [
        {
            "type": "reasoning",
            "summary": [
                {"type": "summary_text", "text": "First."},
                {"type": "summary_text", "text": "Then."},
            ],
            "encrypted_content": ENCRYPTED,
        },
        {
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Reading."}],
            "phase": "commentary",
        },
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAAB-other"},
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": '{"path":"a"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
    ]


def test_a_thought_of_another_model_or_without_a_successor_is_omitted() -> None:
    answer = AssistantModelMessage(
        content=(
            ReasoningContent(text="foreign"),
            TextContent(text="said"),
            reasoning("cut off", "rs_1", ENCRYPTED),
        )
    )
    assert items(user_message("hi"), answer)[1:] == [
        {"role": "assistant", "content": [{"type": "output_text", "text": "said"}]}
    ]


def test_images_and_documents_are_encoded() -> None:
    document = MediaContent(
        url=f"data:application/pdf;base64,{PDF}", mime="application/pdf", filename="b.pdf"
    )
    linked = MediaContent(url="https://example.com/c.pdf", mime="application/pdf")
    turn = UserModelMessage(content=(TextContent(text="look"), IMAGE, document, linked))
    assert items(turn) == [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": IMAGE.url},
                {"type": "input_file", "filename": "b.pdf", "file_data": document.url},
                {"type": "input_file", "file_url": "https://example.com/c.pdf"},
            ],
        }
    ]


def test_a_result_with_an_image_is_a_list() -> None:
    answer = AssistantModelMessage(content=(call(),))
    turns = (user_message("hi"), answer, ToolModelMessage(content=(result(output="seen", files=(IMAGE,)),)))
    assert items(*turns)[-1] == {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": [
            {"type": "input_text", "text": "seen"},
            {"type": "input_image", "image_url": IMAGE.url},
        ],
    }


def test_content_that_the_model_cannot_see_is_described() -> None:
    blind = model("gpt-5", "openai", reasoning=True, sees=Modalities())
    body = to_body(request(blind, UserModelMessage(content=(IMAGE,)), system=()))
    assert body["input"] == [
        {
            "role": "user",
            "content": [
                {
                    "type": "input_text",
                    "text": 'ERROR: Cannot read "a.png" (this model does not support image input). Inform the user.',
                }
            ],
        }
    ]


def test_repeated_or_long_ids_are_made_unique() -> None:
    long = "x" * 90
    answer = AssistantModelMessage(content=(call("same"), call("same"), call(long)))
    done = ToolModelMessage(content=(result("same", "one"), result("same", "two"), result(long, "three")))
    made = items(user_message("hi"), answer, done)[1:]
    calls = [item["call_id"] for item in made if item["type"] == "function_call"]
    outputs = {item["call_id"]: item["output"] for item in made if item["type"] == "function_call_output"}
    assert len(set(calls)) == 3
    assert max(map(len, calls)) <= 64
    assert [outputs[id] for id in calls] == ["one", "two", "three"]


def test_an_empty_history_becomes_a_request_to_continue() -> None:
    assert [item["role"] for item in to_body(request(GPT_5, UserModelMessage(content=())))["input"]] == [
        "developer",
        "user",
    ]


def test_invalid_tool_names_are_corrected() -> None:
    odd = ToolSpec(name="my server.do it", about="", schema={})
    (tool,) = to_body(request(GPT_5, tools=(odd,)))["tools"]
    assert (tool["name"], tool["parameters"]) == ("my_server_do_it", {"type": "object"})


def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter_one() -> None:
    turns: list[ModelMessage] = []
    before = b""
    for number in range(6):
        turns.append(user_message(f"prompt {number}"))
        for grown in (
            (),
            (
                AssistantModelMessage(
                    content=(reasoning("t", f"rs_{number}", ENCRYPTED), call(f"call_{number}"))
                ),
                ToolModelMessage(content=(result(f"call_{number}"),)),
            ),
        ):
            turns.extend(grown)
            sent = to_bytes(to_body(request(GPT_5, *turns, tools=(READ,))))
            assert sent.startswith(before)
            before = sent.removesuffix(b"]}")


def body(*input: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "gpt-5", "input": list(input), "store": False, **more}


ASKED = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": ""}
THOUGHT = {"type": "reasoning", "summary": [], "encrypted_content": ENCRYPTED}


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (body(), "Missing required parameter: 'input'"),
        (body(ASKED, top_k=1), "Unknown parameter: 'top_k'"),
        (body(ASKED, temperature=1), "Unsupported parameter: 'temperature'"),
        (body(ASKED, max_output_tokens=1), "below minimum"),
        (
            body(ASKED, model="gpt-4o", include=["reasoning.encrypted_content"]),
            "not supported with this model",
        ),
        (body(ASKED, CALL), "No tool output found"),
        (body(ASKED, CALL, ASKED, OUTPUT), "No tool output found"),
        (body(ASKED, OUTPUT), "No tool call found"),
        (body(ASKED, CALL, OUTPUT, OUTPUT), "No tool call found"),
        (body(ASKED, CALL, OUTPUT, CALL, OUTPUT), "Duplicate call_id"),
        (body(ASKED, CALL | {"name": "a b"}, OUTPUT), "does not match pattern"),
        (body(ASKED, CALL | {"id": "fc_1"}, OUTPUT), "not persisted"),
        (body(ASKED, THOUGHT), "without its required following item"),
        (body(ASKED, THOUGHT, ASKED), "without its required following item"),
        (body(ASKED, THOUGHT | {"encrypted_content": "x"}, CALL, OUTPUT), "could not be verified"),
        (body({"role": "user", "content": []}), "empty array"),
        (body({"role": "user", "content": [{"type": "output_text", "text": "x"}]}), "Invalid value"),
        (body({"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}), "Invalid value"),
        (body({"role": "robot", "content": "x"}), "Invalid value: 'robot'"),
        (body({"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}), "valid image"),
        (body(ASKED, tools=[{"type": "function", "name": "a", "parameters": {}}]), "Invalid schema"),
    ],
)
def test_the_fake_refuses_the_same_as_the_api(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(RefusedError, match=says):
        check_request(asked, knows=lambda content: content == ENCRYPTED)
