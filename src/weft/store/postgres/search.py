"""The search index of a Postgres store: update it from marks, search it, and compute figures.

`apply` only leaves a mark at each message that it changes. The index is updated from the marks later, in pages, so that an
append never waits for it.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from weft.errors import StoreError
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import MessageWithParts
from weft.model.search import Figures, Hit, ToolUse
from weft.model.session import SessionInfo
from weft.store.postgres.connection import is_read_only
from weft.store.postgres.documents import PostgresDocuments
from weft.store.postgres.words import WeightedText, make_snippet, parse_query, to_tsquery, to_vector
from weft.store.rows import to_ascii, to_integer
from weft.store.search import IndexEntry, IndexProgress, clean_text, to_entry, to_hit, to_nano_and_atto
from weft.store.statistics import HOUR_MS, SessionRange, StatisticsQuery, UsageRow, build_figures

PAGE_MARKS = 100
MAX_HITS = 10_000
TITLE, SAID, DONE = "A", "B", "C"
# The weights of D, C, B and A. A match in a title counts most, and one in the conversation more than one in a tool's output.
WEIGHTS = "'{0.1, 0.17, 0.33, 1.0}'"
# Divide the rank by the logarithm of the length, so that long texts do not win by their length.
BY_LENGTH = 1

SELECT_MARKS = """SELECT session, message, revision FROM {schema}.dirty
WHERE (session, message) > ($1, $2) AND ($3::text[] IS NULL OR session = ANY ($3)) ORDER BY session, message LIMIT $4"""
COUNT_MARKS = "SELECT count(*) FROM {schema}.dirty"
SELECT_TITLES = "SELECT id, document FROM {schema}.session WHERE id = ANY ($1)"
PUT_ENTRIES = f"SELECT {{schema}}.put_entries({', '.join(f'${number}' for number in range(1, 24))})"

SELECT_HITS = f"""SELECT best.session, best.message, best.created, session.document
FROM (
    SELECT DISTINCT ON (entry.session) entry.session, entry.message, entry.created,
        ts_rank({WEIGHTS}, entry.words, $1::text::tsquery, {BY_LENGTH}) AS rank
    FROM {{schema}}.entry JOIN {{schema}}.session ON session.id = entry.session
    WHERE entry.words @@ $1::text::tsquery AND ($2::text IS NULL OR session.project = $2)
    ORDER BY entry.session, rank DESC, entry.created DESC, entry.message
) AS best JOIN {{schema}}.session ON session.id = best.session
ORDER BY best.rank DESC, session.updated DESC, session.id LIMIT $3"""

# A message older than its session was copied by a fork, and its cost counts in the original session.
_COUNTED = """FROM {schema}.session JOIN {schema}.entry ON entry.session = session.id AND entry.message <> ''
%s WHERE entry.created >= session.created AND entry.created >= $1 AND ($2::text IS NULL OR session.project = $2)
AND ($3::text[] IS NULL OR session.id = ANY ($3))"""
SELECT_USAGE = f"""SELECT session.id, session.project, entry.created / {HOUR_MS}, provider, model, count(*), sum(input),
sum(output), sum(reasoning), sum(cache_read), sum(cache_write), sum(nano), sum(atto), bool_and(priced), bool_and(counted)
{_COUNTED % ""} GROUP BY session.id, 3, provider, model"""
SELECT_CALLS = f"""SELECT tool, sum(calls), sum(failed)
{_COUNTED % "JOIN {schema}.call USING (session, message)"} GROUP BY tool ORDER BY sum(calls) DESC, tool COLLATE "C\""""
SELECT_RANGE = """SELECT count(*), min(created), max(updated) FROM {schema}.session
WHERE updated >= $1 AND ($2::text IS NULL OR project = $2) AND ($3::text[] IS NULL OR id = ANY ($3))"""


def ignore_progress(done: int, total: int) -> None:
    """Report nothing."""
    del done, total


class _Mark(NamedTuple):
    """A message that changed since it was indexed; a title if `message` is empty."""

    session: str
    message: str
    revision: int


class SearchIndex:
    """Searches the sessions of one store."""

    def __init__(self, documents: PostgresDocuments) -> None:
        self._documents = documents
        self._database = documents.database

    async def update(
        self, sessions: Collection[SessionID] | None = None, progress: IndexProgress = ignore_progress
    ) -> None:
        """Index what changed in these sessions, or in all. What changes meanwhile is indexed at the next update."""
        keys = None if sessions is None else [to_ascii(id) for id in sessions]
        done, total = 0, 0
        session, message = "", ""
        while True:
            rows = await self._database.fetch(SELECT_MARKS, session, message, keys, PAGE_MARKS)
            marks = [_Mark(*row) for row in rows]
            if not marks:
                return
            if len(marks) == PAGE_MARKS and not total:
                total = await self._database.fetch_value(COUNT_MARKS)
            await self._index(marks)
            session, message, _ = marks[-1]
            done += len(marks)
            progress(done, max(done, total))

    async def _update_if_possible(self, progress: IndexProgress) -> None:
        """Index what changed, unless the database is read-only: then what was indexed before can still be found."""
        try:
            await self.update(progress=progress)
        except StoreError as error:
            if not is_read_only(error):
                raise

    async def _index(self, marks: Sequence[_Mark]) -> None:
        # The marks were read before the messages. Whoever changes a message now leaves another revision in its mark, and the
        # database then keeps the mark and drops what we found.
        messages = await self._documents.find_messages(
            (mark.session, mark.message) for mark in marks if mark.message
        )
        titled = [mark.session for mark in marks if not mark.message]
        titles = await self._database.fetch(SELECT_TITLES, titled) if titled else []
        sessions = {id: self._documents.decode(f"session/{id}", raw, SessionInfo) for id, raw in titles}
        await self._database.fetch(
            PUT_ENTRIES, *await asyncio.to_thread(_to_arguments, marks, messages, sessions)
        )

    async def search(
        self,
        words: str,
        *,
        limit: int,
        project: ProjectID | None = None,
        progress: IndexProgress = ignore_progress,
    ) -> list[Hit]:
        """Return the best match of each session that contains all words, best first."""
        queries = parse_query(words)
        if not queries or limit < 1:
            return []
        await self._update_if_possible(progress)
        rows = await self._database.fetch(
            SELECT_HITS,
            to_tsquery(queries),
            None if project is None else to_ascii(project),
            min(limit, MAX_HITS),
        )
        messages = await self._documents.find_messages((row[0], row[1]) for row in rows if row[1])
        texts = {(each.info.session_id, each.info.id): _list_texts(to_entry(each)) for each in messages}
        hits = []
        for id, message, created, raw in rows:
            session = self._documents.decode(f"session/{id}", raw, SessionInfo)
            if session is None or (message and (id, message) not in texts):
                continue  # removed or damaged meanwhile
            snippet = make_snippet(texts[id, message] if message else [clean_text(session.title)], queries)
            hits.append(
                to_hit(
                    session, MessageID(message) if message else None, created if message else None, snippet
                )
            )
        return hits

    async def compute_figures(
        self, query: StatisticsQuery, progress: IndexProgress = ignore_progress
    ) -> Figures:
        """Return the figures for a query."""
        await self._update_if_possible(progress)
        values = (
            to_integer(query.since),
            None if query.project is None else to_ascii(query.project),
            None if query.sessions is None else [to_ascii(id) for id in query.sessions],
        )
        ((sessions, first, last),) = await self._database.fetch(SELECT_RANGE, *values)
        usage = await self._database.fetch(SELECT_USAGE, *values)
        calls = await self._database.fetch(SELECT_CALLS, *values)
        return build_figures(
            query,
            [UsageRow(*row[:5], *(int(number) for number in row[5:13]), *row[13:]) for row in usage],
            SessionRange(sessions, first, last),
            [ToolUse(name=tool, calls=int(count), failed=int(failed)) for tool, count, failed in calls],
        )


def _list_texts(entry: IndexEntry) -> list[str]:
    return [entry.said, entry.done]


def _to_arguments(
    marks: Sequence[_Mark], messages: Iterable[MessageWithParts], sessions: dict[str, SessionInfo | None]
) -> list[Sequence[Any]]:
    """Return the arguments of the function `put_entries` (see schema/0002_functions.sql)."""
    entries: list[tuple[Any, ...]] = []
    calls: list[tuple[Any, ...]] = []
    for message in messages:
        session, entry = message.info.session_id, to_entry(message)
        vector = to_vector([WeightedText(SAID, entry.said), WeightedText(DONE, entry.done)])
        entries.append(_to_row(session, entry, vector))
        calls += ((session, entry.id, tool, count, failed) for tool, (count, failed) in entry.calls.items())
    for id, info in sessions.items():
        if info is not None:
            vector = to_vector([WeightedText(TITLE, clean_text(info.title))])
            entries.append((id, "", to_integer(info.time.created), "", "", *[0] * 7, True, True, vector))
    return [
        *zip(*marks, strict=True),
        *(zip(*entries, strict=True) if entries else [()] * 15),
        *(zip(*calls, strict=True) if calls else [()] * 5),
    ]


def _to_row(session: str, entry: IndexEntry, vector: str) -> tuple[Any, ...]:
    spent = entry.spent
    tokens = (spent.input, spent.output, spent.reasoning, spent.cache_read, spent.cache_write)
    nano, atto = to_nano_and_atto(spent.cost)
    return (
        session,
        entry.id,
        to_integer(entry.created),
        clean_text(entry.provider),
        clean_text(entry.model),
        *(to_integer(count) for count in tokens),
        nano,
        atto,
        spent.priced,
        spent.counted,
        vector,
    )
