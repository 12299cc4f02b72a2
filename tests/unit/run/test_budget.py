"""Decisions on budgets: they stop in time, warn before that, and say what to do."""

from collections.abc import Sequence
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from weft.model.failure import BudgetData, BudgetFailure, BudgetMeasure, BudgetScope
from weft.model.part import CacheTokens, Tokens
from weft.model.spending import Budget, Budgets, Spent, add_spent
from weft.provider.catalog.offers import make_scripted_model
from weft.run.budget import (
    MEASURES,
    MIN_ANSWER_TOKENS,
    BudgetAccount,
    BudgetLine,
    BudgetVerdict,
    NearLimit,
    OverBudget,
    WithinBudget,
    check_budgets,
    estimate_call,
    find_seconds_left,
    get_amount,
    is_cost_unknown,
    take_stricter,
    to_budget_failure,
    to_warning,
)

# Prices per million tokens: $3 in, $15 out, $0.30 from the cache and $3.75 into it.
MODEL = make_scripted_model("test")

NOTHING = Spent()

cents = st.integers(0, 500).map(lambda cents: Decimal(cents) / 100)
counts = st.integers(0, 500)
spents = st.builds(Spent, cost=cents, input=counts, steps=counts, ms=counts.map(lambda n: n * 1000))
limits = st.none() | st.integers(1, 1000)
budgets = st.builds(
    Budget,
    cost=st.none() | cents.filter(bool),
    tokens=limits,
    steps=limits,
    seconds=limits,
)


def account(budget: Budget, spent: Spent = NOTHING) -> BudgetAccount:
    return BudgetAccount(scope="session", budget=budget, spent=spent)


def spend(budget: Budget, calls: Sequence[tuple[Spent, Spent]]) -> tuple[Spent, list[BudgetVerdict]]:
    """Make calls with their estimates and real costs, until one is not allowed."""
    spent, verdicts = Spent(), []
    for expected, took in calls:
        verdict = check_budgets([account(budget, spent)], expected)
        verdicts.append(verdict)
        if isinstance(verdict, OverBudget):
            break
        spent = add_spent((spent, took))
    return spent, verdicts


@given(budgets, st.lists(st.tuples(spents, spents), max_size=30))
def test_a_budget_is_exceeded_by_at_most_the_error_of_one_estimate(
    budget: Budget, calls: list[tuple[Spent, Spent]]
) -> None:
    spent, _ = spend(budget, calls)
    for measure in MEASURES:
        limit = getattr(budget, measure)
        if limit is not None:
            beyond = [get_amount(took, measure) - get_amount(expected, measure) for expected, took in calls]
            assert get_amount(spent, measure) <= limit + max(Decimal(0), *beyond, Decimal(0))


@given(budgets, spents, spents, spents)
def test_a_stopped_run_stays_stopped_when_more_is_spent(
    budget: Budget, spent: Spent, more: Spent, next: Spent
) -> None:
    if isinstance(check_budgets([account(budget, spent)], next), OverBudget):
        assert isinstance(check_budgets([account(budget, add_spent((spent, more)))], next), OverBudget)


@given(budgets, spents, spents, st.integers(0, 100))
def test_a_higher_budget_never_stops_what_a_lower_one_allows(
    budget: Budget, spent: Spent, next: Spent, raised: int
) -> None:
    higher = Budget(
        **{measure: limit + raised for measure in MEASURES if (limit := getattr(budget, measure)) is not None}
    )
    if not isinstance(check_budgets([account(budget, spent)], next), OverBudget):
        assert not isinstance(check_budgets([account(higher, spent)], next), OverBudget)


@given(st.sampled_from(MEASURES), st.lists(st.integers(1, 20), min_size=1, max_size=60))
def test_a_budget_warns_before_it_ends_if_no_call_takes_more_than_a_fifth(
    measure: BudgetMeasure, shares: list[int]
) -> None:
    calls = [Spent(cost=Decimal(share), input=share, steps=share, ms=share * 1000) for share in shares]
    _, verdicts = spend(Budget(**{measure: 100}), [(call, call) for call in calls])
    if isinstance(verdicts[-1], OverBudget):
        assert any(isinstance(verdict, NearLimit) for verdict in verdicts[:-1])


@given(budgets, budgets, spents, spents)
def test_the_stricter_of_two_budgets_stops_whenever_one_of_them_does(
    one: Budget, other: Budget, spent: Spent, next: Spent
) -> None:
    both = take_stricter(Budgets(session=one), Budgets(session=other)).session
    stopped = isinstance(check_budgets([account(one, spent), account(other, spent)], next), OverBudget)
    assert isinstance(check_budgets([account(both, spent)], next), OverBudget) == stopped


def test_there_is_no_limit_without_a_budget() -> None:
    assert check_budgets([account(Budget())], Spent(cost=Decimal(1_000), steps=1)) == WithinBudget()
    assert check_budgets([], Spent(steps=1)) == WithinBudget()


def test_the_first_exceeded_budget_is_named_with_its_numbers() -> None:
    spent = Spent(cost=Decimal("2.31"), input=900, steps=3)
    accounts = [
        BudgetAccount(scope="run", budget=Budget(steps=10), spent=spent),
        BudgetAccount(scope="tree", budget=Budget(cost=Decimal("2.50"), tokens=100), spent=spent),
    ]

    assert check_budgets(accounts, Spent(cost=Decimal("0.25"), steps=1)) == OverBudget(
        BudgetLine(
            scope="tree",
            measure="cost",
            limit=Decimal("2.50"),
            spent=Decimal("2.31"),
            next=Decimal("0.25"),
        )
    )


def test_a_failure_names_the_budget_its_state_and_a_hint() -> None:
    line = BudgetLine(
        scope="session", measure="cost", limit=Decimal("2.5"), spent=Decimal("2.31"), next=Decimal("0.2512")
    )

    assert to_budget_failure(line) == BudgetFailure(
        data=BudgetData(
            message="the budget for this session does not allow another call: $2.31 of $2.50 spent, "
            "and the next call would take about $0.2512",
            scope="session",
            measure="cost",
            limit=Decimal("2.5"),
            spent=Decimal("2.31"),
            next=Decimal("0.2512"),
            hint="raise experimental.weft.budget.session.cost in opencode.json, then go on where it stopped: "
            "weft run --continue",
        )
    )


@pytest.mark.parametrize(
    ("scope", "hint"),
    [
        ("run", "give it more with --max-cost, then go on where it stopped: weft run --continue"),
        (
            "tree",
            "raise experimental.weft.budget.tree.cost in opencode.json, then go on where it stopped: weft run --continue",
        ),
        (
            "day",
            "raise experimental.weft.budget.day.cost in opencode.json, then go on where it stopped: weft run --continue",
        ),
        ("group", "the budget of trials cannot be raised; begin new ones with more: weft try --max-cost"),
    ],
)
def test_a_hint_names_what_can_be_raised(scope: BudgetScope, hint: str) -> None:
    line = BudgetLine(
        scope=scope, measure="cost", limit=Decimal("2.5"), spent=Decimal("2.31"), next=Decimal("0.2512")
    )

    assert to_budget_failure(line).data.hint == hint


@pytest.mark.parametrize(
    ("measure", "spent", "said"),
    [
        ("cost", "0.0312", "the next call brings today to about $0.0412 of $1.00"),
        ("tokens", "90000", "the next call brings today to about 90,000 of 100,000 tokens"),
        ("steps", "99", "the next call brings today to 99 of 100 steps"),
        ("seconds", "80.5", "the next call brings today to 80 of 100 seconds"),
    ],
)
def test_a_warning_is_a_sentence(measure: BudgetMeasure, spent: str, said: str) -> None:
    limit = {"cost": "1", "tokens": "100000"}.get(measure, "100")
    next = Decimal("0.01") if measure == "cost" else Decimal(0)
    line = BudgetLine(scope="day", measure=measure, limit=Decimal(limit), spent=Decimal(spent), next=next)

    assert to_warning(line) == said


def test_a_time_budget_ends_a_run_between_calls() -> None:
    timed = [account(Budget(seconds=60), Spent(ms=45_000)), account(Budget(seconds=20), Spent(ms=1_500))]

    assert find_seconds_left(timed) == 15
    assert find_seconds_left([account(Budget(cost=Decimal(1)))]) is None
    assert isinstance(
        check_budgets([account(Budget(seconds=60), Spent(ms=60_000))], Spent(steps=1)), OverBudget
    )


def test_the_estimate_of_a_first_call_is_its_request_and_a_short_answer() -> None:
    assert estimate_call(10_000, None, MODEL) == Spent(
        cost=Decimal("0.045"), input=10_000, output=MIN_ANSWER_TOKENS, steps=1
    )


def test_the_estimate_of_a_call_is_based_on_the_last_one() -> None:
    kept = Tokens(input=10, output=4_000, reasoning=500, cache=CacheTokens(read=90_000, write=9_990))
    unkept = Tokens(input=100_000, output=10)

    assert estimate_call(105_000, kept, MODEL) == Spent(
        cost=Decimal("0.11625"), cache_read=100_000, cache_write=5_000, output=4_500, steps=1
    )
    assert estimate_call(105_000, unkept, MODEL) == Spent(
        cost=Decimal("0.33"), input=105_000, output=MIN_ANSWER_TOKENS, steps=1
    )


def test_an_unknown_price_is_not_zero() -> None:
    expected = estimate_call(10_000, None, replace(MODEL, cost=None))
    money, tokens = account(Budget(cost=Decimal(1))), account(Budget(tokens=5_000))

    assert expected == Spent(input=10_000, output=MIN_ANSWER_TOKENS, steps=1, priced=False)
    assert (is_cost_unknown([money], expected), is_cost_unknown([tokens], expected)) == (True, False)
    assert isinstance(check_budgets([money, tokens], expected), OverBudget)


def test_every_kind_of_token_counts_in_a_budget_of_tokens() -> None:
    spent = Spent(input=1, output=10, reasoning=100, cache_read=1_000, cache_write=10_000)
    assert get_amount(spent, "tokens") == 11_111
