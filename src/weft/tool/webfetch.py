"""The `webfetch` tool: fetch a page over http or https, no further than is allowed."""

import asyncio
import re
import socket
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from ipaddress import ip_address
from typing import Annotated, Any, Final, Literal
from urllib.parse import urljoin, urlsplit

from msgspec import Meta, Struct

from weft.errors import ToolError
from weft.tool.contract import Attachment, Tool, ToolContext, ToolResult
from weft.tool.description import about
from weft.tool.html import to_markdown, to_text
from weft.tool.network import proxy_for
from weft.tool.read import PDF_LIMIT, PICTURE_LIMIT, sniff
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


DEFAULT_SECONDS: Final = 30
MOST_SECONDS: Final = 120
SNIFFED: Final = 4096

_ACCEPT: Final = {
    "markdown": "text/markdown;q=1.0, text/x-markdown;q=0.9, text/plain;q=0.8, text/html;q=0.7, */*;q=0.1",
    "text": "text/plain;q=1.0, text/markdown;q=0.9, text/html;q=0.8, */*;q=0.1",
    "html": "text/html;q=1.0, application/xhtml+xml;q=0.9, text/plain;q=0.8, text/markdown;q=0.7, */*;q=0.1",
}
_CHARSET: Final = re.compile(rb"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]+)", re.IGNORECASE)


class WebFetchInput(Struct, frozen=True, kw_only=True):
    url: Annotated[str, Meta(description="The whole address, with http:// or https://.")]
    format: Annotated[
        Literal["text", "markdown", "html"],
        Meta(description="What a page is to be turned into; html leaves it as it is."),
    ] = "markdown"
    timeout: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="How long it may take, in seconds; 30 if left out, 120 at most."),
    ] = None


async def webfetch(wanted: WebFetchInput, ctx: ToolContext) -> ToolResult:
    page = await fetch(
        Wanted(
            url=wanted.url,
            accept=_ACCEPT[wanted.format],
            seconds=min(wanted.timeout or DEFAULT_SECONDS, MOST_SECONDS),
            metadata={"url": wanted.url, "format": wanted.format, "timeout": wanted.timeout},
        ),
        ctx,
    )
    title = f"{wanted.url} ({page.kind})"
    # OpenCode hands a picture's bytes to the model as if they were words.
    if mime := sniff(page.raw[:SNIFFED]):
        return _attached(title, mime, page)
    if b"\0" in page.raw[:SNIFFED] and not page.raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ToolError(f"{wanted.url} is not text: it says it is {page.kind or 'nothing'}.")
    output = await asyncio.to_thread(_read, page, wanted.format)
    return ToolResult(title=title, output=output)


def _attached(title: str, mime: str, page: Page) -> ToolResult:
    limit = PDF_LIMIT if mime == "application/pdf" else PICTURE_LIMIT
    if len(page.raw) > limit:
        raise ToolError(f"{page.url} has {len(page.raw)} bytes, and a model takes at most {limit} of {mime}.")
    kind = "PDF" if mime == "application/pdf" else "Image"
    attachment = Attachment(mime=mime, url=f"data:{mime};base64,{b64encode(page.raw).decode()}")
    return ToolResult(title=title, output=f"{kind} fetched successfully", attachments=(attachment,))


def _read(page: Page, format: Literal["text", "markdown", "html"]) -> str:
    text = to_characters(page.kind, page.raw)
    if format == "html" or not _is_html(page):
        return text
    return to_markdown(text, page.url) if format == "markdown" else to_text(text)


def _is_html(page: Page) -> bool:
    kind = page.kind.partition(";")[0].strip().lower()
    return kind in ("text/html", "application/xhtml+xml")


def to_characters(kind: str, raw: bytes) -> str:
    """Bytes as text, in the encoding that the answer, a mark at the start or the page itself names; else UTF-8."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", errors="replace")
    named = _CHARSET.search(kind.encode(errors="replace")) or _CHARSET.search(raw[:SNIFFED])
    try:
        return raw.decode(named[1].decode() if named else "utf-8", errors="replace").removeprefix("\ufeff")
    except (LookupError, UnicodeError):
        return raw.decode(errors="replace").removeprefix("\ufeff")


WEBFETCH = Tool(name="webfetch", about=about("webfetch"), takes=WebFetchInput, run=webfetch, announces=True)
