"""What a session has spent: kept in its document as it runs, and worked out from its messages where it is not.

A ledger says up to which message it has counted. So counting twice changes nothing, what a crash kept from being
counted is counted the next time, and a message that was removed stays paid for.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from decimal import Decimal
from typing import Protocol

from msgspec.structs import replace

from weft.errors import NotFoundError
from weft.journal import Journal
from weft.model.failure import BudgetFailure
from weft.model.ids import SessionID
from weft.model.message import AnyMessage, AssistantMessage
from weft.model.part import Tokens
from weft.model.session import Session, own_of, with_own
from weft.model.spending import Ledger, Spending, Spent, add_up, whole, within_parent

Messages = Callable[[Session], Iterable[AnyMessage]]


def spent_by(message: AssistantMessage) -> Spent:
    time = message.time
    # One that no model was asked for says why; one that was cut short has something to pay for.
    owing = message.tokens != Tokens() or not message.priced
    asked = owing or not isinstance(message.error, BudgetFailure)
    return replace(
        to_spent(message),
        steps=1 if asked else 0,
        ms=max(0, time.completed - time.created) if time.completed is not None else 0,
    )


class Charge(Protocol):
    """Anything that says what was used and what it cost: a message, the end of a step, a bill."""

    @property
    def tokens(self) -> Tokens: ...
    @property
    def cost(self) -> Decimal: ...
    @property
    def priced(self) -> bool: ...
    @property
    def counted(self) -> bool: ...


def to_spent(charge: Charge) -> Spent:
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


def also_spent(session: Session, spent: Spent) -> Session:
    """The session with something in its ledger that no message tells of."""
    ledger = ledger_of(session)
    return with_ledger(session, replace(ledger, own=add_up((ledger.own, spent))))


def ledger_of(session: Session) -> Ledger:
    # A message older than its session was copied from another one by a fork, and was paid for there.
    # OpenCode counts it in both.
    return own_of(session).spent or Ledger(until=session.time.created - 1)


def counted(ledger: Ledger, messages: Iterable[AnyMessage]) -> Ledger:
    """The ledger with every message in it that came after those it knows."""
    new = [
        each for each in messages if isinstance(each, AssistantMessage) and each.time.created > ledger.until
    ]
    if not new:
        return ledger
    own = add_up((ledger.own, *(spent_by(message) for message in new)))
    return replace(ledger, own=own, until=max(message.time.created for message in new))


def is_behind(session: Session, messages: Iterable[AnyMessage]) -> bool:
    ledger = ledger_of(session)
    return counted(ledger, messages) != ledger


async def keep_count(journal: Journal, session: SessionID, messages: list[AnyMessage]) -> None:
    """Bring the ledger of a session up to date, and those of the sessions above it."""
    # Whoever was removed meanwhile needs no ledger any more.
    with suppress(NotFoundError):
        child = await journal.edit(session, lambda it: with_ledger(it, counted(ledger_of(it), messages)))
        climbed = {child.id}
        while child.parent_id is not None and child.parent_id not in climbed:
            climbed.add(child.parent_id)
            child = await journal.edit(child.parent_id, _with_below(child))


def _with_below(child: Session) -> Callable[[Session], Session]:
    spent = within_parent(whole(ledger_of(child)))

    def edit(parent: Session) -> Session:
        ledger = ledger_of(parent)
        return with_ledger(parent, replace(ledger, below={**ledger.below, child.id: spent}))

    return edit


def with_ledger(session: Session, ledger: Ledger) -> Session:
    return with_own(session, replace(own_of(session), spent=ledger))


def spending(session: Session, others: Iterable[Session], messages: Messages) -> Spending:
    """What a session spent, itself and with all below it; of a child that is gone, what its parent knows of it."""
    children: dict[SessionID, list[Session]] = {}
    for each in others:
        if each.parent_id is not None and each.id != session.id:
            children.setdefault(each.parent_id, []).append(each)
    own = counted(ledger_of(session), messages(session))
    waiting, found = [(session, own)], []
    while waiting:
        each, ledger = waiting.pop()
        below = children.pop(each.id, [])  # taken out, so that a circle comes to its end
        gone = ledger.below.keys() - {child.id for child in below}
        spent = ledger.own if each is session else within_parent(ledger.own)
        found += [spent, *(ledger.below[id] for id in gone)]
        waiting += [(child, counted(ledger_of(child), messages(child))) for child in below]
    return Spending(own=own.own, tree=add_up(found))
