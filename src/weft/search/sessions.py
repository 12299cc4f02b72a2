"""Search sessions and compute their statistics, over any store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import localtime

from weft.host.now import day_of
from weft.model.ids import ProjectID, SessionID
from weft.model.message import AnyMessage
from weft.model.search import Figures, Hit
from weft.model.session import Session
from weft.model.spending import Spending
from weft.search.database import IndexDatabase
from weft.search.index import UNKNOWN_STAMP, StampedSession, replace_session, to_entry
from weft.search.library import SessionLibrary, open_in_memory
from weft.search.query import search_index
from weft.search.statistics import DAY_MS, StatisticsQuery, compute_figures
from weft.session.totals import total_spending
from weft.session.tree import list_descendants
from weft.store.contract import Store


async def search_sessions(
    store: Store, library: SessionLibrary | None, words: str, *, limit: int, project: ProjectID | None
) -> list[Hit]:
    """Return the best match of each session, through the index of the library if there is one."""
    if library is not None:
        return await asyncio.to_thread(library.search, words, limit=limit, project=project)
    async with _build_index(store) as database:
        return search_index(database, words, limit=limit, project=project)


async def get_figures(store: Store, library: SessionLibrary | None, query: StatisticsQuery) -> Figures:
    """Return the statistics of sessions, through the index of the library if there is one."""
    if library is not None:
        return await asyncio.to_thread(library.figures, query)
    async with _build_index(store) as database:
        return compute_figures(database, query)


async def get_spending(store: Store, session: Session) -> Spending:
    """Compute the spending of a session from the ledgers and the messages that they do not include yet."""
    descendants = list_descendants(await store.list_sessions(session.project_id), session.id)
    messages: dict[SessionID, list[AnyMessage]] = {}
    for each in (session, *descendants):
        messages[each.id] = [message.info for message in await store.list_messages(each.id)]
    return total_spending(session, descendants, lambda each: messages[each.id])


def to_statistics_query(now: int, *, days: int | None, project: ProjectID | None) -> StatisticsQuery:
    """Build the query for the last `days` days; 0 means since midnight, None all time."""
    if days is None:
        return StatisticsQuery(day_of=day_of, project=project)
    since = _find_midnight(now) if days == 0 else now - days * DAY_MS
    return StatisticsQuery(day_of=day_of, project=project, since=since, days=max(days, 1))


def _find_midnight(now: int) -> int:
    today = localtime(now / 1000)
    return now - ((today.tm_hour * 60 + today.tm_min) * 60 + today.tm_sec) * 1000 - now % 1000


@asynccontextmanager
async def _build_index(store: Store) -> AsyncIterator[IndexDatabase]:
    """Build an index in memory, for a store without an index file. Such stores hold few sessions."""
    with open_in_memory("") as database:
        for session in await store.list_sessions():
            messages = await store.list_messages(session.id)
            replace_session(
                database, StampedSession(session, UNKNOWN_STAMP, [to_entry(message) for message in messages])
            )
        yield database
