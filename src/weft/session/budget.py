"""Reserve and count spending: per session in this process, per day over all processes."""

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
from weft.model.spending import UNLIMITED, Budget, Budgets, Ledger, Spent, add_up, within_parent
from weft.model.wire import Wire, always, from_plain, to_plain
from weft.session.totals import counted
from weft.store.contract import Store

KEY = ("budget", "day")
# Who held something back and died does not hold it for ever. A step that lasts longer holds no more than others do.
HELD_MS = 15 * 60_000

NOBODY: dict[SessionID, "Entry"] = {}


class Entry(Wire, frozen=True, kw_only=True):
    """What one session has spent today, and what the call it is making is expected to take, since when."""

    ledger: Ledger
    held: Spent | None = None
    since: int = 0


class Page(Wire, frozen=True, kw_only=True):
    day: str
    entries: dict[SessionID, Entry] = always(NOBODY)


Allow = Callable[[Spent], bool]


class DayBook:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._begun = ""

    async def reserve(
        self, session: Session, messages: list[AnyMessage], expected: Spent, *, now: int, allow: Allow
    ) -> Spent:
        """What is spent today, calls under way included; `expected` is held back if that much is allowed."""
        page = await self._begin(now)
        found: list[Spent] = []

        def rework(known: Any) -> Any:
            today = to_page(known, page)
            entry = Entry(ledger=_counted(today, session, messages))
            total = spent_on(today, now=now, but=session.id, own=entry)
            found[:] = [total]
            if allow(total):
                entry = replace(entry, held=expected, since=now)
            return to_plain(with_entry(today, session.id, entry))

        await self._rework(page, rework)
        return found[0]

    async def settle(self, session: Session, messages: list[AnyMessage], *, now: int) -> None:
        """Count what a session has spent meanwhile, and hold nothing back for it any more."""
        page = await self._begin(now)

        def rework(known: Any) -> Any:
            today = to_page(known, page)
            entry = Entry(ledger=_counted(today, session, messages))
            return to_plain(with_entry(today, session.id, entry))

        await self._rework(page, rework)

    async def _rework(self, page: Page, rework: Callable[[Any], Any]) -> None:
        await self._store.rework(KEY, rework)
        self._begun = page.day

    async def _begin(self, now: int) -> Page:
        """The page to go on from where none is: that of a day on which nobody counted yet is read off the sessions."""
        day = day_of(now)
        page = Page(day=day)
        if self._begun == day:
            return page
        known = await self._store.kept(KEY)
        if isinstance(known, dict) and known.get("day") == day:
            return page
        entries = {}
        for session in await self._store.list_sessions():
            if day_of(session.time.updated) >= day:
                messages = [message.info for message in await self._store.list_messages(session.id)]
                entries[session.id] = Entry(ledger=_counted(page, session, messages))
        return replace(page, entries=entries)


def to_page(known: Any, otherwise: Page) -> Page:
    """What is kept, if it is of that day."""
    if isinstance(known, dict) and known.get("day") == otherwise.day:
        return from_plain(known, Page, where="the day book")
    return otherwise


def with_entry(page: Page, session: SessionID, entry: Entry) -> Page:
    return replace(page, entries={**page.entries, session: entry})


def spent_on(page: Page, *, now: int, but: SessionID, own: Entry) -> Spent:
    """All of a day, with `own` in place of what the page has of that session."""
    entries = {**page.entries, but: own}
    held = (each.held for each in entries.values() if each.held and now - each.since <= HELD_MS)
    return add_up((*(each.ledger.own for each in entries.values()), *held))


def _counted(page: Page, session: Session, messages: Iterable[AnyMessage]) -> Ledger:
    known = page.entries.get(session.id)
    ledger = known.ledger if known else Ledger(until=session.time.created - 1)
    new = (message for message in messages if message.time.created > ledger.until)
    today = [message for message in new if day_of(message.time.created) == page.day]
    found = counted(ledger, today)
    return found if session.parent_id is None else replace(found, own=within_parent(found.own))


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
