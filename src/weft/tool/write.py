"""The `write` tool: write a file."""

from typing import Final

from weft.model.verdict import CallResult
from weft.tool.changes import ask_to_edit, check_unchanged, write_file
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.inputs import WriteInput
from weft.tool.language_servers import format_errors, format_other_errors, to_metadata
from weft.tool.paths import format_title, resolve_path

WRITTEN: Final = "Wrote file successfully."


async def write(arguments: WriteInput, ctx: ToolContext) -> ToolResult:
    place = await resolve_path(arguments.file_path, ctx)
    async with ctx.resources.guard.lock(
        place.real
    ):  # what another call is just writing is not remembered yet
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
