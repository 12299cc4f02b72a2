"""Find sessions and count what they spent, over any store."""

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
from weft.search.database import Database
from weft.search.index import UNSURE, Found, put_whole, to_entry
from weft.search.library import Library, in_memory
from weft.search.query import search as search_index
from weft.search.statistics import DAY_MS, Wanted, figures
from weft.session.totals import spending
from weft.session.tree import below
from weft.store.contract import Store


async def search(
    store: Store, library: Library | None, words: str, *, limit: int, project: ProjectID | None
) -> list[Hit]:
    if library is not None:
        return await asyncio.to_thread(library.search, words, limit=limit, project=project)
    async with _index_of(store) as database:
        return search_index(database, words, limit=limit, project=project)


async def get_figures(store: Store, library: Library | None, wanted: Wanted) -> Figures:
    if library is not None:
        return await asyncio.to_thread(library.figures, wanted)
    async with _index_of(store) as database:
        return figures(database, wanted)


async def get_spending(store: Store, session: Session) -> Spending:
    """From the ledgers, and the messages that these have not counted yet."""
    family = below(await store.list_sessions(session.project_id), session.id)
    messages: dict[SessionID, list[AnyMessage]] = {}
    for each in (session, *family):
        messages[each.id] = [message.info for message in await store.list_messages(each.id)]
    return spending(session, family, lambda each: messages[each.id])


def want(now: int, *, days: int | None, project: ProjectID | None) -> Wanted:
    """Figures of the last so many days, 0 being today since midnight; of all time if none are named."""
    if days is None:
        return Wanted(day_of=day_of, project=project)
    since = _midnight(now) if days == 0 else now - days * DAY_MS
    return Wanted(day_of=day_of, project=project, since=since, days=max(days, 1))


def _midnight(now: int) -> int:
    today = localtime(now / 1000)
    return now - ((today.tm_hour * 60 + today.tm_min) * 60 + today.tm_sec) * 1000 - now % 1000


@asynccontextmanager
async def _index_of(store: Store) -> AsyncIterator[Database]:
    """An index in memory of a store that has none: fine for few sessions, and such stores hold few."""
    with in_memory("") as database:
        for session in await store.list_sessions():
            messages = await store.list_messages(session.id)
            put_whole(database, Found(session, UNSURE, [to_entry(message) for message in messages]))
        yield database
