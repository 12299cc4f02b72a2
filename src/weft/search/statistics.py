"""Sum up cost, tokens and tool use of sessions with SQLite, exactly."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import cache
from typing import NamedTuple

from weft.model.ids import ProjectID
from weft.model.search import Figures, Share, ToolUse
from weft.model.spending import Spent, add_up
from weft.search.database import Database, Row
from weft.search.index import to_dollars

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

# A message older than its session was copied from another one by a fork, and was paid for there.
USED = f"""SELECT session.number, session.project, message.created / {HOUR_MS}, provider, model, count(*), sum(input),
sum(output), sum(reasoning), sum(cache_read), sum(cache_write), sum(nano), sum(atto), min(priced),
min(counted)
FROM session JOIN message ON message.session = session.number
WHERE message.created >= session.created AND message.created >= ? AND (? IS NULL OR session.project = ?)
GROUP BY session.number, 3, provider, model"""
CALLED = """SELECT tool, sum(calls), sum(failed)
FROM call JOIN message ON message.number = call.message JOIN session ON session.number = message.session
WHERE message.created >= session.created AND message.created >= ? AND (? IS NULL OR session.project = ?)
GROUP BY tool ORDER BY sum(calls) DESC, tool"""
SESSIONS = """SELECT count(DISTINCT id), min(created), max(updated) FROM session
WHERE updated >= ? AND (? IS NULL OR project = ?)"""

DayOf = Callable[[int], str]


class Wanted(NamedTuple):
    """Of which project (all), since when (ever), over how many days if that is settled; `day_of` names a time's day."""

    day_of: DayOf
    project: ProjectID | None = None
    since: int = 0
    days: int | None = None


class _Used(NamedTuple):
    session: int
    project: str
    day: str
    model: str
    messages: int
    spent: Spent


def figures(database: Database, wanted: Wanted) -> Figures:
    asked = (wanted.since, wanted.project, wanted.project)
    day_of = cache(wanted.day_of)
    used = [_to_used(row, day_of) for row in database.rows(USED, *asked)]
    ((sessions, first, last),) = database.rows(SESSIONS, *asked)
    tokens = _per_session(used)
    return Figures(
        sessions=sessions,
        messages=sum(each.messages for each in used),
        days=wanted.days or _days(first, last),
        spent=add_up(each.spent for each in used),
        by_day=tuple(sorted(_shares(used, lambda each: each.day), key=lambda share: share.name)),
        models=_dearest(_shares((each for each in used if each.model), lambda each: each.model)),
        projects=_dearest(_shares(used, lambda each: each.project)),
        tools=tuple(ToolUse(name=tool, calls=calls, failed=failed) for tool, calls, failed in database.rows(CALLED, *asked)),
        average_tokens=sum(tokens) // len(tokens) if tokens else 0,
        median_tokens=(tokens[(len(tokens) - 1) // 2] + tokens[len(tokens) // 2]) // 2 if tokens else 0,
    )  # fmt: skip


def _to_used(row: Row, day_of: DayOf) -> _Used:
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
    return _Used(session, project, day_of(hour * HOUR_MS), name, messages, spent)


def _shares(used: Iterable[_Used], key: Callable[[_Used], str]) -> list[Share]:
    grouped: defaultdict[str, list[_Used]] = defaultdict(list)
    for each in used:
        grouped[key(each)].append(each)
    return [
        Share(
            name=name,
            sessions=len({each.session for each in group}),
            messages=sum(each.messages for each in group),
            spent=add_up(each.spent for each in group),
        )
        for name, group in grouped.items()
    ]


def _dearest(shares: list[Share]) -> tuple[Share, ...]:
    return tuple(sorted(shares, key=lambda share: (-share.spent.cost, -share.messages, share.name)))


def _per_session(used: list[_Used]) -> list[int]:
    """The tokens of each session, fewest first; as OpenCode counts them, without what a cache gave."""
    counts: defaultdict[int, int] = defaultdict(int)
    for each in used:
        counts[each.session] += each.spent.input + each.spent.output + each.spent.reasoning
    return sorted(counts.values())


def _days(first: int | None, last: int | None) -> int:
    if first is None or last is None:
        return 0
    return max(1, -(-(last - first) // DAY_MS))
