"""How to ask a model, where neither the agent nor the person says: tables by model and provider (pure).

The names of options are those people write in `opencode.json`; each adapter turns them into its wire's own.
"""

from collections.abc import Mapping
from typing import Any, Final

from weft.model.catalog import Model

Options = dict[str, Any]

OPENAI: Final = "@ai-sdk/openai"
COMPATIBLE: Final = "@ai-sdk/openai-compatible"
COPILOT: Final = "@ai-sdk/github-copilot"
OPENROUTER: Final = "@openrouter/ai-sdk-provider"
ANTHROPIC: Final = ("@ai-sdk/anthropic", "@ai-sdk/google-vertex/anthropic")
GOOGLE: Final = ("@ai-sdk/google", "@ai-sdk/google-vertex")
ENCRYPTED: Final = ["reasoning.encrypted_content"]
# The least that a model which cannot stop thinking accepts.
LEAST_THINKING: Final = 128

# The first name that a model's id holds decides.
TEMPERATURES: Final[tuple[tuple[str, float | None], ...]] = (
    ("qwen", 0.55),
    ("claude", None),
    ("gemini", 1.0),
    ("glm-4.6", 1.0),
    ("glm-4.7", 1.0),
    ("minimax-m2", 1.0),
)
TOP_P: Final = (("qwen", 1.0), ("minimax-m2", 0.95), ("gemini", 0.95))
TOP_K: Final = (("minimax-m2.1", 40), ("minimax-m2", 20), ("gemini", 64))


def temperature(model: Model) -> float | None:
    id = model.id.lower()
    for name, value in TEMPERATURES:
        if name in id:
            return value
    if "kimi-k2" in id:
        return 1.0 if "thinking" in id else 0.6
    return None


def top_p(model: Model) -> float | None:
    return next((value for name, value in TOP_P if name in model.id.lower()), None)


def top_k(model: Model) -> int | None:
    return next((value for name, value in TOP_K if name in model.id.lower()), None)


def max_output(model: Model, most: int, options: Mapping[str, Any]) -> int:
    """How many tokens the answer may have. A thinking budget comes on top of it, and both must fit the model."""
    cap = model.limit.output or most
    usual = min(cap, most)
    budget = _thinking_budget(options) if model.api.npm in ANTHROPIC else 0
    return usual if budget + usual <= cap else max(1, cap - budget)


def _thinking_budget(options: Mapping[str, Any]) -> int:
    match options.get("thinking"):
        case {"type": "enabled", "budgetTokens": int(budget)} if budget > 0:
            return budget
        case _:
            return 0


def options(model: Model, session: str) -> Options:
    """What a model is asked with, before its own options, the agent's and the variant's are laid over it."""
    return {
        **_privacy(model),
        **_router(model),
        **_thinking(model),
        **_cache_key(model, session),
        **_gpt_5(model, session),
    }


def small_options(model: Model) -> Options:
    """The same where little is wanted, such as a title: as little thinking as the model allows.

    OpenCode asks models that cannot think, or not that little, for the same, and they refuse.
    """
    private = _privacy(model)
    if not model.capabilities.reasoning:
        return private
    if model.api.npm in GOOGLE:
        return private | {"thinkingConfig": _least_thinking(model.api.id)}
    if model.api.npm == OPENROUTER:
        google = "google" in model.api.id
        return private | ({"reasoning": {"enabled": False}} if google else {"reasoningEffort": "minimal"})
    if "gpt-5" in model.api.id:
        return private | {"reasoningEffort": "low" if "5." in model.api.id else "minimal"}
    return private | ({"reasoningEffort": "low"} if model.provider_id == "openai" else {})


def _privacy(model: Model) -> Options:
    openai = model.provider_id == "openai" or model.api.npm in (OPENAI, COPILOT)
    return {"store": False} if openai else {}


def _router(model: Model) -> Options:
    if model.api.npm != OPENROUTER:
        return {}
    effort: Options = {"reasoning": {"effort": "high"}} if "gemini-3" in model.api.id else {}
    return {"usage": {"include": True}, **effort}


def _thinking(model: Model) -> Options:
    provider, id = model.provider_id, model.api.id
    if provider == "baseten" or (provider == "opencode" and id in ("kimi-k2-thinking", "glm-4.6")):
        return {"chat_template_args": {"enable_thinking": True}}
    if provider in ("zai", "zhipuai") and model.api.npm == COMPATIBLE:
        return {"thinking": {"type": "enabled", "clear_thinking": False}}
    # OpenCode asks every Gemini for its thoughts, and those that have none refuse the request.
    if model.api.npm in GOOGLE and model.capabilities.reasoning:
        level = {"thinkingLevel": "high"} if "gemini-3" in id else {}
        return {"thinkingConfig": {"includeThoughts": True, **level}}
    return {}


def _least_thinking(id: str) -> Options:
    if "gemini-3" in id:
        return {"thinkingLevel": "minimal" if "flash" in id else "low"}
    return {"thinkingBudget": LEAST_THINKING if "pro" in id else 0}


def _cache_key(model: Model, session: str) -> Options:
    return {"promptCacheKey": session} if model.provider_id in ("openai", "venice") else {}


def _gpt_5(model: Model, session: str) -> Options:
    id = model.api.id
    if "gpt-5" not in id or "gpt-5-chat" in id:
        return {}
    asked: Options = {} if "gpt-5-pro" in id else {"reasoningEffort": "medium"}
    if "gpt-5." in id and "codex" not in id and model.provider_id != "azure":
        asked["textVerbosity"] = "low"
    if model.provider_id.startswith("opencode"):
        asked |= {"promptCacheKey": session, "include": ENCRYPTED, "reasoningSummary": "auto"}
    return asked
