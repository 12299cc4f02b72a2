"""Whether the next call may be made: what may be spent, what was, and what the call is expected to take (pure).

Nobody knows what a call takes before it was made. The expectation is an honest guess, not the worst case: holding back
the price of the longest answer there can be would leave a third of a small budget unused. So a budget may be passed
by as much as one call takes more than was expected of it, and never by another call.
"""

from collections.abc import Iterable
from decimal import Decimal

from msgspec import Struct

from weft.context.tokens import taken_in
from weft.model.catalog import Model
from weft.model.failure import BudgetData, BudgetFailure, BudgetMeasure, BudgetScope
from weft.model.part import Tokens
from weft.model.spending import Budget, Budgets, Spent
from weft.provider.chunk import Usage
from weft.run.usage import cost_of

WARN_AT = Decimal("0.8")
# What an answer is expected to be long at least. Most are shorter; the last one was longer, if it was.
ANSWER = 1_000

MEASURES: tuple[BudgetMeasure, ...] = ("cost", "tokens", "steps", "seconds")
COUNTED: tuple[BudgetMeasure, ...] = ("steps", "seconds")
WHOSE: dict[BudgetScope, str] = {
    "run": "this run",
    "session": "this session",
    "tree": "this session and all below it",
    "day": "today",
}


class Account(Struct, frozen=True, kw_only=True):
    """A budget, and what was spent of it; calls that are under way are spent."""

    scope: BudgetScope
    budget: Budget
    spent: Spent


class Line(Struct, frozen=True, kw_only=True):
    """One limit of one budget, and how things stand with it."""

    scope: BudgetScope
    measure: BudgetMeasure
    limit: Decimal
    spent: Decimal
    next: Decimal


class Go(Struct, frozen=True):
    """There is enough."""


class Warn(Struct, frozen=True):
    """There is enough, but not for much longer."""

    lines: tuple[Line, ...]


class Stop(Struct, frozen=True):
    """There is not enough: the call must not be made."""

    line: Line


Verdict = Go | Warn | Stop


def check(accounts: Iterable[Account], next: Spent) -> Verdict:
    """Whether a call that takes `next` may be made. Where several budgets say no, the nearest one is named."""
    lines = [line for account in accounts for line in to_lines(account, next)]
    for line in lines:
        if is_over(line):
            return Stop(line)
    near = tuple(line for line in lines if line.spent + line.next >= line.limit * WARN_AT)
    return Warn(near) if near else Go()


def is_over(line: Line) -> bool:
    """Time is not known beforehand, so what has nothing left is over, too."""
    return line.spent >= line.limit or line.spent + line.next > line.limit


def to_lines(account: Account, next: Spent) -> list[Line]:
    return [
        Line(
            scope=account.scope,
            measure=measure,
            limit=Decimal(limit),
            spent=amount(account.spent, measure),
            next=amount(next, measure),
        )
        for measure in MEASURES
        if (limit := getattr(account.budget, measure)) is not None
    ]


def amount(spent: Spent, measure: BudgetMeasure) -> Decimal:
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


def is_blind(accounts: Iterable[Account], next: Spent) -> bool:
    """Whether money is limited and what the call will cost cannot be told."""
    return not next.priced and any(account.budget.cost is not None for account in accounts)


def is_uncounted(accounts: Iterable[Account]) -> bool:
    """Whether tokens or money are limited and a provider did not say what an answer took."""
    return any(
        not account.spent.counted
        and (
            account.budget.tokens is not None
            or (account.budget.cost is not None and not account.spent.priced)
        )
        for account in accounts
    )


def seconds_left(accounts: Iterable[Account]) -> float | None:
    """How long the next call may take, None for as long as it takes."""
    left = [
        account.budget.seconds - account.spent.ms / 1000
        for account in accounts
        if account.budget.seconds is not None
    ]
    return min(left, default=None)


def expect(request: int, last: Tokens | None, model: Model) -> Spent:
    """What a call with a request of so many tokens will take: like the last one, as far as there was one.

    A provider that kept the last request will have it still, and one that was paid for keeping will be paid again. An
    answer is as long as the last one, or `ANSWER`.
    """
    known = min(taken_in(last), request) if last is not None and last.cache.read + last.cache.write else 0
    new = request - known
    keeps = last is not None and last.cache.write > 0
    said = max(ANSWER, last.output + last.reasoning if last is not None else 0)
    usage = Usage(
        input=0 if keeps else new,
        cache_read=known,
        cache_write=new if keeps else 0,
        output=min(said, model.limit.output or said),
    )
    cost = cost_of(usage, model)
    return Spent(
        cost=cost or Decimal(0),
        input=usage.input,
        output=usage.output,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        priced=cost is not None,
        steps=1,
    )


def stricter(one: Budgets, other: Budgets) -> Budgets:
    """Of every limit the lower one."""
    return Budgets(
        session=_lower(one.session, other.session),
        tree=_lower(one.tree, other.tree),
        day=_lower(one.day, other.day),
    )


def _lower(one: Budget, other: Budget) -> Budget:
    limits = {
        measure: min(said)
        for measure in MEASURES
        if (said := [limit for each in (one, other) if (limit := getattr(each, measure)) is not None])
    }
    return Budget(**limits)


# --- in words ---


def to_failure(line: Line) -> BudgetFailure:
    more = (
        "" if line.measure in COUNTED else f", and the next call would take about {written(line, line.next)}"
    )
    return BudgetFailure(
        data=BudgetData(
            message=f"the budget for {WHOSE[line.scope]} does not allow another call: "
            f"{_share(line, line.spent)} spent{more}",
            scope=line.scope,
            measure=line.measure,
            limit=line.limit,
            spent=line.spent,
            next=line.next,
            hint=f"{_raise(line)}, then go on where it stopped: weft run --continue",
        )
    )


def to_warning(line: Line) -> str:
    about = "" if line.measure in COUNTED else "about "
    soon = min(line.limit, line.spent + line.next)
    return f"the next call brings {WHOSE[line.scope]} to {about}{_share(line, soon)}"


def _raise(line: Line) -> str:
    if line.scope == "run":
        return f"give it more with --max-{line.measure}"
    return f"raise experimental.weft.budget.{line.scope}.{line.measure} in opencode.json"


def _share(line: Line, value: Decimal) -> str:
    part = written(line, value)
    return f"{part if line.measure == 'cost' else part.split()[0]} of {written(line, line.limit)}"


def written(line: Line, value: Decimal) -> str:
    match line.measure:
        case "cost":
            return dollars(value)
        case "tokens" | "steps" | "seconds":
            unit = line.measure.removesuffix("s") if value == 1 else line.measure
            return f"{int(value):,} {unit}"


def dollars(value: Decimal) -> str:
    """At least cents, and as much of a cent as tells something."""
    whole, _, rest = f"{value:.4f}".partition(".")
    return f"${whole}.{rest[:2]}{rest[2:].rstrip('0')}"
