"""Select: which of many sessions are asked for. Pure."""

from collections.abc import Iterable

from weft.model.session import Session, SessionQuery, is_archived, newest_first, own_of


def select(sessions: Iterable[Session], query: SessionQuery) -> list[Session]:
    """Those that fit, newest first."""
    found = [session for session in sessions if _fits(session, query)]
    found.sort(key=newest_first)
    if query.order == "updated":
        found.sort(key=lambda session: session.time.updated, reverse=True)
    return found if query.limit is None else found[: query.limit]


def _fits(session: Session, query: SessionQuery) -> bool:
    wanted = query
    return (
        not (wanted.roots and session.parent_id)
        and (wanted.start is None or session.time.updated >= wanted.start)
        and (wanted.search is None or wanted.search.casefold() in session.title.casefold())
        and (wanted.tag is None or wanted.tag in own_of(session).tags)
        and (wanted.directory is None or session.directory == wanted.directory)
        and (wanted.archived is None or wanted.archived == is_archived(session))
    )
