"""Fetch a page from the web."""

import asyncio
import re
from base64 import b64encode
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from weft.errors import ToolError
from weft.tool.about import about
from weft.tool.contract import Attachment, Tool, ToolContext, ToolResult
from weft.tool.read import PDF_LIMIT, PICTURE_LIMIT, sniff
from weft.tool.web.fetch import Page, Wanted, fetch
from weft.tool.web.html import to_markdown, to_text

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
