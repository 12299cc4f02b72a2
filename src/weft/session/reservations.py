"""Reserve and count spending: per session within this process; per day, and per group of trials, over all processes."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.host.now import day_of, find_midnight
from weft.model.ids import SessionID
from weft.model.message import AnyMessage
from weft.model.session import SessionInfo, get_ledger
from weft.model.session_query import SessionQuery
from weft.model.spending import UNLIMITED, Budget, Budgets, Ledger, Spent, add_spent, to_child_spent
from weft.model.wire import Wire, always, from_plain, to_plain
from weft.session.totals import count_messages, list_countable
from weft.store.contract import Store
from weft.store.statistics import HOUR_MS

DAY_KEY = ("budget", "day")
GROUP_KEY = ("budget", "group")
# An older reservation no longer counts: the process that made it is taken for dead.
RESERVATION_LIFETIME_MS = 15 * 60_000

NO_ENTRIES: dict[SessionID, "LedgerEntry"] = {}

Allow = Callable[[Spent], bool]


class LedgerEntry(Wire, frozen=True, kw_only=True):
    """What one session has spent of a budget that it shares with others, such as the day's. `held` is reserved for its request under way, since the time `since`."""

    ledger: Ledger
    held: Spent | None = None
    since: int = 0


class DayPage(Wire, frozen=True, kw_only=True):
    """The spending of all sessions on one day, as it is stored."""

    day: str
    entries: dict[SessionID, LedgerEntry] = always(NO_ENTRIES)


class DayLedger:
    """The spending of the day, shared by all processes through the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stored_day = ""

    async def reserve(
        self, session: SessionInfo, messages: list[AnyMessage], expected: Spent, *, now: int, allow: Allow
    ) -> Spent:
        """Return what all sessions have spent or reserved today. Reserve `expected` if `allow` accepts that total."""
        default = await self._make_default_page(now)
        totals: list[Spent] = []

        def change(stored: Any) -> Any:
            today = read_day(stored, default)
            entry = LedgerEntry(ledger=_count_today(today, session, messages))
            total = total_day(today, now=now, session=session.id, own=entry)
            totals[:] = [total]
            if allow(total):
                entry = replace(entry, held=expected, since=now)
            return to_plain(with_entry(today, session.id, entry))

        await self._change_day(default, change)
        return totals[0]

    async def count(self, session: SessionInfo, messages: list[AnyMessage], *, now: int) -> None:
        """Count what a session has spent, and release its reservation."""
        default = await self._make_default_page(now)

        def change(stored: Any) -> Any:
            today = read_day(stored, default)
            entry = LedgerEntry(ledger=_count_today(today, session, messages))
            return to_plain(with_entry(today, session.id, entry))

        await self._change_day(default, change)

    async def _change_day(self, default: DayPage, change: Callable[[Any], Any]) -> None:
        await self._store.update_value(DAY_KEY, change)
        self._stored_day = default.day

    async def _make_default_page(self, now: int) -> DayPage:
        """Return the page to use if none is stored for today: with what today's sessions have spent. If one is stored, return an empty page."""
        day = day_of(now)
        page = DayPage(day=day)
        if self._stored_day == day:
            return page
        stored = await self._store.find_value(DAY_KEY)
        if isinstance(stored, dict) and stored.get("day") == day:
            return page
        entries = {}
        # An hour earlier, because the clock may be changed at night.
        since = SessionQuery(start=find_midnight(now) - HOUR_MS, order="updated")
        for session in await self._store.query_sessions(since):
            if day_of(session.time.updated) >= day:
                messages = [message.info for message in await self._store.list_messages(session.id)]
                entries[session.id] = LedgerEntry(ledger=_count_today(page, session, messages))
        return replace(page, entries=entries)


def read_day(stored: Any, default: DayPage) -> DayPage:
    """Return the stored page, or `default` if the stored one is of another day."""
    if isinstance(stored, dict) and stored.get("day") == default.day:
        return from_plain(stored, DayPage, where="the day's budget")
    return default


def with_entry(page: DayPage, session: SessionID, entry: LedgerEntry) -> DayPage:
    return replace(page, entries={**page.entries, session: entry})


def total_day(page: DayPage, *, now: int, session: SessionID, own: LedgerEntry) -> Spent:
    """Return what was spent or reserved on the day, with `own` in place of the page's entry for the session."""
    return add_spent(_iterate_charges({**page.entries, session: own}, now=now))


def _count_today(page: DayPage, session: SessionInfo, messages: list[AnyMessage]) -> Ledger:
    entry = page.entries.get(session.id)
    ledger = entry.ledger if entry else Ledger(until=session.time.created - 1)
    new = (message for message in list_countable(messages) if message.time.created > ledger.until)
    today = [message for message in new if day_of(message.time.created) == page.day]
    counted = count_messages(ledger, today)
    return counted if session.parent_id is None else replace(counted, own=to_child_spent(counted.own))


class GroupPage(Wire, frozen=True, kw_only=True):
    """The spending of the sessions that share a budget, as it is stored."""

    entries: dict[SessionID, LedgerEntry] = always(NO_ENTRIES)


class GroupLedger:
    """The spending of sessions that share one budget, over all processes: it is kept in the store, like that of the day.

    Sessions that run at the same time reserve from the same budget, so together they keep to it as a single session would.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def reserve(
        self, group: str, session: SessionInfo, expected: Spent, *, now: int, allow: Allow
    ) -> Spent:
        """Return what the group has spent or reserved. Reserve `expected` for the session if `allow` accepts that total."""
        totals: list[Spent] = []

        def change(stored: Any) -> Any:
            page = _read_group(stored)
            entry = _make_group_entry(session)
            entries = {**page.entries, session.id: entry}
            total = add_spent(_iterate_charges(entries, now=now))
            totals[:] = [total]
            if allow(total):
                entries[session.id] = replace(entry, held=expected, since=now)
            return to_plain(GroupPage(entries=entries))

        await self._store.update_value((*GROUP_KEY, group), change)
        return totals[0]

    async def count(self, group: str, session: SessionInfo) -> None:
        """Count what a session has spent, and release its reservation."""

        def change(stored: Any) -> Any:
            page = _read_group(stored)
            return to_plain(GroupPage(entries={**page.entries, session.id: _make_group_entry(session)}))

        await self._store.update_value((*GROUP_KEY, group), change)


def _read_group(stored: Any) -> GroupPage:
    return GroupPage() if stored is None else from_plain(stored, GroupPage, where="the shared budget")


def _make_group_entry(session: SessionInfo) -> LedgerEntry:
    """Return what a session spent itself. Its children have entries of their own, and their time is part of its time."""
    ledger = get_ledger(session)
    own = ledger.own if session.parent_id is None else to_child_spent(ledger.own)
    return LedgerEntry(ledger=Ledger(own=own, until=ledger.until))


def _iterate_charges(entries: dict[SessionID, LedgerEntry], *, now: int) -> Iterator[Spent]:
    for entry in entries.values():
        yield entry.ledger.own
        if entry.held and now - entry.since <= RESERVATION_LIFETIME_MS:
            yield entry.held


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


class DirectoryBudgets:
    """The budgets of a directory, and what is reserved of them. Hold `lock` from reading a reservation until acting on it."""

    def __init__(self, store: Store, limits: Budgets) -> None:
        self.limits = limits
        self.days = DayLedger(store)
        self.groups = GroupLedger(store)
        self.lock = asyncio.Lock()
        self.allowances: dict[SessionID, Allowance] = {}
        self._reservations: dict[SessionID, Reservation] = {}
        self._warnings: set[tuple[object, ...]] = set()

    @property
    def is_limited(self) -> bool:
        """Whether any budget limits anything."""
        return bool(self.allowances) or self.limits != Budgets()

    @property
    def has_day_limit(self) -> bool:
        return self.limits.day != UNLIMITED

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
