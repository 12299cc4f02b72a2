"""Models for tests, one of each kind."""

from weft.model.catalog import Capabilities, Limit, Modalities, Model, ModelApi

IMAGE_AND_PDF = Modalities(image=True, pdf=True)


def model(provider: str, id: str, npm: str, **more: object) -> Model:
    fields = {
        "capabilities": Capabilities(temperature=True, input=IMAGE_AND_PDF),
        "limit": Limit(context=200_000, output=32_000),
    }
    return Model(id=id, provider_id=provider, name=id, api=ModelApi(id=id, npm=npm), **(fields | more))


CLAUDE = model("anthropic", "claude-sonnet-4", "@ai-sdk/anthropic")
GPT = model("openai", "gpt-4.1", "@ai-sdk/openai")
ROUTED = model("openrouter", "anthropic/claude-sonnet-4", "@openrouter/ai-sdk-provider")
MISTRAL = model("mistral", "mistral-large", "@ai-sdk/mistral")
LOCAL = model("ollama", "qwen3", "@ai-sdk/openai-compatible")
TEXT_ONLY = model(
    "ollama", "qwen3-coder", "@ai-sdk/openai-compatible", capabilities=Capabilities(temperature=True)
)
ON_BEDROCK = model("amazon-bedrock", "anthropic.claude-sonnet-4-5-20250929-v1:0", "@ai-sdk/amazon-bedrock")
NOVA = model("amazon-bedrock", "amazon.nova-pro-v1:0", "@ai-sdk/amazon-bedrock")
QWEN_ON_BEDROCK = model("amazon-bedrock", "qwen.qwen3-32b-v1:0", "@ai-sdk/amazon-bedrock")
