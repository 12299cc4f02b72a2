"""The `write` tool: write a file. The other editing tools use its functions, too."""

import asyncio

from weft.tool.changes import make_diff
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.diagnostic import format_errors, format_other_errors, to_metadata
from weft.tool.files import Stamp, find_stamp
from weft.tool.inputs import WriteInput
from weft.tool.paths import ToolPath, format_title, list_edit_patterns, list_lasting_patterns, resolve_path


async def write(wanted: WriteInput, ctx: ToolContext) -> ToolResult:
    place = await resolve_path(wanted.file_path, ctx)
    before = await ctx.resources.files.find_text(place.real)
    if before is not None:
        ctx.resources.guard.check(place.real, before.stamp)
    old = before.content if before else ""
    await ask_to_edit(place, old, wanted.content, ctx)
    async with ctx.resources.guard.lock(place.real):
        await check_unchanged(place, ctx, new=before is None)
        await write_file(place, wanted.content, ctx)
    found = await ctx.resources.language_servers.diagnose(place.path)
    output = (
        "Wrote file successfully." + format_errors(place.path, found) + format_other_errors(place.path, found)
    )
    metadata = {
        "diagnostics": to_metadata(found, place.path),
        "filepath": place.path,
        "exists": before is not None,
    }
    return ToolResult(title=format_title(place, ctx), output=output, metadata=metadata)


async def ask_to_edit(place: ToolPath, before: str, after: str, ctx: ToolContext) -> None:
    """Ask for permission to edit a file, showing the diff."""
    shown = await asyncio.to_thread(make_diff, place.path, before, after)
    metadata = {"filepath": place.path, "diff": shown.text.encode(errors="replace").decode()}
    patterns = list_edit_patterns(place, ctx)
    await ctx.ask("edit", *patterns, always=list_lasting_patterns(patterns), metadata=metadata)


async def check_unchanged(place: ToolPath, ctx: ToolContext, *, new: bool) -> None:
    """Raise `ToolError` if somebody changed or created the file while the person was asked, which may take an hour."""
    found = await ctx.resources.files.find_stamp(place.real)
    if found is not None or not new:
        ctx.resources.guard.check(place.real, found or Stamp(modified=0, size=-1))


async def write_file(place: ToolPath, content: str, ctx: ToolContext) -> None:
    """Write a file, have it formatted, and remember its resulting state."""
    await save_unsaved(place, ctx)
    async with ctx.watch(place.real):
        ctx.resources.guard.remember(place.real, await ctx.resources.files.write_text(place.real, content))
        await ctx.resources.after_edit(place.path)
    await ctx.resources.files.show(place.real, content)
    if (tidied := await find_stamp(place.real)) is not None:
        ctx.resources.guard.remember(place.real, tidied)


async def save_unsaved(place: ToolPath, ctx: ToolContext) -> None:
    """Save the person's unsaved text. Do this before `ctx.watch`: it is their work, and undo must keep it."""
    unsaved = await ctx.resources.files.find_unsaved(place.real)
    if unsaved is not None:
        ctx.resources.guard.check(place.real, unsaved.stamp)
        await ctx.resources.files.save(place.real, unsaved.content)
