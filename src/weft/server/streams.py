"""Event streams over HTTP: one frame per event, each with an id to resume after."""

import asyncio
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final
from urllib.parse import parse_qsl

from weft.errors import WeftError
from weft.model.wire import encode
from weft.model.workspace_event import ServerConnected, ServerHeartbeat
from weft.server.asgi import Server
from weft.server.feed import ENDLESS, PIECE, Feed, Grain, Numbering, Signal, Style, to_body
from weft.server.metrics import Tally, single
from weft.server.response import Receive, Scope, Send, headers_of, refuse, to_refusal

HEARTBEAT: Final = 10.0
HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]
CONNECTED: Final = to_body(ServerConnected())
BEAT: Final = to_body(ServerHeartbeat())


def lost(reason: str) -> bytes:
    """Told instead of what can no longer be told: the listener has to read everything again."""
    return encode({"type": "server.resync", "properties": {"reason": reason}})


class Listening:
    """One listener, on one feed or on all there are, which may become more while it listens.

    One that `ends` does so with its feed: a client of OpenCode takes the end as a sign to begin anew.
    """

    def __init__(
        self,
        feeds: Callable[[], Sequence[Feed]],
        numbering: Numbering,
        signal: Signal,
        style: Style,
        *,
        ends: bool,
    ) -> None:
        self._feeds = feeds
        self._numbering = numbering
        self._signal = signal
        self._style = style
        self._at: dict[Feed, int] = {}
        self._ends = ends
        self._gone = False
        self.dropped = False  # sent away, for it was too slow

    def leave(self) -> None:
        """The client has hung up."""
        self._gone = True
        self._signal.wake()

    async def serve(self, send: Send, *, after: str | None) -> None:
        """Until the client has gone, or has fallen so far behind that it is sent away with the reason."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await self._write(send, self._begin(after))
            while not self._gone:
                ended = self._numbering.ended  # asked before looking: what is said at last is heard
                news = self._take()
                if news is None:
                    self.dropped = True
                    await self._write(send, self._own(lost("too slow")))
                    break
                await self._write(send, news)
                if news:
                    continue  # there may be more of it
                if ended or (self._ends and not self._at):
                    break
                if not await self._signal.wait(HEARTBEAT):
                    await self._write(send, self._own(BEAT))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            for feed in self._at:
                feed.leave(self._style.grain)

    def _begin(self, after: str | None) -> bytes:
        """Find where to read from, and say so. What was heard before is known by its id, if all since is still held."""
        for feed in self._feeds():
            self._join(feed, feed.position())
        here = b"id: %s.%d\n" % (self._numbering.name.encode(), self._numbering.last)
        if after is None:
            return here + self._own(CONNECTED)
        heard = self._numbering.find(after)
        positions = {feed: None if heard is None else feed.position_after(heard) for feed in self._at}
        if heard is None or None in positions.values():
            return self._own(CONNECTED) + here + self._own(lost("too old"))
        self._at.update({feed: at for feed, at in positions.items() if at is not None})
        return self._own(CONNECTED)

    def _join(self, feed: Feed, position: int) -> None:
        self._at[feed] = position
        feed.join(self._style.grain)

    def _take(self) -> bytes | None:
        """What is new, in the order it happened, whichever directory it was in: who is cut off and goes on after the last
        id it heard has then heard all before it."""
        for feed in self._feeds():
            if feed not in self._at and not feed.closed:
                self._join(feed, 0)  # opened since we listen: all of it is news
        news: list[bytes] = []
        size = 0
        while size < PIECE and (turns := self._turns()):
            feed = turns[0][1]
            read = feed.read(self._at[feed], self._style, before=turns[1][0] if turns[1:] else ENDLESS)
            if read is None:
                return None
            written, self._at[feed] = read
            news.append(written)
            size += len(written)
        # Those that have closed are listed no more, and may have said something at last.
        for feed in [each for each, at in self._at.items() if each.closed and at == each.position()]:
            del self._at[feed]
        return b"".join(news)

    def _turns(self) -> list[tuple[int, Feed]]:
        """The feeds that have something new, by the number of it."""
        numbers = ((feed.number_at(at), feed) for feed, at in self._at.items())
        return sorted(((number, feed) for number, feed in numbers if number is not None), key=itemgetter(0))

    def _own(self, body: bytes) -> bytes:
        """A frame of the server's own. Only one that says where a listener begins has an id to resume after."""
        return b"data: " + (b'{"payload":' + body + b"}" if self._style.wrapped else body) + b"\n\n"

    async def _write(self, send: Send, body: bytes) -> None:
        if body:
            await send({"type": "http.response.body", "body": body, "more_body": True})


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
