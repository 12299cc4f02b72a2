"""Tokens and dollars spent, a session's own record of both, and budgets."""

from collections.abc import Iterable
from decimal import Decimal

from msgspec.structs import replace

from weft.model.ids import SessionID
from weft.model.wire import Wire, always

NOTHING_BELOW: dict[SessionID, "Spent"] = {}


class Spent(Wire, frozen=True, kw_only=True):
    """Tokens and dollars. When not `priced`, `cost` holds what is known of it; when not `counted`, the tokens do.

    `steps` are answers of a model, `ms` the time they took, calls of tools included.
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


class Ledger(Wire, frozen=True, kw_only=True):
    """What a session has spent: itself, by messages up to the time `until`, and each child with all below it.

    What was counted stays counted, whether or not the message or the child is still there: the money is gone.
    """

    own: Spent = always(Spent())
    until: int
    below: dict[SessionID, Spent] = always(NOTHING_BELOW)


class Spending(Wire, frozen=True, kw_only=True):
    """What a session spent itself, and with all the sessions below it."""

    own: Spent
    tree: Spent


class Budget(Wire, frozen=True, kw_only=True):
    """The most that may be spent: dollars, tokens (cached ones too), steps, seconds. What is not said has no limit."""

    cost: Decimal | None = None
    tokens: int | None = None
    steps: int | None = None
    seconds: int | None = None


UNLIMITED = Budget()


class Budgets(Wire, frozen=True, kw_only=True):
    """What every session may spend by itself; the topmost one with all below it; all sessions of the store in a day."""

    session: Budget = UNLIMITED
    tree: Budget = UNLIMITED
    day: Budget = UNLIMITED


def _shortest(cost: Decimal) -> Decimal:
    """Without zeros at its end: others who write the document spell it so."""
    short = cost.normalize()
    return short if int(short.as_tuple().exponent) <= 0 else short.quantize(Decimal(1))


def add_up(pieces: Iterable[Spent]) -> Spent:
    """All of it together; one unknown price or count makes the whole unknown."""
    spent = list(pieces)
    return Spent(
        cost=_shortest(sum((each.cost for each in spent), Decimal(0))),
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


def within_parent(spent: Spent) -> Spent:
    """What a child adds to those above it. Its time passes inside a step of theirs, and is counted there."""
    return replace(spent, ms=0)


def whole(ledger: Ledger) -> Spent:
    """Of the session and of all below it, as far as the ledger knows."""
    return add_up((ledger.own, *ledger.below.values()))
