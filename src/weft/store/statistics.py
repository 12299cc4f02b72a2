"""Figures of sessions from rows of usage that a store selects: cost, tokens and tool use, exactly (pure)."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import cache

from msgspec import Struct

from weft.host.now import day_of, find_midnight
from weft.model.ids import ProjectID, SessionID
from weft.model.search import Figures, ToolUse, UsageShare
from weft.model.spending import Spent, add_spent
from weft.store.search import to_dollars

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

DayOf = Callable[[int], str]


class StatisticsQuery(Struct, frozen=True):
    """Which sessions to count: of one project or all, since a time, and over how many days if that is fixed.

    If `sessions` is given, only these count. `day_of` returns the day of a time.
    """

    day_of: DayOf
    project: ProjectID | None = None
    since: int = 0
    days: int | None = None
    sessions: frozenset[SessionID] | None = None


class UsageRow(Struct, frozen=True):
    """The usage of one model in one hour of one session, summed over its messages. Without a model, `model` is empty.

    `session` is any value that names the session. The cost in dollars is (nano + atto / 1,000,000,000) billionths.
    """

    session: int | str
    project: str
    hour: int
    provider: str
    model: str
    messages: int
    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_write: int
    nano: int
    atto: int
    priced: bool
    counted: bool


class SessionRange(Struct, frozen=True):
    """How many sessions a query counts, when the first was created, and when the last was updated."""

    sessions: int
    first: int | None
    last: int | None


class _Usage(Struct, frozen=True):
    session: int | str
    project: str
    day: str
    model: str
    messages: int
    spent: Spent


def build_figures(
    query: StatisticsQuery, rows: Iterable[UsageRow], sessions: SessionRange, tools: Iterable[ToolUse]
) -> Figures:
    """Return the figures for a query. `tools` are sorted by use, highest first."""
    day_of = cache(query.day_of)
    usages = [_to_usage(row, day_of) for row in rows]
    tokens = _list_session_tokens(usages)
    return Figures(
        sessions=sessions.sessions,
        messages=sum(usage.messages for usage in usages),
        days=query.days or _count_days(sessions.first, sessions.last),
        spent=add_spent(usage.spent for usage in usages),
        by_day=tuple(sorted(_to_shares(usages, lambda usage: usage.day), key=lambda share: share.name)),
        models=_sort_by_cost(
            _to_shares((usage for usage in usages if usage.model), lambda usage: usage.model)
        ),
        projects=_sort_by_cost(_to_shares(usages, lambda usage: usage.project)),
        tools=tuple(tools),
        average_tokens=sum(tokens) // len(tokens) if tokens else 0,
        median_tokens=(tokens[(len(tokens) - 1) // 2] + tokens[len(tokens) // 2]) // 2 if tokens else 0,
    )


def _to_usage(row: UsageRow, day_of: DayOf) -> _Usage:
    spent = Spent(
        cost=to_dollars(row.nano, row.atto) if row.nano or row.atto else Decimal(0),
        input=row.input,
        output=row.output,
        reasoning=row.reasoning,
        cache_read=row.cache_read,
        cache_write=row.cache_write,
        priced=bool(row.priced),
        counted=bool(row.counted),
    )
    name = f"{row.provider}/{row.model}" if row.model else ""
    return _Usage(row.session, row.project, day_of(row.hour * HOUR_MS), name, row.messages, spent)


def _to_shares(usages: Iterable[_Usage], key: Callable[[_Usage], str]) -> list[UsageShare]:
    grouped: defaultdict[str, list[_Usage]] = defaultdict(list)
    for usage in usages:
        grouped[key(usage)].append(usage)
    return [
        UsageShare(
            name=name,
            sessions=len({usage.session for usage in group}),
            messages=sum(usage.messages for usage in group),
            spent=add_spent(usage.spent for usage in group),
        )
        for name, group in grouped.items()
    ]


def _sort_by_cost(shares: list[UsageShare]) -> tuple[UsageShare, ...]:
    return tuple(sorted(shares, key=lambda share: (-share.spent.cost, -share.messages, share.name)))


def _list_session_tokens(usages: list[_Usage]) -> list[int]:
    """Return the tokens of each session, sorted. Like OpenCode, leave out tokens read from a cache."""
    counts: defaultdict[int | str, int] = defaultdict(int)
    for usage in usages:
        counts[usage.session] += usage.spent.input + usage.spent.output + usage.spent.reasoning
    return sorted(counts.values())


def _count_days(first: int | None, last: int | None) -> int:
    if first is None or last is None:
        return 0
    return max(1, -(-(last - first) // DAY_MS))


def to_statistics_query(now: int, *, days: int | None, project: ProjectID | None) -> StatisticsQuery:
    """Build the query for the last `days` days; 0 means since midnight, None all time."""
    if days is None:
        return StatisticsQuery(day_of=day_of, project=project)
    since = find_midnight(now) if days == 0 else max(0, now - days * DAY_MS)
    return StatisticsQuery(day_of=day_of, project=project, since=since, days=max(days, 1))
