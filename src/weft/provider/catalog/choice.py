"""Choose defaults: the model when none is named, and the options and variants of each (pure)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from weft.model.catalog import Model
from weft.provider.catalog.models import merge

# The later in the list, the better.
BEST: Final = ("gpt-5", "claude-sonnet-4", "big-pickle", "gemini-3-pro")
# The first that there is.
SMALL: Final = (
    "claude-haiku-4-5",
    "claude-haiku-4.5",
    "3-5-haiku",
    "3.5-haiku",
    "gemini-3-flash",
    "gemini-2.5-flash",
    "gpt-5-nano",
)
COPILOT_SMALL: Final = ("gpt-5-mini", "claude-haiku-4.5", *SMALL)
OPENCODE_SMALL: Final = ("gpt-5-nano",)
# Dollars per million tokens: what costs more is chosen by people, not for them.
DEAR: Final = 30


def best(models: Iterable[Model]) -> Model | None:
    """The one to work with. It must be able to read, write and call tools: OpenCode may pick one that draws."""
    able = [model for model in models if _can_work(model)]
    return max(able, key=_rank) if able else None


def _can_work(model: Model) -> bool:
    can = model.capabilities
    return can.toolcall and can.input.text and can.output.text


def _rank(model: Model) -> tuple[int, bool, bool, str]:
    """OpenCode ranks alike, but may land on a model made for chatting, or on the dearest one there is."""
    place = max((place for place, name in enumerate(BEST) if name in model.id), default=-1)
    dear = model.cost is not None and model.cost.output > DEAR
    return place, not dear and "chat" not in model.id, "latest" in model.id, model.id


def small(provider_id: str, ids: Sequence[str]) -> str | None:
    """The id of a provider's small model."""
    wanted: tuple[str, ...] = SMALL
    if provider_id.startswith("opencode"):
        wanted = OPENCODE_SMALL
    if provider_id.startswith("github-copilot"):
        wanted = COPILOT_SMALL
    return next((id for name in wanted for id in ids if name in id), None)


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


Variants = dict[str, Options]

USUAL: Final = ("low", "medium", "high")
EVERY: Final = ("none", "minimal", *USUAL, "xhigh")
# Families whose thinking is on or off, or goes by other means.
FIXED: Final = ("deepseek", "minimax", "glm", "mistral")
HIGH_BUDGET, MAX_BUDGET, GEMINI_MAX_BUDGET = 16_000, 31_999, 24_576
# Models released since then know these efforts.
KNOWS_NONE, KNOWS_XHIGH = "2025-11-13", "2025-12-04"
WITHOUT_BUDGET: Final = (4, 7)
# A name and a version of one or two numbers; what follows may be a date.
_CLAUDE: Final = re.compile(r"claude-[a-z]+-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")


def variants(model: Model) -> Variants:
    """What a model offers. One that cannot think offers nothing."""
    id = model.id.lower()
    if not model.capabilities.reasoning or any(family in id for family in FIXED):
        return {}
    if "grok" in id:
        return _grok(model, id)
    offered = BY_PACKAGE.get(model.api.npm)
    return offered(model, id) if offered is not None else {}


def with_configured(offered: Variants, configured: Mapping[str, Mapping[str, Any]]) -> Variants:
    """A person's own laid over what a model offers; those that say `disabled` are gone."""
    merged = merge(offered, configured)
    return {
        name: {key: value for key, value in each.items() if key != "disabled"}
        for name, each in merged.items()
        if each.get("disabled") is not True
    }


def _grok(model: Model, id: str) -> Variants:
    if "grok-3-mini" not in id:
        return {}
    efforts = ("low", "high")
    return _as_reasoning(efforts) if "openrouter" in model.api.npm else _as_effort(efforts)


def _as_effort(efforts: Iterable[str]) -> Variants:
    return {effort: {"reasoningEffort": effort} for effort in efforts}


def _as_reasoning(efforts: Iterable[str]) -> Variants:
    return {effort: {"reasoning": {"effort": effort}} for effort in efforts}


def _with_summary(efforts: Iterable[str]) -> Variants:
    """Thoughts are kept by us and not at OpenAI: encrypted, with a summary to read."""
    return {
        effort: {"reasoningEffort": effort, "reasoningSummary": "auto", "include": list(ENCRYPTED)}
        for effort in efforts
    }


def _usual(_: Model, __: str) -> Variants:
    return _as_effort(USUAL)


def _openrouter(_: Model, id: str) -> Variants:
    return _as_reasoning(EVERY) if "gpt" in id or "gemini-3" in id else {}


def _gateway(_: Model, __: str) -> Variants:
    return _as_effort(EVERY)


def _copilot(_: Model, __: str) -> Variants:
    return _with_summary(USUAL)


def _azure(_: Model, id: str) -> Variants:
    if id == "o1-mini":
        return {}
    return _with_summary(("minimal", *USUAL) if _is_first_gpt_5(id) else USUAL)


def _openai(model: Model, id: str) -> Variants:
    if id == "gpt-5-pro":
        return {}
    if "codex" in id:
        return _with_summary((*USUAL, "xhigh") if "5.2" in id else USUAL)
    none = ("none",) if model.release_date >= KNOWS_NONE else ()
    minimal = ("minimal",) if _is_first_gpt_5(id) else ()
    xhigh = ("xhigh",) if model.release_date >= KNOWS_XHIGH else ()
    return _with_summary((*none, *minimal, *USUAL, *xhigh))


def _is_first_gpt_5(id: str) -> bool:
    return id == "gpt-5" or "gpt-5-" in id


def _anthropic(model: Model, _: str) -> Variants:
    if thinks_as_it_likes(model.api.id):
        # Its thoughts are shown only to who asks for them.
        thinking = {"type": "adaptive", "display": "summarized"}
        return {effort: {"thinking": thinking, "effort": effort} for effort in _claude_efforts(model)}
    return {
        name: {"thinking": {"type": "enabled", "budgetTokens": budget}} for name, budget in _budgets(model)
    }


def thinks_as_it_likes(id: str) -> bool:
    """Claude since 4.7 is told how hard to try, and refuses a budget for its thoughts, which OpenCode sends it."""
    found = _CLAUDE.search(id)
    if found is None:
        return "claude-mythos" in id
    return (int(found[1]), int(found[2] or 0)) >= WITHOUT_BUDGET


def _claude_efforts(model: Model) -> tuple[str, ...]:
    return (*USUAL, "xhigh", "max") if "opus" in model.api.id else (*USUAL, "max")


def _bedrock(model: Model, id: str) -> Variants:
    if thinks_as_it_likes(model.api.id):
        return {
            effort: {"reasoningConfig": {"type": "adaptive", "maxReasoningEffort": effort}}
            for effort in _claude_efforts(model)
        }
    if "claude" in id or "anthropic" in model.api.id:
        return {
            name: {"reasoningConfig": {"type": "enabled", "budgetTokens": budget}}
            for name, budget in _budgets(model)
        }
    return {
        effort: {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": effort}} for effort in USUAL
    }


def _budgets(model: Model) -> tuple[tuple[str, int], ...]:
    """OpenCode asks a model with a small output for more thinking than it has room for, and is refused."""
    room = model.limit.output or MAX_BUDGET + 1
    return ("high", min(HIGH_BUDGET, room // 2)), ("max", min(MAX_BUDGET, room - 1))


def _google(_: Model, id: str) -> Variants:
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


def _groq(_: Model, __: str) -> Variants:
    # OpenCode sends Groq what only Gemini understands.
    return _as_effort(("none", *USUAL))


BY_PACKAGE: Final[Mapping[str, Callable[[Model, str], Variants]]] = {
    "@openrouter/ai-sdk-provider": _openrouter,
    "@ai-sdk/gateway": _gateway,
    "@ai-sdk/github-copilot": _copilot,
    "@ai-sdk/cerebras": _usual,
    "@ai-sdk/togetherai": _usual,
    "@ai-sdk/xai": _usual,
    "@ai-sdk/deepinfra": _usual,
    "@ai-sdk/openai-compatible": _usual,
    "@ai-sdk/azure": _azure,
    "@ai-sdk/openai": _openai,
    **dict.fromkeys(ANTHROPIC, _anthropic),
    "@ai-sdk/amazon-bedrock": _bedrock,
    "@ai-sdk/google": _google,
    "@ai-sdk/google-vertex": _google,
    "@ai-sdk/groq": _groq,
}
