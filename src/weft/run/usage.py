"""Tokens and cost of an answer (pure). No token is charged twice; an unknown price is unknown, not zero."""

from decimal import Decimal
from typing import Any, Final

from msgspec import Struct

from weft.model.catalog import Cost, Model, Price
from weft.model.part import CacheTokens, StepOwn, Tokens
from weft.provider.chunk import Usage

PER = Decimal(1_000_000)
LONG_CONTEXT = 200_000


class Bill(Struct, frozen=True, kw_only=True):
    """What an answer used and what it cost, as far as that is known.

    It is not `counted` if the provider did not say how many tokens it used, or broke off before it had said all. It is not
    `priced` if the whole cost is unknown: the model has no price, or there is no count to charge for. `usage` is what the
    provider said, in its own words.
    """

    tokens: Tokens = Tokens()
    cost: Decimal = Decimal(0)
    counted: bool = True
    priced: bool = True
    usage: dict[str, Any] | None = None

    def to_fields(self) -> dict[str, Any]:
        """As the end of a step tells it."""
        return {
            "cost": self.cost,
            "tokens": self.tokens,
            "priced": self.priced,
            "counted": self.counted,
            "weft": StepOwn(usage=self.usage) if self.usage else None,
        }


# Something was used, and nobody says what.
UNKNOWN_BILL: Final = Bill(counted=False, priced=False)


def to_bill(usage: Usage, model: Model, *, whole: bool = True) -> Bill:
    cost = cost_of(usage, model)
    counted = whole and usage.counted
    told = counted or (whole and usage.cost is not None)
    return Bill(
        tokens=to_tokens(usage),
        cost=cost or Decimal(0),
        counted=counted,
        priced=cost is not None and (told or is_free(model)),
        usage=usage.raw,
    )


def is_free(model: Model) -> bool:
    """Whether every token costs nothing, as on a server of one's own."""
    cost = model.cost
    if cost is None:
        return False
    prices = [cost] if cost.experimental_over200_k is None else [cost, cost.experimental_over200_k]
    return not any(each.input or each.output or each.cache.read or each.cache.write for each in prices)


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
