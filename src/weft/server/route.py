"""A route: one operation on the wire, as a value; tickets for browsers; requests sent twice."""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, Protocol, get_type_hints

from msgspec import Struct

from weft.api import Api
from weft.errors import ConflictError, InvalidInputError
from weft.model.ids import ALPHABET, HEX_LENGTH, PER_MS, WRAP, MessageID, SessionID
from weft.server.control import Control

SECONDS: Final = 60
MOST: Final = 1000


class Tickets:
    """Each is good once, for one address, for a minute."""

    def __init__(self) -> None:
        self._good: dict[str, tuple[str, float]] = {}

    def give(self, path: str) -> str:
        now = asyncio.get_running_loop().time()
        self._good = {ticket: for_ for ticket, for_ in self._good.items() if for_[1] > now}
        while len(self._good) >= MOST:
            del self._good[next(iter(self._good))]
        ticket = secrets.token_urlsafe(32)
        self._good[ticket] = path, now + SECONDS
        return ticket

    def take(self, ticket: str, path: str) -> bool:
        """Whether it is good for this address. It is not, the next time."""
        found = self._good.pop(ticket, None)
        return found is not None and found[0] == path and found[1] > asyncio.get_running_loop().time()


LONGEST: Final = 255
HALF: Final = 7
REMEMBERED: Final = 10_000
WINDOW_MS: Final = 24 * 60 * 60 * 1000


class Repeats:
    """Finds the id that a key stood for. `now` is the time in milliseconds."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._known: OrderedDict[tuple[str, str], MessageID] = OrderedDict()
        self._doors: dict[tuple[str, str], asyncio.Lock] = {}

    async def id_for(self, api: Api, session: SessionID, key: str, body: bytes) -> MessageID:
        """The id for a prompt with this key: the one it had, if it was sent before. Raises `ConflictError` if that was
        another prompt."""
        if not 0 < len(key) <= LONGEST or not key.isprintable():
            raise InvalidInputError(
                "idempotency-key", f"it has 1 to {LONGEST} characters that can be printed"
            )
        head, tail = to_letters(f"{session}\n{key}".encode()), to_letters(body)
        place = session, head
        # One at a time: two that come at once must not both be the first.
        async with self._doors.setdefault(place, asyncio.Lock()):
            found = self._known.get(place) or await self._find(api, session, head)
            self._doors.pop(place, None)
            id = found or self._mint(head + tail)
            self._remember(place, id)
        if not id.endswith(tail):
            raise ConflictError("idempotency key", key, "was used for another request")
        return id

    def _mint(self, tail: str) -> MessageID:
        number = (self._now() * PER_MS + 1) % WRAP
        return MessageID(f"msg_{number:0{HEX_LENGTH}x}{tail}")

    def _remember(self, place: tuple[str, str], id: MessageID) -> None:
        self._known[place] = id
        self._known.move_to_end(place)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    async def _find(self, api: Api, session: SessionID, head: str) -> MessageID | None:
        """Look through what was said lately; after a restart that is all there is to go by."""
        oldest = self._now() - WINDOW_MS
        async for message in api.stream_messages(session):
            if message.info.time.created < oldest:
                return None
            if message.info.id.partition("_")[2][HEX_LENGTH:].startswith(head):
                return message.info.id
        return None


def to_letters(raw: bytes) -> str:
    """Half the tail of an id, always the same for the same bytes."""
    digest = hashlib.sha256(raw).digest()
    number = int.from_bytes(digest)
    letters: list[str] = []
    for _ in range(HALF):
        number, rest = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[rest])
    return "".join(letters)


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
