"""Tokens and cost of an answer (pure). No token is charged twice; an unknown price is unknown, not zero."""

from decimal import Decimal
from typing import Any, Final

from msgspec import Struct

from weft.model.catalog import Cost, Model, Price
from weft.model.part import CacheTokens, Tokens, WeftStepData
from weft.provider.chunk import Usage

TOKENS_PER_PRICE = Decimal(1_000_000)
LONG_CONTEXT_TOKENS = 200_000


class AnswerUsage(Struct, frozen=True, kw_only=True):
    """The tokens and the cost of an answer, as far as they are known.

    `counted` is False if the provider did not report all tokens. `priced` is False if the total cost is unknown: the model has no
    price, or the tokens were not counted. `usage` is the provider's own report.
    """

    tokens: Tokens = Tokens()
    cost: Decimal = Decimal(0)
    counted: bool = True
    priced: bool = True
    usage: dict[str, Any] | None = None

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of the part that ends a step."""
        return {
            "cost": self.cost,
            "tokens": self.tokens,
            "priced": self.priced,
            "counted": self.counted,
            "weft": WeftStepData(usage=self.usage) if self.usage else None,
        }


# Something was used, but nobody knows how much.
UNKNOWN_USAGE: Final = AnswerUsage(counted=False, priced=False)


def to_answer_usage(usage: Usage, model: Model, *, whole: bool = True) -> AnswerUsage:
    """Return the tokens and the cost of a usage. `whole` is False while the answer is still streaming."""
    cost = compute_cost(usage, model)
    counted = whole and usage.counted
    charged = counted or (whole and usage.cost is not None)
    return AnswerUsage(
        tokens=to_tokens(usage),
        cost=cost or Decimal(0),
        counted=counted,
        priced=cost is not None and (charged or is_free(model)),
        usage=usage.raw,
    )


def is_free(model: Model) -> bool:
    """Return True if all tokens are free, as on one's own server."""
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


def compute_cost(usage: Usage, model: Model) -> Decimal | None:
    """Return the cost in dollars: the provider's own figure, else by the price of the model. Return None if neither is known."""
    if usage.cost is not None:
        return usage.cost
    if model.cost is None:
        return None
    price = _get_price(model.cost, usage)
    return (
        usage.input * price.input
        # Reasoning is billed as output. For some providers OpenCode counts it twice.
        + (usage.output + usage.reasoning) * price.output
        + usage.cache_read * price.cache.read
        + usage.cache_write * price.cache.write
    ) / TOKENS_PER_PRICE


def _get_price(cost: Cost, usage: Usage) -> Price:
    # The price depends on the whole input, including what is written to the cache. OpenCode omits that, so a long conversation
    # that is cached for the first time seems to cost half.
    long = usage.input + usage.cache_read + usage.cache_write > LONG_CONTEXT_TOKENS
    return cost.experimental_over200_k if long and cost.experimental_over200_k is not None else cost
