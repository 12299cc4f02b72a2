"""The words of OpenTelemetry's conventions for generative AI, and ours beside them."""

from collections.abc import Mapping
from typing import Final

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
