"""Decide who may call the server: password, token, Host and Origin; and which directories are served."""

import asyncio
import base64
import binascii
import hmac
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

from msgspec import Struct

from weft.api.tokens import TokenCheck
from weft.errors import DirectoryNotServedError, InvalidInputError, StoreError, WeftError
from weft.model.principal import ADMINISTRATOR, Caller
from weft.model.project import Project, is_within
from weft.server.metrics import UNKNOWN_ROUTE, RequestRecord
from weft.server.page_login import (
    COOKIE_HEADER,
    PAGE_HEADER,
    STORE_AWAY,
    TOO_MANY_ATTEMPTS,
    PageLogins,
    is_page_path,
)
from weft.server.response import (
    ErrorResponse,
    Receive,
    Scope,
    Send,
    add_headers,
    make_error_response,
    read_headers,
    send_error,
    send_preflight,
)
from weft.server.state import IssuedTicket, PasswordAttempts, Tickets, to_attempt_address

LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
UNAUTHORIZED: Final = 401
AUTHORIZATION: Final = "authorization"
CHALLENGE: Final = {"www-authenticate": 'Basic realm="weft"'}
DENIAL_EXTENSION: Final = "websocket.http.response"
POLICY_VIOLATION: Final = 1008
SWITCHING_PROTOCOLS: Final = 101
MAX_RECORDED_PATH_LENGTH: Final = 200
BEARER_CHALLENGE: Final = {"www-authenticate": 'Bearer realm="weft", error="invalid_token"'}
# The key of the caller in the scope of a request.
CALLER: Final = "weft.caller"
TOKEN_BEGIN: Final = b"weft_"
TOKEN_SECONDS: Final = 1.0
MAX_KNOWN_TOKENS: Final = 1000


class AccessPolicy(Struct, frozen=True, kw_only=True):
    """Who may call the server.

    `hosts` are the host names that the server answers to besides those of this machine, `origins` the web pages that
    may call it. GET requests below the path `open_to_all` need no password. The login and the files of our page, which
    contain no data, need none either.
    """

    password: str | None
    username: str = "opencode"
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    open_to_all: str = ""

    def check(
        self, method: str, headers: Mapping[str, str], path: str = "", *, known: bool = False
    ) -> ErrorResponse | None:
        """Return the error for a request that is not allowed, None for one that is. A `known` caller has sent a valid token."""
        host = headers.get("host", "")
        if strip_port(host) not in LOCAL_HOSTS | self.hosts:
            return ErrorResponse(
                status=403,
                name="ForbiddenError",
                message=f"this server does not answer to {host[:200]!r}; weft serve --allow-host adds a name",
            )
        origin = headers.get("origin")
        if origin is not None and origin not in self.origins and not is_same_origin(origin, host):
            return ErrorResponse(
                status=403,
                name="ForbiddenError",
                message=f"pages of {origin[:200]!r} may not call this server; weft serve --cors permits an origin",
            )
        if (
            method == "OPTIONS"
            or self.is_open(method, path)
            or is_page_path(path)
            or known
            or self.password is None
            or self.has_password(headers)
        ):
            return None
        return ErrorResponse(
            status=401, name="UnauthorizedError", message="a password is needed: HTTP Basic, on every request"
        )

    def is_open(self, method: str, path: str) -> bool:
        return bool(self.open_to_all) and method in ("GET", "HEAD") and path.startswith(self.open_to_all)

    def has_password(self, headers: Mapping[str, str]) -> bool:
        """Return True if the server has a password and the request contains it."""
        if self.password is None:
            return False
        expected = f"{self.username}:{self.password}".encode()
        return hmac.compare_digest(decode_basic_auth(headers.get(AUTHORIZATION, "")), expected)

    def cors_headers(self, origin: str | None) -> dict[str, str]:
        """Return the headers that let a page of an allowed origin read the answer."""
        if origin is None or origin not in self.origins:
            return {}
        return {"access-control-allow-origin": origin, "vary": "Origin"}


def is_same_origin(origin: str, host: str) -> bool:
    """Return True if `origin` is this server itself. Its pages may call it, because they run no scripts but ours."""
    scheme, separator, address = origin.partition("://")
    return bool(separator) and scheme in ("http", "https") and address.lower() == host.lower()


def strip_port(host: str) -> str:
    """Return a host in lower case and without its port. Text that is not a host stays as it is, and matches no name."""
    name = host.lower()
    bare, colon, port = name.rpartition(":")
    return bare if colon and (port.isdecimal() or not port) and not bare.endswith(":") else name


def decode_basic_auth(header: str) -> bytes:
    """Return the credentials of a `Basic` header, or no bytes for any other header."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


def find_token(headers: Mapping[str, str]) -> str | None:
    """Return the token of a request, None if it has none. OpenCode's clients can only send one as a password."""
    header = headers.get(AUTHORIZATION, "")
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    password = decode_basic_auth(header).partition(b":")[2]
    return password.decode("ascii", "replace") if password.startswith(TOKEN_BEGIN) else None


def to_refusal(message: str) -> ErrorResponse:
    return ErrorResponse(status=UNAUTHORIZED, name="UnauthorizedError", message=message)


def to_check_error(error: WeftError) -> ErrorResponse:
    """Return the response for an error of the checks. A caller that is not known yet learns nothing about the store."""
    return STORE_AWAY if isinstance(error, StoreError) else make_error_response(error)


def get_caller(scope: Scope) -> Caller:
    """Return the caller of a request. A caller that was let through without a token is the administrator."""
    caller: Caller = scope.get(CALLER, ADMINISTRATOR)
    return caller


class AccessEndedError(Exception):
    """The token or the login of a request is no longer valid, so its response was ended."""


def make_ending_send(send: Send, is_valid: Callable[[], Awaitable[bool]]) -> Send:
    """Return a `send` that ends a streamed response as soon as its caller is no longer valid."""

    async def send_while_valid(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body" and message.get("more_body") and not await is_valid():
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            raise AccessEndedError
        await send(message)

    return send_while_valid


class Callers:
    """Finds the caller of a token. What the store answers is cached for a second."""

    def __init__(self, tokens: TokenCheck, get_app: Callable[[Caller], Awaitable[Any]]) -> None:
        self.get_app = get_app
        self._tokens = tokens
        self._known: OrderedDict[str, tuple[float, Caller | None]] = OrderedDict()

    async def find(self, secret: str) -> Caller | None:
        """Return the caller of a token, None if there is no such token. Raise `InvalidInputError` if it has expired."""
        now = asyncio.get_running_loop().time()
        known = self._known.get(secret)
        if known is not None and now - known[0] < TOKEN_SECONDS:
            return known[1]
        self._known.pop(secret, None)
        caller = await self._tokens.find_caller(secret)
        self._known[secret] = now, caller
        while len(self._known) > MAX_KNOWN_TOKENS:
            self._known.popitem(last=False)
        return caller

    async def find_share_owner(self, page: str) -> Caller | None:
        """Return the principal whose session a page shows, None if there is no such page or it is the administrator's."""
        return await self._tokens.find_share_owner(page.partition("/")[0])

    async def is_valid(self, secret: str, caller: Caller) -> bool:
        """Return True if a token is still valid and belongs to the same caller."""
        try:
            return await self.find(secret) == caller
        except InvalidInputError:
            return False

    async def serve_socket(
        self, app: Any, scope: Scope, receive: Receive, send: Send, *, secret: str, caller: Caller
    ) -> None:
        """Serve a socket until it closes, or until its token is no longer valid. It may be silent for hours, so the token is checked every second."""
        serving = asyncio.ensure_future(app(scope, receive, send))
        try:
            await asyncio.wait((serving,), timeout=TOKEN_SECONDS)
            while not serving.done() and await self.is_valid(secret, caller):
                await asyncio.wait((serving,), timeout=TOKEN_SECONDS)
        finally:
            was_ended = serving.cancel()
            await asyncio.wait((serving,))
        if was_ended:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "the token has ended"})
        else:
            serving.result()


OnRequest = Callable[[RequestRecord], None]


class AccessMiddleware:
    """ASGI middleware that lets only allowed requests through.

    `on_request` is called for each request; `route_paths` maps an endpoint to the pattern of its path. `callers` finds the
    caller of a token, and the application that serves it.
    """

    def __init__(
        self,
        app: Any,
        policy: AccessPolicy,
        tickets: Tickets,
        *,
        logins: PageLogins,
        attempts: PasswordAttempts,
        on_request: OnRequest,
        route_paths: Mapping[Any, str],
        callers: Callers | None = None,
    ) -> None:
        self._callers = callers
        self._app = app
        self._policy = policy
        self._tickets = tickets
        self._logins = logins
        self._on_request = on_request
        self._route_paths = route_paths
        self._attempts = attempts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            recorded = _RecordedSend(scope, send, self._record)
            try:
                await self._serve_request(scope, receive, recorded.send)
            except WeftError as error:  # of the checks: the application answers its own
                if recorded.has_started:
                    raise
                await send_error(recorded.send, to_check_error(error))
        elif scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _serve_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        token = find_token(headers)
        caller, refusal = await self._find_caller(token, headers)
        error = await self._check(scope, scope["method"], headers, caller, refusal)
        login = None
        if error is not None and error.status == UNAUTHORIZED and token is None and COOKIE_HEADER in headers:
            login = await self._logins.find(headers)
            error = error if login is None else self._logins.check(login, scope["method"], headers)
        cors = self._policy.cors_headers(headers.get("origin"))
        if error is not None:
            challenge = CHALLENGE if token is None else BEARER_CHALLENGE
            # With a challenge, a browser would show its own dialog instead of letting our page ask for the password.
            asks = error.status == UNAUTHORIZED and PAGE_HEADER not in headers
            await send_error(send, error, cors | (challenge if asks else {}))
            return
        if scope["method"] == "OPTIONS":
            await send_preflight(send, headers, cors)
            return
        send = add_headers(send, cors) if cors else send
        if self._callers is not None and self._policy.is_open(scope["method"], scope["path"]):
            # A page is served by the server of its owner, whoever requests it.
            caller = await self._callers.find_share_owner(
                scope["path"].removeprefix(self._policy.open_to_all)
            )
        app = self._app
        if caller is not None and self._callers is not None:
            scope[CALLER] = caller
            if token is not None:
                send = make_ending_send(send, partial(self._callers.is_valid, token, caller))
            if caller.principal is not None:
                app = await self._callers.get_app(caller)
        elif login is not None:
            send = make_ending_send(send, partial(self._logins.is_valid, login))
        with suppress(AccessEndedError):  # the response has ended
            await app(scope, receive, send)

    async def _find_caller(
        self, token: str | None, headers: Mapping[str, str]
    ) -> tuple[Caller | None, ErrorResponse | None]:
        """Return who sends a token, and the error if it is not valid. Without a token there is neither."""
        if self._callers is None or token is None or self._policy.has_password(headers):
            return None, None
        try:
            caller = await self._callers.find(token)
        except InvalidInputError:
            return None, to_refusal("the token has expired")
        except StoreError as error:
            return None, to_check_error(error)
        if caller is None:
            return None, to_refusal("the token is not valid: it is unknown, or was revoked")
        return caller, None

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        token = find_token(headers)
        caller, refusal = await self._find_caller(token, headers)
        error = await self._check(scope, "GET", headers, caller, refusal)
        if error is not None and error.status == UNAUTHORIZED and (ticket := self._take_ticket(scope)):
            ticket_headers = {AUTHORIZATION: ticket.authorization}
            token = find_token(ticket_headers)
            caller, error = await self._find_caller(token, ticket_headers)
        if error is not None:
            self._record(scope, error.status, 0.0)
            await _reject_socket(scope, receive, send, error)
            return
        self._record(scope, SWITCHING_PROTOCOLS, 0.0)
        if caller is None or token is None or self._callers is None:
            await self._app(scope, receive, send)
            return
        app = self._app if caller.principal is None else await self._callers.get_app(caller)
        await self._callers.serve_socket(app, scope, receive, send, secret=token, caller=caller)

    async def _check(
        self,
        scope: Scope,
        method: str,
        headers: Mapping[str, str],
        caller: Caller | None,
        refusal: ErrorResponse | None,
    ) -> ErrorResponse | None:
        """Return the error for a request that is not allowed, None for one that is. The error for a wrong password is delayed."""
        address = to_attempt_address(scope.get("client"))
        has_guess = AUTHORIZATION in headers and caller is None and self._policy.password is not None
        if has_guess and not self._attempts.may_try(address):
            return TOO_MANY_ATTEMPTS
        path = scope["path"] if scope["type"] == "http" else ""
        error = self._policy.check(method, headers, path, known=caller is not None)
        if refusal is not None and (error is None or error.status == UNAUTHORIZED):
            error = refusal
        if has_guess and self._policy.has_password(headers):
            self._attempts.succeed(address)
        elif has_guess and error is not None and error.status == UNAUTHORIZED:
            await self._attempts.fail(address)
        return error

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope["path"][:MAX_RECORDED_PATH_LENGTH].encode("ascii", "backslashreplace").decode()
        self._on_request(
            RequestRecord(
                method=scope.get("method", "SOCKET"),
                path=path,
                route=self._route_paths.get(scope.get("endpoint"), UNKNOWN_ROUTE),
                status=status,
                seconds=seconds,
            )
        )

    def _take_ticket(self, scope: Scope) -> IssuedTicket | None:
        ticket = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("ticket", "")
        return self._tickets.take(ticket, scope["path"])


async def _reject_socket(scope: Scope, receive: Receive, send: Send, error: ErrorResponse) -> None:
    await receive()  # the request to connect
    if DENIAL_EXTENSION not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": error.name})
        return
    headers = [(b"content-type", b"application/json")]
    await send({"type": f"{DENIAL_EXTENSION}.start", "status": error.status, "headers": headers})
    await send({"type": f"{DENIAL_EXTENSION}.body", "body": error.body(), "more_body": False})


class _RecordedSend:
    """Wraps `send` and records method, path, status and duration of a request. The query is never recorded."""

    def __init__(self, scope: Scope, send: Send, record: Callable[[Scope, int, float], None]) -> None:
        self._scope = scope
        self._send = send
        self._record = record
        self.has_started = False
        self._started = asyncio.get_running_loop().time()

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            seconds = asyncio.get_running_loop().time() - self._started
            self._record(self._scope, message["status"], seconds)
        await self._send(message)


def check_served(directory: str, projects: Iterable[Project]) -> None:
    """Raise `DirectoryNotServedError` if a directory is in no checkout of a project.

    Directories without version control share one project whose checkout is the root directory. That project is
    skipped: it would permit every directory.
    """
    for project in projects:
        for top in (project.worktree, *project.sandboxes):
            if top.strip(os.sep) and is_within(directory, os.path.realpath(top)):
                return
    raise DirectoryNotServedError(directory)
