"""Write a file."""

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from weft.tool.changes import diff, write_to_others
from weft.tool.contract import Tool, ToolContext, ToolResult
from weft.tool.description import about
from weft.tool.diagnostic import to_metadata, told_of, told_of_others
from weft.tool.files import Stamp, find_stamp
from weft.tool.paths import Place, enter, lasting_edit, patterns_of, title_of


class WriteInput(Struct, frozen=True, kw_only=True, rename="camel"):
    content: Annotated[str, Meta(description="All that the file is to hold.")]
    file_path: Annotated[
        str, Meta(description="The file: an absolute path, or one from the working directory.")
    ]


async def write(wanted: WriteInput, ctx: ToolContext) -> ToolResult:
    place = await enter(wanted.file_path, ctx)
    before = await ctx.desk.files.find_text(place.real)
    if before is not None:
        ctx.desk.guard.check(place.real, before.stamp)
    old = before.content if before else ""
    await ask_to_edit(place, old, wanted.content, ctx)
    async with ctx.desk.guard.lock(place.real):
        await check_unchanged(place, ctx, new=before is None)
        await put(place, wanted.content, ctx)
    found = await ctx.desk.lookout.look(place.path)
    output = "Wrote file successfully." + told_of(place.path, found) + told_of_others(place.path, found)
    metadata = {
        "diagnostics": to_metadata(found, place.path),
        "filepath": place.path,
        "exists": before is not None,
    }
    return ToolResult(title=title_of(place, ctx), output=output, metadata=metadata)


async def ask_to_edit(place: Place, before: str, after: str, ctx: ToolContext) -> None:
    shown = await asyncio.to_thread(diff, place.path, before, after)
    metadata = {"filepath": place.path, "diff": shown.text.encode(errors="replace").decode()}
    patterns = patterns_of(place, ctx)
    await ctx.ask("edit", *patterns, always=lasting_edit(patterns), metadata=metadata)


async def check_unchanged(place: Place, ctx: ToolContext, *, new: bool) -> None:
    """Nobody changed or made the file while the person was thinking: asking may take an hour."""
    found = await ctx.desk.files.find_stamp(place.real)
    if found is not None or not new:
        ctx.desk.guard.check(place.real, found or Stamp(modified=0, size=-1))


async def put(place: Place, content: str, ctx: ToolContext) -> None:
    """Write it, have it tidied up, and remember how it then stands."""
    await save_unsaved(place, ctx)
    async with ctx.watch(place.real):
        ctx.desk.guard.saw(place.real, await ctx.desk.files.write_text(place.real, content))
        await ctx.desk.edited(place.path)
    await ctx.desk.files.show(place.real, content)
    if (tidied := await find_stamp(place.real)) is not None:
        ctx.desk.guard.saw(place.real, tidied)


async def save_unsaved(place: Place, ctx: ToolContext) -> None:
    """Save what the person has typed. Not while changes are watched: it is their work, and undo has to leave it."""
    unsaved = await ctx.desk.files.find_unsaved(place.real)
    if unsaved is not None:
        ctx.desk.guard.check(place.real, unsaved.stamp)
        await ctx.desk.files.save(place.real, unsaved.content)


WRITE = Tool(
    name="write", about=about("write"), takes=WriteInput, run=write, tell=write_to_others, announces=True
)
