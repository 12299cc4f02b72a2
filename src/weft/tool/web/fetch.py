"""Fetch a page for the model, over http and https, no further than is allowed."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from weft.errors import ToolError
from weft.tool.contract import ToolContext
from weft.tool.reach import proxy_for
from weft.version import VERSION

LIMIT: Final = 5 * 1024 * 1024
HOPS: Final = 10
TRIED: Final = 3
PRIVATE: Final = "webfetch_private"

_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_PORTS: Final = {"http": 80, "https": 443}
_TOO_LARGE: Final = "Response too large (exceeds 5MB limit)"


class Page(Struct, frozen=True, kw_only=True):
    """What a URL gave in the end: the kind of content it says it is, and the bytes."""

    url: str
    kind: str
    raw: bytes


class Wanted(Struct, frozen=True, kw_only=True):
    """A URL, what to accept, and how many seconds it may take in all."""

    url: str
    accept: str
    seconds: float
    metadata: dict[str, Any]


async def fetch(wanted: Wanted, ctx: ToolContext) -> Page:
    """Follow a URL to its end. Every hop is held against the rules, and against the addresses that are not public."""
    async with AsyncExitStack() as held:
        getter, url = _Getter(wanted, ctx, held), wanted.url
        for _ in range(HOPS + 1):
            found = await getter.get(url)
            if isinstance(found, Page):
                return found
            url = found
    raise ToolError(f"{wanted.url} leads on and on: more than {HOPS} redirects.")


class _Getter:
    """A fetch under way: which hosts were allowed, and how much time is left."""

    def __init__(self, wanted: Wanted, ctx: ToolContext, held: AsyncExitStack) -> None:
        self._wanted = wanted
        self._ctx = ctx
        self._held = held
        self._clients: dict[str | None, Any] = {}
        self._left = wanted.seconds
        self._private: set[str] = set()

    async def get(self, url: str) -> Page | str:
        """The page, or the URL it is to be had from."""
        _check_url(url)
        metadata = self._wanted.metadata
        await self._ctx.ask("webfetch", url, always=("*",), metadata=metadata)
        proxy = proxy_for(url, self._ctx.desk.environment)
        async with self._timed():
            addresses = await self._addresses(url, proxied=proxy is not None)
        await self._ask_if_private(url, addresses)
        async with self._timed():
            return await self._try_each(url, addresses, proxy)

    @asynccontextmanager
    async def _timed(self) -> AsyncIterator[None]:
        """What is done within counts; a person's thinking does not."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._left):
                yield
        except TimeoutError:
            said = f"{self._wanted.seconds:g} seconds"
            raise ToolError(f"{self._wanted.url} did not answer within {said}.") from None
        finally:
            self._left = max(0.0, self._left - (clock() - began))

    async def _addresses(self, url: str, *, proxied: bool) -> tuple[str, ...]:
        """Where the host is. Behind a proxy only what the name itself says is known."""
        host, port = _host(url), _port(url)
        if (address := _as_address(host)) is not None:
            return (address,)
        if proxied:
            return ("127.0.0.1",) if host == "localhost" or host.endswith(".localhost") else ()
        return await self._ctx.desk.reach.resolve(host, port)

    async def _ask_if_private(self, url: str, addresses: tuple[str, ...]) -> None:
        """OpenCode fetches whatever it is told to: the router, the database, the cloud's own credentials."""
        reach = self._ctx.desk.reach
        origin = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"
        if origin in self._private or all(reach.is_public(each) for each in addresses):
            return
        metadata = {**self._wanted.metadata, "addresses": list(addresses)}
        await self._ctx.ask(PRIVATE, url, always=(f"{origin}/*",), metadata=metadata)
        self._private.add(origin)

    async def _try_each(self, url: str, addresses: tuple[str, ...], proxy: str | None) -> Page | str:
        """Go to the very address that was judged: looked up again, the name may lead elsewhere."""
        httpx2 = import_module("httpx2")  # late: most runs fetch nothing
        through: tuple[str | None, ...] = (None,) if proxy else addresses[:TRIED]
        error: Exception | None = None
        if proxy not in self._clients:
            client = httpx2.AsyncClient(trust_env=False, proxy=proxy, timeout=None)
            self._clients[proxy] = await self._held.enter_async_context(client)
        for address in through:
            try:
                return await self._take(self._clients[proxy], httpx2.URL(url), address)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as failed:
                error = failed
            except (httpx2.HTTPError, httpx2.InvalidURL) as failed:
                raise ToolError(_unanswered(url, failed)) from failed
        raise ToolError(_unanswered(url, error)) from error

    async def _take(self, client: Any, url: Any, address: str | None) -> Page | str:
        headers = {
            "accept": self._wanted.accept,
            "accept-encoding": "gzip",
            "accept-language": "en-US,en;q=0.9",
            "host": url.netloc.decode("ascii"),
            # OpenCode says that it is a browser.
            "user-agent": f"weft/{VERSION}",
        }
        name = {"sni_hostname": url.raw_host.decode("ascii")}
        where = url if address is None else url.copy_with(host=address)
        async with client.stream("GET", where, headers=headers, extensions=name) as response:
            if response.status_code in _MOVED and (location := response.headers.get("location")):
                return urljoin(str(url), str(location))
            if not response.is_success:
                raise ToolError(f"Request failed with status code: {response.status_code}")
            raw = await _body(response)
            return Page(url=str(url), kind=response.headers.get("content-type", ""), raw=raw)


async def _body(response: Any) -> bytes:
    said = response.headers.get("content-length", "")
    if said.isdecimal() and int(said) > LIMIT:
        raise ToolError(_TOO_LARGE)
    raw = bytearray()
    async for piece in response.aiter_bytes():
        raw += piece
        if len(raw) > LIMIT:
            raise ToolError(_TOO_LARGE)
    return bytes(raw)


def _check_url(url: str) -> None:
    if not url.lower().startswith(("http://", "https://")):
        raise ToolError("URL must start with http:// or https://")
    try:
        parts = urlsplit(url)
        valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or any(ord(each) <= ord(" ") for each in url):
        raise ToolError(f"{url!r} is not an address.")


def _host(url: str) -> str:
    return (urlsplit(url).hostname or "").rstrip(".")


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or _PORTS[parts.scheme.lower()]


def _as_address(host: str) -> str | None:
    """The address that a host is written as, if it is; also in the old ways, as `127.1` or `0x7f000001`."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None


def _unanswered(url: str, error: Exception | None) -> str:
    reason = str(error) or type(error).__name__ if error else "no address"
    return f"{url} did not answer: {reason}"
