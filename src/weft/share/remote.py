"""Share servers over HTTP, in the words that OpenCode's have: `POST /api/share`, `…/{id}/sync`, `DELETE …/{id}`."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import httpx2
from msgspec import Struct

from weft.errors import DocumentError, InvalidInputError, SharingError
from weft.host.clock import Clock
from weft.model.ids import SessionID
from weft.model.share import ShareItem, ShareTicket
from weft.model.wire import encode, parse, to_plain
from weft.share.contract import GoneError, to_address
from weft.share.records import Record
from weft.version import VERSION

SECONDS: Final = 15.0
LARGEST_ANSWER: Final = 64 * 1024
PAUSES: Final = (0.5, 1.0, 2.0)
ID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,127}")
WORTH_ANOTHER_TRY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
GONE: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})


class Request(Struct, frozen=True, kw_only=True):
    method: str
    server: str
    path: str
    body: Any


class ShareServers:
    """`Remote` over HTTP. Redirects are not followed: a secret is sent to whom it was given by, and to nobody else."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def create(self, server: str, session: SessionID, *, expires: int | None) -> ShareTicket:
        # OpenCode's servers pass over what they do not know; ours keep to it.
        body = {"sessionID": session} | ({} if expires is None else {"expires": expires})
        answer = await self._send(Request(method="POST", server=server, path="/api/share", body=body))
        return _to_ticket(answer, server)

    async def sync(self, record: Record, items: Iterable[ShareItem]) -> None:
        body = {"secret": record.secret, "data": [to_plain(item) for item in items]}
        await self._send(_about(record, "POST", "/sync", body))

    async def remove(self, record: Record) -> None:
        try:
            await self._send(_about(record, "DELETE", "", {"secret": record.secret}))
        except GoneError:
            return

    async def _send(self, request: Request) -> bytes:
        for pause in PAUSES:
            try:
                return await _once(request)
            except _AgainError:
                await self._clock.sleep(pause)
        return await _once(request)


class _AgainError(SharingError):
    """It may go better a moment later."""


def _about(record: Record, method: str, end: str, body: Any) -> Request:
    # What OpenCode wrote down does not say which server it was: it is the one that shows it.
    server = record.server or origin_of(record.url)
    return Request(
        method=method, server=server, path=f"/api/share/{quote(record.id, safe='')}{end}", body=body
    )


async def _once(request: Request) -> bytes:
    address, login = split_login(request.server)
    headers = {"content-type": "application/json", "user-agent": f"weft/{VERSION}"}
    direct = _is_here(address)
    try:
        async with (
            httpx2.AsyncClient(timeout=SECONDS, trust_env=not direct, auth=login) as client,
            client.stream(
                request.method, address + request.path, content=encode(request.body), headers=headers
            ) as response,
        ):
            _check(response.status_code, address)
            return await _read(response, address)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise _AgainError(f"{address} did not answer: {str(error) or type(error).__name__}") from error


def _check(status: int, address: str) -> None:
    if status in GONE:
        raise GoneError(f"{address} does not know this share")
    if status in WORTH_ANOTHER_TRY:
        raise _AgainError(f"{address} answered with status {status}")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        hint = "if it wants a password, say it in the address: https://name:password@host"
        raise SharingError(f"{address} refused: status {status}", hint=hint)
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise SharingError(f"{address} answered with status {status}")


async def _read(response: httpx2.Response, address: str) -> bytes:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > LARGEST_ANSWER:
            raise SharingError(f"{address} answered with far too much")
    return bytes(body)


def _to_ticket(answer: bytes, server: str) -> ShareTicket:
    """OpenCode stores whatever comes back, an error page too. Here it must be a share."""
    address, _ = split_login(server)
    try:
        match parse(answer):
            case {"id": str(id), "url": str(url), "secret": str(secret)} if ID.fullmatch(id) and secret:
                return ShareTicket(id=id, url=to_address(url, "url"), secret=secret)
            case _:
                raise SharingError(f"{address} answered with something else than a share")
    except (DocumentError, InvalidInputError) as error:
        raise SharingError(f"{address} answered with something else than a share: {error}") from error


def split_login(server: str) -> tuple[str, tuple[str, str] | None]:
    """An address, and who we are there."""
    parts = urlsplit(server)
    bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    if parts.username is None:
        return bare, None
    return bare, (unquote(parts.username), unquote(parts.password or ""))


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _is_here(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
