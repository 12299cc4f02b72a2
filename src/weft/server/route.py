"""Operations of the HTTP interface, as values: a `Route` is an operation with the function that runs it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, get_type_hints

from msgspec import Struct

from weft.api import Api
from weft.api.cluster import Cluster
from weft.api.tokens import TokenAdministration
from weft.model.ids import SessionID
from weft.model.session import AnyStatus
from weft.page.view import BlockCache
from weft.server.state import IdempotencyKeys, Tickets, TuiControl

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Media = Literal[
    "application/json",
    "application/json; charset=utf-8",
    "text/html",
    "text/plain",
    "text/event-stream",
    "application/octet-stream",
]


class ServerContext(Protocol):
    """What a route may use of the server. `HttpServer` documents each method."""

    @property
    def control(self) -> TuiControl: ...

    @property
    def idempotency_keys(self) -> IdempotencyKeys: ...

    @property
    def tickets(self) -> Tickets: ...

    @property
    def blocks(self) -> BlockCache: ...

    @property
    def default_directory(self) -> str: ...

    @property
    def shutting_down(self) -> bool: ...

    @property
    def tokens(self) -> TokenAdministration | None: ...

    @property
    def shows_files(self) -> bool: ...

    @property
    def document(self) -> dict[str, Any]: ...

    async def get_api(self, directory: str) -> Api: ...

    async def find_runner(self, session: SessionID) -> Api | None: ...

    @property
    def cluster(self) -> Cluster | None: ...

    async def list_other_status(self, directory: str) -> dict[SessionID, AnyStatus]: ...
    def list_apis(self) -> list[Api]: ...

    def list_relayed(self, directory: str) -> dict[SessionID, Api]: ...

    def resolve(self, path: str) -> str: ...

    async def is_busy(self, directory: str) -> bool: ...

    async def dispose(self, directory: str) -> bool: ...

    async def dispose_all(self) -> None: ...

    def note(self, line: str) -> None: ...


class ServerCall(Struct, frozen=True, kw_only=True):
    """A call of a route about the server itself. No directory is opened for it.

    `path_params` are the parameters in the path; `query` and `body` have the types that the route declares.
    """

    server: ServerContext
    directory: str
    path_params: Mapping[str, str]
    headers: Mapping[str, str] = {}
    path: str = ""
    query: Any = None
    body: Any = None


class DirectoryCall(ServerCall, frozen=True, kw_only=True):
    """A call of a route about one directory, with the `Api` of that directory."""

    api: Api


class RouteResult(Struct, frozen=True, kw_only=True):
    """A value to send with a status or headers other than the usual ones."""

    value: Any
    status: int = 200
    headers: Mapping[str, str] = {}


class NoQuery(Struct, frozen=True, kw_only=True):
    """The query of a route that has no parameters."""


class HttpOperation(Struct, frozen=True, kw_only=True):
    """One operation as the OpenAPI document describes it: its method and path, and its types.

    * `takes` is the type of the body, None for no body; an `optional` body may be absent;
    * `returns` is the type of the answer, None for an answer without a body.

    An operation that is no `Route` answers with a stream or a file, and has an endpoint of its own in `application`.
    """

    method: Method
    path: str
    name: str
    about: str
    returns: Any = None
    takes: Any = None
    optional: bool = False
    media: Media = "application/json"
    query: type[Struct] = NoQuery


class Route(HttpOperation, frozen=True, kw_only=True):
    """An operation that the function `run` carries out. The server decodes its input and encodes its answer.

    * A route with `server_only` is called with a `ServerCall`, any other with a `DirectoryCall`.
    * `session_directory` says in which directory a route about a session is called if the caller names none: the session's
      own directory is `required`, `preferred` because the answer is better there, or not needed.
    """

    run: Callable[[Any], Awaitable[Any]]
    server_only: bool = False
    session_directory: Literal["", "preferred", "required"] = ""


def route(method: Method, path: str, name: str, run: Callable[[Any], Awaitable[Any]], **more: Any) -> Route:
    """Return a route for a function. Its docstring becomes the summary, its return type the type of the answer."""
    hints = get_type_hints(run)
    returns = more.pop("returns", hints["return"])
    about = (run.__doc__ or "").strip().partition("\n")[0].rstrip(".")
    return Route(
        method=method,
        path=path,
        name=name,
        about=about,
        run=run,
        returns=None if returns is type(None) else returns,
        server_only=hints["call"] is ServerCall,
        **more,
    )
