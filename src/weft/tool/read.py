"""The `read` tool: read text files by lines, and pictures and PDFs as attachments."""

import asyncio
import os
from base64 import b64encode
from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO, Final

from msgspec import Struct

from weft.errors import ToolError
from weft.tool.contract import Attachment, ToolContext, ToolResult
from weft.tool.files import Stamp, TextFile, open_plain_file, stamp_of, with_tool_errors
from weft.tool.inputs import ReadInput
from weft.tool.paths import ToolPath, format_title, resolve_path
from weft.tool.truncate import MAX_BYTES

MAX_LINE_LENGTH: Final = 2000
PREVIEW_LINES: Final = 20
SNIFF_BYTES: Final = 4096
MAX_UNPRINTABLE_SHARE: Final = 0.3
MAX_SUGGESTIONS: Final = 3
# What the large providers accept: pictures of 5 MB in base64, and PDFs several times that size.
MAX_PICTURE_BYTES: Final = 3_750_000
MAX_PDF_BYTES: Final = 20_000_000

_IMAGE_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
_BINARY_EXTENSION_NAMES = """
zip tar gz bz2 xz zst 7z exe dll so dylib class jar war doc docx xls xlsx ppt pptx odt ods odp bin dat obj o a
lib wasm pyc pyo
"""
_BINARY_EXTENSIONS: Final = frozenset(_BINARY_EXTENSION_NAMES.split())


class FilePage(Struct, frozen=True, kw_only=True):
    """The lines of one page and the number of the last one.

    `is_full` means that the size limit was reached, `has_more` that further lines follow.
    """

    lines: list[str]
    last_line: int
    is_full: bool
    has_more: bool


class ReadFile(Struct, frozen=True, kw_only=True):
    """A file as read: a page of text, or an attachment with the whole file."""

    stamp: Stamp
    page: FilePage | None = None
    attachment: Attachment | None = None


async def read(arguments: ReadInput, ctx: ToolContext) -> ToolResult:
    place = await resolve_path(arguments.file_path, ctx)
    # The target of a link counts as well, so that a link cannot evade a rule for `.env`.
    await ctx.ask("read", *dict.fromkeys((place.path, place.real)), always=("*",))
    unsaved = await ctx.resources.files.find_unsaved(place.real)
    file = await asyncio.to_thread(
        with_tool_errors(
            lambda: _read_file(place, arguments) if unsaved is None else _read_unsaved(unsaved, arguments)
        )
    )
    ctx.resources.guard.remember(place.real, file.stamp)
    ctx.resources.language_servers.warm_up(place.path)
    title = format_title(place, ctx)
    if file.attachment is not None:
        kind = "PDF" if file.attachment.mime == "application/pdf" else "Image"
        output = f"{kind} read successfully"
        return ToolResult(
            title=title,
            output=output,
            metadata={"preview": output, "truncated": False},
            attachments=(file.attachment,),
        )
    page = file.page or FilePage(lines=[], last_line=0, is_full=False, has_more=False)
    metadata = {"preview": "\n".join(page.lines[:PREVIEW_LINES]), "truncated": page.is_full or page.has_more}
    return ToolResult(title=title, output=_format_page(page, arguments.offset), metadata=metadata)


def _read_unsaved(unsaved: TextFile, arguments: ReadInput) -> ReadFile:
    """Return a page of the text that an editor has open and not saved."""
    return ReadFile(stamp=unsaved.stamp, page=_read_page(BytesIO(unsaved.content.encode()), arguments))


def _read_file(place: ToolPath, arguments: ReadInput) -> ReadFile:
    try:
        with open_plain_file(place.real) as file:
            stamp = stamp_of(file)
            head = file.read(SNIFF_BYTES)
            file.seek(0)
            if mime := sniff_mime(head):
                return ReadFile(stamp=stamp, attachment=_attach(place, mime, stamp.size, file))
            if is_binary(place.real, head):
                raise ToolError(f"Cannot read binary file: {place.path}")
            return ReadFile(stamp=stamp, page=_read_page(file, arguments))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ToolError(_describe_missing(place)) from error


def sniff_mime(head: bytes) -> str | None:
    """Return the media type of a picture or document that providers accept, or None.

    Judge by content: an attachment with a wrong type would make providers refuse the history from then on.
    """
    for magic, mime in _IMAGE_SIGNATURES:
        if head.startswith(magic):
            return mime
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return "application/pdf" if head.startswith(b"%PDF-") else None


def is_binary(path: str, head: bytes) -> bool:
    """Return True if the extension or the first bytes say that a file is not text."""
    if os.path.splitext(path)[1].lower().removeprefix(".") in _BINARY_EXTENSIONS or b"\0" in head:
        return True
    unprintable = sum(byte < ord("\t") or ord("\r") < byte < ord(" ") for byte in head)
    return unprintable > len(head) * MAX_UNPRINTABLE_SHARE


def _attach(place: ToolPath, mime: str, size: int, file: BinaryIO) -> Attachment:
    limit = MAX_PDF_BYTES if mime == "application/pdf" else MAX_PICTURE_BYTES
    if size > limit:
        raise ToolError(
            f"{place.path} has {size} bytes, and a model takes at most {limit}. Make a smaller copy, and read that."
        )
    return Attachment(mime=mime, url=f"data:{mime};base64,{b64encode(file.read(limit)).decode()}")


def _read_page(file: BinaryIO, arguments: ReadInput) -> FilePage:
    """Read no further than needed, because the file may be a log of many gigabytes."""
    lines: list[str] = []
    used_bytes = number = 0
    for line in _iter_lines(file):
        number += 1
        if number <= arguments.offset:
            continue
        size = len(line.encode()) + bool(lines)
        if used_bytes + size > MAX_BYTES:
            return FilePage(lines=lines, last_line=number - 1, is_full=True, has_more=True)
        if len(lines) == arguments.limit:
            return FilePage(lines=lines, last_line=number - 1, is_full=False, has_more=True)
        lines.append(line)
        used_bytes += size
    return FilePage(lines=lines, last_line=number, is_full=False, has_more=False)


def _iter_lines(file: BinaryIO) -> Iterator[str]:
    """Yield the lines, long ones cut. There is one more line after the last newline, even if it is empty."""
    max_bytes = 4 * MAX_LINE_LENGTH + 4
    while True:
        raw = file.readline(max_bytes)
        last_read = raw
        while last_read and not last_read.endswith(b"\n"):
            last_read = file.readline(max_bytes)
        text = raw.removesuffix(b"\n").decode(errors="replace")
        yield text if len(text) <= MAX_LINE_LENGTH else text[:MAX_LINE_LENGTH] + "..."
        if not last_read:
            return


def _format_page(page: FilePage, offset: int) -> str:
    lines = [f"{number:05d}| {line}" for number, line in enumerate(page.lines, offset + 1)]
    hint = f"Use 'offset' parameter to read beyond line {page.last_line})"
    if page.is_full:
        end = f"(Output truncated at {MAX_BYTES} bytes. {hint}"
    elif page.has_more:
        end = f"(File has more lines. {hint}"
    else:
        end = f"(End of file - total {page.last_line} lines)"
    return "\n".join(["<file>", *(lines or [""]), "", end, "</file>"])


def _describe_missing(place: ToolPath) -> str:
    parent, name = os.path.split(place.path)
    try:
        entries = sorted(os.listdir(parent))
    except OSError:
        entries = []
    similar = [entry for entry in entries if entry.lower() in name.lower() or name.lower() in entry.lower()]
    message = f"File not found: {place.path}"
    if not similar:
        return message
    suggestions = "\n".join(os.path.join(parent, entry) for entry in similar[:MAX_SUGGESTIONS])
    return f"{message}\n\nDid you mean one of these?\n{suggestions}"
