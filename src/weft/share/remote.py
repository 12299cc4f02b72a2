"""Share servers over HTTP, with OpenCode's routes: `POST /api/share`, `POST …/{id}/sync`, `DELETE …/{id}`."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import httpx2

from weft.errors import DocumentError, InvalidInputError, SharingError
from weft.host.clock import Clock
from weft.model.ids import SessionID
from weft.model.share import ShareItem, ShareTicket
from weft.model.url import is_loopback_host
from weft.model.wire import encode, parse, to_plain
from weft.share.contract import GoneError, check_address
from weft.share.records import ShareRecord
from weft.version import VERSION

REQUEST_TIMEOUT_SECONDS: Final = 15.0
MAX_ANSWER_BYTES: Final = 64 * 1024
RETRY_DELAYS_SECONDS: Final = (0.5, 1.0, 2.0)
SHARE_ID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,127}")
RETRY_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
GONE_STATUSES: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})


class HttpShareClient:
    """`ShareClient` over HTTP. Redirects are not followed: a secret is sent only to the server that issued it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def create(self, server: str, session: SessionID, *, expires: int | None) -> ShareTicket:
        # OpenCode's servers ignore unknown fields; ours use it.
        body = {"sessionID": session} | ({} if expires is None else {"expires": expires})
        return to_ticket(await self._send("POST", server, "/api/share", body), server)

    async def sync(self, record: ShareRecord, items: Iterable[ShareItem]) -> None:
        body = {"secret": record.secret, "data": [to_plain(item) for item in items]}
        await self._send("POST", _get_server(record), f"{_get_path(record)}/sync", body)

    async def remove(self, record: ShareRecord) -> None:
        try:
            await self._send("DELETE", _get_server(record), _get_path(record), {"secret": record.secret})
        except GoneError:
            return

    async def _send(self, method: str, server: str, path: str, body: Any) -> bytes:
        """Send a request, and retry after temporary errors. Return the body of the answer."""
        for delay in RETRY_DELAYS_SECONDS:
            try:
                return await _send_once(method, server, path, body)
            except _RetryError:
                await self._clock.sleep(delay)
        return await _send_once(method, server, path, body)


class _RetryError(SharingError):
    """A temporary error."""


def _get_server(record: ShareRecord) -> str:
    # OpenCode's record does not name the server: it is the one that shows the share.
    return record.server or get_origin(record.url)


def _get_path(record: ShareRecord) -> str:
    return f"/api/share/{quote(record.id, safe='')}"


async def _send_once(method: str, server: str, path: str, body: Any) -> bytes:
    address, login = split_login(server)
    headers = {"content-type": "application/json", "user-agent": f"weft/{VERSION}"}
    is_local = _is_local(address)
    try:
        async with (
            httpx2.AsyncClient(timeout=REQUEST_TIMEOUT_SECONDS, trust_env=not is_local, auth=login) as client,
            client.stream(method, address + path, content=encode(body), headers=headers) as response,
        ):
            _check_status(response.status_code, address)
            return await _read_body(response, address)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise _RetryError(
            f"{address} did not answer: {str(error) or type(error).__name__}",
            hint="check the address and that its server runs",
        ) from error


def _check_status(status: int, address: str) -> None:
    if status in GONE_STATUSES:
        raise GoneError(f"{address} does not know this share")
    if status in RETRY_STATUSES:
        raise _RetryError(f"{address} answered with status {status}")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        hint = "if it wants a password, put it in the address: https://name:password@host"
        raise SharingError(f"{address} refused: status {status}", hint=hint)
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise SharingError(f"{address} answered with status {status}")


async def _read_body(response: httpx2.Response, address: str) -> bytes:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise SharingError(f"{address} answered with too much data")
    return bytes(body)


def to_ticket(answer: bytes, server: str) -> ShareTicket:
    """Return the share in an answer. Raise `SharingError` if it is none: OpenCode stores any answer, even an error page."""
    address, _ = split_login(server)
    try:
        match parse(answer):
            case {"id": str(id), "url": str(url), "secret": str(secret)} if SHARE_ID.fullmatch(id) and secret:
                return ShareTicket(id=id, url=check_address(url, "url"), secret=secret)
            case _:
                raise SharingError(f"{address} answered with something other than a share")
    except (DocumentError, InvalidInputError) as error:
        raise SharingError(f"{address} answered with something other than a share: {error}") from error


def split_login(server: str) -> tuple[str, tuple[str, str] | None]:
    """Return the address of a server without credentials, and its user name and password, if it contains them."""
    parts = urlsplit(server)
    address = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    if parts.username is None:
        return address, None
    return address, (unquote(parts.username), unquote(parts.password or ""))


def get_origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _is_local(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    return is_loopback_host(host)
