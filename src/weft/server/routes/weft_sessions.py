"""weft's own HTTP routes for sessions: listing, searching, statistics, export, import, and taking over those of other servers."""

import os
from typing import Annotated

from msgspec import Meta, Struct, field

from weft.errors import OutsideError
from weft.model.ids import ProjectID, SessionID
from weft.model.input import SessionInput
from weft.model.move import MoveOffer, MovePiece, MoveProgress, MoveResult
from weft.model.permission import Ruleset
from weft.model.project import is_within
from weft.model.search import Figures, Hit
from weft.model.session import SessionChange, SessionInfo, SessionTree, TrashBundle
from weft.model.session_query import Order, SessionQuery
from weft.model.spending import Spending
from weft.model.transfer import ImportResult, SessionExport
from weft.model.wire import Wire
from weft.server.route import DirectoryCall, route
from weft.server.routes.sessions import read_session_id

SESSIONS = "/weft/session"
SESSION = "/weft/session/{sessionID}"
MAX_LISTED = 100_000


class WeftSessionListQuery(Struct, frozen=True, kw_only=True):
    """Which sessions to list; `at` selects those of one directory, `tag` those that have all of the tags, separated by commas.

    A list continues `after` a cursor: the time that it is sorted by, a dot, and the id of the last session that was listed.
    """

    id_prefix: str | None = field(default=None, name="idPrefix")
    roots: bool = False
    parent: SessionID | None = field(default=None, name="parentID")
    start: Annotated[int, Meta(ge=0)] | None = None
    end: Annotated[int, Meta(ge=0)] | None = None
    search: str | None = None
    tag: str | None = None
    at: str | None = None
    archived: bool | None = None
    pinned: bool | None = None
    project: ProjectID | None = field(default=None, name="projectID")
    everywhere: bool = False
    order: Order = "created"
    pinned_first: bool = field(default=False, name="pinnedFirst")
    after: str | None = None
    limit: Annotated[int, Meta(ge=0, le=MAX_LISTED)] | None = None


class NextInput(Wire, frozen=True, kw_only=True):
    """A session to create, with an id if the caller chooses one, and a directory or a git workspace."""

    id: SessionID | None = None
    directory: str | None = None
    parent_id: SessionID | None = None
    title: str | None = None
    permission: Ruleset | None = None
    workspace: str | None = None


class ChangeInput(Wire, frozen=True, kw_only=True):
    """The change of a session. With `expected`, it is made only if the session is still equal to that."""

    change: SessionChange
    expected: SessionInfo | None = None


class RemoveQuery(Struct, frozen=True, kw_only=True):
    """Without `trash` the session is removed for good."""

    trash: bool = True


async def list_sessions(call: DirectoryCall) -> list[SessionInfo]:
    """List sessions by any of their properties, newest first."""
    query: WeftSessionListQuery = call.query
    selection = SessionQuery(
        id_prefix=query.id_prefix,
        roots=query.roots,
        parent_id=query.parent or None,
        start=query.start,
        end=query.end,
        search=query.search or None,
        tags=tuple(filter(None, (query.tag or "").split(","))),
        directory=query.at or None,
        archived=query.archived,
        pinned=query.pinned,
        project_id=query.project or None,
        everywhere=query.everywhere,
        order=query.order,
        pinned_first=query.pinned_first,
        after=query.after or None,
        limit=query.limit,
    )
    return await call.api.list_sessions(selection)


async def create_next(call: DirectoryCall) -> SessionInfo:
    """Create a session, with an id if the caller chooses one, in a directory of this project or in a git workspace."""
    body: NextInput = call.body or NextInput()
    input = SessionInput(
        parent_id=body.parent_id, title=body.title, permission=body.permission, workspace=body.workspace
    )
    directory = None if body.directory is None else await _resolve_in_project(call, body.directory)
    return await call.api.create_next(input, id=body.id, directory=directory)


async def _resolve_in_project(call: DirectoryCall, path: str) -> str:
    paths = await call.api.workspace.get_paths()
    # Without version control the worktree is the root directory, which contains everything.
    top = call.directory if paths.worktree == os.sep else paths.worktree
    return resolve_within(top, os.path.join(call.directory, path))


def resolve_within(top: str, path: str) -> str:
    """Return the real path of a directory. Raise `OutsideError` if it is not below `top`."""
    try:
        top, real = os.path.realpath(top), os.path.realpath(path)
    except (OSError, ValueError):  # a NUL byte or half a surrogate pair
        raise OutsideError(path) from None
    if not is_within(real, top):
        raise OutsideError(path)
    return real


async def get_tree(call: DirectoryCall) -> SessionTree:
    """Return a session with all its descendants."""
    return await call.api.get_tree(read_session_id(call))


async def update_session(call: DirectoryCall) -> SessionInfo:
    """Rename, archive, pin, tag or annotate a session in one step; with `expected`, only if it has not changed."""
    input: ChangeInput = call.body
    return await call.api.update_session(read_session_id(call), input.change, expected=input.expected)


async def touch_session(call: DirectoryCall) -> SessionInfo:
    """Mark a session as updated now."""
    return await call.api.touch_session(read_session_id(call))


async def remove_session(call: DirectoryCall) -> list[SessionInfo]:
    """Remove a session and its descendants, to the trash or for good; return what was removed."""
    query: RemoveQuery = call.query
    return await call.api.remove_session(read_session_id(call), trash=query.trash)


async def restore_session(call: DirectoryCall) -> list[SessionInfo]:
    """Restore a session from the trash, with what was removed with it."""
    return await call.api.restore_session(read_session_id(call))


async def list_trash(call: DirectoryCall) -> list[TrashBundle]:
    """List the trash."""
    return await call.api.list_trash()


SESSIONS_ROUTES = (
    route("GET", SESSIONS, "weft.session.list", list_sessions, query=WeftSessionListQuery),
    route("POST", SESSIONS, "weft.session.create", create_next, takes=NextInput, optional=True),
    route("PATCH", SESSION, "weft.session.update", update_session, takes=ChangeInput),
    route("DELETE", SESSION, "weft.session.remove", remove_session, query=RemoveQuery),
    route("GET", f"{SESSION}/tree", "weft.session.tree", get_tree),
    route("POST", f"{SESSION}/touch", "weft.session.touch", touch_session),
    route("POST", f"{SESSION}/restore", "weft.session.restore", restore_session),
    route("GET", "/weft/trash", "weft.trash.list", list_trash),
)


MAX_SEARCH_LENGTH = 10_000
MAX_HITS = 1000
MAX_DAYS = 36_500


class SearchQuery(Struct, frozen=True, kw_only=True):
    """A search for words. A text that is too long is cut off."""

    words: str
    limit: Annotated[int, Meta(ge=1, le=MAX_HITS)] = 20
    everywhere: bool = False


class FiguresQuery(Struct, frozen=True, kw_only=True):
    """The last `days` days (0 is today), of one project."""

    days: Annotated[int, Meta(ge=0, le=MAX_DAYS)] | None = None
    project: str | None = None


class ImportQuery(Struct, frozen=True, kw_only=True):
    dry_run: bool = field(default=False, name="dryRun")


async def search(call: DirectoryCall) -> list[Hit]:
    """Find sessions that contain every word, best match first."""
    query: SearchQuery = call.query
    return await call.api.search(
        query.words[:MAX_SEARCH_LENGTH], limit=query.limit, everywhere=query.everywhere
    )


async def get_figures(call: DirectoryCall) -> Figures:
    """Return statistics: spending by day, model and project, and use of tools."""
    query: FiguresQuery = call.query
    project = ProjectID(query.project) if query.project else None
    return await call.api.get_figures(days=query.days, project=project)


async def get_spending(call: DirectoryCall) -> Spending:
    """Return what a session spent, alone and with its descendants."""
    return await call.api.get_spending(read_session_id(call))


async def export_session(call: DirectoryCall) -> SessionExport:
    """Return a whole session, to import it elsewhere."""
    return await call.api.export_session(read_session_id(call))


async def import_session(call: DirectoryCall) -> ImportResult:
    """Import a whole session or nothing; with `dryRun`, only report the result."""
    query: ImportQuery = call.query
    return await call.api.import_session(call.body, dry_run=query.dry_run)


SEARCH_ROUTES = (
    route("GET", "/weft/search", "weft.search", search, query=SearchQuery),
    route("GET", "/weft/figures", "weft.figures", get_figures, query=FiguresQuery),
    route("GET", f"{SESSION}/spending", "weft.session.spending", get_spending),
    route("GET", f"{SESSION}/export", "weft.session.export", export_session),
    route(
        "POST", "/weft/import", "weft.session.import", import_session, takes=SessionExport, query=ImportQuery
    ),
)


# --- moves ---

MOVE = "/weft/move"
ONE_MOVE = f"{MOVE}/{{moveID}}"


class CancelQuery(Struct, frozen=True, kw_only=True):
    """The session that was to be moved."""

    session: SessionID


async def offer_move(call: DirectoryCall) -> MoveProgress:
    """Offer a session of another server; return how much of its bundle was received already."""
    return await call.api.moves.offer(call.body)


async def add_move_piece(call: DirectoryCall) -> MoveProgress:
    """Send a piece of the bundle, in order."""
    return await call.api.moves.add_piece(call.path_params["moveID"], call.body)


async def accept_move(call: DirectoryCall) -> MoveResult:
    """Store the sessions of the bundle and change the files of the checkout, all or nothing."""
    return await call.api.moves.accept(call.path_params["moveID"])


async def cancel_move(call: DirectoryCall) -> bool:
    """Remove what was received; return whether there was anything."""
    query: CancelQuery = call.query
    return await call.api.moves.cancel(call.path_params["moveID"], query.session)


MOVE_ROUTES = (
    route("POST", MOVE, "weft.move.offer", offer_move, takes=MoveOffer),
    route("PUT", f"{ONE_MOVE}/piece", "weft.move.piece", add_move_piece, takes=MovePiece),
    route("POST", f"{ONE_MOVE}/accept", "weft.move.accept", accept_move),
    route("DELETE", ONE_MOVE, "weft.move.cancel", cancel_move, query=CancelQuery),
)
