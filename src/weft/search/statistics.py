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
USAGE = f"""SELECT session.number, session.project, message.created / {HOUR_MS}, provider, model, count(*), sum(input),
sum(output), sum(reasoning), sum(cache_read), sum(cache_write), sum(nano), sum(atto), min(priced),
min(counted)
FROM session JOIN message ON message.session = session.number
WHERE message.created >= session.created AND message.created >= ? AND (? IS NULL OR session.project = ?)
GROUP BY session.number, 3, provider, model"""
CALLS = """SELECT tool, sum(calls), sum(failed)
FROM call JOIN message ON message.number = call.message JOIN session ON session.number = message.session
WHERE message.created >= session.created AND message.created >= ? AND (? IS NULL OR session.project = ?)
GROUP BY tool ORDER BY sum(calls) DESC, tool"""
SESSIONS = """SELECT count(DISTINCT id), min(created), max(updated) FROM session
WHERE updated >= ? AND (? IS NULL OR project = ?)"""

DayOf = Callable[[int], str]


class StatisticsQuery(NamedTuple):
    """Which project (None for all), since when, over how many days if that is fixed; `day_of` names the day of a time."""

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


def compute_figures(database: IndexDatabase, wanted: StatisticsQuery) -> Figures:
    asked = (wanted.since, wanted.project, wanted.project)
    day_of = cache(wanted.day_of)
    used = [_to_usage(row, day_of) for row in database.rows(USAGE, *asked)]
    ((sessions, first, last),) = database.rows(SESSIONS, *asked)
    tokens = _list_session_tokens(used)
    return Figures(
        sessions=sessions,
        messages=sum(each.messages for each in used),
        days=wanted.days or _count_days(first, last),
        spent=add_spent(each.spent for each in used),
        by_day=tuple(sorted(_to_shares(used, lambda each: each.day), key=lambda share: share.name)),
        models=_sort_by_cost(_to_shares((each for each in used if each.model), lambda each: each.model)),
        projects=_sort_by_cost(_to_shares(used, lambda each: each.project)),
        tools=tuple(ToolUse(name=tool, calls=calls, failed=failed) for tool, calls, failed in database.rows(CALLS, *asked)),
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


def _to_shares(used: Iterable[_Usage], key: Callable[[_Usage], str]) -> list[UsageShare]:
    grouped: defaultdict[str, list[_Usage]] = defaultdict(list)
    for each in used:
        grouped[key(each)].append(each)
    return [
        UsageShare(
            name=name,
            sessions=len({each.session for each in group}),
            messages=sum(each.messages for each in group),
            spent=add_spent(each.spent for each in group),
        )
        for name, group in grouped.items()
    ]


def _sort_by_cost(shares: list[UsageShare]) -> tuple[UsageShare, ...]:
    return tuple(sorted(shares, key=lambda share: (-share.spent.cost, -share.messages, share.name)))


def _list_session_tokens(used: list[_Usage]) -> list[int]:
    """Return the tokens of each session, sorted. Like OpenCode, leave out tokens read from a cache."""
    counts: defaultdict[int, int] = defaultdict(int)
    for each in used:
        counts[each.session] += each.spent.input + each.spent.output + each.spent.reasoning
    return sorted(counts.values())


def _count_days(first: int | None, last: int | None) -> int:
    if first is None or last is None:
        return 0
    return max(1, -(-(last - first) // DAY_MS))
