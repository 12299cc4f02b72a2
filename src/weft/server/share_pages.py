"""Serve shared sessions: `/s/{shareID}` as a page, as JSON, and as a stream of changes.

Anybody who has the address may look, and do nothing else. So the pages need no password, list nothing, give the same
answer for an expired share as for one that never existed, and limit the rate of requests.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from weft.api.sharing import SharePages
from weft.errors import NotFoundError, WeftError
from weft.model.share import SharedSession
from weft.model.wire import encode
from weft.page.document import LIVE_POLICY, STATIC_POLICY, render_notice, render_page
from weft.server.http_server import HttpServer
from weft.server.response import ErrorResponse, Receive, Scope, Send, read_headers, send_error

POLL_SECONDS: Final = 1.0
HEARTBEAT_SECONDS: Final = 15.0
MAX_STREAM_SECONDS: Final = 60 * 60.0
MAX_STREAMS: Final = 100
MAX_BURST: Final = 200
REQUESTS_PER_SECOND: Final = 40
MAX_PAGES: Final = 32

EMPTY_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
SAFE_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "x-robots-tag": "noindex, nofollow",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
HTML: Final = "text/html"
NOT_FOUND: Final = ErrorResponse(status=404, name="NotFoundError", message="there is no such page")
UNAVAILABLE: Final = ErrorResponse(
    status=503, name="UnavailableError", message="the page cannot be shown now"
)
TOO_MANY_REQUESTS: Final = ErrorResponse(
    status=429, name="TooManyError", message="too many requests: try again in a moment"
)


class RateLimit:
    """A token bucket for all callers together: a burst of `size` requests, then `rate` requests a second."""

    def __init__(self, *, size: int = MAX_BURST, rate: float = REQUESTS_PER_SECOND) -> None:
        self._size = size
        self._rate = rate
        self._tokens = float(size)
        self._updated_at = 0.0

    def take(self, now: float) -> bool:
        self._tokens = min(self._size, self._tokens + (now - self._updated_at) * self._rate)
        self._updated_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class SharePageCache:
    """Renders a shared page when it has changed, and keeps it for all who look at it."""

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self.rate_limit = RateLimit()
        self.streams = 0
        self._pages: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._versions: OrderedDict[str, tuple[float, str]] = OrderedDict()

    async def _get_share_pages(self) -> SharePages:
        return (await self.server.get_api(self.server.setup.default_directory)).sharing.pages

    async def render(self, id: str) -> bytes:
        """Return the page of a share, from the cache if nothing changed."""
        share_pages = await self._get_share_pages()
        version = await share_pages.get_revision(id)
        cached = self._pages.get(id)
        if cached is not None and cached[0] == version:
            return cached[1]
        session = await share_pages.get_share(id)
        page = await asyncio.to_thread(_render_live_page, session)
        self._pages[id] = version, page
        self._pages.move_to_end(id)
        while len(self._pages) > MAX_PAGES:
            self._pages.popitem(last=False)
        return page

    async def encode(self, id: str) -> bytes:
        """Return the shared session as JSON."""
        return encode((await (await self._get_share_pages()).get_share(id)).export)

    async def get_version(self, id: str) -> str:
        """Return a text that changes with the share. It is read at most twice a second for all who look."""
        now = asyncio.get_running_loop().time()
        cached = self._versions.get(id)
        if cached is not None and now - cached[0] < POLL_SECONDS / 2:
            return cached[1]
        try:
            version = await (await self._get_share_pages()).get_revision(id)
        except NotFoundError:
            self._versions.pop(id, None)
            raise
        self._versions[id] = now, version
        while len(self._versions) > MAX_STREAMS:
            self._versions.popitem(last=False)
        return version


def _render_live_page(session: SharedSession) -> bytes:
    return render_page(session, kind="live")


class ShareEndpoint:
    """Base of the endpoints of a share: limits the rate of requests and hides errors."""

    def __init__(self, pages: SharePageCache) -> None:
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._pages.rate_limit.take(asyncio.get_running_loop().time()):
            await _send_refusal(scope, send, TOO_MANY_REQUESTS, {"retry-after": "1"})
            return
        try:
            await self._answer(scope["path_params"]["shareID"], receive, send)
        except WeftError as error:
            # Visitors learn nothing about our errors.
            await _send_refusal(
                scope, send, NOT_FOUND if isinstance(error, NotFoundError) else UNAVAILABLE, {}
            )

    async def _answer(self, id: str, receive: Receive, send: Send) -> None:
        raise NotImplementedError


class SharePageEndpoint(ShareEndpoint):
    async def _answer(self, id: str, receive: Receive, send: Send) -> None:
        del receive
        page = await self._pages.render(id)
        headers = {"content-type": f"{HTML}; charset=utf-8", "content-security-policy": LIVE_POLICY}
        await _send(send, page, headers)


class ShareDataEndpoint(ShareEndpoint):
    async def _answer(self, id: str, receive: Receive, send: Send) -> None:
        del receive
        data = await self._pages.encode(id)
        headers = {"content-type": "application/json; charset=utf-8", "content-security-policy": EMPTY_POLICY}
        await _send(send, data, headers)


class MissingShareEndpoint(ShareEndpoint):
    """Answers every other path below `/s/`."""

    async def _answer(self, id: str, receive: Receive, send: Send) -> None:
        del receive, send
        raise NotFoundError("share", id[:80])


class ShareLiveEndpoint(ShareEndpoint):
    """Sends `changed` when there is more to see, and `ended` when the share has ended."""

    async def _answer(self, id: str, receive: Receive, send: Send) -> None:
        pages = self._pages
        version = await pages.get_version(id)
        if pages.streams >= MAX_STREAMS:
            await send_error(send, TOO_MANY_REQUESTS, SAFE_HEADERS | {"retry-after": "10"})
            return
        pages.streams += 1
        disconnected = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await _start(send, {"content-type": "text/event-stream", "content-security-policy": EMPTY_POLICY})
            await self._send_changes(id, version, disconnected, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            pages.streams -= 1
            disconnected.cancel()

    async def _send_changes(
        self, id: str, version: str, disconnected: asyncio.Future[None], send: Send
    ) -> None:
        clock = asyncio.get_running_loop().time
        started = sent = clock()
        await _write(send, b": here\n\n")
        while not self._pages.server.counter.ended and clock() - started < MAX_STREAM_SECONDS:
            done, _ = await asyncio.wait([disconnected], timeout=POLL_SECONDS)
            if done:
                return
            latest = version
            try:
                latest = await self._pages.get_version(id)
            except NotFoundError:
                await _write(send, b"event: ended\ndata: ended\n\n")
                return
            except WeftError:
                pass  # the store may answer again later
            if latest != version:
                version, sent = latest, clock()
                await _write(send, b"event: changed\ndata: changed\n\n")
            elif clock() - sent > HEARTBEAT_SECONDS:
                sent = clock()
                await _write(send, b": here\n\n")


async def _send_refusal(scope: Scope, send: Send, error: ErrorResponse, extra: Mapping[str, str]) -> None:
    """Send an error: as a page to a browser, as JSON to a program."""
    headers = {**SAFE_HEADERS, **extra, "vary": "accept"}
    if HTML not in read_headers(scope).get("accept", ""):
        await send_error(send, error, {**headers, "content-security-policy": EMPTY_POLICY})
        return
    content_headers = {"content-type": f"{HTML}; charset=utf-8", "content-security-policy": STATIC_POLICY}
    await _send(send, render_notice(error.message), {**headers, **content_headers}, status=error.status)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _start(send: Send, headers: Mapping[str, str], *, status: int = 200) -> None:
    raw = [(name.encode(), value.encode()) for name, value in {**SAFE_HEADERS, **headers}.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


async def _write(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _send(send: Send, body: bytes, headers: Mapping[str, str], *, status: int = 200) -> None:
    await _start(send, {**headers, "content-length": str(len(body))}, status=status)
    await send({"type": "http.response.body", "body": body})
