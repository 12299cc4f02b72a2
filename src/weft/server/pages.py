"""Shared sessions as pages: `/s/{shareID}`, the same as JSON, and a stream that says when there is more to see.

Whoever has the address may look, and do nothing else. So the pages ask for no password, list nothing, tell what is over
from what never was in no way, and let nobody ask too often.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from weft.api import Showing
from weft.errors import NotFoundError, WeftError
from weft.model.share import Shown
from weft.model.wire import encode
from weft.page import LIVE_POLICY, STILL_POLICY, to_notice, to_page
from weft.server.asgi import Server
from weft.server.response import Receive, Refusal, Scope, Send, headers_of, refuse

SHARES: Final = "/s/"
SHARE: Final = "/s/{shareID}"
EVERY_SECONDS: Final = 1.0
BEAT_SECONDS: Final = 15.0
LONGEST_SECONDS: Final = 60 * 60.0
MOST_STREAMS: Final = 100
MOST_AT_ONCE: Final = 200
A_SECOND: Final = 40
MOST_PAGES: Final = 32

NOTHING_RUNS: Final = "default-src 'none'; frame-ancestors 'none'"
SAFE: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "x-robots-tag": "noindex, nofollow",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
HTML: Final = "text/html"
NOT_HERE: Final = Refusal(status=404, name="NotFoundError", message="there is nothing to be seen here")
NOT_NOW: Final = Refusal(status=503, name="UnavailableError", message="it cannot be shown now")
TOO_OFTEN: Final = Refusal(
    status=429, name="TooManyError", message="too many ask at once: try again in a moment"
)


class Bucket:
    """So many at once, and so many a second from then on, whoever it is that asks."""

    def __init__(self, *, size: int = MOST_AT_ONCE, rate: float = A_SECOND) -> None:
        self._size = size
        self._rate = rate
        self._left = float(size)
        self._at = 0.0

    def take(self, now: float) -> bool:
        self._left = min(self._size, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Gallery:
    """What is shown, each page laid out once for all who look at it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.bucket = Bucket()
        self.streams = 0
        self._pages: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._pulses: OrderedDict[str, tuple[float, str]] = OrderedDict()

    async def showing(self) -> Showing:
        return (await self.server.open(self.server.setup.here)).sharing.showing

    async def page(self, id: str) -> bytes:
        showing = await self.showing()
        pulse = await showing.feel_pulse(id)
        known = self._pages.get(id)
        if known is not None and known[0] == pulse:
            return known[1]
        shown = await showing.get_shown(id)
        page = await asyncio.to_thread(_live_page, shown)
        self._pages[id] = pulse, page
        self._pages.move_to_end(id)
        while len(self._pages) > MOST_PAGES:
            self._pages.popitem(last=False)
        return page

    async def data(self, id: str) -> bytes:
        return encode((await (await self.showing()).get_shown(id)).parcel)

    async def pulse(self, id: str) -> str:
        """Felt once a second, however many look."""
        now = asyncio.get_running_loop().time()
        felt = self._pulses.get(id)
        if felt is not None and now - felt[0] < EVERY_SECONDS / 2:
            return felt[1]
        try:
            pulse = await (await self.showing()).feel_pulse(id)
        except NotFoundError:
            self._pulses.pop(id, None)
            raise
        self._pulses[id] = now, pulse
        while len(self._pulses) > MOST_STREAMS:
            self._pulses.popitem(last=False)
        return pulse


def _live_page(shown: Shown) -> bytes:
    return to_page(shown, kind="live")


class Hung:
    """One of the routes of a share."""

    def __init__(self, gallery: Gallery) -> None:
        self._gallery = gallery

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._gallery.bucket.take(asyncio.get_running_loop().time()):
            await _refuse(scope, send, TOO_OFTEN, {"retry-after": "1"})
            return
        try:
            await self._answer(scope["path_params"]["shareID"], receive, send)
        except WeftError as error:
            # What is wrong here is nobody else's business.
            await _refuse(scope, send, NOT_HERE if isinstance(error, NotFoundError) else NOT_NOW, {})

    async def _answer(self, id: str, receive: Receive, send: Send) -> None:
        raise NotImplementedError


class Page(Hung):
    async def _answer(self, id: str, receive: Receive, send: Send) -> None:
        del receive
        page = await self._gallery.page(id)
        headers = {"content-type": f"{HTML}; charset=utf-8", "content-security-policy": LIVE_POLICY}
        await _send(send, page, headers)


class Data(Hung):
    async def _answer(self, id: str, receive: Receive, send: Send) -> None:
        del receive
        data = await self._gallery.data(id)
        headers = {"content-type": "application/json; charset=utf-8", "content-security-policy": NOTHING_RUNS}
        await _send(send, data, headers)


class Nothing(Hung):
    """Whatever else is asked for below the pages."""

    async def _answer(self, id: str, receive: Receive, send: Send) -> None:
        del receive, send
        raise NotFoundError("share", id[:80])


class Live(Hung):
    """Says `changed` when there is more to see, and `ended` when there is nothing any more."""

    async def _answer(self, id: str, receive: Receive, send: Send) -> None:
        gallery = self._gallery
        pulse = await gallery.pulse(id)
        if gallery.streams >= MOST_STREAMS:
            await refuse(send, TOO_OFTEN, SAFE | {"retry-after": "10"})
            return
        gallery.streams += 1
        gone = asyncio.ensure_future(_hung_up(receive))
        try:
            await _start(send, {"content-type": "text/event-stream", "content-security-policy": NOTHING_RUNS})
            await self._tell(id, pulse, gone, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gallery.streams -= 1
            gone.cancel()

    async def _tell(self, id: str, pulse: str, gone: asyncio.Future[None], send: Send) -> None:
        clock = asyncio.get_running_loop().time
        began = told = clock()
        await _write(send, b": here\n\n")
        while not self._gallery.server.numbering.ended and clock() - began < LONGEST_SECONDS:
            done, _ = await asyncio.wait([gone], timeout=EVERY_SECONDS)
            if done:
                return
            try:
                now = await self._gallery.pulse(id)
            except WeftError:
                await _write(send, b"event: ended\ndata: ended\n\n")
                return
            if now != pulse:
                pulse, told = now, clock()
                await _write(send, b"event: changed\ndata: changed\n\n")
            elif clock() - told > BEAT_SECONDS:
                told = clock()
                await _write(send, b": here\n\n")


async def _refuse(scope: Scope, send: Send, refusal: Refusal, more: Mapping[str, str]) -> None:
    """To who looks with a browser as a page, to programs as any other refusal."""
    headers = {**SAFE, **more, "vary": "accept"}
    if HTML not in headers_of(scope).get("accept", ""):
        await refuse(send, refusal, {**headers, "content-security-policy": NOTHING_RUNS})
        return
    about = {"content-type": f"{HTML}; charset=utf-8", "content-security-policy": STILL_POLICY}
    await _send(send, to_notice(refusal.message), {**headers, **about}, status=refusal.status)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _start(send: Send, headers: Mapping[str, str], *, status: int = 200) -> None:
    raw = [(name.encode(), value.encode()) for name, value in {**SAFE, **headers}.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


async def _write(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _send(send: Send, body: bytes, headers: Mapping[str, str], *, status: int = 200) -> None:
    await _start(send, {**headers, "content-length": str(len(body))}, status=status)
    await send({"type": "http.response.body", "body": body})
