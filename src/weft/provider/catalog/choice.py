"""Choose defaults (pure): the model when none is named, and the options and variants of each model."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from weft.model.catalog import Model
from weft.provider.catalog.access import AZURE, BEDROCK, COMPATIBLE, COPILOT
from weft.provider.catalog.models import merge_deep

# Later entries are better.
PREFERRED_MODELS: Final = ("gpt-5", "claude-sonnet-4", "big-pickle", "gemini-3-pro")
# Earlier entries are better.
SMALL_MODELS: Final = (
    "claude-haiku-4-5",
    "claude-haiku-4.5",
    "3-5-haiku",
    "3.5-haiku",
    "gemini-3-flash",
    "gemini-2.5-flash",
    "gpt-5-nano",
)
COPILOT_SMALL_MODELS: Final = ("gpt-5-mini", "claude-haiku-4.5", *SMALL_MODELS)
OPENCODE_SMALL_MODELS: Final = ("gpt-5-nano",)
# Dollars per million output tokens. Among equally preferred models, a more expensive one ranks below the others.
MAX_OUTPUT_PRICE: Final = 30


def choose_best_model(models: Iterable[Model]) -> Model | None:
    """Return the best model that can read and write text and call tools, or None. OpenCode may choose an image model."""
    candidates = [model for model in models if _can_work(model)]
    return max(candidates, key=_rank) if candidates else None


def _can_work(model: Model) -> bool:
    capabilities = model.capabilities
    return capabilities.toolcall and capabilities.input.text and capabilities.output.text


def _rank(model: Model) -> tuple[int, bool, bool, str]:
    """Rank a model as OpenCode does, but among equally preferred models put those for chatting and expensive ones last."""
    rank = max((rank for rank, name in enumerate(PREFERRED_MODELS) if name in model.id), default=-1)
    is_expensive = model.cost is not None and model.cost.output > MAX_OUTPUT_PRICE
    return rank, not is_expensive and "chat" not in model.id, "latest" in model.id, model.id


def choose_small_model(provider_id: str, ids: Sequence[str]) -> str | None:
    """Return the id of a provider's small model, or None."""
    names: tuple[str, ...] = SMALL_MODELS
    if provider_id.startswith("opencode"):
        names = OPENCODE_SMALL_MODELS
    if provider_id.startswith("github-copilot"):
        names = COPILOT_SMALL_MODELS
    return next((id for name in names for id in ids if name in id), None)


Options = dict[str, Any]

OPENAI: Final = "@ai-sdk/openai"
OPENROUTER: Final = "@openrouter/ai-sdk-provider"
ANTHROPIC_PACKAGES: Final = ("@ai-sdk/anthropic", "@ai-sdk/google-vertex/anthropic")
GOOGLE_PACKAGES: Final = ("@ai-sdk/google", "@ai-sdk/google-vertex")
ENCRYPTED_REASONING: Final = ["reasoning.encrypted_content"]
# The minimum for models whose thinking cannot be switched off.
MIN_THINKING_BUDGET: Final = 128

# The first name that occurs in a model's id decides.
TEMPERATURE_BY_NAME: Final[tuple[tuple[str, float | None], ...]] = (
    ("qwen", 0.55),
    ("claude", None),
    ("gemini", 1.0),
    ("glm-4.6", 1.0),
    ("glm-4.7", 1.0),
    ("minimax-m2", 1.0),
)
TOP_P_BY_NAME: Final = (("qwen", 1.0), ("minimax-m2", 0.95), ("gemini", 0.95))
TOP_K_BY_NAME: Final = (("minimax-m2.1", 40), ("minimax-m2", 20), ("gemini", 64))


def choose_temperature(model: Model) -> float | None:
    id = model.id.lower()
    for name, value in TEMPERATURE_BY_NAME:
        if name in id:
            return value
    if "kimi-k2" in id:
        return 1.0 if "thinking" in id else 0.6
    return None


def choose_top_p(model: Model) -> float | None:
    return next((value for name, value in TOP_P_BY_NAME if name in model.id.lower()), None)


def choose_top_k(model: Model) -> int | None:
    return next((value for name, value in TOP_K_BY_NAME if name in model.id.lower()), None)


def get_max_output(model: Model, limit: int, options: Mapping[str, Any]) -> int:
    """Return the output limit of an answer: `limit`, or less if the model allows less or a thinking budget needs room."""
    model_limit = model.limit.output or limit
    output = min(model_limit, limit)
    budget = _get_thinking_budget(options) if model.api.npm in ANTHROPIC_PACKAGES else 0
    return output if budget + output <= model_limit else max(1, model_limit - budget)


def _get_thinking_budget(options: Mapping[str, Any]) -> int:
    match options.get("thinking"):
        case {"type": "enabled", "budgetTokens": int(budget)} if budget > 0:
            return budget
        case _:
            return 0


def get_options(model: Model, session: str) -> Options:
    """Return the default options of a model, which its own, the agent's and the variant's options override."""
    return {
        **_get_privacy_options(model),
        **_get_router_options(model),
        **_get_thinking_options(model),
        **_get_cache_key_options(model, session),
        **_get_gpt_5_options(model, session),
    }


def get_small_options(model: Model) -> Options:
    """Return the options for small tasks such as titles: as little thinking as the model allows.

    OpenCode requests the same from models that cannot think, or not that little, and they refuse.
    """
    privacy = _get_privacy_options(model)
    if not model.capabilities.reasoning:
        return privacy
    if model.api.npm in GOOGLE_PACKAGES:
        return privacy | {"thinkingConfig": _get_least_thinking(model.api.id)}
    if model.api.npm == OPENROUTER:
        google = "google" in model.api.id
        return privacy | ({"reasoning": {"enabled": False}} if google else {"reasoningEffort": "minimal"})
    if "gpt-5" in model.api.id:
        return privacy | {"reasoningEffort": "low" if "5." in model.api.id else "minimal"}
    return privacy | ({"reasoningEffort": "low"} if model.provider_id == "openai" else {})


def _get_privacy_options(model: Model) -> Options:
    openai = model.provider_id == "openai" or model.api.npm in (OPENAI, COPILOT)
    return {"store": False} if openai else {}


def _get_router_options(model: Model) -> Options:
    if model.api.npm != OPENROUTER:
        return {}
    effort: Options = {"reasoning": {"effort": "high"}} if "gemini-3" in model.api.id else {}
    return {"usage": {"include": True}, **effort}


def _get_thinking_options(model: Model) -> Options:
    provider, id = model.provider_id, model.api.id
    if provider == "baseten" or (provider == "opencode" and id in ("kimi-k2-thinking", "glm-4.6")):
        return {"chat_template_args": {"enable_thinking": True}}
    if provider in ("zai", "zhipuai") and model.api.npm == COMPATIBLE:
        return {"thinking": {"type": "enabled", "clear_thinking": False}}
    # OpenCode requests thoughts from every Gemini model. Models without thinking refuse the request.
    if model.api.npm in GOOGLE_PACKAGES and model.capabilities.reasoning:
        level = {"thinkingLevel": "high"} if "gemini-3" in id else {}
        return {"thinkingConfig": {"includeThoughts": True, **level}}
    return {}


def _get_least_thinking(id: str) -> Options:
    if "gemini-3" in id:
        return {"thinkingLevel": "minimal" if "flash" in id else "low"}
    return {"thinkingBudget": MIN_THINKING_BUDGET if "pro" in id else 0}


def _get_cache_key_options(model: Model, session: str) -> Options:
    return {"promptCacheKey": session} if model.provider_id in ("openai", "venice") else {}


def _get_gpt_5_options(model: Model, session: str) -> Options:
    id = model.api.id
    if "gpt-5" not in id or "gpt-5-chat" in id:
        return {}
    options: Options = {} if "gpt-5-pro" in id else {"reasoningEffort": "medium"}
    if "gpt-5." in id and "codex" not in id and model.provider_id != "azure":
        options["textVerbosity"] = "low"
    if model.provider_id.startswith("opencode"):
        options |= {"promptCacheKey": session, "include": ENCRYPTED_REASONING, "reasoningSummary": "auto"}
    return options


Variants = dict[str, Options]

COMMON_EFFORTS: Final = ("low", "medium", "high")
ALL_EFFORTS: Final = ("none", "minimal", *COMMON_EFFORTS, "xhigh")
# Families whose thinking cannot be graded, or is set in another way.
FAMILIES_WITHOUT_VARIANTS: Final = ("deepseek", "minimax", "glm", "mistral")
HIGH_BUDGET, MAX_BUDGET, GEMINI_MAX_BUDGET = 16_000, 31_999, 24_576
# Models that were released on or after these dates support these efforts.
NONE_EFFORT_SINCE, XHIGH_EFFORT_SINCE = "2025-11-13", "2025-12-04"
FIRST_ADAPTIVE_VERSION: Final = (4, 7)
# A name and a version of one or two numbers; a date may follow.
_CLAUDE_VERSION: Final = r"claude-[a-z]+-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)"


def list_variants(model: Model) -> Variants:
    """Return the variants that a model offers. A model without thinking offers none."""
    id = model.id.lower()
    if not model.capabilities.reasoning or any(family in id for family in FAMILIES_WITHOUT_VARIANTS):
        return {}
    if "grok" in id:
        return _list_grok_variants(model, id)
    list_for_package = VARIANTS_BY_PACKAGE.get(model.api.npm)
    return list_for_package(model, id) if list_for_package is not None else {}


def merge_variants(offered: Variants, configured: Mapping[str, Mapping[str, Any]]) -> Variants:
    """Merge configured variants into those that a model offers. Variants with `disabled` are removed."""
    merged = merge_deep(offered, configured)
    return {
        name: {key: value for key, value in options.items() if key != "disabled"}
        for name, options in merged.items()
        if options.get("disabled") is not True
    }


def _list_grok_variants(model: Model, id: str) -> Variants:
    if "grok-3-mini" not in id:
        return {}
    efforts = ("low", "high")
    return (
        _make_reasoning_variants(efforts) if "openrouter" in model.api.npm else _make_effort_variants(efforts)
    )


def _make_effort_variants(efforts: Iterable[str]) -> Variants:
    return {effort: {"reasoningEffort": effort} for effort in efforts}


def _make_reasoning_variants(efforts: Iterable[str]) -> Variants:
    return {effort: {"reasoning": {"effort": effort}} for effort in efforts}


def _make_summary_variants(efforts: Iterable[str]) -> Variants:
    """Return variants with a readable summary, and with encrypted reasoning: OpenAI does not store it (`store: false`), so we do."""
    return {
        effort: {"reasoningEffort": effort, "reasoningSummary": "auto", "include": list(ENCRYPTED_REASONING)}
        for effort in efforts
    }


def _list_common_variants(_: Model, __: str) -> Variants:
    return _make_effort_variants(COMMON_EFFORTS)


def _list_openrouter_variants(_: Model, id: str) -> Variants:
    return _make_reasoning_variants(ALL_EFFORTS) if "gpt" in id or "gemini-3" in id else {}


def _list_gateway_variants(_: Model, __: str) -> Variants:
    return _make_effort_variants(ALL_EFFORTS)


def _list_copilot_variants(_: Model, __: str) -> Variants:
    return _make_summary_variants(COMMON_EFFORTS)


def _list_azure_variants(_: Model, id: str) -> Variants:
    if id == "o1-mini":
        return {}
    return _make_summary_variants(("minimal", *COMMON_EFFORTS) if _is_first_gpt_5(id) else COMMON_EFFORTS)


def _list_openai_variants(model: Model, id: str) -> Variants:
    if id == "gpt-5-pro":
        return {}
    if "codex" in id:
        return _make_summary_variants((*COMMON_EFFORTS, "xhigh") if "5.2" in id else COMMON_EFFORTS)
    none = ("none",) if model.release_date >= NONE_EFFORT_SINCE else ()
    minimal = ("minimal",) if _is_first_gpt_5(id) else ()
    xhigh = ("xhigh",) if model.release_date >= XHIGH_EFFORT_SINCE else ()
    return _make_summary_variants((*none, *minimal, *COMMON_EFFORTS, *xhigh))


def _is_first_gpt_5(id: str) -> bool:
    return id == "gpt-5" or "gpt-5-" in id


def _list_anthropic_variants(model: Model, _: str) -> Variants:
    if has_adaptive_thinking(model.api.id):
        # Such a model sends its thoughts only on request.
        thinking = {"type": "adaptive", "display": "summarized"}
        return {effort: {"thinking": thinking, "effort": effort} for effort in _list_claude_efforts(model)}
    return {
        name: {"thinking": {"type": "enabled", "budgetTokens": budget}}
        for name, budget in _list_budgets(model)
    }


def has_adaptive_thinking(id: str) -> bool:
    """Return True for Claude 4.7 and later, which accept an effort and refuse the thinking budget that OpenCode sends."""
    version = re.search(_CLAUDE_VERSION, id)
    if version is None:
        return "claude-mythos" in id
    return (int(version[1]), int(version[2] or 0)) >= FIRST_ADAPTIVE_VERSION


def _list_claude_efforts(model: Model) -> tuple[str, ...]:
    return (*COMMON_EFFORTS, "xhigh", "max") if "opus" in model.api.id else (*COMMON_EFFORTS, "max")


def _list_bedrock_variants(model: Model, id: str) -> Variants:
    if has_adaptive_thinking(model.api.id):
        return {
            effort: {"reasoningConfig": {"type": "adaptive", "maxReasoningEffort": effort}}
            for effort in _list_claude_efforts(model)
        }
    if "claude" in id or "anthropic" in model.api.id:
        return {
            name: {"reasoningConfig": {"type": "enabled", "budgetTokens": budget}}
            for name, budget in _list_budgets(model)
        }
    return {
        effort: {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": effort}}
        for effort in COMMON_EFFORTS
    }


def _list_budgets(model: Model) -> tuple[tuple[str, int], ...]:
    """Return the thinking budgets that fit the model. OpenCode exceeds a small output limit and is refused."""
    limit = model.limit.output or MAX_BUDGET + 1
    return ("high", min(HIGH_BUDGET, limit // 2)), ("max", min(MAX_BUDGET, limit - 1))


def _list_google_variants(_: Model, id: str) -> Variants:
    if "2.5" in id:
        budgets = {"high": HIGH_BUDGET, "max": GEMINI_MAX_BUDGET}
        return {
            name: {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": budget}}
            for name, budget in budgets.items()
        }
    return {
        level: {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": level}}
        for level in ("low", "high")
    }


def _list_groq_variants(_: Model, __: str) -> Variants:
    # OpenCode sends Groq the options of Gemini.
    return _make_effort_variants(("none", *COMMON_EFFORTS))


VARIANTS_BY_PACKAGE: Final[Mapping[str, Callable[[Model, str], Variants]]] = {
    OPENROUTER: _list_openrouter_variants,
    "@ai-sdk/gateway": _list_gateway_variants,
    COPILOT: _list_copilot_variants,
    "@ai-sdk/cerebras": _list_common_variants,
    "@ai-sdk/togetherai": _list_common_variants,
    "@ai-sdk/xai": _list_common_variants,
    "@ai-sdk/deepinfra": _list_common_variants,
    COMPATIBLE: _list_common_variants,
    AZURE: _list_azure_variants,
    OPENAI: _list_openai_variants,
    **dict.fromkeys(ANTHROPIC_PACKAGES, _list_anthropic_variants),
    BEDROCK: _list_bedrock_variants,
    **dict.fromkeys(GOOGLE_PACKAGES, _list_google_variants),
    "@ai-sdk/groq": _list_groq_variants,
}
