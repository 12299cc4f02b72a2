"""Options by model: temperature, top-p, top-k, output limit, small options and variants."""

from typing import Any

import pytest
from msgspec.structs import replace

from weft.model.catalog import Capabilities, Limit, Model, ModelApi
from weft.provider.catalog import choice as table
from weft.provider.catalog.choice import list_variants, merge_variants

OPENAI, ANTHROPIC, GOOGLE = "@ai-sdk/openai", "@ai-sdk/anthropic", "@ai-sdk/google"
COMPATIBLE, OPENROUTER = "@ai-sdk/openai-compatible", "@openrouter/ai-sdk-provider"
SUMMARY = {"reasoningSummary": "auto", "include": ["reasoning.encrypted_content"]}


def model(
    id: str, npm: str = COMPATIBLE, *, provider: str = "p", reasoning: bool = True, released: str = ""
) -> Model:
    return Model(
        id=id,
        provider_id=provider,
        name=id,
        api=ModelApi(id=id, npm=npm),
        capabilities=Capabilities(reasoning=reasoning),
        limit=Limit(context=200_000, output=64_000),
        release_date=released,
    )


@pytest.mark.parametrize(
    ("id", "temperature", "top_p", "top_k"),
    [
        ("Qwen3-Coder", 0.55, 1, None),
        ("claude-sonnet-4-5", None, None, None),
        ("gemini-2.5-pro", 1.0, 0.95, 64),
        ("glm-4.6", 1.0, None, None),
        ("glm-4.7-air", 1.0, None, None),
        ("glm-4.5", None, None, None),
        ("minimax-m2", 1.0, 0.95, 20),
        ("MiniMax-M2.1", 1.0, 0.95, 40),
        ("kimi-k2", 0.6, None, None),
        ("kimi-k2-thinking", 1.0, None, None),
        ("gpt-5", None, None, None),
    ],
)
def test_sampling_parameters_are_chosen_by_model(
    id: str, temperature: float | None, top_p: float | None, top_k: int | None
) -> None:
    made = model(id)
    assert (table.choose_temperature(made), table.choose_top_p(made), table.choose_top_k(made)) == (
        temperature,
        top_p,
        top_k,
    )


def thinking(budget: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budgetTokens": budget}}


@pytest.mark.parametrize(
    ("output", "npm", "options", "most"),
    [
        (64_000, ANTHROPIC, {}, 32_000),
        (8_000, ANTHROPIC, {}, 8_000),
        (0, ANTHROPIC, {}, 32_000),
        (64_000, ANTHROPIC, thinking(16_000), 32_000),
        (64_000, ANTHROPIC, thinking(40_000), 24_000),
        (32_000, ANTHROPIC, thinking(31_999), 1),
        (32_000, ANTHROPIC, thinking(64_000), 1),
        (64_000, ANTHROPIC, {"thinking": {"type": "disabled"}}, 32_000),
        (64_000, OPENAI, thinking(40_000), 32_000),
    ],
)
def test_the_output_limit_is_chosen_by_model_and_thinking_budget(
    output: int, npm: str, options: dict[str, Any], most: int
) -> None:
    made = replace(model("m", npm), limit=Limit(context=200_000, output=output))
    assert table.get_max_output(made, 32_000, options) == most


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (model("claude-sonnet-4-5", ANTHROPIC, provider="anthropic"), {}),
        (model("gpt-4o", OPENAI, provider="openai"), {"store": False, "promptCacheKey": "ses_1"}),
        (
            model("gpt-5", OPENAI, provider="openai"),
            {"store": False, "promptCacheKey": "ses_1", "reasoningEffort": "medium"},
        ),
        (
            model("gpt-5.1", OPENAI, provider="openai"),
            {
                "store": False,
                "promptCacheKey": "ses_1",
                "reasoningEffort": "medium",
                "textVerbosity": "low",
            },
        ),
        (
            model("gpt-5.1-codex", OPENAI, provider="openai"),
            {"store": False, "promptCacheKey": "ses_1", "reasoningEffort": "medium"},
        ),
        (model("gpt-5-pro", OPENAI, provider="openai"), {"store": False, "promptCacheKey": "ses_1"}),
        (model("gpt-5-chat", "@ai-sdk/azure", provider="azure"), {}),
        (model("gpt-5.1", "@ai-sdk/azure", provider="azure"), {"reasoningEffort": "medium"}),
        (
            model("gpt-5", OPENAI, provider="opencode"),
            {"store": False, "promptCacheKey": "ses_1", "reasoningEffort": "medium", **SUMMARY},
        ),
        (model("anthropic/claude", OPENROUTER, provider="openrouter"), {"usage": {"include": True}}),
        (
            model("google/gemini-3-pro", OPENROUTER, provider="openrouter"),
            {"usage": {"include": True}, "reasoning": {"effort": "high"}},
        ),
        (model("any", provider="baseten"), {"chat_template_args": {"enable_thinking": True}}),
        (
            model("kimi-k2-thinking", provider="opencode"),
            {"chat_template_args": {"enable_thinking": True}},
        ),
        (model("glm-4.6", provider="zai"), {"thinking": {"type": "enabled", "clear_thinking": False}}),
        (model("gemini-2.5-pro", GOOGLE), {"thinkingConfig": {"includeThoughts": True}}),
        (
            model("gemini-3-pro", GOOGLE),
            {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "high"}},
        ),
        (model("gemini-2.0-flash", GOOGLE, reasoning=False), {}),
        (model("llama", provider="venice"), {"promptCacheKey": "ses_1"}),
        (model("llama"), {}),
    ],
    ids=lambda value: f"{value.provider_id}/{value.id}" if isinstance(value, Model) else "",
)
def test_default_options_are_chosen_by_model(made: Model, options: dict[str, Any]) -> None:
    assert table.get_options(made, "ses_1") == options


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (model("gpt-5-nano", OPENAI, provider="openai"), {"store": False, "reasoningEffort": "minimal"}),
        (model("gpt-5.1", OPENAI, provider="openai"), {"store": False, "reasoningEffort": "low"}),
        (model("o4-mini", OPENAI, provider="openai"), {"store": False, "reasoningEffort": "low"}),
        (model("gpt-4o-mini", OPENAI, provider="openai", reasoning=False), {"store": False}),
        (model("gemini-2.5-flash", GOOGLE), {"thinkingConfig": {"thinkingBudget": 0}}),
        (model("gemini-2.5-pro", GOOGLE), {"thinkingConfig": {"thinkingBudget": 128}}),
        (model("gemini-3-flash", GOOGLE), {"thinkingConfig": {"thinkingLevel": "minimal"}}),
        (model("gemini-3-pro", GOOGLE), {"thinkingConfig": {"thinkingLevel": "low"}}),
        (model("google/gemini-2.5-flash", OPENROUTER), {"reasoning": {"enabled": False}}),
        (model("openai/gpt-5", OPENROUTER), {"reasoningEffort": "minimal"}),
        (model("claude-haiku-4-5", ANTHROPIC), {}),
    ],
    ids=lambda value: value.id if isinstance(value, Model) else "",
)
def test_small_requests_ask_for_little_reasoning(made: Model, options: dict[str, Any]) -> None:
    assert table.get_small_options(made) == options


EVERY = ["none", "minimal", "low", "medium", "high", "xhigh"]


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (model("llama", reasoning=False), []),
        (model("llama"), ["low", "medium", "high"]),
        (model("deepseek-r1"), []),
        (model("MiniMax-M2"), []),
        (model("glm-4.6"), []),
        (model("magistral-mistral", "@ai-sdk/mistral"), []),
        (model("grok-4", "@ai-sdk/xai"), []),
        (model("grok-3-mini", "@ai-sdk/xai"), ["low", "high"]),
        (model("openai/gpt-5", OPENROUTER), EVERY),
        (model("anthropic/claude", OPENROUTER), []),
        (model("anything", "@ai-sdk/gateway"), EVERY),
        (model("gpt-5", "@ai-sdk/github-copilot"), ["low", "medium", "high"]),
        (model("o1-mini", "@ai-sdk/azure"), []),
        (model("gpt-5-mini", "@ai-sdk/azure"), ["minimal", "low", "medium", "high"]),
        (model("gpt-5-pro", OPENAI), []),
        (model("gpt-5-codex", OPENAI), ["low", "medium", "high"]),
        (model("gpt-5.2-codex", OPENAI), ["low", "medium", "high", "xhigh"]),
        (model("o3", OPENAI, released="2025-04-16"), ["low", "medium", "high"]),
        (model("gpt-5", OPENAI, released="2025-08-07"), ["minimal", "low", "medium", "high"]),
        (model("gpt-5.1", OPENAI, released="2025-11-13"), ["none", "low", "medium", "high"]),
        (model("gpt-5.2", OPENAI, released="2025-12-11"), ["none", "low", "medium", "high", "xhigh"]),
        (model("claude-sonnet-4-5", ANTHROPIC), ["high", "max"]),
        (model("anthropic.claude", "@ai-sdk/amazon-bedrock"), ["high", "max"]),
        (model("claude-opus-4-20250514", ANTHROPIC), ["high", "max"]),
        (model("claude-opus-4-7", ANTHROPIC), ["low", "medium", "high", "xhigh", "max"]),
        (model("claude-sonnet-5", ANTHROPIC), ["low", "medium", "high", "max"]),
        (model("claude-mythos-preview", ANTHROPIC), ["low", "medium", "high", "max"]),
        (
            model("eu.anthropic.claude-opus-4-7", "@ai-sdk/amazon-bedrock"),
            ["low", "medium", "high", "xhigh", "max"],
        ),
        (model("nova", "@ai-sdk/amazon-bedrock"), ["low", "medium", "high"]),
        (model("gemini-2.5-pro", GOOGLE), ["high", "max"]),
        (model("gemini-3-pro", GOOGLE), ["low", "high"]),
        (model("qwen3", "@ai-sdk/groq"), ["none", "low", "medium", "high"]),
        (model("sonar", "@ai-sdk/perplexity"), []),
        (model("whatever", "unheard-of"), []),
    ],
    ids=lambda value: f"{value.id} {value.api.npm}" if isinstance(value, Model) else "",
)
def test_variants_are_listed_by_model(made: Model, names: list[str]) -> None:
    assert list(list_variants(made)) == names


def test_a_variant_sets_the_reasoning_effort_in_the_format_of_the_provider() -> None:
    assert list_variants(model("llama"))["high"] == {"reasoningEffort": "high"}
    assert list_variants(model("openai/gpt-5", OPENROUTER))["none"] == {"reasoning": {"effort": "none"}}
    assert list_variants(model("o3", OPENAI))["low"] == {"reasoningEffort": "low", **SUMMARY}
    assert list_variants(model("claude", ANTHROPIC)) == {"high": thinking(16_000), "max": thinking(31_999)}
    assert list_variants(model("gemini-2.5", GOOGLE))["max"] == {
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 24_576}
    }


def test_a_thinking_budget_leaves_room_for_an_answer() -> None:
    small = replace(model("claude", ANTHROPIC), limit=Limit(context=200_000, output=8_000))
    assert list_variants(small) == {"high": thinking(4_000), "max": thinking(7_999)}


def test_configured_variants_extend_the_built_in_ones() -> None:
    offered = {"low": {"reasoningEffort": "low"}, "high": {"reasoningEffort": "high", "include": ["a"]}}
    said = {
        "low": {"disabled": True},
        "high": {"reasoningEffort": "xhigh"},
        "mine": {"temperature": 0, "disabled": False},
    }
    assert merge_variants(offered, said) == {
        "high": {"reasoningEffort": "xhigh", "include": ["a"]},
        "mine": {"temperature": 0},
    }


def test_claude_with_adaptive_thinking_gets_an_effort() -> None:
    thinking = {"type": "adaptive", "display": "summarized"}
    assert list_variants(model("claude-opus-4-7", ANTHROPIC))["max"] == {
        "thinking": thinking,
        "effort": "max",
    }
    on_bedrock = list_variants(model("anthropic.claude-opus-4-7", "@ai-sdk/amazon-bedrock"))
    assert on_bedrock["low"] == {"reasoningConfig": {"type": "adaptive", "maxReasoningEffort": "low"}}
