"""Tokens and cost of an answer (pure). No token is charged twice; an unknown price is unknown, not zero."""

from decimal import Decimal

from weft.model.catalog import Cost, Model, Price
from weft.model.part import CacheTokens, Tokens
from weft.provider.chunk import Usage

PER = Decimal(1_000_000)
LONG_CONTEXT = 200_000


def to_tokens(usage: Usage) -> Tokens:
    return Tokens(
        input=usage.input,
        output=usage.output,
        reasoning=usage.reasoning,
        cache=CacheTokens(read=usage.cache_read, write=usage.cache_write),
    )


def cost_of(usage: Usage, model: Model) -> Decimal | None:
    """Dollars, exactly. What the provider itself says wins; without a price there is no cost to tell."""
    if usage.cost is not None:
        return usage.cost
    if model.cost is None:
        return None
    price = _price(model.cost, usage)
    return (
        usage.input * price.input
        # Reasoning is billed as output. OpenCode adds it to an output that already holds it for some providers.
        + (usage.output + usage.reasoning) * price.output
        + usage.cache_read * price.cache.read
        + usage.cache_write * price.cache.write
    ) / PER


def _price(cost: Cost, usage: Usage) -> Price:
    long = usage.input + usage.cache_read > LONG_CONTEXT
    return cost.experimental_over200_k if long and cost.experimental_over200_k is not None else cost
