"""Tokens and cost of an answer."""

from decimal import Decimal

from msgspec.structs import replace

from weft.model.catalog import CachePrice, Cost, Limit, Model, ModelApi, Price
from weft.model.part import CacheTokens, Tokens
from weft.provider.chunk import Usage
from weft.run.usage import compute_cost, to_tokens

PRICED = Model(
    id="m",
    provider_id="p",
    name="M",
    api=ModelApi(id="m"),
    cost=Cost(
        input=Decimal(3),
        output=Decimal(15),
        cache=CachePrice(read=Decimal("0.3"), write=Decimal("3.75")),
        experimental_over200_k=Price(input=Decimal(6), output=Decimal("22.5")),
    ),
    limit=Limit(context=1_000_000, output=64_000),
)


def test_input_and_output_are_charged_per_million_tokens() -> None:
    plain = replace(PRICED, cost=Cost(input=Decimal(3), output=Decimal(15)))

    assert compute_cost(Usage(input=1_000_000, output=100_000), plain) == Decimal("4.5")


def test_cached_tokens_have_their_own_price() -> None:
    usage = Usage(input=800, output=500, cache_read=200, cache_write=300)

    assert compute_cost(usage, PRICED) == Decimal("0.011085")


def test_reasoning_is_charged_once_at_the_output_price() -> None:
    assert compute_cost(Usage(output=100, reasoning=900), PRICED) == compute_cost(Usage(output=1000), PRICED)


def test_above_two_hundred_thousand_tokens_the_long_context_price_applies() -> None:
    assert compute_cost(Usage(input=150_000, cache_read=50_000), PRICED) == Decimal("0.465")
    assert compute_cost(Usage(input=150_000, cache_read=50_001), PRICED) == Decimal("0.9")


def test_tokens_written_to_the_cache_count_towards_the_long_context_price() -> None:
    long = Price(
        input=Decimal(6),
        output=Decimal("22.5"),
        cache=CachePrice(read=Decimal("0.6"), write=Decimal("7.5")),
    )
    assert PRICED.cost is not None
    model = replace(PRICED, cost=replace(PRICED.cost, experimental_over200_k=long))

    assert compute_cost(Usage(input=1_000, cache_write=199_000), model) == Decimal("0.74925")
    assert compute_cost(Usage(input=1_000, cache_write=250_000), model) == Decimal("1.881")


def test_an_unknown_price_is_not_zero() -> None:
    assert compute_cost(Usage(input=1000), replace(PRICED, cost=None)) is None


def test_the_cost_reported_by_the_provider_wins() -> None:
    assert compute_cost(Usage(input=1000, cost=Decimal("0.42")), PRICED) == Decimal("0.42")


def test_sums_of_many_small_costs_stay_exact() -> None:
    one = compute_cost(Usage(input=1), PRICED)

    assert one is not None
    assert sum([one] * 1_000_000, Decimal(0)) == Decimal(3)


def test_tokens_are_stored_as_counted() -> None:
    usage = Usage(input=1, output=2, reasoning=3, cache_read=4, cache_write=5)

    assert to_tokens(usage) == Tokens(input=1, output=2, reasoning=3, cache=CacheTokens(read=4, write=5))
