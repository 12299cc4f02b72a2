"""Read a file: text by lines, pictures and PDFs whole."""

import asyncio
import os
from base64 import b64encode
from collections.abc import Iterator
from io import BytesIO
from typing import Annotated, BinaryIO, Final

from msgspec import Meta, Struct

from weft.errors import ToolError
from weft.tool.contract import Attachment, Tool, ToolContext, ToolResult
from weft.tool.description import about
from weft.tool.files import Stamp, Text, open_to_read, stamp_of, told
from weft.tool.paths import Place, enter, title_of

LINES: Final = 2000
LINE_LENGTH: Final = 2000
MAX_BYTES: Final = 51200
PREVIEW_LINES: Final = 20
SNIFFED: Final = 4096
UNPRINTABLE: Final = 0.3
SUGGESTED: Final = 3
# What the large providers take: five megabytes of picture once it is written in base64, and PDFs some times that.
PICTURE_LIMIT: Final = 3_750_000
PDF_LIMIT: Final = 20_000_000

_MAGIC: Final = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_BINARY_NAMES = """
zip tar gz bz2 xz zst 7z exe dll so dylib class jar war doc docx xls xlsx ppt pptx odt ods odp bin dat obj o a
lib wasm pyc pyo
"""
_BINARY: Final = frozenset(_BINARY_NAMES.split())


class ReadInput(Struct, frozen=True, kw_only=True, rename="camel"):
    file_path: Annotated[
        str, Meta(description="The file: an absolute path, or one from the working directory.")
    ]
    offset: Annotated[int, Meta(ge=0, description="How many lines to skip before the first one shown.")] = 0
    limit: Annotated[int, Meta(ge=1, description="How many lines to show at most; 2000 if left out.")] = LINES


class Page(Struct, frozen=True, kw_only=True):
    """The lines shown, the number of the last one, and what comes after it."""

    lines: list[str]
    last: int
    full: bool
    more: bool


class Found(Struct, frozen=True, kw_only=True):
    """A file as read: a page of text, or the whole thing to attach."""

    stamp: Stamp
    page: Page | None = None
    attachment: Attachment | None = None


async def read(wanted: ReadInput, ctx: ToolContext) -> ToolResult:
    place = await enter(wanted.file_path, ctx)
    # Where a link leads counts as well: a rule for `.env` is not to be passed under another name.
    await ctx.ask("read", *dict.fromkeys((place.path, place.real)), always=("*",))
    unsaved = await ctx.desk.files.find_unsaved(place.real)
    found = await asyncio.to_thread(
        told(lambda: _read(place, wanted) if unsaved is None else _held(unsaved, wanted))
    )
    ctx.desk.guard.saw(place.real, found.stamp)
    ctx.desk.lookout.warm(place.path)
    title = title_of(place, ctx)
    if found.attachment is not None:
        kind = "PDF" if found.attachment.mime == "application/pdf" else "Image"
        output = f"{kind} read successfully"
        return ToolResult(
            title=title,
            output=output,
            metadata={"preview": output, "truncated": False},
            attachments=(found.attachment,),
        )
    page = found.page or Page(lines=[], last=0, full=False, more=False)
    metadata = {"preview": "\n".join(page.lines[:PREVIEW_LINES]), "truncated": page.full or page.more}
    return ToolResult(title=title, output=_shown(page, wanted.offset), metadata=metadata)


def _held(unsaved: Text, wanted: ReadInput) -> Found:
    """What an editor has open and did not save."""
    return Found(stamp=unsaved.stamp, page=_page(BytesIO(unsaved.content.encode()), wanted))


def _read(place: Place, wanted: ReadInput) -> Found:
    try:
        with open_to_read(place.real) as file:
            stamp = stamp_of(file)
            head = file.read(SNIFFED)
            file.seek(0)
            if mime := sniff(head):
                return Found(stamp=stamp, attachment=_attached(place, mime, stamp.size, file))
            if is_binary(place.real, head):
                raise ToolError(f"Cannot read binary file: {place.path}")
            return Found(stamp=stamp, page=_page(file, wanted))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ToolError(_missing(place)) from error


def sniff(head: bytes) -> str | None:
    """The kind of picture or document a provider takes. By content, not by name: a name that lies poisons the history."""
    for magic, mime in _MAGIC:
        if head.startswith(magic):
            return mime
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return "application/pdf" if head.startswith(b"%PDF-") else None


def is_binary(path: str, head: bytes) -> bool:
    if os.path.splitext(path)[1].lower().removeprefix(".") in _BINARY or b"\0" in head:
        return True
    odd = sum(byte < ord("\t") or ord("\r") < byte < ord(" ") for byte in head)
    return odd > len(head) * UNPRINTABLE


def _attached(place: Place, mime: str, size: int, file: BinaryIO) -> Attachment:
    limit = PDF_LIMIT if mime == "application/pdf" else PICTURE_LIMIT
    if size > limit:
        raise ToolError(
            f"{place.path} has {size} bytes, and a model takes at most {limit}. Make a smaller copy, and read that."
        )
    return Attachment(mime=mime, url=f"data:{mime};base64,{b64encode(file.read(limit)).decode()}")


def _page(file: BinaryIO, wanted: ReadInput) -> Page:
    """Read no further than needed: the file may be a log of many gigabytes."""
    shown: list[str] = []
    used = number = 0
    for line in _lines(file):
        number += 1
        if number <= wanted.offset:
            continue
        size = len(line.encode()) + bool(shown)
        if used + size > MAX_BYTES:
            return Page(lines=shown, last=number - 1, full=True, more=True)
        if len(shown) == wanted.limit:
            return Page(lines=shown, last=number - 1, full=False, more=True)
        shown.append(line)
        used += size
    return Page(lines=shown, last=number, full=False, more=False)


def _lines(file: BinaryIO) -> Iterator[str]:
    """What stands between newlines, long lines cut; after the last newline there is one more, empty or not."""
    longest = 4 * LINE_LENGTH + 4
    while True:
        raw = file.readline(longest)
        rest = raw
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(longest)
        text = raw.removesuffix(b"\n").decode(errors="replace")
        yield text if len(text) <= LINE_LENGTH else text[:LINE_LENGTH] + "..."
        if not rest:
            return


def _shown(page: Page, offset: int) -> str:
    lines = [f"{number:05d}| {line}" for number, line in enumerate(page.lines, offset + 1)]
    beyond = f"Use 'offset' parameter to read beyond line {page.last})"
    if page.full:
        end = f"(Output truncated at {MAX_BYTES} bytes. {beyond}"
    elif page.more:
        end = f"(File has more lines. {beyond}"
    else:
        end = f"(End of file - total {page.last} lines)"
    return "\n".join(["<file>", *(lines or [""]), "", end, "</file>"])


def _missing(place: Place) -> str:
    parent, name = os.path.split(place.path)
    try:
        entries = sorted(os.listdir(parent))
    except OSError:
        entries = []
    near = [each for each in entries if each.lower() in name.lower() or name.lower() in each.lower()]
    said = f"File not found: {place.path}"
    if not near:
        return said
    meant = "\n".join(os.path.join(parent, each) for each in near[:SUGGESTED])
    return f"{said}\n\nDid you mean one of these?\n{meant}"


READ = Tool(name="read", about=about("read"), takes=ReadInput, run=read, announces=True)
