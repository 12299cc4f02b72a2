"""Requests to the Gemini API."""

from typing import Any

import pytest

from fake.gemini_rules import RefusedError, check_request
from given.history_strategies import PDF, PNG, SIGNATURE
from given.model_requests import GEMINI_2, GEMINI_3, READ, model, request
from weft.model.catalog import Model
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
from weft.provider.gemini.request import SKIP_SIGNATURE, is_gemini_3, to_body

IMAGE = MediaContent(url=f"data:image/png;base64,{PNG}", mime="image/png", filename="a.png")
INLINE = {"inlineData": {"mimeType": "image/png", "data": PNG}}


def user_message(*words: str) -> UserModelMessage:
    return UserModelMessage(content=tuple(TextContent(text=each) for each in words))


def signature_metadata(signature: str = SIGNATURE, **more: str) -> dict[str, Any]:
    return {"google": {"thoughtSignature": signature, **more}}


def call(id: str = "call_1", metadata: dict[str, Any] | None = None, **input: Any) -> CallContent:
    return CallContent(call_id=id, tool="read", input=input, metadata=metadata)


def result(id: str = "call_1", output: str = "ok", **more: Any) -> ResultContent:
    return ResultContent(call_id=id, tool="read", output=output, **more)


def answer(*content: TextContent | ReasoningContent | CallContent) -> AssistantModelMessage:
    return AssistantModelMessage(content=content)


def tool_message(*results: ResultContent) -> ToolModelMessage:
    return ToolModelMessage(content=results)


def contents(*messages: ModelMessage, model: Model = GEMINI_3) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = to_body(request(model, *messages))["contents"]
    return made


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model_turn(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def response(**fields: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": "read", **fields}}


def test_a_first_prompt_is_encoded_completely() -> None:
    asked = request(
        GEMINI_3,
        tools=(READ,),
        temperature=1.0,
        top_p=0.95,
        top_k=64,
        max_output=32_000,
        options={"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "high"}, "store": False},
    )
    assert to_body(asked) == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "read",
                        "description": "Read a file.",
                        "parameters": {
                            "type": "object",
                            "properties": {
                                "path": {"type": "string", "description": "Where."},
                                "limit": {"type": "integer"},
                            },
                            "required": ["path"],
                        },
                    }
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "generationConfig": {
            "temperature": 1.0,
            "topP": 0.95,
            "topK": 64,
            "maxOutputTokens": 32_000,
            "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "high"},
        },
        "contents": [user({"text": "hello"})],
    }


@pytest.mark.parametrize(("choice", "mode"), [("auto", "AUTO"), ("none", "NONE"), ("required", "ANY")])
def test_the_tool_choice_is_translated(choice: str, mode: str) -> None:
    body = to_body(request(GEMINI_3, tools=(READ,), tool_choice=choice))
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": mode}}


def test_a_tool_without_input_has_no_parameters_and_invalid_names_are_corrected() -> None:
    odd = ToolSpec(name="9 lives", about="Meow.", schema={"type": "object", "properties": {}})
    (tools,) = to_body(request(GEMINI_3, tools=(odd,)))["tools"]
    assert tools == {"functionDeclarations": [{"name": "_9_lives", "description": "Meow."}]}


def test_a_model_without_reasoning_gets_no_thinking_options() -> None:
    plain = model("gemini-2.0-flash", "google")
    assert "generationConfig" not in to_body(
        request(plain, options={"thinkingConfig": {"includeThoughts": True}})
    )


def test_only_one_of_thinking_level_and_budget_is_sent() -> None:
    both = {"thinkingLevel": "low", "thinkingBudget": 100}
    body = to_body(request(GEMINI_3, options={"thinkingConfig": both}))
    assert body["generationConfig"] == {"thinkingConfig": {"thinkingLevel": "low"}}


def test_signatures_and_ids_are_sent_back_with_their_calls() -> None:
    made = contents(
        user_message("hi"),
        answer(
            ReasoningContent(text="hm", metadata=signature_metadata()),
            TextContent(text="Reading.", metadata=signature_metadata()),
            call("fc-1", signature_metadata(callId="fc-1"), path="a"),
            call("resp_1", path="b"),
        ),
        tool_message(
            result("fc-1", "one", metadata=signature_metadata(callId="fc-1")),
            result("resp_1", "no", error=True),
        ),
    )
    assert made == [
        user({"text": "hi"}),
        model_turn(
            {"text": "hm", "thought": True, "thoughtSignature": SIGNATURE},
            {"text": "Reading.", "thoughtSignature": SIGNATURE},
            {
                "functionCall": {"id": "fc-1", "name": "read", "args": {"path": "a"}},
                "thoughtSignature": SIGNATURE,
            },
            {"functionCall": {"name": "read", "args": {"path": "b"}}},
        ),
        user(
            response(response={"output": "one"}, id="fc-1"),
            response(response={"error": "no"}),
        ),
    ]


def test_a_call_of_another_model_gets_a_placeholder_signature() -> None:
    turns = (
        user_message("hi"),
        answer(call(path="a")),
        tool_message(result()),
        answer(call("call_2")),
        tool_message(result("call_2")),
    )
    made = contents(*turns)
    assert [
        part.get("thoughtSignature") for each in made for part in each["parts"] if "functionCall" in part
    ] == [
        SKIP_SIGNATURE,
        SKIP_SIGNATURE,
    ]
    older = contents(*turns, model=GEMINI_2)
    assert [part for each in older for part in each["parts"] if "thoughtSignature" in part] == []


def test_an_unsigned_thought_is_omitted() -> None:
    assert contents(user_message("hi"), answer(ReasoningContent(text="foreign")), user_message("and?")) == [
        user({"text": "hi"}),
        user({"text": "and?"}),
    ]


def test_consecutive_answers_are_merged() -> None:
    made = contents(user_message("hi"), answer(TextContent(text="a")), answer(call()), tool_message(result()))
    assert made == [
        user({"text": "hi"}),
        model_turn(
            {"text": "a"}, {"functionCall": {"name": "read", "args": {}}, "thoughtSignature": SKIP_SIGNATURE}
        ),
        user(response(response={"output": "ok"})),
    ]


def test_the_first_and_last_messages_are_from_the_user() -> None:
    made = contents(answer(TextContent(text="a")))
    assert [each["role"] for each in made] == ["user", "model", "user"]


def test_images_of_a_result_are_inside_the_response_or_beside_it() -> None:
    turns = (user_message("hi"), answer(call()), tool_message(result(files=(IMAGE,))))
    assert contents(*turns)[-1] == user(response(response={"output": "ok"}, parts=[INLINE]))
    assert contents(*turns, model=GEMINI_2)[-1] == user(
        response(response={"output": "ok"}), {"text": "Files from the call of read:"}, INLINE
    )


def test_files_of_the_user_are_encoded() -> None:
    document = MediaContent(url=f"data:application/pdf;base64,{PDF}", mime="application/pdf")
    linked = MediaContent(url="https://example.com/c.png", mime="image/png")
    drawn = MediaContent(url="data:image/svg+xml;base64,PHN2Zz4=", mime="image/svg+xml", filename="d.svg")
    assert contents(UserModelMessage(content=(IMAGE, document, linked, drawn))) == [
        user(
            INLINE,
            {"inlineData": {"mimeType": "application/pdf", "data": PDF}},
            {"fileData": {"mimeType": "image/png", "fileUri": "https://example.com/c.png"}},
            {
                "text": 'ERROR: Cannot read "d.svg" (this model does not support image input). Inform the user.'
            },
        )
    ]


@pytest.mark.parametrize(
    ("id", "newer"),
    [
        ("gemini-2.5-pro", False),
        ("gemini-1.5-flash", False),
        ("gemini-3-pro-preview", True),
        ("gemini-3.1-flash", True),
        ("gemini-flash-latest", True),
        ("gemma-3-27b-it", False),
    ],
)
def test_models_that_require_signatures_are_recognised(id: str, newer: bool) -> None:
    assert is_gemini_3(id) is newer


def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter_one() -> None:
    turns: list[ModelMessage] = []
    before = b""
    for number in range(6):
        turns.append(user_message(f"prompt {number}"))
        for grown in ((), (answer(call(f"call_{number}")), tool_message(result(f"call_{number}")))):
            turns.extend(grown)
            sent = to_bytes(to_body(request(GEMINI_3, *turns, tools=(READ,))))
            assert sent.startswith(before)
            before = sent.removesuffix(b"]}")


CALL = {"functionCall": {"name": "read", "args": {}}, "thoughtSignature": SIGNATURE}
UNSIGNED_CALL = {"functionCall": {"name": "read", "args": {}}}
OK = response(response={})
HI = user({"text": "hi"})


def tool(**schema: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"x": schema}}
    return {"functionDeclarations": [{"name": "a", "description": "", "parameters": parameters}]}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"contents": []}, "contents is not specified"),
        ({"contents": [HI], "system": "x"}, 'Unknown name "system"'),
        ({"contents": [user()]}, "must not be empty"),
        ({"contents": [user({"text": ""})]}, "empty text"),
        ({"contents": [user({})]}, "oneof field 'data'"),
        ({"contents": [{"role": "assistant", "parts": [{"text": "x"}]}]}, "valid role"),
        ({"contents": [model_turn({"text": "x"}), HI]}, "begin with a user turn"),
        ({"contents": [HI, model_turn({"text": "x"})]}, "ends with a user turn"),
        (
            {"contents": [HI, model_turn({"text": "x"}), model_turn(CALL), user(OK)]},
            "immediately after a user turn",
        ),
        ({"contents": [HI, model_turn(CALL), HI]}, "number of function response parts"),
        ({"contents": [HI, model_turn(CALL, CALL), user(OK)]}, "number of function response parts"),
        ({"contents": [HI, user(OK)]}, "immediately after a function call turn"),
        ({"contents": [HI, model_turn(CALL), user(response(name="other", response={}))]}, "does not match"),
        ({"contents": [HI, model_turn(UNSIGNED_CALL), user(OK)]}, "missing a thought_signature"),
        ({"contents": [HI, model_turn(CALL | {"thoughtSignature": "!"}), user(OK)]}, "TYPE_BYTES"),
        ({"contents": [user({"inlineData": {"mimeType": "image/gif", "data": "AAAA"}})]}, "Unsupported MIME"),
        ({"contents": [HI], "tools": [tool(type="array")]}, "items: missing field"),
        ({"contents": [HI], "tools": [tool(type="integer", enum=[1])]}, "only allowed for STRING"),
        ({"contents": [HI], "tools": [tool(type="string", const="a")]}, 'Unknown name "const"'),
        ({"contents": [HI], "tools": [tool(type="object", properties={})]}, "should be non-empty"),
        ({"contents": [HI], "tools": [tool(type="string", format="uri")]}, "format"),
        (
            {
                "contents": [HI],
                "generationConfig": {"thinkingConfig": {"thinkingLevel": "low", "thinkingBudget": 1}},
            },
            "only one of",
        ),
    ],
)
def test_the_fake_refuses_the_same_as_the_api(body: dict[str, Any], says: str) -> None:
    with pytest.raises(RefusedError, match=says):
        check_request("gemini-3-pro-preview", body)


def test_an_older_model_takes_calls_without_signatures_but_no_files_in_responses() -> None:
    check_request("gemini-2.5-flash", {"contents": [HI, model_turn(UNSIGNED_CALL), user(OK)]})
    with pytest.raises(RefusedError, match="Multimodal"):
        check_request(
            "gemini-2.5-flash",
            {"contents": [HI, model_turn(UNSIGNED_CALL), user(response(response={}, parts=[INLINE]))]},
        )
