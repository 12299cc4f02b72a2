"""The `webfetch` tool: fetch a page over HTTP, and ask before reaching a private address."""

import asyncio
import re
import socket
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from ipaddress import ip_address
from typing import Any, Final, Literal
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from weft.errors import ToolError
from weft.host.network import find_proxy
from weft.tool.contract import Attachment, ToolContext, ToolResult
from weft.tool.inputs import WebFetchInput
from weft.tool.read import MAX_PDF_BYTES, MAX_PICTURE_BYTES, sniff_mime
from weft.version import VERSION

MAX_RESPONSE_BYTES: Final = 5 * 1024 * 1024
MAX_REDIRECTS: Final = 10
MAX_TRIED_ADDRESSES: Final = 3
PRIVATE_PERMISSION: Final = "webfetch_private"

_REDIRECT_CODES: Final = frozenset({301, 302, 303, 307, 308})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_TOO_LARGE_MESSAGE: Final = "Response too large (exceeds 5MB limit)"


class FetchedPage(Struct, frozen=True, kw_only=True):
    """The page that a URL finally led to, its declared content type, and its bytes."""

    url: str
    content_type: str
    raw: bytes


async def fetch_page(
    url: str, ctx: ToolContext, *, accept: str, seconds: float, metadata: dict[str, Any]
) -> FetchedPage:
    """Fetch a page within a time limit, following redirects.

    Every redirect is checked against the rules, and against private addresses. `metadata` is shown with permission
    questions. Raise `ToolError` on failure.
    """
    async with AsyncExitStack() as stack:
        fetch = _PageFetch(url, ctx, stack, accept=accept, seconds=seconds, metadata=metadata)
        location = url
        for _ in range(MAX_REDIRECTS + 1):
            result = await fetch.get(location)
            if isinstance(result, FetchedPage):
                return result
            location = result
    raise ToolError(f"{url} redirects more than {MAX_REDIRECTS} times.")


class _PageFetch:
    """One fetch with its redirects: the clients in use, the private origins that were permitted, and the remaining time."""

    def __init__(
        self,
        url: str,
        ctx: ToolContext,
        stack: AsyncExitStack,
        *,
        accept: str,
        seconds: float,
        metadata: dict[str, Any],
    ) -> None:
        self._url = url
        self._ctx = ctx
        self._stack = stack
        self._accept = accept
        self._seconds = self._seconds_left = seconds
        self._metadata = metadata
        self._clients: dict[str | None, Any] = {}
        self._permitted_origins: set[str] = set()

    async def get(self, url: str) -> FetchedPage | str:
        """Return the page, or the URL that it redirects to."""
        _check_url(url)
        await self._ctx.ask("webfetch", url, always=("*",), metadata=self._metadata)
        proxy = find_proxy(url, self._ctx.resources.environment)
        async with self._limit_time():
            addresses = await self._resolve_addresses(url, proxied=proxy is not None)
        await self._ask_if_private(url, addresses)
        async with self._limit_time():
            return await self._try_addresses(url, addresses, proxy)

    @asynccontextmanager
    async def _limit_time(self) -> AsyncIterator[None]:
        """Count the time that the block takes against the limit. Permission questions stay outside, so they do not count."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._seconds_left):
                yield
        except TimeoutError:
            raise ToolError(f"{self._url} did not answer within {self._seconds:g} seconds.") from None
        finally:
            self._seconds_left = max(0.0, self._seconds_left - (clock() - began))

    async def _resolve_addresses(self, url: str, *, proxied: bool) -> tuple[str, ...]:
        """Return the addresses of the host. Behind a proxy, only an address in the URL itself is known."""
        host, port = _get_host(url), _get_port(url)
        if (address := _parse_address(host)) is not None:
            return (address,)
        if proxied:
            return ("127.0.0.1",) if host == "localhost" or host.endswith(".localhost") else ()
        return await self._ctx.resources.network.resolve(host, port)

    async def _ask_if_private(self, url: str, addresses: tuple[str, ...]) -> None:
        """Ask for permission if an address is not public.

        OpenCode fetches any address: the router, a database, the credential service of a cloud.
        """
        network = self._ctx.resources.network
        origin = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"
        if origin in self._permitted_origins or all(network.is_public(address) for address in addresses):
            return
        metadata = {**self._metadata, "addresses": list(addresses)}
        await self._ctx.ask(PRIVATE_PERMISSION, url, always=(f"{origin}/*",), metadata=metadata)
        self._permitted_origins.add(origin)

    async def _try_addresses(
        self, url: str, addresses: tuple[str, ...], proxy: str | None
    ) -> FetchedPage | str:
        """Connect to the addresses that were checked. Resolving the name again could return others."""
        httpx2 = import_module("httpx2")  # imported late, because most runs fetch nothing
        targets: tuple[str | None, ...] = (None,) if proxy else addresses[:MAX_TRIED_ADDRESSES]
        error: Exception | None = None
        if proxy not in self._clients:
            client = httpx2.AsyncClient(trust_env=False, proxy=proxy, timeout=None)
            self._clients[proxy] = await self._stack.enter_async_context(client)
        for address in targets:
            try:
                return await self._request(self._clients[proxy], httpx2.URL(url), address)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as failed:
                error = failed
            except (httpx2.HTTPError, httpx2.InvalidURL) as failed:
                raise ToolError(_describe_no_answer(url, failed)) from failed
        raise ToolError(_describe_no_answer(url, error)) from error

    async def _request(self, client: Any, url: Any, address: str | None) -> FetchedPage | str:
        """Request a URL from an address and return the page, or the URL that it redirects to."""
        headers = {
            "accept": self._accept,
            "accept-encoding": "gzip",
            "accept-language": "en-US,en;q=0.9",
            "host": url.netloc.decode("ascii"),
            # OpenCode pretends to be a browser.
            "user-agent": f"weft/{VERSION}",
        }
        extensions = {"sni_hostname": url.raw_host.decode("ascii")}
        target = url if address is None else url.copy_with(host=address)
        async with client.stream("GET", target, headers=headers, extensions=extensions) as response:
            if response.status_code in _REDIRECT_CODES and (location := response.headers.get("location")):
                return _resolve_redirect(str(url), str(location))
            if not response.is_success:
                raise ToolError(f"Request failed with status code: {response.status_code}")
            raw = await _read_body(response)
            return FetchedPage(url=str(url), content_type=response.headers.get("content-type", ""), raw=raw)


def _resolve_redirect(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise ToolError(f"{url} redirects to {location!r}, which is not an address.") from error


async def _read_body(response: Any) -> bytes:
    declared_length = response.headers.get("content-length", "")
    if declared_length.isdecimal() and int(declared_length) > MAX_RESPONSE_BYTES:
        raise ToolError(_TOO_LARGE_MESSAGE)
    raw = bytearray()
    async for piece in response.aiter_bytes():
        raw += piece
        if len(raw) > MAX_RESPONSE_BYTES:
            raise ToolError(_TOO_LARGE_MESSAGE)
    return bytes(raw)


def _check_url(url: str) -> None:
    if not url.lower().startswith(("http://", "https://")):
        raise ToolError("URL must start with http:// or https://")
    try:
        parts = urlsplit(url)
        valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or any(ord(char) <= ord(" ") for char in url):
        raise ToolError(f"{url!r} is not an address.")


def _get_host(url: str) -> str:
    return (urlsplit(url).hostname or "").rstrip(".")


def _get_port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or _DEFAULT_PORTS[parts.scheme.lower()]


def _parse_address(host: str) -> str | None:
    """Return the address if the host is written as one, also in old notations such as `127.1` and `0x7f000001`."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None


def _describe_no_answer(url: str, error: Exception | None) -> str:
    reason = str(error) or type(error).__name__ if error else "no address"
    return f"{url} did not answer: {reason}"


DEFAULT_TIMEOUT_SECONDS: Final = 30
MAX_TIMEOUT_SECONDS: Final = 120
SNIFF_BYTES: Final = 4096

_ACCEPT_HEADERS: Final = {
    "markdown": "text/markdown;q=1.0, text/x-markdown;q=0.9, text/plain;q=0.8, text/html;q=0.7, */*;q=0.1",
    "text": "text/plain;q=1.0, text/markdown;q=0.9, text/html;q=0.8, */*;q=0.1",
    "html": "text/html;q=1.0, application/xhtml+xml;q=0.9, text/plain;q=0.8, text/markdown;q=0.7, */*;q=0.1",
}
_CHARSET: Final = re.compile(rb"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]+)", re.IGNORECASE)


async def webfetch(arguments: WebFetchInput, ctx: ToolContext) -> ToolResult:
    page = await fetch_page(
        arguments.url,
        ctx,
        accept=_ACCEPT_HEADERS[arguments.format],
        seconds=min(arguments.timeout or DEFAULT_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS),
        metadata={"url": arguments.url, "format": arguments.format, "timeout": arguments.timeout},
    )
    title = f"{arguments.url} ({page.content_type})"
    # OpenCode passes a picture's bytes to the model as text.
    if mime := sniff_mime(page.raw[:SNIFF_BYTES]):
        return _attach(title, mime, page)
    if b"\0" in page.raw[:SNIFF_BYTES] and not page.raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ToolError(f"{arguments.url} is not text: it says it is {page.content_type or 'nothing'}.")
    output = await asyncio.to_thread(_convert_page, page, arguments.format)
    return ToolResult(title=title, output=output)


def _attach(title: str, mime: str, page: FetchedPage) -> ToolResult:
    limit = MAX_PDF_BYTES if mime == "application/pdf" else MAX_PICTURE_BYTES
    if len(page.raw) > limit:
        raise ToolError(f"{page.url} has {len(page.raw)} bytes, and a model takes at most {limit} of {mime}.")
    kind = "PDF" if mime == "application/pdf" else "Image"
    attachment = Attachment(mime=mime, url=f"data:{mime};base64,{b64encode(page.raw).decode()}")
    return ToolResult(title=title, output=f"{kind} fetched successfully", attachments=(attachment,))


def _convert_page(page: FetchedPage, format: Literal["text", "markdown", "html"]) -> str:
    text = decode_page(page.content_type, page.raw)
    if format == "html" or not _is_html(page):
        return text
    from weft.tool.html import to_markdown, to_text  # noqa: PLC0415  only a page needs it

    return to_markdown(text, page.url) if format == "markdown" else to_text(text)


def _is_html(page: FetchedPage) -> bool:
    media_type = page.content_type.partition(";")[0].strip().lower()
    return media_type in ("text/html", "application/xhtml+xml")


def decode_page(content_type: str, raw: bytes) -> str:
    """Decode a page by its byte order mark, the charset of the response or of the page, or as UTF-8."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", errors="replace")
    charset = _CHARSET.search(content_type.encode(errors="replace")) or _CHARSET.search(raw[:SNIFF_BYTES])
    try:
        text = raw.decode(charset[1].decode() if charset else "utf-8", errors="replace")
        # Some encodings, such as UTF-7, can name half a character (a lone surrogate), which is not text.
        return text.encode(errors="replace").decode().removeprefix("\ufeff")
    except (LookupError, UnicodeError):
        return raw.decode(errors="replace").removeprefix("\ufeff")
