"""Replace text in a file."""

import asyncio
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from weft.errors import ToolError
from weft.tool import match
from weft.tool.about import about
from weft.tool.contract import Tool, ToolContext, ToolResult
from weft.tool.diff import diff
from weft.tool.files import find_text
from weft.tool.paths import Place, enter, title_of
from weft.tool.write import ask_to_edit, put

# Past this a screen has no use for both whole texts; the diff says it all.
SHOWN_WHOLE: Final = 512 * 1024

_BOM: Final = "\ufeff"


class EditInput(Struct, frozen=True, kw_only=True, rename="camel"):
    file_path: Annotated[
        str, Meta(description="The file: an absolute path, or one from the working directory.")
    ]
    old_string: Annotated[str, Meta(description="The text to replace, quoted as it stands in the file.")]
    new_string: Annotated[str, Meta(description="The text to put in its place; it must differ.")]
    replace_all: Annotated[bool, Meta(description="Replace every occurrence, not just one.")] = False


async def edit(wanted: EditInput, ctx: ToolContext) -> ToolResult:
    if wanted.old_string == wanted.new_string:
        raise ToolError("oldString and newString are the same: there is nothing to change.")
    place = await enter(wanted.file_path, ctx)
    before = await _seen(place, wanted, ctx)
    after = await asyncio.to_thread(edited, before, wanted)
    await ask_to_edit(place, before, after, ctx)
    # OpenCode holds the file while a person thinks. We look again afterwards: what this session did meanwhile is
    # built upon, what anybody else did is refused by the guard.
    async with ctx.desk.guard.lock(place.real):
        before = await _seen(place, wanted, ctx)
        await put(place, await asyncio.to_thread(edited, before, wanted), ctx)
    stands = await find_text(place.real)
    metadata = await asyncio.to_thread(_metadata, place, before, stands.content if stands else "")
    return ToolResult(title=title_of(place, ctx), output="Edit applied successfully.", metadata=metadata)


async def _seen(place: Place, wanted: EditInput, ctx: ToolContext) -> str:
    """The file's text, if the session has seen it so."""
    found = await find_text(place.real)
    if found is None:
        if wanted.old_string:
            raise ToolError(f"File {place.path} not found")
        return ""
    # OpenCode does not guard when oldString is empty, and overwrites a file nobody has looked at.
    ctx.desk.guard.check(place.real, found.stamp)
    return found.content


def edited(content: str, wanted: EditInput) -> str:
    """The content with the edit made; its line endings and its byte order mark stay as they are."""
    if not wanted.old_string:
        return wanted.new_string
    mark = _BOM if content.startswith(_BOM) else ""
    body = content.removeprefix(_BOM)
    windows = body.count("\r\n") == body.count("\n") > 0
    old, new = wanted.old_string, wanted.new_string
    if windows:
        body, old, new = (text.replace("\r\n", "\n") for text in (body, old, new))
    body = match.replace(body, old, new, every=wanted.replace_all)
    return mark + (body.replace("\n", "\r\n") if windows else body)


def _metadata(place: Place, before: str, after: str) -> dict[str, Any]:
    shown = diff(place.path, before, after)
    whole = len(before) + len(after) <= SHOWN_WHOLE
    filediff = {
        "file": place.path,
        "before": _sendable(before) if whole else "",
        "after": _sendable(after) if whole else "",
        "additions": shown.additions,
        "deletions": shown.deletions,
    }
    return {"diagnostics": {}, "diff": _sendable(shown.text), "filediff": filediff}


def _sendable(text: str) -> str:
    """The text without the stand-ins for bytes that are not UTF-8; JSON has no place for them."""
    return text.encode(errors="replace").decode()


EDIT = Tool(name="edit", about=about("edit"), takes=EditInput, run=edit)
