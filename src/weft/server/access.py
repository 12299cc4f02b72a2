"""Who may call the server: password, Host and Origin checks, and directories."""

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
from weft.server.metrics import UNKNOWN_ROUTE, Visit
from weft.server.response import Receive, Refusal, Scope, Send, headers_of, preflight, refuse, with_headers
from weft.server.route import Tickets

LOCAL: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
WRONG_PASSWORDS_FREE: Final = 5
LONGEST_PAUSE: Final = 5.0


class Door(Struct, frozen=True, kw_only=True):
    """`hosts` are the names we answer to beside those of this machine, `origins` the pages that may call us. What lies
    below `open_to_all` may be looked at without a password."""

    password: str | None
    username: str = "opencode"
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    open_to_all: str = ""

    def refuse(self, method: str, headers: Mapping[str, str], path: str = "") -> Refusal | None:
        """Why a request may not come in; None if it may."""
        host = headers.get("host", "")
        if bare_host(host) not in LOCAL | self.hosts:
            return Refusal(
                status=403, name="ForbiddenError", message=f"this server does not answer to {host[:200]!r}"
            )
        origin = headers.get("origin")
        if origin is not None and origin not in self.origins:
            return Refusal(
                status=403,
                name="ForbiddenError",
                message=f"pages of {origin[:200]!r} may not call this server",
            )
        if (
            method == "OPTIONS"
            or self._is_open(method, path)
            or self._knows(headers.get("authorization", ""))
        ):
            return None
        return Refusal(
            status=401, name="UnauthorizedError", message="a password is needed: HTTP Basic, on every request"
        )

    def _is_open(self, method: str, path: str) -> bool:
        return bool(self.open_to_all) and method in ("GET", "HEAD") and path.startswith(self.open_to_all)

    def _knows(self, given: str) -> bool:
        if self.password is None:
            return True
        wanted = f"{self.username}:{self.password}".encode()
        return hmac.compare_digest(credentials_in(given), wanted)

    def shown_to(self, origin: str | None) -> dict[str, str]:
        """The headers that let a listed page read an answer."""
        if origin is None or origin not in self.origins:
            return {}
        return {"access-control-allow-origin": origin, "vary": "Origin"}


def bare_host(host: str) -> str:
    """A host without its port, in small letters. What is no host stays as it is, and is nobody's name."""
    name = host.lower()
    bare, colon, port = name.rpartition(":")
    return bare if colon and (port.isdecimal() or not port) and not bare.endswith(":") else name


def credentials_in(header: str) -> bytes:
    """What `Basic …` says; empty when it is something else."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


class Patience:
    """Wrong passwords cost time: the more of them in a row, the longer the next answer waits."""

    def __init__(self) -> None:
        self._wrong = 0

    def failed(self) -> float:
        """How many seconds to wait before saying no."""
        self._wrong += 1
        return min(LONGEST_PAUSE, 0.1 * max(0, self._wrong - WRONG_PASSWORDS_FREE))

    def succeeded(self) -> None:
        self._wrong = 0


UNAUTHORIZED: Final = 401
ASK: Final = {"www-authenticate": 'Basic realm="weft"'}
IN_PLACE_OF_ANSWER: Final = "websocket.http.response"
POLICY: Final = 1008
SWITCHED: Final = 101
LONGEST_PATH: Final = 200

Visited = Callable[[Visit], None]


class Guarded:
    """Lets in who may come in. `visited` is told of each; `names` says which path, as a pattern, an endpoint is for."""

    def __init__(
        self, app: Any, door: Door, tickets: Tickets, *, visited: Visited, names: Mapping[Any, str]
    ) -> None:
        self._app = app
        self._door = door
        self._tickets = tickets
        self._visited = visited
        self._names = names
        self._patience = Patience()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._request(scope, receive, _Noted(scope, send, self._note).send)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        refusal = self._door.refuse(scope["method"], headers, scope["path"])
        shown = self._door.shown_to(headers.get("origin"))
        if refusal is not None:
            await self._wait_for(refusal)
            await refuse(send, refusal, shown | (ASK if refusal.status == UNAUTHORIZED else {}))
            return
        if scope["method"] == "OPTIONS":
            await preflight(send, headers, shown)
            return
        self._patience.succeeded()
        await self._app(scope, receive, with_headers(send, shown) if shown else send)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._door.refuse("GET", headers_of(scope))
        if refusal is not None and not (refusal.status == UNAUTHORIZED and self._has_ticket(scope)):
            await self._wait_for(refusal)
            self._note(scope, refusal.status, 0.0)
            await _turn_away(scope, receive, send, refusal)
            return
        self._note(scope, SWITCHED, 0.0)
        await self._app(scope, receive, send)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope["path"][:LONGEST_PATH].encode("ascii", "backslashreplace").decode()
        self._visited(
            Visit(
                method=scope.get("method", "SOCKET"),
                path=path,
                route=self._names.get(scope.get("endpoint"), UNKNOWN_ROUTE),
                status=status,
                seconds=seconds,
            )
        )

    def _has_ticket(self, scope: Scope) -> bool:
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("ticket", "")
        return self._tickets.take(given, scope["path"])

    async def _wait_for(self, refusal: Refusal) -> None:
        if refusal.status == UNAUTHORIZED:
            await asyncio.sleep(self._patience.failed())


async def _turn_away(scope: Scope, receive: Receive, send: Send, refusal: Refusal) -> None:
    await receive()  # the wish to connect
    if IN_PLACE_OF_ANSWER not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": POLICY, "reason": refusal.name})
        return
    headers = [(b"content-type", b"application/json")]
    await send({"type": f"{IN_PLACE_OF_ANSWER}.start", "status": refusal.status, "headers": headers})
    await send({"type": f"{IN_PLACE_OF_ANSWER}.body", "body": refusal.body(), "more_body": False})


class _Noted:
    """Says who asked for what, how it went, and how long it took. Never what stood behind a question mark."""

    def __init__(self, scope: Scope, send: Send, note: Callable[[Scope, int, float], None]) -> None:
        self._scope = scope
        self._send = send
        self._note = note
        self._began = asyncio.get_running_loop().time()

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            took = asyncio.get_running_loop().time() - self._began
            self._note(self._scope, message["status"], took)
        await self._send(message)


def is_below(path: str, top: str) -> bool:
    """Whether a path is a directory or below it; both by their real names."""
    return path == top or path.startswith(top.rstrip(os.sep) + os.sep)


def check_known(directory: str, projects: Iterable[Project]) -> None:
    """Raises `DirectoryNotServedError` for one that is in no checkout of any project.

    What has no version control is all in one project, whose checkout is the root: that lets nobody in anywhere.
    """
    for project in projects:
        for top in (project.worktree, *project.sandboxes):
            if top.strip(os.sep) and is_below(directory, os.path.realpath(top)):
                return
    raise DirectoryNotServedError(directory)
