"""Sessions at rest: create, find, list, touch."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.event import SessionCreated
from weft.model.ids import Mint, ProjectID, SessionID
from weft.model.input import SessionInput
from weft.model.place import Place
from weft.model.session import Session, SessionTime, default_title
from weft.model.slug import make_slug
from weft.store.contract import Store
from weft.version import VERSION


class Maker(Struct, frozen=True, kw_only=True):
    """What it takes to make a session: where, when, and names for it."""

    journal: Journal
    clock: Clock
    mint: Mint
    random: Callable[[int], bytes]
    place: Place


async def create(maker: Maker, input: SessionInput) -> Session:
    """A new session, on disk before anyone learns its id."""
    now = maker.clock.now()
    session = Session(
        id=maker.mint.session(),
        slug=make_slug(maker.random),
        version=VERSION,
        project_id=maker.place.project.id,
        directory=maker.place.directory,
        parent_id=input.parent_id,
        title=input.title or default_title(now, child=input.parent_id is not None),
        permission=input.permission,
        time=SessionTime(created=now, updated=now),
    )
    await maker.journal.commit(SessionCreated(info=session))
    return session


async def list_newest(
    store: Store, project: ProjectID, *, roots: bool = False, limit: int | None = None
) -> list[Session]:
    sessions = await store.list_sessions(project)
    kept = [session for session in reversed(sessions) if not (roots and session.parent_id)]
    return kept if limit is None else kept[:limit]


async def touch(journal: Journal, session: SessionID, now: int) -> Session:
    """Somebody worked on it just now."""
    return await journal.edit(
        session, lambda it: replace(it, time=replace(it.time, updated=max(now, it.time.updated)))
    )
