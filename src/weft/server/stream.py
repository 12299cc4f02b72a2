"""Events as a stream: one frame an event, each with an id to resume after."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from weft.model.surroundings import ServerConnected, ServerHeartbeat
from weft.model.wire import encode
from weft.server.feed import Feed, Numbering, Signal, Style, to_body

HEARTBEAT: Final = 10.0
HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]
CONNECTED: Final = to_body(ServerConnected())
BEAT: Final = to_body(ServerHeartbeat())

Send = Callable[[dict[str, Any]], Awaitable[None]]


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
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await self._write(send, self._begin(after))
        try:
            while not self._gone:
                ended = self._numbering.ended  # asked before looking: what is said at last is heard
                news = self._take()
                if news is None:
                    self.dropped = True
                    await self._write(send, self._own(lost("too slow")))
                    break
                await self._write(send, news)
                if ended or (self._ends and not self._at):
                    break
                if not news and not await self._signal.wait(HEARTBEAT):
                    await self._write(send, self._own(BEAT))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            for feed in self._at:
                feed.listeners[self._style.grain] -= 1

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
        feed.listeners[self._style.grain] += 1

    def _take(self) -> bytes | None:
        news: list[bytes] = []
        # Those that have closed are listed no more, and may have said something at last.
        for feed in dict.fromkeys((*self._at, *self._feeds())):
            if feed not in self._at:
                if feed.closed:
                    continue
                self._join(feed, 0)  # opened since we listen: all of it is news
            written = feed.read(self._at[feed], self._style)
            if written is None:
                return None
            self._at[feed] = feed.position()
            news.append(written)
            if feed.closed:
                del self._at[feed]
        return b"".join(news)

    def _own(self, body: bytes) -> bytes:
        """A frame of the server's own. Only one that says where a listener begins has an id to resume after."""
        return b"data: " + (b'{"payload":' + body + b"}" if self._style.wrapped else body) + b"\n\n"

    async def _write(self, send: Send, body: bytes) -> None:
        if body:
            await send({"type": "http.response.body", "body": body, "more_body": True})
