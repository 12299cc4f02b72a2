"""Compute cost, tokens and tool use of sessions with SQLite, exactly."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import cache
from typing import NamedTuple

from weft.model.ids import ProjectID
from weft.model.search import Figures, ToolUse, UsageShare
from weft.model.spending import Spent, add_spent
from weft.search.database import IndexDatabase, IndexRow
from weft.search.index import to_dollars

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

# A message older than its session was copied by a fork, and its cost counts in the original session.
SELECT_USAGE = f"""SELECT session.number, session.project, message.created / {HOUR_MS}, provider, model, count(*), sum(input),
sum(output), sum(reasoning), sum(cache_read), sum(cache_write), sum(nano), sum(atto), min(priced),
min(counted)
FROM session JOIN message ON message.session = session.number
WHERE message.created >= session.created AND message.created >= ? AND (? IS NULL OR session.project = ?)
GROUP BY session.number, 3, provider, model"""
SELECT_CALLS = """SELECT tool, sum(calls), sum(failed)
FROM call JOIN message ON message.number = call.message JOIN session ON session.number = message.session
WHERE message.created >= session.created AND message.created >= ? AND (? IS NULL OR session.project = ?)
GROUP BY tool ORDER BY sum(calls) DESC, tool"""
SELECT_SESSIONS = """SELECT count(DISTINCT id), min(created), max(updated) FROM session
WHERE updated >= ? AND (? IS NULL OR project = ?)"""

DayOf = Callable[[int], str]


class StatisticsQuery(NamedTuple):
    """Which sessions to count: of one project or all, since a time, and over how many days if that is fixed.

    `day_of` returns the day of a time.
    """

    day_of: DayOf
    project: ProjectID | None = None
    since: int = 0
    days: int | None = None


class _Usage(NamedTuple):
    session: int
    project: str
    day: str
    model: str
    messages: int
    spent: Spent


def compute_figures(database: IndexDatabase, query: StatisticsQuery) -> Figures:
    """Return the figures for a query."""
    parameters = (query.since, query.project, query.project)
    day_of = cache(query.day_of)
    usages = [_to_usage(row, day_of) for row in database.rows(SELECT_USAGE, *parameters)]
    ((sessions, first, last),) = database.rows(SELECT_SESSIONS, *parameters)
    tokens = _list_session_tokens(usages)
    return Figures(
        sessions=sessions,
        messages=sum(usage.messages for usage in usages),
        days=query.days or _count_days(first, last),
        spent=add_spent(usage.spent for usage in usages),
        by_day=tuple(sorted(_to_shares(usages, lambda usage: usage.day), key=lambda share: share.name)),
        models=_sort_by_cost(_to_shares((usage for usage in usages if usage.model), lambda usage: usage.model)),
        projects=_sort_by_cost(_to_shares(usages, lambda usage: usage.project)),
        tools=tuple(ToolUse(name=tool, calls=calls, failed=failed) for tool, calls, failed in database.rows(SELECT_CALLS, *parameters)),
        average_tokens=sum(tokens) // len(tokens) if tokens else 0,
        median_tokens=(tokens[(len(tokens) - 1) // 2] + tokens[len(tokens) // 2]) // 2 if tokens else 0,
    )  # fmt: skip


def _to_usage(row: IndexRow, day_of: DayOf) -> _Usage:
    session, project, hour, provider, model, messages, *tokens, nano, atto, priced, counted = row
    input, output, reasoning, cache_read, cache_write = tokens
    spent = Spent(
        cost=to_dollars(nano, atto) if nano or atto else Decimal(0),
        input=input,
        output=output,
        reasoning=reasoning,
        cache_read=cache_read,
        cache_write=cache_write,
        priced=bool(priced),
        counted=bool(counted),
    )
    name = f"{provider}/{model}" if model else ""
    return _Usage(session, project, day_of(hour * HOUR_MS), name, messages, spent)


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
    counts: defaultdict[int, int] = defaultdict(int)
    for usage in usages:
        counts[usage.session] += usage.spent.input + usage.spent.output + usage.spent.reasoning
    return sorted(counts.values())


def _count_days(first: int | None, last: int | None) -> int:
    if first is None or last is None:
        return 0
    return max(1, -(-(last - first) // DAY_MS))
