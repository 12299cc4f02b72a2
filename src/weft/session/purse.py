"""The purse: what sessions of one process may spend, and what of it is held back for calls under way."""

import asyncio
from decimal import Decimal

from msgspec import Struct

from weft.model.ids import SessionID
from weft.model.spent import UNLIMITED, Budget, Budgets, Spent, add_up
from weft.session.daybook import DayBook
from weft.store.contract import Store


class Held(Struct, frozen=True, kw_only=True):
    """Held back for the call that a session is making: about what it takes, and since when. `line` is the session and
    those above it, the topmost last."""

    line: tuple[SessionID, ...]
    spent: Spent
    since: int


class Allowance(Struct, frozen=True, kw_only=True):
    """The budget of one run, and what its session and those below had spent when it began, and when that was."""

    budget: Budget
    before: Spent
    since: int


class Purse:
    """One for a directory. Whoever looks into it to decide something holds its lock until it is decided."""

    def __init__(self, store: Store, budgets: Budgets) -> None:
        self.budgets = budgets
        self.days = DayBook(store)
        self.lock = asyncio.Lock()
        self.allowances: dict[SessionID, Allowance] = {}
        self._held: dict[SessionID, Held] = {}
        self._said: set[tuple[object, ...]] = set()

    @property
    def is_limited(self) -> bool:
        """Whether there is anything to look after."""
        return bool(self.allowances) or self.budgets != Budgets()

    @property
    def has_days(self) -> bool:
        return self.budgets.day != UNLIMITED

    def hold(self, session: SessionID, held: Held) -> None:
        self._held[session] = held

    def release(self, session: SessionID) -> None:
        self._held.pop(session, None)

    def find(self, session: SessionID) -> Held | None:
        return self._held.get(session)

    def held_below(self, above: SessionID, *, but: SessionID) -> Spent:
        """What is held back for a session and all below it, but for one of them."""
        return add_up(
            held.spent for session, held in self._held.items() if above in held.line and session != but
        )

    def is_new(self, *warning: object) -> bool:
        """Whether this has yet to be said; from now on it has been."""
        if warning in self._said:
            return False
        self._said.add(warning)
        return True


def since(spent: Spent, before: Spent) -> Spent:
    """What was spent in between. Ledgers only grow."""
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
