"""Query the search index of a file store: the best match of each session for typed words, and figures.

A run updates the index (`store/files/index.py`) and asks nothing, so it does not load this.
"""

import json
from collections.abc import Iterator

from weft.model.ids import MessageID, ProjectID
from weft.model.search import Figures, Hit, ToolUse
from weft.model.session import SessionInfo
from weft.model.wire import decode
from weft.store.files.index_database import IndexDatabase, IndexRow
from weft.store.rows import to_integer
from weft.store.search import MATCH_END, MATCH_START, to_hit, to_match_query
from weft.store.statistics import HOUR_MS, SessionRange, StatisticsQuery, UsageRow, build_figures

SNIPPET_WORDS = 20
# A match in a title counts most, and one in the conversation more than one in a tool's output.
RANK_FUNCTION = "bm25(6.0, 2.0, 1.0)"

# Rows of titles are even, rows of messages odd (see sql/index.sql).
SELECT_MATCHES = """SELECT words.rowid, session.number, session.document, message.id, message.created
FROM words
LEFT JOIN message ON message.number = words.rowid / 2 AND words.rowid % 2 = 1
JOIN session ON session.number = CASE words.rowid % 2 WHEN 1 THEN message.session ELSE words.rowid / 2 END
WHERE words MATCH ? AND rank MATCH ? AND (? IS NULL OR session.project = ?)
ORDER BY rank"""
SELECT_SNIPPET = (
    f"SELECT snippet(words, -1, ?, ?, '…', {SNIPPET_WORDS}) FROM words WHERE words MATCH ? AND rowid = ?"
)


def search_index(
    database: IndexDatabase, words: str, *, project: ProjectID | None = None, limit: int
) -> list[Hit]:
    """Return the best match of each session that contains all words, best first."""
    query = to_match_query(words)
    if not query or limit < 1:
        return []
    hits: list[Hit] = []
    for row in list(_list_best_rows(database, query, project, limit)):
        ((snippet,),) = database.rows(SELECT_SNIPPET, MATCH_START, MATCH_END, query, row[0]) or [("",)]
        hits.append(_to_hit(row, snippet or ""))
    return hits


def _list_best_rows(
    database: IndexDatabase, query: str, project: ProjectID | None, limit: int
) -> Iterator[IndexRow]:
    seen: set[int] = set()
    for row in database.iterate(SELECT_MATCHES, query, RANK_FUNCTION, project, project):
        if row[1] not in seen:
            seen.add(row[1])
            yield row
        if len(seen) == limit:
            return


def _to_hit(row: IndexRow, marked: str) -> Hit:
    _, _, document, message, created = row
    return to_hit(
        decode(document, SessionInfo), None if message is None else MessageID(message), created, marked
    )


# A message older than its session was copied by a fork, and its cost counts in the original session.
SELECT_USAGE = f"""SELECT session.number, session.project, message.created / {HOUR_MS}, provider, model, count(*), sum(input),
sum(output), sum(reasoning), sum(cache_read), sum(cache_write), sum(nano), sum(atto), min(priced),
min(counted)
FROM session JOIN message ON message.session = session.number
WHERE message.created >= session.created AND message.created >= ? AND (? IS NULL OR session.project = ?)
AND (? IS NULL OR session.id IN (SELECT value FROM json_each(?)))
GROUP BY session.number, 3, provider, model"""
SELECT_CALLS = """SELECT tool, sum(calls), sum(failed)
FROM call JOIN message ON message.number = call.message JOIN session ON session.number = message.session
WHERE message.created >= session.created AND message.created >= ? AND (? IS NULL OR session.project = ?)
AND (? IS NULL OR session.id IN (SELECT value FROM json_each(?)))
GROUP BY tool ORDER BY sum(calls) DESC, tool"""
SELECT_SESSIONS = """SELECT count(DISTINCT id), min(created), max(updated) FROM session
WHERE updated >= ? AND (? IS NULL OR project = ?) AND (? IS NULL OR id IN (SELECT value FROM json_each(?)))"""


def compute_figures(database: IndexDatabase, query: StatisticsQuery) -> Figures:
    """Return the figures for a query."""
    only = None if query.sessions is None else json.dumps(sorted(query.sessions))
    parameters = (to_integer(query.since), query.project, query.project, only, only)
    ((sessions, first, last),) = database.rows(SELECT_SESSIONS, *parameters)
    return build_figures(
        query,
        (UsageRow(*row) for row in database.rows(SELECT_USAGE, *parameters)),
        SessionRange(sessions, first, last),
        (
            ToolUse(name=tool, calls=calls, failed=failed)
            for tool, calls, failed in database.rows(SELECT_CALLS, *parameters)
        ),
    )
