"""The `glob` tool: find files by name."""

import os
from typing import Final

from weft.errors import ToolError
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.file_listing import TRUNCATED_NOTE, list_files, matches_glob
from weft.tool.inputs import GlobInput
from weft.tool.paths import format_title, resolve_path

MAX_FILES: Final = 100


async def glob(arguments: GlobInput, ctx: ToolContext) -> ToolResult:
    metadata = {"pattern": arguments.pattern, "path": arguments.path}
    await ctx.ask("glob", arguments.pattern, always=("*",), metadata=metadata)
    place = await resolve_path(arguments.path or ctx.directory, ctx, "directory")
    if not place.is_directory:
        raise ToolError(f"There is no directory {place.path} to search.")
    # Models that know the directory often write the whole path.
    pattern = arguments.pattern.removeprefix(place.path.rstrip("/") + "/")
    # All files are sorted newest first; OpenCode sorts only the first hundred it finds. If the list is truncated, the
    # model is most likely after the files that were changed last.
    matches = [file.name for file in await list_files(place.real, ctx) if matches_glob(file.name, pattern)]
    lines = [os.path.join(place.path, name) for name in matches[:MAX_FILES]] or ["No files found"]
    truncated = len(matches) > MAX_FILES
    if truncated:
        lines += ["", TRUNCATED_NOTE]
    return ToolResult(
        title=format_title(place, ctx),
        output="\n".join(lines),
        metadata={"count": min(len(matches), MAX_FILES), "truncated": truncated},
    )
