"""HTTP routes for sessions."""

from math import isfinite

from msgspec import UNSET, Struct, UnsetType, field

from weft.errors import InvalidInputError
from weft.model.diff import FileDiff
from weft.model.ids import MessageID, SessionID
from weft.model.input import SessionInput
from weft.model.permission import Ruleset
from weft.model.session import AnyStatus, SessionChange, SessionInfo, Todo
from weft.model.session_query import SessionQuery
from weft.model.wire import Wire
from weft.server.route import DirectoryCall, route

SESSION = "/session/{sessionID}"


class SessionListQuery(Struct, frozen=True, kw_only=True):
    """Which sessions to list. A `directory` selects its project and, of that, only the sessions in the directory."""

    roots: str | None = None
    start: float | None = None
    search: str | None = None
    limit: int | None = None
    directory: str | None = None


class TimeChange(Wire, frozen=True, kw_only=True):
    archived: int | float | UnsetType = UNSET


class SessionUpdateInput(Wire, frozen=True, kw_only=True):
    title: str | None = None
    time: TimeChange | None = None
    permission: Ruleset | None = None


class ForkInput(Wire, frozen=True, kw_only=True):
    message_id: MessageID | None = None


class DiffQuery(Struct, frozen=True, kw_only=True):
    message: MessageID | None = field(default=None, name="messageID")


def read_session_id(call: DirectoryCall) -> SessionID:
    return SessionID(call.path_params["sessionID"])


async def list_sessions(call: DirectoryCall) -> list[SessionInfo]:
    """List the sessions of this project, newest first."""
    query: SessionListQuery = call.query
    if query.limit is not None and query.limit < 0:
        raise InvalidInputError("limit", "it is negative")
    if query.start is not None and not isfinite(query.start):
        raise InvalidInputError("start", "it is not a time")
    selection = SessionQuery(
        roots=query.roots is not None and query.roots != "false",
        start=None if query.start is None else int(query.start),
        search=query.search or None,
        directory=call.directory if query.directory else None,
        # OpenCode 1.1.34 checks the limit after adding a session: for a limit of zero it returns one.
        limit=None if query.limit is None else max(query.limit, 1),
    )
    return await call.api.list_sessions(selection)


async def create_session(call: DirectoryCall) -> SessionInfo:
    """Create a session."""
    return await call.api.create_session(call.body or SessionInput())


async def get_session(call: DirectoryCall) -> SessionInfo:
    """Return a session."""
    return await call.api.get_session(read_session_id(call))


async def remove_session(call: DirectoryCall) -> bool:
    """Move a session and its child sessions to the trash."""
    await call.api.remove_session(read_session_id(call))
    return True


async def update_session(call: DirectoryCall) -> SessionInfo:
    """Rename or archive a session."""
    change: SessionUpdateInput = call.body
    archived = UNSET if change.time is None else change.time.archived
    return await call.api.update_session(
        read_session_id(call),
        SessionChange(
            title=change.title,
            archived=None if archived is UNSET else archived,
            permission=change.permission,
        ),
    )


async def list_children(call: DirectoryCall) -> list[SessionInfo]:
    """List the child sessions of a session."""
    return await call.api.list_children(read_session_id(call))


async def list_todos(call: DirectoryCall) -> list[Todo]:
    """Return the todo list of a session."""
    return await call.api.list_todos(read_session_id(call))


async def list_diff(call: DirectoryCall) -> list[FileDiff]:
    """Return the changes that a session made to files."""
    query: DiffQuery = call.query
    return await call.api.list_diff(read_session_id(call), message=query.message)


async def fork_session(call: DirectoryCall) -> SessionInfo:
    """Start a session with the history of another, up to a message and without it."""
    at = call.body.message_id if call.body is not None else None
    return await call.api.fork_session(read_session_id(call), at=at)


async def share_session(call: DirectoryCall) -> SessionInfo:
    """Share a session."""
    return await call.api.sharing.share(read_session_id(call))


async def unshare_session(call: DirectoryCall) -> SessionInfo:
    """Stop sharing a session."""
    return await call.api.sharing.unshare(read_session_id(call))


async def list_status(call: DirectoryCall) -> dict[SessionID, AnyStatus]:
    """Return the status of the sessions that are not idle."""
    statuses = await call.server.list_other_status(call.directory) | await call.api.list_status()
    for session, api in call.server.list_relayed(call.directory).items():
        statuses |= {id: status for id, status in (await api.list_status()).items() if id == session}
    return statuses


ROUTES = (
    route("GET", "/session", "session.list", list_sessions, query=SessionListQuery),
    route("POST", "/session", "session.create", create_session, takes=SessionInput, optional=True),
    route("GET", "/session/status", "session.status", list_status),
    route("GET", SESSION, "session.get", get_session),
    route("DELETE", SESSION, "session.delete", remove_session),
    route("PATCH", SESSION, "session.update", update_session, takes=SessionUpdateInput),
    route("GET", f"{SESSION}/children", "session.children", list_children),
    route("GET", f"{SESSION}/todo", "session.todo", list_todos),
    route(
        "GET", f"{SESSION}/diff", "session.diff", list_diff, query=DiffQuery, session_directory="preferred"
    ),
    route("POST", f"{SESSION}/share", "session.share", share_session, session_directory="required"),
    route("DELETE", f"{SESSION}/share", "session.unshare", unshare_session),
    route(
        "POST",
        f"{SESSION}/fork",
        "session.fork",
        fork_session,
        takes=ForkInput,
        optional=True,
        session_directory="required",
    ),
)
