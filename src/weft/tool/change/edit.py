"""Replace text in a file."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Final, Protocol

from msgspec import Meta, Struct

from weft.errors import ToolError
from weft.tool.about import about
from weft.tool.change import match
from weft.tool.change.choice import edit_to_others
from weft.tool.change.diff import diff
from weft.tool.change.write import ask_to_edit, put
from weft.tool.contract import Tool, ToolContext, ToolResult
from weft.tool.diagnostic import to_metadata, told_of
from weft.tool.files import find_text
from weft.tool.paths import Place, enter, title_of

# Past this a screen has no use for both whole texts; the diff says it all.
SHOWN_WHOLE: Final = 512 * 1024

_BOM: Final = "\ufeff"


Old = Annotated[str, Meta(description="The text to replace, quoted as it stands in the file.")]
New = Annotated[str, Meta(description="The text to put in its place; it must differ.")]
All = Annotated[bool, Meta(description="Replace every occurrence, not just one.")]


class EditInput(Struct, frozen=True, kw_only=True, rename="camel"):
    file_path: Annotated[
        str, Meta(description="The file: an absolute path, or one from the working directory.")
    ]
    old_string: Old
    new_string: New
    replace_all: All = False


class Replacing(Protocol):
    """One text in the place of another, once or everywhere."""

    @property
    def old_string(self) -> str: ...

    @property
    def new_string(self) -> str: ...

    @property
    def replace_all(self) -> bool: ...


async def edit(wanted: EditInput, ctx: ToolContext) -> ToolResult:
    check_differs(wanted)
    return await rewrite(
        wanted.file_path, lambda text: edited(text, wanted), ctx, makes=not wanted.old_string
    )


def check_differs(wanted: Replacing) -> None:
    if wanted.old_string == wanted.new_string:
        raise ToolError("oldString and newString are the same: there is nothing to change.")


async def rewrite(path: str, change: Callable[[str], str], ctx: ToolContext, *, makes: bool) -> ToolResult:
    """Make a change to a file, if the session has seen it and it is permitted. `makes`: it need not be there yet."""
    place = await enter(path, ctx)
    before = await _seen(place, ctx, makes=makes)
    after = await asyncio.to_thread(change, before)
    await ask_to_edit(place, before, after, ctx)
    # OpenCode holds the file while a person thinks. We look again afterwards: what this session did meanwhile is
    # built upon, what anybody else did is refused by the guard.
    async with ctx.desk.guard.lock(place.real):
        before = await _seen(place, ctx, makes=makes)
        await put(place, await asyncio.to_thread(change, before), ctx)
    stands = await find_text(place.real)
    found = await ctx.desk.lookout.look(place.path)
    metadata = await asyncio.to_thread(_metadata, place, before, stands.content if stands else "")
    return ToolResult(
        title=title_of(place, ctx),
        output="Edit applied successfully." + told_of(place.path, found),
        metadata={"diagnostics": to_metadata(found, place.path), **metadata},
    )


async def _seen(place: Place, ctx: ToolContext, *, makes: bool) -> str:
    """The file's text, if the session has seen it so."""
    found = await ctx.desk.files.find_text(place.real)
    if found is None:
        if not makes:
            raise ToolError(f"File {place.path} not found")
        return ""
    # OpenCode does not guard when oldString is empty, and overwrites a file nobody has looked at.
    ctx.desk.guard.check(place.real, found.stamp)
    return found.content


def edited(content: str, wanted: Replacing) -> str:
    """The content with the edit made."""
    if not wanted.old_string:
        return wanted.new_string
    old, new = (text.replace("\r\n", "\n") for text in (wanted.old_string, wanted.new_string))
    if not _is_windows(content):
        old, new = wanted.old_string, wanted.new_string
    return keeping_form(content, lambda body: match.replace(body, old, new, every=wanted.replace_all))


def keeping_form(content: str, change: Callable[[str], str]) -> str:
    """The content with a change made; its line endings and its byte order mark stay as they are."""
    mark = _BOM if content.startswith(_BOM) else ""
    body = content.removeprefix(_BOM)
    if not _is_windows(content):
        return mark + change(body)
    return mark + change(body.replace("\r\n", "\n")).replace("\n", "\r\n")


def _is_windows(content: str) -> bool:
    return content.count("\r\n") == content.count("\n") > 0


def _metadata(place: Place, before: str, after: str) -> dict[str, Any]:
    shown = diff(place.path, before, after)
    whole = len(before) + len(after) <= SHOWN_WHOLE
    filediff = {
        "file": place.path,
        "before": sendable(before) if whole else "",
        "after": sendable(after) if whole else "",
        "additions": shown.additions,
        "deletions": shown.deletions,
    }
    return {"diff": sendable(shown.text), "filediff": filediff}


def sendable(text: str) -> str:
    """The text without the stand-ins for bytes that are not UTF-8; JSON has no place for them."""
    return text.encode(errors="replace").decode()


EDIT = Tool(name="edit", about=about("edit"), takes=EditInput, run=edit, tell=edit_to_others, announces=True)
