"""Packages: which of our adapters speaks what OpenCode loads a package for, and where it finds the server."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Package(NamedTuple):
    """`adapter` is `module:class` in `weft.provider`, imported when a model is used; `url` where nothing says else."""

    adapter: str
    url: str = ""


RESPONSES: Final = "openai_responses:OpenAIResponses"
CHAT: Final = "openai_chat:OpenAIChat"
ANTHROPIC: Final = "anthropic:AnthropicMessages"
GEMINI: Final = "gemini:Gemini"

AZURE: Final = "@ai-sdk/azure"
BEDROCK: Final = "@ai-sdk/amazon-bedrock"
COPILOT: Final = "@ai-sdk/github-copilot"
LONG_TAIL: Final = "pydantic-ai"

COMPATIBLE: Final = "@ai-sdk/openai-compatible"

PACKAGES: Final[Mapping[str, Package]] = {
    "@ai-sdk/anthropic": Package(ANTHROPIC, "https://api.anthropic.com/v1"),
    "@ai-sdk/openai": Package(RESPONSES, "https://api.openai.com/v1"),
    AZURE: Package("azure:AzureOpenAI", "https://${AZURE_RESOURCE_NAME}.openai.azure.com/openai"),
    BEDROCK: Package("bedrock:Bedrock", "https://bedrock-runtime.${AWS_REGION}.amazonaws.com"),
    COPILOT: Package("copilot:Copilot", "https://api.githubcopilot.com"),
    LONG_TAIL: Package("long_tail:LongTail"),
    "@ai-sdk/google": Package(GEMINI, "https://generativelanguage.googleapis.com/v1beta"),
    COMPATIBLE: Package(CHAT),
    "@ai-sdk/cerebras": Package(CHAT, "https://api.cerebras.ai/v1"),
    "@ai-sdk/cohere": Package(CHAT, "https://api.cohere.ai/compatibility/v1"),
    "@ai-sdk/deepinfra": Package(CHAT, "https://api.deepinfra.com/v1/openai"),
    "@ai-sdk/deepseek": Package(CHAT, "https://api.deepseek.com"),
    "@ai-sdk/fireworks": Package(CHAT, "https://api.fireworks.ai/inference/v1"),
    "@ai-sdk/gateway": Package(CHAT, "https://ai-gateway.vercel.sh/v1"),
    "@ai-sdk/groq": Package(CHAT, "https://api.groq.com/openai/v1"),
    "@ai-sdk/mistral": Package(CHAT, "https://api.mistral.ai/v1"),
    "@ai-sdk/perplexity": Package(CHAT, "https://api.perplexity.ai"),
    "@ai-sdk/togetherai": Package(CHAT, "https://api.together.xyz/v1"),
    "@ai-sdk/vercel": Package(CHAT, "https://api.v0.dev/v1"),
    "@ai-sdk/xai": Package(CHAT, "https://api.x.ai/v1"),
    "@aihubmix/ai-sdk-provider": Package(CHAT, "https://aihubmix.com/v1"),
    "@openrouter/ai-sdk-provider": Package(CHAT, "https://openrouter.ai/api/v1"),
    "venice-ai-sdk-provider": Package(CHAT, "https://api.venice.ai/api/v1"),
}

# Servers that people run on their own machine: they need no key, and only they know their models.
LOCAL: Final[Mapping[str, str]] = {
    "ollama": "http://127.0.0.1:11434/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
    "llamacpp": "http://127.0.0.1:8080/v1",
    "vllm": "http://127.0.0.1:8000/v1",
}
