"""Names and message forms of OpenTelemetry's conventions for generative AI."""

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
ANSWERED_BY: Final = "gen_ai.response.model"
FINISH: Final = "gen_ai.response.finish_reasons"
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
ASKED: Final = "gen_ai.input.messages"
ANSWERED: Final = "gen_ai.output.messages"
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

# Providers whose name in the conventions is another than in the catalogue.
PROVIDERS: Final[Mapping[str, str]] = {
    "amazon-bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "google": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "google-vertex-anthropic": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}


def provider_name(id: str) -> str:
    return PROVIDERS.get(id, id)


LONGEST_TEXT: Final = 4_096
LONGEST_VALUE: Final = 32_768
MOST_PARTS: Final = 64


def asked(parts: Iterable[AnyPart]) -> str:
    """A prompt. What else a model is shown, the history and the system prompt, is in no event."""
    said = [_text(part.text) for part in parts if isinstance(part, TextPart) and not part.ignored]
    return bounded([{"role": "user", "parts": said[:MOST_PARTS]}] if said else [])


def brought(calls: Iterable[ToolPart]) -> str:
    """What came of calls, as the model reads it."""
    results = [
        {"type": "tool_call_response", "id": part.call_id, "result": cut(result_of(part))} for part in calls
    ]
    return bounded([{"role": "tool", "parts": results[:MOST_PARTS]}] if results else [])


def answered(parts: Iterable[AnyPart], finish: str) -> str:
    said: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case TextPart(ignored=False, text=text):
                said.append(_text(text))
            case ReasoningPart(ignored=False, text=text):
                said.append({"type": "reasoning", "content": cut(text)})
            case ToolPart(tool=tool, call_id=id):
                said.append({"type": "tool_call", "id": id, "name": tool, "arguments": arguments_of(part)})
            case _:
                pass
    return bounded([{"role": "assistant", "parts": said[:MOST_PARTS], "finish_reason": finish}])


def arguments_of(part: ToolPart) -> str:
    return cut(json.dumps(part.state.input, ensure_ascii=False, default=str))


def result_of(part: ToolPart) -> str:
    match part.state:
        case CompletedState(output=output):
            return cut(output)
        case ErrorState(error=error):
            return cut(error)
        case _:
            return ""


def bounded(messages: list[dict[str, Any]]) -> str:
    """As JSON. What would be too long is left out from the end, whole parts of it."""
    written = json.dumps(messages, ensure_ascii=False)
    while len(written) > LONGEST_VALUE and messages and messages[-1]["parts"]:
        messages[-1]["parts"].pop()
        written = json.dumps(messages, ensure_ascii=False)
    return written


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": cut(text)}
