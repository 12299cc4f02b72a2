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

KEY = ("budget", "day")
# A process that died does not keep its reservation for ever. After this time a reservation no longer counts.
HELD_MS = 15 * 60_000

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
        self._begun = ""

    async def reserve(
        self, session: Session, messages: list[AnyMessage], expected: Spent, *, now: int, allow: Allow
    ) -> Spent:
        """Return what all sessions have spent or reserved today. Reserve `expected` if `allow` accepts that total."""
        page = await self._begin(now)
        found: list[Spent] = []

        def update_value(known: Any) -> Any:
            today = read_day(known, page)
            entry = DayEntry(ledger=_count_today(today, session, messages))
            total = total_day(today, now=now, but=session.id, own=entry)
            found[:] = [total]
            if allow(total):
                entry = replace(entry, held=expected, since=now)
            return to_plain(with_entry(today, session.id, entry))

        await self._rework(page, rework)
        return found[0]

    async def settle(self, session: Session, messages: list[AnyMessage], *, now: int) -> None:
        """Count what a session has spent, and release its reservation."""
        page = await self._begin(now)

        def update_value(known: Any) -> Any:
            today = read_day(known, page)
            entry = DayEntry(ledger=_count_today(today, session, messages))
            return to_plain(with_entry(today, session.id, entry))

        await self._rework(page, rework)

    async def _rework(self, page: DayPage, rework: Callable[[Any], Any]) -> None:
        await self._store.update_value(KEY, rework)
        self._begun = page.day

    async def _begin(self, now: int) -> DayPage:
        """Return the page to use if none is stored for today. It is then computed from the sessions of today."""
        day = day_of(now)
        page = DayPage(day=day)
        if self._begun == day:
            return page
        known = await self._store.find_value(KEY)
        if isinstance(known, dict) and known.get("day") == day:
            return page
        entries = {}
        for session in await self._store.list_sessions():
            if day_of(session.time.updated) >= day:
                messages = [message.info for message in await self._store.list_messages(session.id)]
                entries[session.id] = DayEntry(ledger=_count_today(page, session, messages))
        return replace(page, entries=entries)


def read_day(known: Any, otherwise: DayPage) -> DayPage:
    """Return the stored page, or `otherwise` if the stored one is of another day."""
    if isinstance(known, dict) and known.get("day") == otherwise.day:
        return from_plain(known, DayPage, where="the day's budget")
    return otherwise


def with_entry(page: DayPage, session: SessionID, entry: DayEntry) -> DayPage:
    return replace(page, entries={**page.entries, session: entry})


def total_day(page: DayPage, *, now: int, but: SessionID, own: DayEntry) -> Spent:
    """Return what was spent or reserved on the day, with `own` in place of the page's entry for the session `but`."""
    entries = {**page.entries, but: own}
    held = (each.held for each in entries.values() if each.held and now - each.since <= HELD_MS)
    return add_spent((*(each.ledger.own for each in entries.values()), *held))


def _count_today(page: DayPage, session: Session, messages: Iterable[AnyMessage]) -> Ledger:
    known = page.entries.get(session.id)
    ledger = known.ledger if known else Ledger(until=session.time.created - 1)
    new = (message for message in messages if message.time.created > ledger.until)
    today = [message for message in new if day_of(message.time.created) == page.day]
    counted = count_messages(ledger, today)
    return counted if session.parent_id is None else replace(counted, own=to_child_spent(counted.own))


class Reservation(Struct, frozen=True, kw_only=True):
    """The expected cost of the request that a session is making, and since when. `line` is the session and its ancestors,
    the root last."""

    line: tuple[SessionID, ...]
    spent: Spent
    since: int


class Allowance(Struct, frozen=True, kw_only=True):
    """The budget of one run. `before` is what its session and the sessions below it had spent when the run began, at `since`."""

    budget: Budget
    before: Spent
    since: int


class BudgetLedger:
    """The budgets of a directory, and what is reserved of them. Hold `lock` from looking something up until acting on it."""

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

    def find(self, session: SessionID) -> Reservation | None:
        return self._reservations.get(session)

    def total_reserved(self, above: SessionID, *, but: SessionID) -> Spent:
        """Return what is reserved for a session and all sessions below it, except the session `but`."""
        return add_spent(
            each.spent
            for session, each in self._reservations.items()
            if above in each.line and session != but
        )

    def record_warning(self, *warning: object) -> bool:
        """Return True the first time that this is called with these arguments."""
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
