"""The connection to a server: requests as values, sent again where that does no harm, never waiting for a server that is gone."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, TypeVar, overload
from urllib.parse import quote, urlsplit

import httpx2
from msgspec import Struct

from weft.client.address import Address, is_loopback
from weft.client.errors import AWAY, is_ours, to_error
from weft.errors import DocumentError, ServerError, UnreachableError, UnsupportedError
from weft.model.ids import checked
from weft.model.wire import Wire, decode, encode
from weft.version import VERSION

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Asked(Struct, frozen=True, kw_only=True):
    """`twice` says that asking it again does no harm: whoever answers does it once. What may take `long` is waited for as
    long as the server is there. The same `key` is the same request."""

    method: Method
    path: str
    query: dict[str, str] = {}
    body: Any = None
    twice: bool = False
    long: bool = False
    key: str | None = None


def get(path: str, /, **query: Any) -> Asked:
    return Asked(method="GET", path=path, query=to_query(query), twice=True)


def post(path: str, body: Any = None, **more: Any) -> Asked:
    return Asked(method="POST", path=path, body=body, **more)


def put(path: str, body: Any) -> Asked:
    return Asked(method="PUT", path=path, body=body, twice=True)


def patch(path: str, body: Any) -> Asked:
    return Asked(method="PATCH", path=path, body=body)


def delete(path: str, /, body: Any = None, **query: Any) -> Asked:
    return Asked(method="DELETE", path=path, body=body, query=to_query(query))


def to_query(given: dict[str, Any]) -> dict[str, str]:
    """What is said at all, in the words of an address."""
    return {name: _word(value) for name, value in given.items() if value is not None}


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def quoted(given: str) -> str:
    """A name for a path, whatever is in it."""
    return quote(given, safe="")


T = TypeVar("T")

CONNECT: Final = 10.0
ANSWER: Final = 120.0  # what opening a directory for the first time may take on a slow machine, and more
LOOK: Final = 20.0
PULSE: Final = 15.0
FIRST_WAIT: Final = 0.05
LONGEST_WAIT: Final = 5.0
PATIENCE: Final = 60.0
NEVER_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
UNKNOWN_OUTCOME: Final = "it may or may not have been done: look before you ask again"

Notice = Callable[[str], None]


def unheard(_: str) -> None:
    pass


class Health(Wire, frozen=True, kw_only=True):
    """What a server says of itself. OpenCode's knows no `weft`."""

    healthy: bool = True
    version: str = ""
    weft: bool = False


class Terms(Struct, frozen=True, kw_only=True):
    """The directory that is meant, None for the server's own; for how many seconds a server that is gone is waited for,
    None for ever; who hears that it is gone, and that it is back. While an answer takes long the server is looked after,
    every so many seconds."""

    directory: str | None = None
    patience: float | None = PATIENCE
    pulse: float = PULSE
    notice: Notice = unheard


class Waits:
    """How long to wait before trying again: longer and longer, never the same for all who wait, and not for ever."""

    def __init__(self, patience: float | None) -> None:
        self.tried = 0
        self._patience = patience
        self._wait = FIRST_WAIT
        self._since: float | None = None

    def reset(self) -> None:
        self.tried, self._wait, self._since = 0, FIRST_WAIT, None

    async def wait(self) -> bool:
        """Wait; False when it has been long enough."""
        self.tried += 1
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        if self._patience is not None and now - self._since > self._patience:
            return False
        await asyncio.sleep(self._wait * random.uniform(0.5, 1.0))
        self._wait = min(2 * self._wait, LONGEST_WAIT)
        return True


class Line:
    """One server, on behalf of one directory. `ours` when it is weft: OpenCode's has fewer routes."""

    def __init__(self, address: Address, terms: Terms) -> None:
        self.url = address.url
        self.terms = terms
        self.health = Health()
        self.directory = terms.directory or ""
        self._gone = False
        self.login = (address.username, address.password) if address.password else None
        self.joining: set[asyncio.Future[None]] = set()
        local = is_loopback(urlsplit(address.url).hostname or "")
        headers = {"user-agent": f"weft/{VERSION}"}
        if terms.directory is not None:
            headers["x-opencode-directory"] = quote(terms.directory, safe="/")
        self.client = httpx2.AsyncClient(
            base_url=address.url,
            auth=self.login,
            headers=headers,
            timeout=httpx2.Timeout(ANSWER, connect=CONNECT),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            trust_env=not local,  # a proxy is no way to this machine
        )

    @property
    def ours(self) -> bool:
        return self.health.weft

    async def close(self) -> None:
        await self.client.aclose()

    async def meet(self) -> None:
        """Find out who answers. Raises what keeps one from being let in."""
        response = await self._once(httpx2.Request("GET", f"{self.url}/global/health"), LOOK)
        self.health = self._decoded(response, Health)

    @overload
    async def ask(self, asked: Asked, gives: type[T]) -> T: ...
    @overload
    async def ask(self, asked: Asked, gives: object) -> Any: ...
    async def ask(self, asked: Asked, gives: Any) -> Any:
        """The answer as a value; with None for what is given, only that it went well. What is asked after listening began is answered after listening has begun."""
        if self.joining:
            await asyncio.wait(self.joining)
        response = await self._answered(asked)
        return self._decoded(response, gives)

    async def _answered(self, asked: Asked) -> httpx2.Response:
        waits = Waits(self.terms.patience)
        while True:
            try:
                response = await self._send(asked)
            except httpx2.TransportError as error:
                if not asked.twice and not isinstance(error, NEVER_SENT):
                    raise UnreachableError(self._gone_for(error), hint=UNKNOWN_OUTCOME) from error
                if not await waits.wait():
                    raise UnreachableError(self._gone_for(error)) from error
                await self.back()
                continue
            away = response.status_code in AWAY and asked.twice and not is_ours(response.content)
            if not away or not await waits.wait():
                return response

    async def _send(self, asked: Asked) -> httpx2.Response:
        content = None if asked.body is None else encode(asked.body)
        headers = {} if content is None else {"content-type": "application/json"}
        if asked.key is not None:
            headers["idempotency-key"] = asked.key
        request = self.client.build_request(
            asked.method,
            asked.path,
            params=asked.query or None,
            content=content,
            headers=headers,
            timeout=httpx2.Timeout(ANSWER, connect=CONNECT, read=None if asked.long else ANSWER),
        )
        sending = self.client.send(request)
        return await (self._watched(sending) if asked.long else sending)

    async def _watched(self, sending: Awaitable[httpx2.Response]) -> httpx2.Response:
        """An answer that may take hours. Meanwhile the server is looked after: one that has died says nothing, either."""
        answering = asyncio.ensure_future(sending)
        watching = asyncio.ensure_future(self._until_gone())
        try:
            await asyncio.wait((answering, watching), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise httpx2.ReadTimeout("the server no longer answers")
            return await answering
        finally:
            for task in (answering, watching):
                task.cancel()
            await asyncio.gather(answering, watching, return_exceptions=True)

    async def _until_gone(self) -> None:
        while True:
            await asyncio.sleep(self.terms.pulse)
            try:
                await self._look()
            except httpx2.TransportError:
                return

    async def back(self) -> None:
        """Wait until the server answers again. Raises `UnreachableError` when it has been gone for too long."""
        waits = Waits(self.terms.patience)
        while True:
            try:
                await self._look()
            except httpx2.TransportError as error:
                self.notice_gone()
                if not await waits.wait():
                    raise UnreachableError(self._gone_for(error)) from error
                continue
            self.notice_back()
            return

    def _gone_for(self, error: Exception) -> str:
        return f"{self.url}: {str(error) or type(error).__name__}"

    def notice_gone(self) -> None:
        if not self._gone:
            self.terms.notice(f"{self.url} does not answer; trying again")
        self._gone = True

    def notice_back(self) -> None:
        if self._gone:
            self.terms.notice(f"{self.url} is back")
        self._gone = False

    async def _look(self) -> None:
        seconds = min(LOOK, 2 * self.terms.pulse)
        await self.client.get("/global/health", timeout=httpx2.Timeout(seconds, connect=CONNECT))

    async def _once(self, request: httpx2.Request, seconds: float) -> httpx2.Response:
        try:
            return await self.client.get(request.url, timeout=httpx2.Timeout(seconds, connect=CONNECT))
        except httpx2.TransportError as error:
            hint = "is it running? weft serve starts one"
            raise UnreachableError(self._gone_for(error), hint=hint) from error

    def _decoded(self, response: httpx2.Response, gives: Any) -> Any:
        raw, path = response.content, response.request.url.path
        if not response.is_success:
            raise to_error(response.status_code, raw, path)
        if gives is None:
            return None
        if not raw:
            # OpenCode 1.1.34 says nothing, with status 200, when a prompt could not be taken.
            raise ServerError(
                "the server answered with nothing",
                hint="OpenCode does so when a prompt fails: is there such a session, agent and model?",
            )
        try:
            return decode(raw, gives, where=path)
        except DocumentError as error:
            raise ServerError(f"the server's answer is not what it should be: {error}") from error

    @asynccontextmanager
    async def stream(
        self, path: str, *, after: str | None, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a stream that has no end; silent for too long it raises a transport error."""
        headers = {"accept": "text/event-stream"} | ({"last-event-id": after} if after else {})
        async with self.client.stream(
            "GET",
            path,
            params={"deltas": "1"},
            headers=headers,
            timeout=httpx2.Timeout(silence, connect=CONNECT),
        ) as response:
            if not response.is_success:
                raw = await response.aread()
                if response.status_code in AWAY and not is_ours(raw):
                    raise httpx2.RemoteProtocolError(f"status {response.status_code}")
                raise to_error(response.status_code, raw, path)
            yield response.aiter_raw()


OWN = "/weft"


def session_at(id: str, *rest: str) -> str:
    return "/".join(("/session", checked("session", id), *rest))


def message_at(session_id: str, id: str, *rest: str) -> str:
    return session_at(session_id, "message", checked("message", id), *rest)


def part_at(session_id: str, message_id: str, id: str) -> str:
    return message_at(session_id, message_id, "part", checked("part", id))


def own(path: str) -> str:
    """Where a route of weft's own is, beside OpenCode's."""
    return OWN + path


def need_weft(line: Line, what: str, *, hint: str = "") -> None:
    """Raises `UnsupportedError` if the server is OpenCode's, which has no such route. It is not tried: what OpenCode does
    not know it hands on to a host on the internet."""
    if not line.ours:
        raise UnsupportedError(f"{what} on a server of OpenCode {line.health.version}".rstrip(), hint=hint)
