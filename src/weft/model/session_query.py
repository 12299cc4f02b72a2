"""Queries for sessions: what they select, in which order, and from where a page continues (pure)."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from weft.errors import InvalidInputError
from weft.model.ids import ProjectID, SessionID
from weft.model.session import SessionInfo, get_weft_data, is_archived, newest_sort_key
from weft.model.wire import Wire

Order = Literal["created", "updated"]
# Checked before a time is read: Python refuses to convert thousands of digits.
MAX_TIME_LENGTH: Final = 100


class SessionQuery(Wire, frozen=True, kw_only=True):
    """A filter for sessions. Fields that are not set match every session.

    `id_prefix` is the beginning of the id. The last update must be at `start` (ms) or later, and before `end`. `search` is a part
    of the title. A session must have all `tags`. `roots` leaves out child sessions, `parent_id` selects the children of one
    session. `archived` and `pinned` select only such sessions, or none of them. `order` is the time to sort by, newest first. A
    page begins `after` the cursor of a session (see `to_cursor`). With `pinned_first`, pinned sessions come before all others;
    such a list has no further pages.

    Without `project_id` a store lists the sessions of all projects, and an `Api` those of its own project unless `everywhere`
    is set.
    """

    id_prefix: str | None = None
    project_id: ProjectID | None = None
    roots: bool = False
    parent_id: SessionID | None = None
    start: int | None = None
    end: int | None = None
    search: str | None = None
    tags: tuple[str, ...] = ()
    directory: str | None = None
    archived: bool | None = None
    pinned: bool | None = None
    everywhere: bool = False
    order: Order = "created"
    pinned_first: bool = False
    after: str | None = None
    limit: int | None = None


ALL_SESSIONS = SessionQuery()


def last_updated_sort_key(session: SessionInfo) -> tuple[int, str]:
    """Return the sort key for last updated first. The id makes the order of ties stable."""
    return -session.time.updated, session.id


# How each order sorts sessions.
SORT_KEYS: Final[Mapping[Order, Callable[[SessionInfo], tuple[int, str]]]] = {
    "created": newest_sort_key,
    "updated": last_updated_sort_key,
}


class SessionCursor(NamedTuple):
    """A place in a list of sessions that is sorted newest first: the time of a session, then its id."""

    time: int
    id: str


def to_cursor(session: SessionInfo, order: Order) -> str:
    """Return the cursor of a session, from which a page continues. A session that is updated meanwhile moves to an earlier page."""
    return f"{_get_time(session, order)}.{session.id}"


def parse_cursor(cursor: str) -> SessionCursor:
    """Read a cursor. Raise `InvalidInputError` if it is not one."""
    time, dot, id = cursor.partition(".")
    is_time = time.removeprefix("-").isdecimal() and len(time) <= MAX_TIME_LENGTH
    if not dot or not is_time or not cursor.isascii() or "\0" in id:
        raise InvalidInputError(
            "cursor", f"{cursor[:80]!r} is not a cursor", hint="list from the beginning again"
        )
    return SessionCursor(int(time), id)


def find_cursor(query: SessionQuery) -> SessionCursor | None:
    """Return the cursor of a query, None if it has none. Raise `InvalidInputError` if it is not valid, or pinned sessions come first."""
    if query.after is not None and query.pinned_first:
        raise InvalidInputError(
            "cursor",
            "a list with pinned sessions first has no further pages",
            hint="list without pinned_first, or with a higher limit",
        )
    return None if query.after is None else parse_cursor(query.after)


def to_next_page(query: SessionQuery, page: Sequence[SessionInfo]) -> SessionQuery | None:
    """Return the query for the page after this one, None if this was the last."""
    if not page or query.limit is None or len(page) < query.limit:
        return None
    return replace(query, after=to_cursor(page[-1], query.order))


def select_sessions(sessions: Iterable[SessionInfo], query: SessionQuery) -> list[SessionInfo]:
    """Return the sessions that match a query, newest first."""
    cursor = find_cursor(query)
    found = [session for session in sessions if matches(session, query)]
    key = SORT_KEYS[query.order]
    found.sort(key=key)
    if cursor is not None:
        found = [session for session in found if key(session) > (-cursor.time, cursor.id)]
    if query.pinned_first:
        found.sort(key=lambda session: not get_weft_data(session).pinned)
    return found if query.limit is None else found[: query.limit]


def select_page(sessions: Sequence[SessionInfo], query: SessionQuery) -> list[SessionInfo]:
    """Like `select_sessions`, of sessions that are in the order of the query already. Those behind the page are not examined.

    The query must not have `pinned_first`, which is another order.
    """
    cursor, found = find_cursor(query), list[SessionInfo]()
    start = 0
    if cursor is not None:
        start = bisect_right(sessions, (-cursor.time, cursor.id), key=SORT_KEYS[query.order])
    for session in islice(sessions, start, None):
        if query.limit is not None and len(found) >= query.limit:
            break
        if matches(session, query):
            found.append(session)
    return found


def _get_time(session: SessionInfo, order: Order) -> int:
    return session.time.updated if order == "updated" else session.time.created


def matches(session: SessionInfo, query: SessionQuery) -> bool:
    """Return True if a session matches a query, on whichever page it would be."""
    return (
        (query.id_prefix is None or session.id.startswith(query.id_prefix))
        and query.project_id in (None, session.project_id)
        and not (query.roots and session.parent_id)
        and (query.parent_id is None or session.parent_id == query.parent_id)
        and (query.start is None or session.time.updated >= query.start)
        and (query.end is None or session.time.updated < query.end)
        and (query.search is None or query.search.casefold() in session.title.casefold())
        and (not query.tags or set(query.tags) <= set(get_weft_data(session).tags))
        and (query.directory is None or session.directory == query.directory)
        and (query.archived is None or query.archived == is_archived(session))
        and (query.pinned is None or query.pinned == get_weft_data(session).pinned)
    )
