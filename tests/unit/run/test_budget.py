"""Budgets, decided purely: they stop in time, warn before, and say what to do."""

from collections.abc import Sequence
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from weft.model.failure import BudgetData, BudgetFailure, BudgetMeasure
from weft.model.part import CacheTokens, Tokens
from weft.model.spending import Budget, Budgets, Spent, add_up
from weft.provider.catalog.offers import scripted_model
from weft.run.budget import (
    ANSWER,
    MEASURES,
    Account,
    Go,
    Line,
    Stop,
    Verdict,
    Warn,
    amount,
    check,
    expect,
    is_blind,
    seconds_left,
    stricter,
    to_failure,
    to_warning,
)

MODEL = scripted_model("test")  # $3 and $15 a million, $0.30 what is kept and $3.75 to keep it

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


def account(budget: Budget, spent: Spent = NOTHING) -> Account:
    return Account(scope="session", budget=budget, spent=spent)


def spend(budget: Budget, calls: Sequence[tuple[Spent, Spent]]) -> tuple[Spent, list[Verdict]]:
    """Make calls, each with what was expected of it and what it took, until one is not allowed."""
    spent, verdicts = Spent(), []
    for expected, took in calls:
        verdict = check([account(budget, spent)], expected)
        verdicts.append(verdict)
        if isinstance(verdict, Stop):
            break
        spent = add_up((spent, took))
    return spent, verdicts


@given(budgets, st.lists(st.tuples(spents, spents), max_size=30))
def test_a_budget_is_passed_by_no_more_than_one_call_took_beyond_what_was_expected(
    budget: Budget, calls: list[tuple[Spent, Spent]]
) -> None:
    spent, _ = spend(budget, calls)
    for measure in MEASURES:
        limit = getattr(budget, measure)
        if limit is not None:
            beyond = [amount(took, measure) - amount(expected, measure) for expected, took in calls]
            assert amount(spent, measure) <= limit + max(Decimal(0), *beyond, Decimal(0))


@given(budgets, spents, spents, spents)
def test_what_is_stopped_stays_stopped_when_more_is_spent(
    budget: Budget, spent: Spent, more: Spent, next: Spent
) -> None:
    if isinstance(check([account(budget, spent)], next), Stop):
        assert isinstance(check([account(budget, add_up((spent, more)))], next), Stop)


@given(budgets, spents, spents, st.integers(0, 100))
def test_a_higher_budget_never_stops_what_a_lower_one_allows(
    budget: Budget, spent: Spent, next: Spent, raised: int
) -> None:
    higher = Budget(
        **{measure: limit + raised for measure in MEASURES if (limit := getattr(budget, measure)) is not None}
    )
    if not isinstance(check([account(budget, spent)], next), Stop):
        assert not isinstance(check([account(higher, spent)], next), Stop)


@given(st.sampled_from(MEASURES), st.lists(st.integers(1, 20), min_size=1, max_size=60))
def test_there_is_a_warning_before_the_end_when_no_call_takes_more_than_a_fifth(
    measure: BudgetMeasure, shares: list[int]
) -> None:
    calls = [Spent(cost=Decimal(share), input=share, steps=share, ms=share * 1000) for share in shares]
    _, verdicts = spend(Budget(**{measure: 100}), [(call, call) for call in calls])
    if isinstance(verdicts[-1], Stop):
        assert any(isinstance(verdict, Warn) for verdict in verdicts[:-1])


@given(budgets, budgets, spents, spents)
def test_the_stricter_of_two_budgets_stops_what_either_stops(
    one: Budget, other: Budget, spent: Spent, next: Spent
) -> None:
    both = stricter(Budgets(session=one), Budgets(session=other)).session
    stopped = isinstance(check([account(one, spent), account(other, spent)], next), Stop)
    assert isinstance(check([account(both, spent)], next), Stop) == stopped


def test_without_a_budget_everything_goes() -> None:
    assert check([account(Budget())], Spent(cost=Decimal(1_000), steps=1)) == Go()
    assert check([], Spent(steps=1)) == Go()


def test_the_first_budget_that_is_over_is_named_with_its_numbers() -> None:
    spent = Spent(cost=Decimal("2.31"), input=900, steps=3)
    accounts = [
        Account(scope="run", budget=Budget(steps=10), spent=spent),
        Account(scope="tree", budget=Budget(cost=Decimal("2.50"), tokens=100), spent=spent),
    ]

    assert check(accounts, Spent(cost=Decimal("0.25"), steps=1)) == Stop(
        Line(
            scope="tree",
            measure="cost",
            limit=Decimal("2.50"),
            spent=Decimal("2.31"),
            next=Decimal("0.25"),
        )
    )


def test_a_failure_says_which_budget_how_it_stands_and_the_way_out() -> None:
    line = Line(
        scope="session", measure="cost", limit=Decimal("2.5"), spent=Decimal("2.31"), next=Decimal("0.2512")
    )

    assert to_failure(line) == BudgetFailure(
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
    assert to_failure(replace(line, scope="run")).data.hint.startswith("give it more with --max-cost")


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
    line = Line(scope="day", measure=measure, limit=Decimal(limit), spent=Decimal(spent), next=next)

    assert to_warning(line) == said


def test_time_runs_out_without_a_next_call_in_sight() -> None:
    timed = [account(Budget(seconds=60), Spent(ms=45_000)), account(Budget(seconds=20), Spent(ms=1_500))]

    assert seconds_left(timed) == 15
    assert seconds_left([account(Budget(cost=Decimal(1)))]) is None
    assert isinstance(check([account(Budget(seconds=60), Spent(ms=60_000))], Spent(steps=1)), Stop)


def test_a_first_call_is_expected_to_take_its_request_and_a_short_answer() -> None:
    assert expect(10_000, None, MODEL) == Spent(cost=Decimal("0.045"), input=10_000, output=ANSWER, steps=1)


def test_a_call_is_expected_to_be_billed_as_the_last_one_was() -> None:
    kept = Tokens(input=10, output=4_000, reasoning=500, cache=CacheTokens(read=90_000, write=9_990))
    unkept = Tokens(input=100_000, output=10)

    assert expect(105_000, kept, MODEL) == Spent(
        cost=Decimal("0.11625"), cache_read=100_000, cache_write=5_000, output=4_500, steps=1
    )
    assert expect(105_000, unkept, MODEL) == Spent(
        cost=Decimal("0.33"), input=105_000, output=ANSWER, steps=1
    )


def test_an_unknown_price_is_not_a_price_of_nothing() -> None:
    expected = expect(10_000, None, replace(MODEL, cost=None))
    money, tokens = account(Budget(cost=Decimal(1))), account(Budget(tokens=5_000))

    assert expected == Spent(input=10_000, output=ANSWER, steps=1, priced=False)
    assert (is_blind([money], expected), is_blind([tokens], expected)) == (True, False)
    assert isinstance(check([money, tokens], expected), Stop)
