"""Decide whether the budgets allow the next request to a model (pure).

Nobody knows the cost of a request in advance. The estimate is a fair guess, not the worst case: reserving the price of the longest
possible answer would leave a third of a small budget unused. So a run may exceed its budget by the error of one estimate, but
never by a further request.
"""

from collections.abc import Iterable
from decimal import Decimal

from msgspec import Struct

from weft.model.catalog import Model
from weft.model.failure import BudgetData, BudgetFailure, BudgetMeasure, BudgetScope
from weft.model.part import Tokens, count_input
from weft.model.spending import Budget, Budgets, Spent
from weft.provider.chunk import Usage
from weft.run.usage import compute_cost

WARNING_SHARE = Decimal("0.8")
# The estimate for an answer is at least this. Most have fewer tokens.
MIN_ANSWER_TOKENS = 1_000

MEASURES: tuple[BudgetMeasure, ...] = ("cost", "tokens", "steps", "seconds")
# Measures without an estimate for the next request: it is one step, and its time is not known.
EXACT_MEASURES: tuple[BudgetMeasure, ...] = ("steps", "seconds")
SCOPE_NAMES: dict[BudgetScope, str] = {
    "run": "this run",
    "session": "this session",
    "tree": "this session and all below it",
    "group": "all trials together",
    "day": "today",
}


class BudgetAccount(Struct, frozen=True, kw_only=True):
    """A budget, and what was spent of it, including reservations for requests under way."""

    scope: BudgetScope
    budget: Budget
    spent: Spent


class BudgetLine(Struct, frozen=True, kw_only=True):
    """One limit of one budget: what was spent, and what the `next` request would add."""

    scope: BudgetScope
    measure: BudgetMeasure
    limit: Decimal
    spent: Decimal
    next: Decimal


class WithinBudget(Struct, frozen=True):
    """The request may be made."""


class NearLimit(Struct, frozen=True):
    """The request may be made, but these limits are near."""

    lines: tuple[BudgetLine, ...]


class OverBudget(Struct, frozen=True):
    """The request must not be made: it would exceed this limit."""

    line: BudgetLine


BudgetVerdict = WithinBudget | NearLimit | OverBudget


def check_budgets(accounts: Iterable[BudgetAccount], expected: Spent) -> BudgetVerdict:
    """Decide whether a request may be made, given its expected spending. If it would exceed several limits, report that of the first account."""
    lines = [line for account in accounts for line in to_lines(account, expected)]
    for line in lines:
        if is_over(line):
            return OverBudget(line)
    near = tuple(line for line in lines if line.spent + line.next >= line.limit * WARNING_SHARE)
    return NearLimit(near) if near else WithinBudget()


def is_over(line: BudgetLine) -> bool:
    """Return True if the limit is reached or would be exceeded. Time cannot be estimated, so a limit that is just reached counts."""
    return line.spent >= line.limit or line.spent + line.next > line.limit


def to_lines(account: BudgetAccount, expected: Spent) -> list[BudgetLine]:
    """Return a line for each limit of the account's budget."""
    return [
        BudgetLine(
            scope=account.scope,
            measure=measure,
            limit=Decimal(limit),
            spent=get_amount(account.spent, measure),
            next=get_amount(expected, measure),
        )
        for measure in MEASURES
        if (limit := getattr(account.budget, measure)) is not None
    ]


def get_amount(spent: Spent, measure: BudgetMeasure) -> Decimal:
    match measure:
        case "cost":
            return spent.cost
        case "tokens":
            tokens = spent.input + spent.output + spent.reasoning + spent.cache_read + spent.cache_write
            return Decimal(tokens)
        case "steps":
            return Decimal(spent.steps)
        case "seconds":
            return Decimal(spent.ms) / 1000


def is_cost_unknown(accounts: Iterable[BudgetAccount], expected: Spent) -> bool:
    """Return True if a budget limits the cost, but the cost of the request is unknown."""
    return not expected.priced and any(account.budget.cost is not None for account in accounts)


def has_uncounted_usage(accounts: Iterable[BudgetAccount]) -> bool:
    """Return True if a budget limits tokens or cost, but the usage of an answer is unknown."""
    return any(
        not account.spent.counted
        and (
            account.budget.tokens is not None
            or (account.budget.cost is not None and not account.spent.priced)
        )
        for account in accounts
    )


def find_seconds_left(accounts: Iterable[BudgetAccount]) -> float | None:
    """Return how many seconds the next request may take, or None if time is not limited."""
    seconds = [
        account.budget.seconds - account.spent.ms / 1000
        for account in accounts
        if account.budget.seconds is not None
    ]
    return min(seconds, default=None)


def estimate_call(request_tokens: int, last: Tokens | None, model: Model) -> Spent:
    """Estimate what a request of `request_tokens` will use and cost, from the usage of the last one.

    If the provider cached the last request, that part is read from the cache, and the rest is written to it if writing costs. The
    answer is as long as the last one, but at least `MIN_ANSWER_TOKENS`.
    """
    cached_tokens = (
        min(count_input(last), request_tokens)
        if last is not None and last.cache.read + last.cache.write
        else 0
    )
    new_tokens = request_tokens - cached_tokens
    writes_cache = last is not None and last.cache.write > 0
    answer_tokens = max(MIN_ANSWER_TOKENS, last.output + last.reasoning if last is not None else 0)
    usage = Usage(
        input=0 if writes_cache else new_tokens,
        cache_read=cached_tokens,
        cache_write=new_tokens if writes_cache else 0,
        output=min(answer_tokens, model.limit.output or answer_tokens),
    )
    cost = compute_cost(usage, model)
    return Spent(
        cost=cost or Decimal(0),
        input=usage.input,
        output=usage.output,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        priced=cost is not None,
        steps=1,
    )


def take_stricter(one: Budgets, other: Budgets) -> Budgets:
    """Return the lower of each pair of limits."""
    return Budgets(
        session=_take_lower(one.session, other.session),
        tree=_take_lower(one.tree, other.tree),
        day=_take_lower(one.day, other.day),
    )


def _take_lower(one: Budget, other: Budget) -> Budget:
    limits = {
        measure: min(values)
        for measure in MEASURES
        if (values := [limit for each in (one, other) if (limit := getattr(each, measure)) is not None])
    }
    return Budget(**limits)


# --- messages ---


def to_budget_failure(line: BudgetLine) -> BudgetFailure:
    more = (
        ""
        if line.measure in EXACT_MEASURES
        else f", and the next call would take about {format_amount(line, line.next)}"
    )
    return BudgetFailure(
        data=BudgetData(
            message=f"the budget for {SCOPE_NAMES[line.scope]} does not allow another call: "
            f"{_format_share(line, line.spent)} spent{more}",
            scope=line.scope,
            measure=line.measure,
            limit=line.limit,
            spent=line.spent,
            next=line.next,
            hint=_make_hint(line),
        )
    )


def to_warning(line: BudgetLine) -> str:
    about = "" if line.measure in EXACT_MEASURES else "about "
    projected = min(line.limit, line.spent + line.next)
    return f"the next call brings {SCOPE_NAMES[line.scope]} to {about}{_format_share(line, projected)}"


def _make_hint(line: BudgetLine) -> str:
    go_on = "then go on where it stopped: weft run --continue"
    match line.scope:
        case "group":  # it is stored with the trials
            return f"the budget of trials cannot be raised; begin new ones with more: weft try --max-{line.measure}"
        case "run":
            return f"give it more with --max-{line.measure}, {go_on}"
        case "session" | "tree" | "day":
            return f"raise experimental.weft.budget.{line.scope}.{line.measure} in opencode.json, {go_on}"


def _format_share(line: BudgetLine, value: Decimal) -> str:
    amount = format_amount(line, value)
    return f"{amount if line.measure == 'cost' else amount.split()[0]} of {format_amount(line, line.limit)}"


def format_amount(line: BudgetLine, value: Decimal) -> str:
    match line.measure:
        case "cost":
            return format_dollars(value)
        case "tokens" | "steps" | "seconds":
            unit = line.measure.removesuffix("s") if value == 1 else line.measure
            return f"{int(value):,} {unit}"


def format_dollars(value: Decimal) -> str:
    """Return an amount in dollars with two to four decimals."""
    whole, _, rest = f"{value:.4f}".partition(".")
    return f"${whole}.{rest[:2]}{rest[2:].rstrip('0')}"
