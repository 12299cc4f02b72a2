"""Tokens and cost of an answer (pure). No token is charged twice; an unknown price is unknown, not zero."""

from decimal import Decimal
from typing import Any

from msgspec import Struct

from weft.model.catalog import Cost, Model, Price
from weft.model.part import CacheTokens, StepOwn, Tokens
from weft.provider.chunk import Usage

PER = Decimal(1_000_000)
LONG_CONTEXT = 200_000


class Bill(Struct, frozen=True, kw_only=True):
    """What an answer used and what that costs; no cost when the price is unknown. Not `whole` where it broke off before
    the provider had said all. `usage` is what it did say, in its own words."""

    tokens: Tokens
    cost: Decimal | None
    whole: bool = True
    usage: dict[str, Any] | None = None

    @property
    def priced(self) -> bool:
        return self.whole and self.cost is not None

    @property
    def known(self) -> Decimal:
        return self.cost or Decimal(0)

    def to_fields(self) -> dict[str, Any]:
        """As the end of a step tells it."""
        own = StepOwn(usage=self.usage) if self.usage else None
        return {"cost": self.known, "tokens": self.tokens, "priced": self.priced, "weft": own}


def to_bill(usage: Usage, model: Model, *, whole: bool = True) -> Bill:
    return Bill(tokens=to_tokens(usage), cost=cost_of(usage, model), whole=whole, usage=usage.raw)


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
    # Providers go by all that was read, what is written into a cache too; OpenCode leaves that out, and a long conversation
    # that is cached for the first time looks half as dear.
    long = usage.input + usage.cache_read + usage.cache_write > LONG_CONTEXT
    return cost.experimental_over200_k if long and cost.experimental_over200_k is not None else cost
