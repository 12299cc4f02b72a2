"""An output format, or one forced tool call, in the terms of each API."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fake import anthropic, gemini_rules, openai, responses_rules
from given.model_requests import GEMINI_2, GPT_5, request
from given.models import CLAUDE, GPT
from weft.model.catalog import Model, ModelApi
from weft.provider.anthropic import request as claude
from weft.provider.bedrock import request as converse
from weft.provider.body import to_bytes
from weft.provider.contract import OutputFormat, ToolSpec
from weft.provider.gemini import request as google
from weft.provider.openai_chat import request as chat
from weft.provider.openai_responses import request as responses
from weft.run.json_schema import has_native_format, is_strict
from weft.testing.provider_harness import HELLO

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
FORMAT = OutputFormat(name="Value", schema=SCHEMA, strict=True)
HAND = ToolSpec(name="Value", about="hand it over", schema=SCHEMA)


def to_plain_body(body: dict[str, Any]) -> Any:
    return msgspec.json.decode(to_bytes(body))


def test_gemini_gets_a_response_format_if_there_are_no_tools() -> None:
    body = to_plain_body(google.to_body(replace(request(GEMINI_2, HELLO), format=FORMAT)))
    gemini_rules.check_request(GEMINI_2.api.id, body)
    assert body["generationConfig"] == {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}


def test_each_api_gets_the_required_tool_in_its_own_format() -> None:
    def forced_request(model: Model, **options: Any) -> Any:
        return replace(
            request(model, HELLO, tools=(HAND,), options=options), tool_choice="required", forced="Value"
        )

    sent = {
        "chat": to_plain_body(chat.to_body(forced_request(GPT))),
        "responses": to_plain_body(responses.to_body(forced_request(GPT_5))),
        "messages": to_plain_body(claude.to_body(forced_request(CLAUDE))),
        "gemini": to_plain_body(google.to_body(forced_request(GEMINI_2))),
        "converse": to_plain_body(converse.to_body(forced_request(CLAUDE))),
    }
    openai.check(sent["chat"])
    responses_rules.check_request(sent["responses"])
    anthropic.check(sent["messages"])
    gemini_rules.check_request(GEMINI_2.api.id, sent["gemini"])
    assert sent["chat"]["tool_choice"] == {"type": "function", "function": {"name": "Value"}}
    assert sent["responses"]["tool_choice"] == {"type": "function", "name": "Value"}
    assert sent["messages"]["tool_choice"] == {"type": "tool", "name": "Value"}
    assert sent["gemini"]["toolConfig"]["functionCallingConfig"] == {
        "mode": "ANY",
        "allowedFunctionNames": ["Value"],
    }
    assert sent["converse"]["toolConfig"]["toolChoice"] == {"tool": {"name": "Value"}}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (SCHEMA, True),
        (SCHEMA | {"required": []}, False),
        ({key: SCHEMA[key] for key in SCHEMA if key != "additionalProperties"}, False),
        (SCHEMA | {"allOf": [SCHEMA]}, False),
        (SCHEMA | {"properties": {"name": {"type": "object"}}}, False),
        (SCHEMA | {"properties": {"name": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/n"}]}}}, True),
        (SCHEMA | {"properties": {"name": {"type": "array", "items": {"minLength": 1}}}}, False),
    ],
)
def test_a_schema_is_strict_if_it_leaves_nothing_open(schema: dict[str, Any], strict: bool) -> None:
    assert is_strict(schema) is strict


def model(npm: str, *, known: bool, provider: str = "mill", **options: Any) -> Model:
    can = replace(GPT.capabilities, structured_output=known)
    return replace(
        GPT, provider_id=provider, api=ModelApi(id="m", npm=npm), capabilities=can, options=options
    )


@pytest.mark.parametrize(
    ("asked", "tools", "taken"),
    [
        (model("@ai-sdk/openai", known=True), True, True),
        (model("@ai-sdk/openai", known=False), True, False),
        (model("@ai-sdk/openai-compatible", known=True, provider="openai"), True, True),
        (model("@ai-sdk/openai-compatible", known=True), True, False),
        (model("@ai-sdk/openai-compatible", known=True), False, True),
        (model("@ai-sdk/openai-compatible", known=False, structuredOutputs=True), True, True),
        (model("@ai-sdk/openai", known=True, structuredOutputs=False), True, False),
        (model("@ai-sdk/anthropic", known=True), True, True),
        (model("@ai-sdk/google", known=True), True, False),
        (model("@ai-sdk/google", known=True), False, True),
        (model("@ai-sdk/amazon-bedrock", known=True), False, False),
    ],
)
def test_a_response_format_is_used_if_the_api_allows_tools_beside_it(
    asked: Model, tools: bool, taken: bool
) -> None:
    assert has_native_format(asked, tools=tools) is taken
