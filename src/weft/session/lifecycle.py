"""Sessions at rest: how one is made, which there are, and that one is in use."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import InvalidInputError
from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.ids import Mint, ProjectID, SessionID
from weft.model.input import SessionInput
from weft.model.project import Place
from weft.model.session import Session, SessionQuery, SessionTime, default_title
from weft.model.slug import make_slug
from weft.session.child import child_own, child_rules
from weft.session.select import select
from weft.store.contract import Store
from weft.version import VERSION

Welcome = Callable[[Session], None]


def unnoticed(_: Session) -> None:
    """For where nobody waits for new sessions."""


class Maker(Struct, frozen=True, kw_only=True):
    """What it takes to make a session: where, when, and names for it."""

    journal: Journal
    clock: Clock
    mint: Mint
    random: Callable[[int], bytes]
    place: Place


async def create(
    maker: Maker,
    input: SessionInput,
    *,
    parent: Session | None = None,
    id: SessionID | None = None,
    directory: str | None = None,
) -> Session:
    """A new session, on disk before anyone learns its id. A child shares its parent's project, and none of its words."""
    now = maker.clock.now()
    session = Session(
        id=id or maker.mint.session(),
        slug=make_slug(maker.random),
        version=VERSION,
        project_id=maker.place.project.id,
        directory=maker.place.directory if directory is None else _checked(directory),
        parent_id=input.parent_id,
        title=input.title or default_title(now, child=input.parent_id is not None),
        permission=input.permission if parent is None else child_rules(input.permission, parent),
        time=SessionTime(created=now, updated=now),
        weft=None if parent is None else child_own(parent),
    )
    await maker.journal.begin(session)
    return session


async def list_sessions(store: Store, project: ProjectID, query: SessionQuery) -> list[Session]:
    """Those that are asked for, newest first."""
    return select(await store.list_sessions(None if query.everywhere else project), query)


async def touch(journal: Journal, session: SessionID, now: int) -> Session:
    """Somebody worked on it just now."""
    return await journal.edit(
        session, lambda it: replace(it, time=replace(it.time, updated=max(now, it.time.updated)))
    )


def _checked(directory: str) -> str:
    if not directory.startswith("/") or "\0" in directory:
        raise InvalidInputError("directory", f"{directory[:80]!r} is no absolute path")
    return directory
