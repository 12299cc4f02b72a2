"""Spending in tokens and dollars, the totals of a session, and budgets."""

from collections.abc import Iterable
from decimal import Decimal, getcontext
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from weft.model.ids import MessageID, PartID, SessionID
from weft.model.wire import Wire, always, check_finite

if TYPE_CHECKING:  # listing sessions must not load types that it does not use
    from weft.model.part import StepFinishPart, Tokens

NOTHING_BELOW: dict[SessionID, "Spent"] = {}


class Spent(Wire, frozen=True, kw_only=True):
    """Tokens and dollars. If `priced` is False, `cost` is only the known part; if `counted` is False, so are the tokens.

    `steps` counts answers of a model; `ms` is the time they took, with their tool calls.
    """

    cost: Decimal = always(Decimal(0))
    input: int = always(0)
    output: int = always(0)
    reasoning: int = always(0)
    cache_read: int = always(0)
    cache_write: int = always(0)
    priced: bool = True
    counted: bool = True
    steps: int = 0
    ms: int = 0

    def __post_init__(self) -> None:
        check_finite(self.cost)


class Ledger(Wire, frozen=True, kw_only=True):
    """The totals of a session: its own messages up to the time `until`, and each child with its descendants.

    Removing a message or a child does not reduce the totals, because the money is spent.
    """

    own: Spent = always(Spent())
    until: int
    below: dict[SessionID, Spent] = always(NOTHING_BELOW)


class Spending(Wire, frozen=True, kw_only=True):
    """The spending of a session alone (`own`) and with its descendants (`tree`)."""

    own: Spent
    tree: Spent


class Budget(Wire, frozen=True, kw_only=True):
    """Limits in dollars, tokens (with cached ones), steps and seconds. A limit of None is no limit."""

    cost: Decimal | None = None
    tokens: int | None = None
    steps: int | None = None
    seconds: int | None = None

    def __post_init__(self) -> None:
        check_finite(self.cost)


UNLIMITED = Budget()


class Budgets(Wire, frozen=True, kw_only=True):
    """The budgets of each session alone, of each session tree, and of all sessions of the store per day."""

    session: Budget = UNLIMITED
    tree: Budget = UNLIMITED
    day: Budget = UNLIMITED


class SharedBudget(Wire, frozen=True, kw_only=True):
    """A budget that several sessions share, under the id of their group. Its seconds count from `since`."""

    group: str
    budget: Budget
    since: int


class Charge(Protocol):
    """Anything with tokens and a cost: a message, the end of a step, the usage of an answer."""

    @property
    def tokens(self) -> "Tokens": ...
    @property
    def cost(self) -> Decimal: ...
    @property
    def priced(self) -> bool: ...
    @property
    def counted(self) -> bool: ...


def to_spent(charge: Charge) -> Spent:
    """Return a charge as spending, without steps and time."""
    tokens = charge.tokens
    return Spent(
        cost=charge.cost,
        input=tokens.input,
        output=tokens.output,
        reasoning=tokens.reasoning,
        cache_read=tokens.cache.read,
        cache_write=tokens.cache.write,
        priced=charge.priced,
        counted=charge.counted,
    )


def to_step_spent(step: "StepFinishPart") -> Spent:
    return replace(to_spent(step), steps=1)


def _strip_zeros(cost: Decimal) -> Decimal:
    """Remove trailing zeros, as OpenCode writes numbers."""
    short = cost.normalize()
    is_short = int(short.as_tuple().exponent) <= 0 or short.adjusted() >= getcontext().prec
    return short if is_short else short.quantize(Decimal(1))


def add_spent(pieces: Iterable[Spent]) -> Spent:
    """Add up spending. If one price or count is unknown, so is that of the sum."""
    spent = list(pieces)
    return Spent(
        cost=_strip_zeros(sum((each.cost for each in spent), Decimal(0))),
        input=sum(each.input for each in spent),
        output=sum(each.output for each in spent),
        reasoning=sum(each.reasoning for each in spent),
        cache_read=sum(each.cache_read for each in spent),
        cache_write=sum(each.cache_write for each in spent),
        priced=all(each.priced for each in spent),
        counted=all(each.counted for each in spent),
        steps=sum(each.steps for each in spent),
        ms=sum(each.ms for each in spent),
    )


def to_child_spent(spent: Spent) -> Spent:
    """Return what a child adds to its parent. Its time is left out, because it is part of a step of the parent."""
    return replace(spent, ms=0)


def total_spent(ledger: Ledger) -> Spent:
    """Return the recorded spending of a session with its descendants."""
    return add_spent((ledger.own, *ledger.below.values()))


def subtract_spent(spent: Spent, before: Spent) -> Spent:
    """Return what was spent since `before`."""
    return Spent(
        cost=max(Decimal(0), spent.cost - before.cost),
        input=spent.input - before.input,
        output=spent.output - before.output,
        reasoning=spent.reasoning - before.reasoning,
        cache_read=spent.cache_read - before.cache_read,
        cache_write=spent.cache_write - before.cache_write,
        priced=spent.priced,
        counted=spent.counted,
        steps=spent.steps - before.steps,
        ms=spent.ms - before.ms,
    )


def find_spent_besides(ledger: Ledger, before: Ledger) -> Spent:
    """Return what a ledger has gained by requests that are in no message, such as those for titles.

    They are recorded one at a time, and do not change up to which message it has counted.
    """
    if ledger.until != before.until:
        return Spent()
    gained = subtract_spent(ledger.own, before.own)
    # What was unknown before does not say that more is unknown now.
    return replace(
        gained,
        priced=ledger.own.priced or not before.own.priced,
        counted=ledger.own.counted or not before.own.counted,
    )


def max_spent(one: Spent, other: Spent) -> Spent:
    """Return the larger of two sums of the same spending. What one of them does not know is unknown."""
    larger = max(one, other, key=lambda each: (each.cost, each.input + each.output))
    return replace(larger, priced=one.priced and other.priced, counted=one.counted and other.counted)


class RunSpending:
    """Adds up what a run spends, with its child sessions: its steps, and requests that are in no message.

    `count` takes the end of each step, and `follow` each answer whenever it changes: an answer that broke off may have no end of a
    step. `record` takes the ledger of each session as it is before the run, and then as it changes.
    """

    def __init__(self) -> None:
        self._steps: dict[PartID, Spent] = {}
        self._besides: list[Spent] = []
        self._ledgers: dict[SessionID, Ledger] = {}
        self._answers: dict[MessageID, Spent] = {}  # nothing but whether all that they used is known

    def count(self, step: "StepFinishPart") -> None:
        self._steps[step.id] = to_step_spent(step)

    def follow(self, id: MessageID, answer: Charge, *, is_open: bool) -> None:
        if is_open or id in self._answers:  # else it was there before the run
            known = Spent(priced=answer.priced and not is_open, counted=answer.counted and not is_open)
            self._answers[id] = known

    def record(self, session: SessionID, ledger: Ledger) -> None:
        before = self._ledgers.get(session, ledger)
        self._ledgers[session] = ledger
        self._besides.append(find_spent_besides(ledger, before))

    def total(self) -> Spent:
        return add_spent((*self._steps.values(), *self._besides, *self._answers.values()))

    def restart(self) -> None:
        """Begin another run."""
        self._steps, self._besides, self._answers = {}, [], {}
