"""The `write` tool: write a file. The other editing tools share its functions."""

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from weft.model.verdict import CallEvidence, CallResult, FileIntent
from weft.tool.changes import TextChange, make_diff
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.files import Stamp, digest_text, find_stamp, find_text
from weft.tool.inputs import WriteInput
from weft.tool.language_servers import format_errors, format_other_errors, to_metadata
from weft.tool.paths import ToolPath, format_title, list_always_patterns, list_edit_patterns, resolve_path

WRITTEN: Final = "Wrote file successfully."


async def write(arguments: WriteInput, ctx: ToolContext) -> ToolResult:
    place = await resolve_path(arguments.file_path, ctx)
    file = await ctx.resources.files.find_text(place.real)
    if file is not None:
        ctx.resources.guard.check(place.real, file.stamp)
    before = file.content if file else ""
    await ask_to_edit(place, before, arguments.content, ctx)
    async with ctx.resources.guard.lock(place.real):
        await check_unchanged(place, ctx, new=file is None)
        noted = {"diagnostics": {}, "filepath": place.path, "exists": file is not None}
        await write_file(
            place,
            arguments.content,
            ctx,
            CallResult(title=format_title(place, ctx), output=WRITTEN, metadata=noted),
        )
    diagnostics = await ctx.resources.language_servers.diagnose(place.path)
    output = WRITTEN + format_errors(place.path, diagnostics) + format_other_errors(place.path, diagnostics)
    metadata = {
        "diagnostics": to_metadata(diagnostics, place.path),
        "filepath": place.path,
        "exists": file is not None,
    }
    return ToolResult(title=format_title(place, ctx), output=output, metadata=metadata)


async def ask_to_edit(place: ToolPath, before: str, after: str, ctx: ToolContext) -> None:
    """Ask for permission to edit a file, showing the diff."""
    diff = await asyncio.to_thread(make_diff, place.path, before, after)
    metadata = {"filepath": place.path, "diff": diff.text.encode(errors="replace").decode()}
    patterns = list_edit_patterns(place, ctx)
    await ctx.ask("edit", *patterns, always=list_always_patterns(patterns), metadata=metadata)


async def check_unchanged(place: ToolPath, ctx: ToolContext, *, new: bool) -> None:
    """Raise `ToolError` if somebody changed or created the file while the question was open, which may take an hour."""
    stamp = await ctx.resources.files.find_stamp(place.real)
    if stamp is not None or not new:
        ctx.resources.guard.check(place.real, stamp or Stamp(modified=0, size=-1))


async def write_file(place: ToolPath, content: str, ctx: ToolContext, result: CallResult) -> None:
    """Write a file, have it formatted, and remember its resulting state. First note the intent, with the `result` of the call."""
    await save_unsaved(place, ctx)
    async with ctx.watch(place.real):
        current = await find_text(place.real)
        change = TextChange(path=place.real, before=current.content if current else None, after=content)
        await note_changes([change], result, ctx)
        written = await ctx.resources.files.write_text(place.real, content)
        ctx.resources.guard.remember(place.real, written)
        await ctx.resources.after_edit(place.path)
        if await find_stamp(place.real) != written and (formatted := await find_text(place.real)) is not None:
            await note_changes([replace(change, after=formatted.content)], result, ctx)
    await ctx.resources.files.refresh_editor(place.real, content)
    if (stamp := await find_stamp(place.real)) is not None:
        ctx.resources.guard.remember(place.real, stamp)


async def note_changes(changes: Sequence[TextChange], result: CallResult, ctx: ToolContext) -> None:
    """Note which files are about to change, and the result of the call once they have."""
    files = tuple(
        FileIntent(path=change.path, before=digest_text(change.before), after=digest_text(change.after))
        for change in changes
    )
    await ctx.note(CallEvidence(files=files, result=result))


async def save_unsaved(place: ToolPath, ctx: ToolContext) -> None:
    """Save the person's unsaved text. Do this before `ctx.watch`: it is their work, and undo must keep it."""
    unsaved = await ctx.resources.files.find_unsaved(place.real)
    if unsaved is not None:
        ctx.resources.guard.check(place.real, unsaved.stamp)
        await ctx.resources.files.save(place.real, unsaved.content)
