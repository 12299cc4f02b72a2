"""Decide who may call the server: password, Host and Origin checks, and which directories are served."""

import asyncio
import base64
import binascii
import hmac
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from msgspec import Struct

from weft.errors import DirectoryNotServedError
from weft.model.project import Project
from weft.server.metrics import UNKNOWN_ROUTE, RequestRecord
from weft.server.response import (
    ErrorResponse,
    Receive,
    Scope,
    Send,
    add_headers,
    read_headers,
    send_error,
    send_preflight,
)
from weft.server.state import Tickets

LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
FREE_ATTEMPTS: Final = 5
MAX_DELAY_SECONDS: Final = 5.0
UNAUTHORIZED: Final = 401
CHALLENGE: Final = {"www-authenticate": 'Basic realm="weft"'}
DENIAL_EXTENSION: Final = "websocket.http.response"
POLICY_VIOLATION: Final = 1008
SWITCHING_PROTOCOLS: Final = 101
MAX_RECORDED_PATH_LENGTH: Final = 200


class AccessPolicy(Struct, frozen=True, kw_only=True):
    """Who may call the server.

    `hosts` are the host names that the server answers to besides those of this machine, `origins` the web pages that
    may call it. GET requests below the path `open_to_all` need no password.
    """

    password: str | None
    username: str = "opencode"
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    open_to_all: str = ""

    def check(self, method: str, headers: Mapping[str, str], path: str = "") -> ErrorResponse | None:
        """Return the error for a request that is not allowed, None for one that is."""
        host = headers.get("host", "")
        if strip_port(host) not in LOCAL_HOSTS | self.hosts:
            return ErrorResponse(
                status=403, name="ForbiddenError", message=f"this server does not answer to {host[:200]!r}"
            )
        origin = headers.get("origin")
        if origin is not None and origin not in self.origins:
            return ErrorResponse(
                status=403,
                name="ForbiddenError",
                message=f"pages of {origin[:200]!r} may not call this server",
            )
        if (
            method == "OPTIONS"
            or self._is_open(method, path)
            or self._has_password(headers.get("authorization", ""))
        ):
            return None
        return ErrorResponse(
            status=401, name="UnauthorizedError", message="a password is needed: HTTP Basic, on every request"
        )

    def _is_open(self, method: str, path: str) -> bool:
        return bool(self.open_to_all) and method in ("GET", "HEAD") and path.startswith(self.open_to_all)

    def _has_password(self, header: str) -> bool:
        if self.password is None:
            return True
        expected = f"{self.username}:{self.password}".encode()
        return hmac.compare_digest(decode_basic_auth(header), expected)

    def cors_headers(self, origin: str | None) -> dict[str, str]:
        """Return the headers that let a page of an allowed origin read the answer."""
        if origin is None or origin not in self.origins:
            return {}
        return {"access-control-allow-origin": origin, "vary": "Origin"}


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


class PasswordDelay:
    """Delays the answer to wrong passwords: the more of them in a row, the longer."""

    def __init__(self) -> None:
        self._failures = 0

    def count_failure(self) -> float:
        """Count a wrong password and return how many seconds to wait before answering."""
        self._failures += 1
        return min(MAX_DELAY_SECONDS, 0.1 * max(0, self._failures - FREE_ATTEMPTS))

    def reset(self) -> None:
        self._failures = 0


OnRequest = Callable[[RequestRecord], None]


class AccessMiddleware:
    """ASGI middleware that lets only allowed requests through.

    `on_request` is called for each request; `route_paths` maps an endpoint to the pattern of its path.
    """

    def __init__(
        self,
        app: Any,
        policy: AccessPolicy,
        tickets: Tickets,
        *,
        on_request: OnRequest,
        route_paths: Mapping[Any, str],
    ) -> None:
        self._app = app
        self._policy = policy
        self._tickets = tickets
        self._on_request = on_request
        self._route_paths = route_paths
        self._delay = PasswordDelay()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve_request(scope, receive, _RecordedSend(scope, send, self._record).send)
        elif scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _serve_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        error = self._policy.check(scope["method"], headers, scope["path"])
        cors = self._policy.cors_headers(headers.get("origin"))
        if error is not None:
            await self._delay_answer(error)
            await send_error(send, error, cors | (CHALLENGE if error.status == UNAUTHORIZED else {}))
            return
        if scope["method"] == "OPTIONS":
            await send_preflight(send, headers, cors)
            return
        self._delay.reset()
        await self._app(scope, receive, add_headers(send, cors) if cors else send)

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._policy.check("GET", read_headers(scope))
        if error is not None and not (error.status == UNAUTHORIZED and self._has_ticket(scope)):
            await self._delay_answer(error)
            self._record(scope, error.status, 0.0)
            await _reject_socket(scope, receive, send, error)
            return
        self._record(scope, SWITCHING_PROTOCOLS, 0.0)
        await self._app(scope, receive, send)

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

    def _has_ticket(self, scope: Scope) -> bool:
        ticket = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("ticket", "")
        return self._tickets.take(ticket, scope["path"])

    async def _delay_answer(self, error: ErrorResponse) -> None:
        if error.status == UNAUTHORIZED:
            await asyncio.sleep(self._delay.count_failure())


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
        self._started = asyncio.get_running_loop().time()

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            seconds = asyncio.get_running_loop().time() - self._started
            self._record(self._scope, message["status"], seconds)
        await self._send(message)


def is_below(path: str, top: str) -> bool:
    """Return True if a path is a directory or below it. Both must be real paths."""
    return path == top or path.startswith(top.rstrip(os.sep) + os.sep)


def check_served(directory: str, projects: Iterable[Project]) -> None:
    """Raise `DirectoryNotServedError` if a directory is in no checkout of a project.

    Directories without version control share one project whose checkout is the root directory. That project is
    skipped: it would permit every directory.
    """
    for project in projects:
        for top in (project.worktree, *project.sandboxes):
            if top.strip(os.sep) and is_below(directory, os.path.realpath(top)):
                return
    raise DirectoryNotServedError(directory)
