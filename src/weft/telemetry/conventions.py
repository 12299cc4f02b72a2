"""Names and message formats of OpenTelemetry's conventions for generative AI."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from weft.model.part import (
    AnyPart,
    CompletedState,
    ErrorState,
    ReasoningPart,
    TextPart,
    ToolPart,
)

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE: Final = "gen_ai.usage.cache_creation.input_tokens"
REASONING: Final = "gen_ai.usage.reasoning.output_tokens"
CONVERSATION: Final = "gen_ai.conversation.id"
AGENT: Final = "gen_ai.agent.name"
TOOL: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
CALL: Final = "gen_ai.tool.call.id"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOKEN_TYPE: Final = "gen_ai.token.type"
ERROR: Final = "error.type"

TOKEN_USAGE: Final = "gen_ai.client.token.usage"
DURATION: Final = "gen_ai.client.operation.duration"

COST: Final = "weft.cost"
TOKENS: Final = "weft.tokens"
CACHE_RATE: Final = "weft.cache.rate"
RETRIES: Final = "weft.retries"
COMPACTIONS: Final = "weft.compactions"
STEP: Final = "weft.step"
SUMMARY: Final = "weft.summary"
ATTEMPT: Final = "weft.attempt"

# Providers whose name in the conventions differs from the catalogue's.
PROVIDER_NAMES: Final[Mapping[str, str]] = {
    "amazon-bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "google": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "google-vertex-anthropic": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}


def get_provider_name(id: str) -> str:
    return PROVIDER_NAMES.get(id, id)


MAX_TEXT_LENGTH: Final = 4_096
MAX_VALUE_LENGTH: Final = 32_768
MAX_PARTS: Final = 64


def format_prompt(parts: Iterable[AnyPart]) -> str:
    """Return a prompt as input messages. The history and the system prompt are in no event, so they are missing."""
    message_parts = [_to_text(part.text) for part in parts if isinstance(part, TextPart) and not part.ignored]
    return encode_bounded([{"role": "user", "parts": message_parts[:MAX_PARTS]}] if message_parts else [])


def format_results(calls: Iterable[ToolPart]) -> str:
    """Return the results of tool calls as input messages."""
    results = [
        {"type": "tool_call_response", "id": part.call_id, "result": truncate_text(format_result(part))}
        for part in calls
    ]
    return encode_bounded([{"role": "tool", "parts": results[:MAX_PARTS]}] if results else [])


def format_answer(parts: Iterable[AnyPart], finish: str) -> str:
    """Return an answer as output messages."""
    message_parts: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case TextPart(ignored=False, text=text):
                message_parts.append(_to_text(text))
            case ReasoningPart(ignored=False, text=text):
                message_parts.append({"type": "reasoning", "content": truncate_text(text)})
            case ToolPart(tool=tool, call_id=id):
                message_parts.append(
                    {"type": "tool_call", "id": id, "name": tool, "arguments": format_arguments(part)}
                )
            case _:
                pass
    return encode_bounded(
        [{"role": "assistant", "parts": message_parts[:MAX_PARTS], "finish_reason": finish}]
    )


def format_arguments(part: ToolPart) -> str:
    return truncate_text(json.dumps(part.state.input, ensure_ascii=False, default=str))


def format_result(part: ToolPart) -> str:
    match part.state:
        case CompletedState(output=output):
            return truncate_text(output)
        case ErrorState(error=error):
            return truncate_text(error)
        case _:
            return ""


def encode_bounded(messages: list[dict[str, Any]]) -> str:
    """Encode messages as JSON. Remove parts from the end until they fit."""
    encoded = json.dumps(messages, ensure_ascii=False)
    while len(encoded) > MAX_VALUE_LENGTH and messages and messages[-1]["parts"]:
        messages[-1]["parts"].pop()
        encoded = json.dumps(messages, ensure_ascii=False)
    return encoded


def truncate_text(text: str) -> str:
    return text if len(text) <= MAX_TEXT_LENGTH else f"{text[: MAX_TEXT_LENGTH - 1]}…"


def _to_text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": truncate_text(text)}
