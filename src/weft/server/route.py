"""A route: one operation on the wire, as a value. The table of routes is both the server and its document."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, get_type_hints

from msgspec import Struct

from weft.api import Api
from weft.model.ids import SessionID
from weft.server.control import Control
from weft.server.repeats import Repeats
from weft.server.tickets import Tickets

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Media = Literal[
    "application/json",
    "application/json; charset=utf-8",
    "text/html",
    "text/plain",
    "text/event-stream",
    "websocket",
]


class Premises(Protocol):
    """What a route may ask of the server itself, beyond its directory."""

    @property
    def control(self) -> Control: ...

    @property
    def repeats(self) -> Repeats: ...

    @property
    def tickets(self) -> Tickets: ...

    @property
    def here(self) -> str: ...

    @property
    def ending(self) -> bool: ...

    @property
    def shows_files(self) -> bool: ...

    async def open(self, directory: str) -> Api: ...

    async def find_runner(self, session: SessionID) -> Api | None: ...

    def list_relayed(self, directory: str) -> dict[SessionID, Api]: ...

    def resolve(self, given: str) -> str: ...

    async def is_busy(self, directory: str) -> bool: ...

    async def dispose(self, directory: str) -> bool: ...

    async def dispose_all(self) -> None: ...

    def document(self) -> dict[str, Any]: ...

    def note(self, line: str) -> None: ...


class Wide(Struct, frozen=True, kw_only=True):
    """One call of a route that is about the server rather than a directory: none is opened for it."""

    premises: Premises
    directory: str
    names: Mapping[str, str]
    headers: Mapping[str, str] = {}
    path: str = ""
    query: Any = None
    body: Any = None


class Call(Wide, frozen=True, kw_only=True):
    """One call of a route: who answers, the names in the path, the query and the body as the route's own types."""

    api: Api


class Answer(Struct, frozen=True, kw_only=True):
    """A value with more to say about it than the value: other headers, another status."""

    value: Any
    status: int = 200
    headers: Mapping[str, str] = {}


class NoQuery(Struct, frozen=True, kw_only=True):
    """Nothing is asked for in the address."""


class Route(Struct, frozen=True, kw_only=True):
    """`takes` is the type of the body, None when there is none; a body that is `optional` may be absent.

    `gives` is the type of the answer; None for an answer without a body. A `wide` route is called with a `Wide`.
    A route about a session says how much it depends on the session's own directory, if the caller names none: it `needs`
    that directory to do its work there, or `wants` it for a better answer. Otherwise any directory will do.
    What is not JSON (`media`) stands in the table for the document, and is served by somebody else.
    """

    method: Method
    path: str
    name: str
    about: str
    run: Callable[[Any], Awaitable[Any]]
    gives: Any = None
    takes: Any = None
    optional: bool = False
    wide: bool = False
    media: Media = "application/json"
    query: type[Struct] = NoQuery
    home: Literal["", "wants", "needs"] = ""


def route(method: Method, path: str, name: str, run: Callable[[Any], Awaitable[Any]], **more: Any) -> Route:
    """A route whose function says what it is about and, unless that is an `Answer`, what it gives."""
    hints = get_type_hints(run)
    gives = more.pop("gives", hints["return"])
    about = (run.__doc__ or "").strip().partition("\n")[0].rstrip(".")
    return Route(
        method=method,
        path=path,
        name=name,
        about=about,
        run=run,
        gives=None if gives is type(None) else gives,
        wide=hints["call"] is Wide,
        **more,
    )
