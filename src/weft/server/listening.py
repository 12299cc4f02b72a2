"""The streams on the wire: `/event` tells of one directory, `/global/event` of all that are open."""

import asyncio
from typing import Any
from urllib.parse import parse_qsl

from weft.errors import WeftError
from weft.server.asgi import Server
from weft.server.feed import Grain, Style
from weft.server.measure import single
from weft.server.refusal import to_refusal
from weft.server.sending import Receive, Scope, Send, headers_of, refuse
from weft.server.stream import Listening
from weft.server.tally import Tally


class EventsOfOne:
    """Whole parts unless `?deltas=1`: clients of 1.1.34 and scripts listen here, and do not know growth."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            feed = (await self._server.find(self._server.directory_of(scope))).feed
        except WeftError as error:
            await refuse(send, to_refusal(error))
            return
        grain: Grain = "fine" if _asked(scope).get("deltas") in {"1", "true"} else "whole"
        style = Style(grain=grain, wrapped=False)
        listening = Listening(lambda: (feed,), self._server.numbering, feed.signal, style, ends=True)
        await _serve(listening, scope, receive, send, tally=self._server.tally)


class EventsOfAll:
    """Clients of 1.18 listen here, and know growth."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        numbering = self._server.numbering
        style = Style(grain="fine", wrapped=True)
        feeds = self._server.opened().feeds
        listening = Listening(feeds, numbering, numbering.signal, style, ends=False)
        await _serve(listening, scope, receive, send, tally=self._server.tally)


async def _serve(listening: Listening, scope: Scope, receive: Receive, send: Send, *, tally: Tally) -> None:
    after = headers_of(scope).get("last-event-id") or _asked(scope).get("after")
    watching = asyncio.ensure_future(_watch(receive, listening))
    tally.streams += 1
    try:
        await listening.serve(send, after=after)
    finally:
        tally.streams -= 1
        tally.dropped += listening.dropped
        watching.cancel()


class Numbers:
    """The server's numbers, as text."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        server = self._server
        directories = len(server.opened().list_open())
        lines = [
            *single("weft_directories", "gauge", "Directories that are open.", directories),
            *single("weft_ending", "gauge", "Whether the server takes no more work.", server.ending),
            *server.tally.lines(),
            *server.requests.lines(),
        ]
        headers = [
            (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": ("\n".join(lines) + "\n").encode()})


async def _watch(receive: Receive, listening: Listening) -> None:
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    finally:  # however the connection ends, its listener goes
        listening.leave()


def _asked(scope: Scope) -> dict[str, Any]:
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
