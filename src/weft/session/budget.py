"""Reserve and count spending: per session within this process, and per day over all processes."""

import asyncio
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.host.now import day_of
from weft.model.ids import SessionID
from weft.model.message import AnyMessage
from weft.model.session import Session
from weft.model.spending import UNLIMITED, Budget, Budgets, Ledger, Spent, add_spent, to_child_spent
from weft.model.wire import Wire, always, from_plain, to_plain
from weft.session.totals import count_messages
from weft.store.contract import Store

DAY_KEY = ("budget", "day")
# An older reservation no longer counts: the process that made it is taken for dead.
RESERVATION_LIFETIME_MS = 15 * 60_000

NO_ENTRIES: dict[SessionID, "DayEntry"] = {}

Allow = Callable[[Spent], bool]


class DayEntry(Wire, frozen=True, kw_only=True):
    """What one session has spent today. `held` is reserved for its request under way, since the time `since`."""

    ledger: Ledger
    held: Spent | None = None
    since: int = 0


class DayPage(Wire, frozen=True, kw_only=True):
    """The spending of all sessions on one day, as it is stored."""

    day: str
    entries: dict[SessionID, DayEntry] = always(NO_ENTRIES)


class DayLedger:
    """The spending of the day, shared by all processes through the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stored_day = ""

    async def reserve(
        self, session: Session, messages: list[AnyMessage], expected: Spent, *, now: int, allow: Allow
    ) -> Spent:
        """Return what all sessions have spent or reserved today. Reserve `expected` if `allow` accepts that total."""
        default = await self._make_default_page(now)
        totals: list[Spent] = []

        def change(stored: Any) -> Any:
            today = read_day(stored, default)
            entry = DayEntry(ledger=_count_today(today, session, messages))
            total = total_day(today, now=now, session=session.id, own=entry)
            totals[:] = [total]
            if allow(total):
                entry = replace(entry, held=expected, since=now)
            return to_plain(with_entry(today, session.id, entry))

        await self._change_day(default, change)
        return totals[0]

    async def settle(self, session: Session, messages: list[AnyMessage], *, now: int) -> None:
        """Count what a session has spent, and release its reservation."""
        default = await self._make_default_page(now)

        def change(stored: Any) -> Any:
            today = read_day(stored, default)
            entry = DayEntry(ledger=_count_today(today, session, messages))
            return to_plain(with_entry(today, session.id, entry))

        await self._change_day(default, change)

    async def _change_day(self, default: DayPage, change: Callable[[Any], Any]) -> None:
        await self._store.update_value(DAY_KEY, change)
        self._stored_day = default.day

    async def _make_default_page(self, now: int) -> DayPage:
        """Return the page to use if none is stored for today. If none is, it has the spending of today's sessions."""
        day = day_of(now)
        page = DayPage(day=day)
        if self._stored_day == day:
            return page
        stored = await self._store.find_value(DAY_KEY)
        if isinstance(stored, dict) and stored.get("day") == day:
            return page
        entries = {}
        for session in await self._store.list_sessions():
            if day_of(session.time.updated) >= day:
                messages = [message.info for message in await self._store.list_messages(session.id)]
                entries[session.id] = DayEntry(ledger=_count_today(page, session, messages))
        return replace(page, entries=entries)


def read_day(stored: Any, default: DayPage) -> DayPage:
    """Return the stored page, or `default` if the stored one is of another day."""
    if isinstance(stored, dict) and stored.get("day") == default.day:
        return from_plain(stored, DayPage, where="the day's budget")
    return default


def with_entry(page: DayPage, session: SessionID, entry: DayEntry) -> DayPage:
    return replace(page, entries={**page.entries, session: entry})


def total_day(page: DayPage, *, now: int, session: SessionID, own: DayEntry) -> Spent:
    """Return what was spent or reserved on the day, with `own` in place of the page's entry for the session."""
    entries = {**page.entries, session: own}
    reserved = (
        entry.held
        for entry in entries.values()
        if entry.held and now - entry.since <= RESERVATION_LIFETIME_MS
    )
    return add_spent((*(entry.ledger.own for entry in entries.values()), *reserved))


def _count_today(page: DayPage, session: Session, messages: Iterable[AnyMessage]) -> Ledger:
    entry = page.entries.get(session.id)
    ledger = entry.ledger if entry else Ledger(until=session.time.created - 1)
    new = (message for message in messages if message.time.created > ledger.until)
    today = [message for message in new if day_of(message.time.created) == page.day]
    counted = count_messages(ledger, today)
    return counted if session.parent_id is None else replace(counted, own=to_child_spent(counted.own))


class Reservation(Struct, frozen=True, kw_only=True):
    """The expected cost of the request that a session is making, and since when.

    `ancestry` is the session and its ancestors, the root last.
    """

    ancestry: tuple[SessionID, ...]
    spent: Spent
    since: int


class Allowance(Struct, frozen=True, kw_only=True):
    """The budget of one run. `before` is what its session and the sessions below it had spent when the run began, at `since`."""

    budget: Budget
    before: Spent
    since: int


class BudgetLedger:
    """The budgets of a directory, and what is reserved of them. Hold `lock` from reading a reservation until acting on it."""

    def __init__(self, store: Store, budgets: Budgets) -> None:
        self.budgets = budgets
        self.days = DayLedger(store)
        self.lock = asyncio.Lock()
        self.allowances: dict[SessionID, Allowance] = {}
        self._reservations: dict[SessionID, Reservation] = {}
        self._warnings: set[tuple[object, ...]] = set()

    @property
    def is_limited(self) -> bool:
        """Whether any budget limits anything."""
        return bool(self.allowances) or self.budgets != Budgets()

    @property
    def has_day_limit(self) -> bool:
        return self.budgets.day != UNLIMITED

    def hold(self, session: SessionID, reservation: Reservation) -> None:
        self._reservations[session] = reservation

    def release(self, session: SessionID) -> None:
        self._reservations.pop(session, None)

    def find_reservation(self, session: SessionID) -> Reservation | None:
        return self._reservations.get(session)

    def total_reserved(self, root: SessionID, *, excluding: SessionID) -> Spent:
        """Return what is reserved for a session and all sessions below it, except the session `excluding`."""
        return add_spent(
            reservation.spent
            for session, reservation in self._reservations.items()
            if root in reservation.ancestry and session != excluding
        )

    def record_warning(self, *warning: object) -> bool:
        """Record that a warning is given. Return False if it was given before."""
        if warning in self._warnings:
            return False
        self._warnings.add(warning)
        return True


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
