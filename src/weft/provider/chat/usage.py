"""What an answer of Chat Completions used, however the server counts (pure)."""

from decimal import Decimal, InvalidOperation
from typing import Any

from weft.provider.chunk import Usage, count_in

Counts = dict[str, Any]


def to_usage(raw: Counts) -> Usage:
    """Prompt tokens hold what the cache held, completion tokens hold the reasoning: here each counts once."""
    asked, answered = _details(raw, "prompt_tokens_details"), _details(raw, "completion_tokens_details")
    prompt, completion = count_in(raw, "prompt_tokens"), count_in(raw, "completion_tokens")
    read = min(prompt, _first(asked, "cached_tokens") or _first(raw, *READ))
    write = min(
        prompt - read, _first(asked, "cache_write_tokens", "cache_creation_tokens") or _first(raw, *WRITTEN)
    )
    reasoning = _first(answered, "reasoning_tokens") or _first(raw, "reasoning_tokens")
    apart = count_in(raw, "total_tokens") == prompt + completion + reasoning and reasoning > 0
    return Usage(
        input=prompt - read - write,
        # Some (xAI) count the reasoning beside the completion, and their total says so.
        output=completion if apart else max(0, completion - reasoning),
        reasoning=reasoning if apart else min(reasoning, completion),
        cache_read=read,
        cache_write=write,
        cost=_cost(raw.get("cost")),
        raw=raw or None,
    )


READ = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
WRITTEN = ("cache_creation_input_tokens",)


def _details(raw: Counts, name: str) -> Counts:
    found = raw.get(name)
    return found if isinstance(found, dict) else {}


def _first(raw: Counts, *names: str) -> int:
    return next((count for name in names if (count := count_in(raw, name))), 0)


def _cost(told: Any) -> Decimal | None:
    """Dollars: a number, or an object with the total."""
    if isinstance(told, dict):
        told = told.get("total_cost")
    if told is None or isinstance(told, bool) or not isinstance(told, int | float | str | Decimal):
        return None
    try:
        cost = Decimal(str(told))
    except InvalidOperation:
        return None
    return cost if cost.is_finite() and cost >= 0 else None
