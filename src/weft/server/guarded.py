"""The door before everything else, unknown paths and sockets included; and one line for each who came."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from weft.server.door import Door, Patience
from weft.server.measure import UNKNOWN_ROUTE, Visit
from weft.server.refusal import Refusal
from weft.server.sending import Receive, Scope, Send, headers_of, preflight, refuse, with_headers
from weft.server.tickets import Tickets

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
