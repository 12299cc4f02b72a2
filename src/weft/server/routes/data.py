"""Sessions as data over HTTP: queries, trajectories, and who wrote which line of a file."""

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from weft.model.data import MAX_SECONDS, ContextReport, FileBlame, FileLog, QueryInput, QueryResult
from weft.model.proof import SessionProof
from weft.server.route import DirectoryCall, route
from weft.server.routes.sessions import read_session_id

MAX_SERVED_ROWS = 100_000


class BlameQuery(Struct, frozen=True, kw_only=True):
    """A file, and the first and last of its lines."""

    path: str
    first: Annotated[int, Meta(ge=1)] | None = None
    last: Annotated[int, Meta(ge=1)] | None = None


class FileLogQuery(Struct, frozen=True, kw_only=True):
    """A file."""

    path: str


async def run_sql(call: DirectoryCall) -> QueryResult:
    """Run one SQL statement that only reads, over the sessions of this project or of all."""
    query: QueryInput = call.body
    limits = {"limit": min(query.limit, MAX_SERVED_ROWS), "seconds": min(query.seconds, MAX_SECONDS)}
    return await call.api.data.query(replace(query, **limits))


async def get_proof(call: DirectoryCall) -> SessionProof:
    """Compare a session with the chain of what was written to it: what was changed, removed or added since."""
    return await call.api.data.verify(read_session_id(call))


async def get_trajectory(call: DirectoryCall) -> dict[str, object]:
    """Return a session and its child sessions as a trajectory in the format ATIF."""
    return await call.api.data.get_trajectory(read_session_id(call))


async def get_context(call: DirectoryCall) -> ContextReport:
    """Return what the next request of a session would send, by part and with about how many tokens each has."""
    return await call.api.data.get_context(read_session_id(call))


async def get_blame(call: DirectoryCall) -> FileBlame:
    """Return the lines of a file, each with the session, step and prompt that wrote it."""
    query: BlameQuery = call.query
    lines = None if query.first is None else (query.first, query.last or query.first)
    return await call.api.data.blame(query.path, lines=lines)


async def get_file_log(call: DirectoryCall) -> FileLog:
    """List the changes of a file by sessions, newest first."""
    query: FileLogQuery = call.query
    return await call.api.data.get_file_log(query.path)


ROUTES = (
    route("POST", "/weft/sql", "weft.sql", run_sql, takes=QueryInput),
    route("GET", "/weft/session/{sessionID}/proof", "weft.session.proof", get_proof, returns=SessionProof),
    route(
        "GET", "/weft/session/{sessionID}/atif", "weft.session.atif", get_trajectory, returns=dict[str, Any]
    ),
    route(
        "GET",
        "/weft/session/{sessionID}/context",
        "weft.session.context",
        get_context,
        session_directory="preferred",
    ),
)
# They show what is in files.
FILE_ROUTES = (
    route("GET", "/weft/blame", "weft.blame", get_blame, query=BlameQuery),
    route("GET", "/weft/file-log", "weft.file.log", get_file_log, query=FileLogQuery),
)
