"""The streams on the wire: `/event` tells of one directory, `/global/event` of all that are open."""

import asyncio
from typing import Any
from urllib.parse import parse_qsl

from weft.errors import WeftError
from weft.server.asgi import Server
from weft.server.feed import Grain, Style
from weft.server.refusal import to_refusal
from weft.server.sending import Receive, Scope, Send, headers_of, refuse
from weft.server.stream import Listening


class EventsOfOne:
    """Whole parts unless `?deltas=1`: clients of 1.1.34 and scripts listen here, and do not know growth."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            feed = (await self._server.opened().get(self._server.directory_of(scope))).feed
        except WeftError as error:
            await refuse(send, to_refusal(error))
            return
        grain: Grain = "fine" if _asked(scope).get("deltas") in {"1", "true"} else "whole"
        style = Style(grain=grain, wrapped=False)
        listening = Listening(lambda: (feed,), self._server.numbering, feed.signal, style, ends=True)
        await _serve(listening, scope, receive, send)


class EventsOfAll:
    """Clients of 1.18 listen here, and know growth."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        numbering = self._server.numbering
        style = Style(grain="fine", wrapped=True)
        feeds = self._server.opened().feeds
        listening = Listening(feeds, numbering, numbering.signal, style, ends=False)
        await _serve(listening, scope, receive, send)


async def _serve(listening: Listening, scope: Scope, receive: Receive, send: Send) -> None:
    after = headers_of(scope).get("last-event-id") or _asked(scope).get("after")
    watching = asyncio.ensure_future(_watch(receive, listening))
    try:
        await listening.serve(send, after=after)
    finally:
        watching.cancel()


async def _watch(receive: Receive, listening: Listening) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    listening.leave()


def _asked(scope: Scope) -> dict[str, Any]:
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
