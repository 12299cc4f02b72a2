"""HTTP for sessions at rest."""

from math import isfinite

from msgspec import UNSET, Struct, UnsetType, field

from weft.errors import InvalidInputError
from weft.model.diff import FileDiff
from weft.model.ids import MessageID, SessionID
from weft.model.input import SessionInput
from weft.model.permission import Ruleset
from weft.model.session import AnyStatus, Session, SessionChange, SessionQuery, Todo
from weft.model.wire import Wire
from weft.server.route import Call, route

SESSION = "/session/{sessionID}"


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which sessions. `directory` chooses the project and, said in the address, only sessions of that directory."""

    roots: str | None = None
    start: float | None = None
    search: str | None = None
    limit: int | None = None
    directory: str | None = None


class TimeChange(Wire, frozen=True, kw_only=True):
    archived: int | float | UnsetType = UNSET


class Change(Wire, frozen=True, kw_only=True):
    title: str | None = None
    time: TimeChange | None = None
    permission: Ruleset | None = None


class ForkInput(Wire, frozen=True, kw_only=True):
    message_id: MessageID | None = None


class DiffQuery(Struct, frozen=True, kw_only=True):
    message: MessageID | None = field(default=None, name="messageID")


def session_in(call: Call) -> SessionID:
    return SessionID(call.names["sessionID"])


async def list_sessions(call: Call) -> list[Session]:
    """The sessions of this project, the newest first."""
    asked: ListQuery = call.query
    if asked.limit is not None and asked.limit < 0:
        raise InvalidInputError("limit", "it is negative")
    if asked.start is not None and not isfinite(asked.start):
        raise InvalidInputError("start", "it is not a time")
    query = SessionQuery(
        roots=asked.roots is not None and asked.roots != "false",
        start=None if asked.start is None else int(asked.start),
        search=asked.search or None,
        directory=call.directory if asked.directory else None,
        # OpenCode 1.1.34 counts after it has added a session: asked for none, it gives one.
        limit=None if asked.limit is None else max(asked.limit, 1),
    )
    return await call.api.list_sessions(query)


async def create_session(call: Call) -> Session:
    """Make a session."""
    return await call.api.create_session(call.body or SessionInput())


async def get_session(call: Call) -> Session:
    """One session."""
    return await call.api.get_session(session_in(call))


async def remove_session(call: Call) -> bool:
    """Remove a session and all below it, into the trash."""
    await call.api.remove_session(session_in(call))
    return True


async def update_session(call: Call) -> Session:
    """Rename or archive a session."""
    change: Change = call.body
    archived = UNSET if change.time is None else change.time.archived
    return await call.api.update_session(
        session_in(call),
        SessionChange(
            title=change.title,
            archived=None if archived is UNSET else archived,
            permission=change.permission,
        ),
    )


async def list_children(call: Call) -> list[Session]:
    """The sessions that one began."""
    return await call.api.list_children(session_in(call))


async def list_todos(call: Call) -> list[Todo]:
    """The todo list of a session."""
    return await call.api.list_todos(session_in(call))


async def list_diff(call: Call) -> list[FileDiff]:
    """What a session did to files."""
    asked: DiffQuery = call.query
    return await call.api.list_diff(session_in(call), message=asked.message)


async def fork_session(call: Call) -> Session:
    """Begin a session with another's history, up to a message and without it."""
    at = call.body.message_id if call.body is not None else None
    return await call.api.fork_session(session_in(call), at=at)


async def share_session(call: Call) -> Session:
    """Show a session to others."""
    return await call.api.sharing.share(session_in(call))


async def unshare_session(call: Call) -> Session:
    """Show a session to others no more."""
    return await call.api.sharing.unshare(session_in(call))


async def list_status(call: Call) -> dict[SessionID, AnyStatus]:
    """What the sessions that are not idle are doing."""
    found = await call.api.list_status()
    for session, api in call.premises.list_relayed(call.directory).items():
        found |= {id: status for id, status in (await api.list_status()).items() if id == session}
    return found


ROUTES = (
    route("GET", "/session", "session.list", list_sessions, query=ListQuery),
    route("POST", "/session", "session.create", create_session, takes=SessionInput, optional=True),
    route("GET", "/session/status", "session.status", list_status),
    route("GET", SESSION, "session.get", get_session),
    route("DELETE", SESSION, "session.delete", remove_session),
    route("PATCH", SESSION, "session.update", update_session, takes=Change),
    route("GET", f"{SESSION}/children", "session.children", list_children),
    route("GET", f"{SESSION}/todo", "session.todo", list_todos),
    route("GET", f"{SESSION}/diff", "session.diff", list_diff, query=DiffQuery, home="wants"),
    route("POST", f"{SESSION}/share", "session.share", share_session, home="needs"),
    route("DELETE", f"{SESSION}/share", "session.unshare", unshare_session),
    route(
        "POST", f"{SESSION}/fork", "session.fork", fork_session, takes=ForkInput, optional=True, home="needs"
    ),
)
