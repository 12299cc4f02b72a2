"""Variants: how hard a model can be told to think, by name, and the options that tell it (pure)."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from weft.model.catalog import Model
from weft.provider.offer.entry import merge
from weft.provider.offer.options import ANTHROPIC, ENCRYPTED, Options

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
