"""The connection to a server: send requests, retry those that may be repeated, and notice a server that is gone.

An error answer is raised as the error that `weft.local` raises.
"""

import asyncio
import random
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, TypeVar, overload
from urllib.parse import quote, urlsplit

import httpx2
from msgspec import Struct

from weft.client.address import Address
from weft.errors import (
    ClosedError,
    ConfigError,
    ConflictError,
    DocumentError,
    InvalidInputError,
    NotFoundError,
    NotPermittedError,
    ServerError,
    SessionBusyError,
    StoreError,
    UnreachableError,
    UnsupportedError,
    WeftError,
)
from weft.model.error_wire import from_facts
from weft.model.ids import check_id
from weft.model.url import is_loopback_host
from weft.model.wire import Wire, decode, encode, parse
from weft.version import VERSION

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class ServerRequest(Struct, frozen=True, kw_only=True):
    """A request to a server.

    A `repeatable` request may be sent again after a failure: the server executes it once. A `long` request has no time
    limit while the server is alive. Requests with the same `key` are the same request.
    """

    method: Method
    path: str
    query: dict[str, str] = {}
    body: Any = None
    repeatable: bool = False
    long: bool = False
    key: str | None = None


def get(path: str, /, **query: Any) -> ServerRequest:
    return ServerRequest(method="GET", path=path, query=to_query(query), repeatable=True)


def post(path: str, body: Any = None, **more: Any) -> ServerRequest:
    return ServerRequest(method="POST", path=path, body=body, **more)


def put(path: str, body: Any) -> ServerRequest:
    return ServerRequest(method="PUT", path=path, body=body, repeatable=True)


def patch(path: str, body: Any) -> ServerRequest:
    return ServerRequest(method="PATCH", path=path, body=body)


def delete(path: str, /, body: Any = None, **query: Any) -> ServerRequest:
    return ServerRequest(method="DELETE", path=path, body=body, query=to_query(query))


def to_query(values: dict[str, Any]) -> dict[str, str]:
    """Return the query parameters as text, without those that are None."""
    return {name: _to_text(value) for name, value in values.items() if value is not None}


def _to_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def quote_name(name: str) -> str:
    """Return a name as one segment of a path."""
    return quote(name, safe="")


T = TypeVar("T")

CONNECT_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 120.0  # enough to open a directory for the first time on a slow machine
HEALTH_SECONDS: Final = 20.0
HEALTH_INTERVAL_SECONDS: Final = 15.0
FIRST_WAIT_SECONDS: Final = 0.05
MAX_WAIT_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 60.0
NEVER_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
ALL_ATTEMPTS_FAILED: Final = "All connection attempts failed"  # the message of httpx
# With these statuses a proxy says that the server is not available.
PROXY_STATUSES: Final = frozenset({502, 503, 504})
UNKNOWN_OUTCOME: Final = "it may have been done already: check before you repeat it"
NO_SERVER_HINT: Final = "is it running? weft serve starts one and prints its address"

Notice = Callable[[str], None]


def ignore_notice(_: str) -> None:
    pass


class ServerHealth(Wire, frozen=True, kw_only=True):
    """The health of a server. `weft` is missing in answers of OpenCode."""

    healthy: bool = True
    version: str = ""
    weft: bool = False


class ConnectionOptions(Struct, frozen=True, kw_only=True):
    """How to connect.

    `directory` is a directory on the server's machine; None is the server's own. A server that is gone is retried for
    `patience` seconds, or forever if that is None. During a long request, its health is checked every `health_interval` seconds.
    `notice` receives a message when the server is gone and when it is back.
    """

    directory: str | None = None
    patience: float | None = PATIENCE_SECONDS
    health_interval: float = HEALTH_INTERVAL_SECONDS
    notice: Notice = ignore_notice


class Backoff:
    """Waits between attempts: exponentially longer, with jitter, and for `patience` seconds in total."""

    def __init__(self, patience: float | None) -> None:
        self.attempts = 0
        self._patience = patience
        self._wait = FIRST_WAIT_SECONDS
        self._since: float | None = None

    def reset(self) -> None:
        self.attempts, self._wait, self._since = 0, FIRST_WAIT_SECONDS, None

    async def wait(self) -> bool:
        """Wait before the next attempt. Return False if the patience is exhausted."""
        self.attempts += 1
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        if self._patience is not None and now - self._since > self._patience:
            return False
        await asyncio.sleep(self._wait * random.uniform(0.5, 1.0))
        self._wait = min(2 * self._wait, MAX_WAIT_SECONDS)
        return True


class ServerConnection:
    """The connection to one server, for one directory."""

    def __init__(self, address: Address, options: ConnectionOptions) -> None:
        self.url = address.url
        self.options = options
        self.health = ServerHealth()
        self.directory = options.directory or ""
        self._gone = False
        is_basic = address.password is not None and not address.is_token
        self.login = (address.username, address.password or "") if is_basic else None
        self.connecting: set[asyncio.Future[None]] = set()
        parts = urlsplit(address.url)
        local = is_loopback_host(parts.hostname or "")
        headers = {"user-agent": f"weft/{VERSION}"}
        if address.is_token:
            headers["authorization"] = f"Bearer {address.password}"
        if options.directory is not None:
            headers["x-opencode-directory"] = quote(options.directory, safe="/")
        self.client = httpx2.AsyncClient(
            base_url=address.url,
            auth=self.login,
            headers=headers,
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            trust_env=not local,  # a proxy cannot reach this machine
            # HTTP needs no certificates, and reading all of them takes longer than a request. Without any, TLS would refuse every server.
            verify=True if parts.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        )

    @property
    def is_weft(self) -> bool:
        """True if the server is weft. An OpenCode server has fewer routes."""
        return self.health.weft

    async def close(self) -> None:
        await self.client.aclose()

    def _check_open(self) -> None:
        if self.client.is_closed:
            raise ClosedError(
                "the connection is closed", hint="use it inside the `async with`, or connect again"
            )

    async def check_health(self) -> None:
        """Find out which server answers. Raise `UnreachableError` if none does, or the server's refusal."""
        try:
            response = await self._get_health(HEALTH_SECONDS)
        except httpx2.TransportError as error:
            raise UnreachableError(self._describe(error), hint=NO_SERVER_HINT) from error
        self.health = self._decode(response, ServerHealth)

    @overload
    async def send(self, request: ServerRequest, kind: type[T]) -> T: ...
    @overload
    async def send(self, request: ServerRequest, kind: object) -> Any: ...
    async def send(self, request: ServerRequest, kind: Any) -> Any:
        """Send a request and return the answer as a value of `kind`; with None, only check that it succeeded.

        Wait first until new listeners are connected, so that they receive the events that the request causes. Raise
        `UnreachableError` if the server is gone for too long, or the error that the server answers with.
        """
        self._check_open()
        if self.connecting:
            await asyncio.wait(self.connecting)
        return self._decode(await self._retry(request), kind)

    async def _retry(self, request: ServerRequest) -> httpx2.Response:
        backoff = Backoff(self.options.patience)
        while True:
            try:
                response = await self._send_once(request)
            except httpx2.TransportError as error:
                if not request.repeatable and not isinstance(error, NEVER_SENT):
                    raise UnreachableError(self._describe(error), hint=UNKNOWN_OUTCOME) from error
                if not await backoff.wait():
                    raise UnreachableError(self._describe(error), hint=NO_SERVER_HINT) from error
                await self._wait_until_back()
                continue
            is_away = (
                response.status_code in PROXY_STATUSES
                and request.repeatable
                and not _is_from_server(response.content)
            )
            if not is_away or not await backoff.wait():
                return response

    async def _send_once(self, request: ServerRequest) -> httpx2.Response:
        content = None if request.body is None else encode(request.body)
        headers = {} if content is None else {"content-type": "application/json"}
        if request.key is not None:
            headers["idempotency-key"] = request.key
        built = self.client.build_request(
            request.method,
            request.path,
            params=request.query or None,
            content=content,
            headers=headers,
            timeout=httpx2.Timeout(
                ANSWER_SECONDS, connect=CONNECT_SECONDS, read=None if request.long else ANSWER_SECONDS
            ),
        )
        sending = self.client.send(built)
        return await (self._watch(sending) if request.long else sending)

    async def _watch(self, sending: Awaitable[httpx2.Response]) -> httpx2.Response:
        """Wait for an answer that may take hours, and check meanwhile that the server is alive."""
        answering = asyncio.ensure_future(sending)
        watching = asyncio.ensure_future(self._wait_until_gone())
        try:
            await asyncio.wait((answering, watching), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise httpx2.ReadTimeout("the server no longer answers")
            return await answering
        finally:
            for task in (answering, watching):
                task.cancel()
            await asyncio.gather(answering, watching, return_exceptions=True)

    async def _wait_until_gone(self) -> None:
        while True:
            await asyncio.sleep(self.options.health_interval)
            try:
                await self._get_health(min(HEALTH_SECONDS, 2 * self.options.health_interval))
            except httpx2.TransportError:
                return

    async def _wait_until_back(self) -> None:
        """Wait until the server answers again. Raise `UnreachableError` if it is gone for too long."""
        backoff = Backoff(self.options.patience)
        while True:
            try:
                await self._get_health(min(HEALTH_SECONDS, 2 * self.options.health_interval))
            except httpx2.TransportError as error:
                self.notice_gone()
                if not await backoff.wait():
                    raise UnreachableError(self._describe(error), hint=NO_SERVER_HINT) from error
                continue
            self.notice_back()
            return

    def _describe(self, error: Exception) -> str:
        words = str(error)
        # The library's words for a refused connection do not say what was tried.
        reason = "nothing answers there" if words in ("", ALL_ATTEMPTS_FAILED) else words
        return f"{self.url}: {reason}"

    def notice_gone(self) -> None:
        if not self._gone:
            self.options.notice(f"{self.url} does not answer; trying again")
        self._gone = True

    def notice_back(self) -> None:
        if self._gone:
            self.options.notice(f"{self.url} is back")
        self._gone = False

    async def _get_health(self, seconds: float) -> httpx2.Response:
        return await self.client.get(
            "/global/health", timeout=httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
        )

    def _decode(self, response: httpx2.Response, kind: Any) -> Any:
        raw, path = response.content, response.request.url.path
        if not response.is_success:
            raise to_error(response.status_code, raw, path)
        if kind is None:
            return None
        if not raw:
            # OpenCode 1.1.34 answers with status 200 and no body if it cannot accept a prompt.
            raise ServerError(
                "the server sent an empty answer",
                hint="OpenCode does so when a prompt fails: do the session, the agent and the model exist?",
            )
        try:
            return decode(raw, kind, where=path)
        except DocumentError as error:
            raise ServerError(f"the server sent an invalid answer: {error}") from error

    @asynccontextmanager
    async def stream(
        self, path: str, *, after: str | None, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open an endless stream of bytes. Raise a transport error if it is silent for too long."""
        self._check_open()
        headers = {"accept": "text/event-stream"} | ({"last-event-id": after} if after else {})
        async with self.client.stream(
            "GET",
            path,
            params={"deltas": "1"},
            headers=headers,
            timeout=httpx2.Timeout(silence, connect=CONNECT_SECONDS),
        ) as response:
            if not response.is_success:
                raw = await response.aread()
                if response.status_code in PROXY_STATUSES and not _is_from_server(raw):
                    raise httpx2.RemoteProtocolError(f"status {response.status_code}")
                raise to_error(response.status_code, raw, path)
            yield response.aiter_raw()


# --- paths ---

WEFT_PREFIX = "/weft"


def session_path(id: str, *rest: str) -> str:
    return "/".join(("/session", check_id("session", id), *rest))


def message_path(session_id: str, id: str, *rest: str) -> str:
    return session_path(session_id, "message", check_id("message", id), *rest)


def part_path(session_id: str, message_id: str, id: str) -> str:
    return message_path(session_id, message_id, "part", check_id("part", id))


def weft_path(path: str) -> str:
    """Return the path of a route that only weft has."""
    return WEFT_PREFIX + path


def require_weft(connection: ServerConnection, what: str, *, hint: str = "") -> None:
    """Raise `UnsupportedError` if the server is OpenCode, which has no such route.

    The request is not even tried, because OpenCode forwards unknown paths to a host on the internet.
    """
    if not connection.is_weft:
        raise UnsupportedError(
            f"{what} on a server with OpenCode {connection.health.version}".rstrip(), hint=hint
        )


# --- error answers ---

PASSWORD_HINT: Final = "set OPENCODE_SERVER_PASSWORD, or WEFT_TOKEN if you have a token, or write it into the address: http://opencode:PASSWORD@host"
MAX_MESSAGE_LENGTH: Final = 500
BUSY_MESSAGE: Final = re.compile(r"Session (ses_\w+) is busy")
# The kind of thing that a path names, by the segment before its id.
PATH_KINDS: Final = {
    "session": "session",
    "message": "message",
    "part": "part",
    "permission": "permission request",
    "question": "question",
    "project": "project",
    "pty": "terminal",
    "grant": "grant",
}


def to_error(status: int, body: bytes, path: str) -> WeftError:
    """Return the error for an unsuccessful answer. OpenCode sends fewer facts than weft, so the path supplies the rest."""
    name, data = _parse_answer(body)
    message = (
        _get_first_line(data)
        or body[:MAX_MESSAGE_LENGTH].decode(errors="replace").strip()
        or f"status {status}"
    )
    known_error = from_facts(name, data)
    if known_error is not None:
        return known_error
    busy = BUSY_MESSAGE.search(message)
    if busy:  # OpenCode 1.1.34 answers with status 500
        return SessionBusyError(busy[1])
    match status:
        case 400 | 413 | 422:
            return (
                ConfigError(path, message) if name == "ConfigError" else InvalidInputError("request", message)
            )
        case 401:
            return NotPermittedError(
                "the server requires a password, or the password is wrong", hint=PASSWORD_HINT
            )
        case 403:
            return NotPermittedError(message)
        case 404 | 405:
            return NotFoundError(*_to_subject(path))
        case 409:
            return ConflictError(*_to_subject(path), message)
        case 501:
            return UnsupportedError(message)
        case 507:
            return StoreError(message)
        case _:
            return ServerError(f"the server failed: {message[:MAX_MESSAGE_LENGTH]}")


def _is_from_server(body: bytes) -> bool:
    """Return True if the error is from the server itself and not from a proxy."""
    return bool(_parse_answer(body)[0])


def _parse_answer(body: bytes) -> tuple[str, dict[str, Any]]:
    try:
        answer = parse(body)
    except DocumentError:
        return "", {}
    if not isinstance(answer, dict):
        return "", {}
    data = answer.get("data")
    # OpenCode lists invalid fields under `error`, and from 1.18 on names some errors by `_tag`.
    data = data if isinstance(data, dict) else {}
    issues = answer.get("error")
    if isinstance(issues, list) and issues:
        data = {"message": "; ".join(str(_format_issue(each)) for each in issues[:3])}
    elif "message" not in data and isinstance(answer.get("message"), str):
        data = data | {"message": answer["message"]}
    return str(answer.get("name") or answer.get("_tag") or ("BadRequest" if issues else "")), data


def _format_issue(issue: Any) -> str:
    if not isinstance(issue, dict):
        return str(issue)
    path = issue.get("path")
    names = path if isinstance(path, list) else [path or ""]
    return f"{'.'.join(map(str, names))}: {issue.get('message', 'is not valid')}"


def _get_first_line(data: dict[str, Any]) -> str:
    """Return the first line of the message. OpenCode appends a stack trace."""
    message = data.get("message")
    return message.partition("\n")[0] if isinstance(message, str) else ""


def _to_subject(path: str) -> tuple[str, str]:
    """Return the kind and the id of the last thing that a path names."""
    words = [word for word in path.split("/") if word]
    for before, name in zip(words[-2::-1], words[:0:-1], strict=False):
        if before in PATH_KINDS:
            return PATH_KINDS[before], name
    return "path", path
