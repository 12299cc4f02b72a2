"""HTTP of our own for sessions at rest: finding, counting and moving them."""

import os
from typing import Annotated

from msgspec import Meta, Struct, field

from weft.errors import OutsideError
from weft.model.ids import ProjectID, SessionID
from weft.model.input import SessionInput
from weft.model.parcel import Parcel, Received
from weft.model.permission import Ruleset
from weft.model.search import Figures, Hit
from weft.model.session import Order, Session, SessionChange, SessionQuery, SessionTree, Trashed
from weft.model.spending import Spending
from weft.model.wire import Wire
from weft.server.route import Call, route
from weft.server.routes.sessions import session_in

SESSIONS = "/weft/session"
SESSION = "/weft/session/{sessionID}"
MOST_LISTED = 100_000


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which sessions; `at` are those of one directory. What is not said does not matter."""

    roots: bool = False
    start: Annotated[int, Meta(ge=0)] | None = None
    search: str | None = None
    tag: str | None = None
    at: str | None = None
    archived: bool | None = None
    everywhere: bool = False
    order: Order = "created"
    limit: Annotated[int, Meta(ge=0, le=MOST_LISTED)] | None = None


class NextInput(Wire, frozen=True, kw_only=True):
    """A session to be made, with the id and in the directory that were chosen for it."""

    id: SessionID | None = None
    directory: str | None = None
    parent_id: SessionID | None = None
    title: str | None = None
    permission: Ruleset | None = None


class ChangeInput(Wire, frozen=True, kw_only=True):
    """What is to be another; and what the session has to be like for that."""

    change: SessionChange
    expected: Session | None = None


class RemoveQuery(Struct, frozen=True, kw_only=True):
    """Without `trash` it is gone for good."""

    trash: bool = True


async def list_sessions(call: Call) -> list[Session]:
    """Sessions by anything they can be told apart by, the newest first."""
    asked: ListQuery = call.query
    query = SessionQuery(
        roots=asked.roots,
        start=asked.start,
        search=asked.search or None,
        tag=asked.tag or None,
        directory=asked.at or None,
        archived=asked.archived,
        everywhere=asked.everywhere,
        order=asked.order,
        limit=asked.limit,
    )
    return await call.api.list_sessions(query)


async def create_next(call: Call) -> Session:
    """Make a session under an id of the caller's own, in a directory of this project."""
    asked: NextInput = call.body or NextInput()
    input = SessionInput(parent_id=asked.parent_id, title=asked.title, permission=asked.permission)
    directory = None if asked.directory is None else await _within(call, asked.directory)
    return await call.api.create_next(input, id=asked.id, directory=directory)


async def _within(call: Call, given: str) -> str:
    place = await call.api.surroundings.get_whereabouts()
    # Where there is no version control the worktree is the root, which everything is below of.
    top = call.directory if place.worktree == os.sep else place.worktree
    return resolve_within(top, os.path.join(call.directory, given))


def resolve_within(top: str, given: str) -> str:
    """A directory by its real name. Raises `OutsideError` if that is not below the top."""
    try:
        top, found = os.path.realpath(top), os.path.realpath(given)
    except (OSError, ValueError):  # a NUL in it, or half a character
        raise OutsideError(given) from None
    if os.path.commonpath((top, found)) != top:
        raise OutsideError(given)
    return found


async def get_tree(call: Call) -> SessionTree:
    """A session and all that is below it."""
    return await call.api.get_tree(session_in(call))


async def update_session(call: Call) -> Session:
    """Rename, archive, pin, tag or annotate a session, in one step; only if it still is as `expected`, if that is said."""
    asked: ChangeInput = call.body
    return await call.api.update_session(session_in(call), asked.change, expected=asked.expected)


async def touch_session(call: Call) -> Session:
    """Say that a session was worked on just now."""
    return await call.api.touch_session(session_in(call))


async def remove_session(call: Call) -> list[Session]:
    """Remove a session and all below it, into the trash or for good; gives what is gone."""
    asked: RemoveQuery = call.query
    return await call.api.remove_session(session_in(call), trash=asked.trash)


async def restore_session(call: Call) -> list[Session]:
    """Bring back from the trash what went together."""
    return await call.api.restore_session(session_in(call))


async def list_trash(call: Call) -> list[Trashed]:
    """What is in the trash."""
    return await call.api.list_trash()


SESSIONS_ROUTES = (
    route("GET", SESSIONS, "weft.session.list", list_sessions, query=ListQuery),
    route("POST", SESSIONS, "weft.session.create", create_next, takes=NextInput, optional=True),
    route("PATCH", SESSION, "weft.session.update", update_session, takes=ChangeInput),
    route("DELETE", SESSION, "weft.session.remove", remove_session, query=RemoveQuery),
    route("GET", f"{SESSION}/tree", "weft.session.tree", get_tree),
    route("POST", f"{SESSION}/touch", "weft.session.touch", touch_session),
    route("POST", f"{SESSION}/restore", "weft.session.restore", restore_session),
    route("GET", "/weft/trash", "weft.trash.list", list_trash),
)


LONGEST_WORDS = 10_000
MOST_HITS = 1000
MOST_DAYS = 36_500


class SearchQuery(Struct, frozen=True, kw_only=True):
    """Whatever is typed is a search; of what is very long, the beginning."""

    words: str
    limit: Annotated[int, Meta(ge=1, le=MOST_HITS)] = 20
    everywhere: bool = False


class FiguresQuery(Struct, frozen=True, kw_only=True):
    """Of the last so many days, 0 being today; of one project."""

    days: Annotated[int, Meta(ge=0, le=MOST_DAYS)] | None = None
    project: str | None = None


class ImportQuery(Struct, frozen=True, kw_only=True):
    dry_run: bool = field(default=False, name="dryRun")


async def search(call: Call) -> list[Hit]:
    """Sessions in which every word is said, the best first."""
    asked: SearchQuery = call.query
    return await call.api.search(asked.words[:LONGEST_WORDS], limit=asked.limit, everywhere=asked.everywhere)


async def get_figures(call: Call) -> Figures:
    """Sessions in numbers: what was spent, by day, model and project; which tools were used."""
    asked: FiguresQuery = call.query
    project = ProjectID(asked.project) if asked.project else None
    return await call.api.get_figures(days=asked.days, project=project)


async def get_spending(call: Call) -> Spending:
    """What a session spent, itself and with all below it."""
    return await call.api.get_spending(session_in(call))


async def export_session(call: Call) -> Parcel:
    """A session whole, to be taken to another store."""
    return await call.api.export_session(session_in(call))


async def import_session(call: Call) -> Received:
    """Take a session in, whole or not at all; or only say what would become of it."""
    asked: ImportQuery = call.query
    return await call.api.import_session(call.body, dry_run=asked.dry_run)


FINDING_ROUTES = (
    route("GET", "/weft/search", "weft.search", search, query=SearchQuery),
    route("GET", "/weft/figures", "weft.figures", get_figures, query=FiguresQuery),
    route("GET", f"{SESSION}/spending", "weft.session.spending", get_spending),
    route("GET", f"{SESSION}/export", "weft.session.export", export_session),
    route("POST", "/weft/import", "weft.session.import", import_session, takes=Parcel, query=ImportQuery),
)
