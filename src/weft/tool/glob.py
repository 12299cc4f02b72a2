"""Find files by name."""

import os
from typing import Annotated, Final

from msgspec import Meta, Struct

from weft.errors import ToolError
from weft.tool.contract import Tool, ToolContext, ToolResult
from weft.tool.description import about
from weft.tool.file_listing import TRUNCATED, fits, list_files
from weft.tool.paths import enter, title_of

LIMIT: Final = 100


class GlobInput(Struct, frozen=True, kw_only=True):
    pattern: Annotated[str, Meta(description="The glob, such as `**/*.py` or `src/**/test_*.ts`.")]
    path: Annotated[
        str | None, Meta(description="The directory to search; the working directory if left out.")
    ] = None


async def glob(wanted: GlobInput, ctx: ToolContext) -> ToolResult:
    metadata = {"pattern": wanted.pattern, "path": wanted.path}
    await ctx.ask("glob", wanted.pattern, always=("*",), metadata=metadata)
    place = await enter(wanted.path or ctx.directory, ctx, "directory")
    if not place.is_directory:
        raise ToolError(f"There is no directory {place.path} to search.")
    # A model that knows where it is often writes the whole path.
    pattern = wanted.pattern.removeprefix(place.path.rstrip("/") + "/")
    # Newest first over all, where OpenCode sorts the first hundred it came upon: with the list cut short, what was
    # touched last is what the model is after.
    found = [file.name for file in await list_files(place.real, ctx) if fits(file.name, pattern)]
    lines = [os.path.join(place.path, name) for name in found[:LIMIT]] or ["No files found"]
    truncated = len(found) > LIMIT
    if truncated:
        lines += ["", TRUNCATED]
    return ToolResult(
        title=title_of(place, ctx),
        output="\n".join(lines),
        metadata={"count": min(len(found), LIMIT), "truncated": truncated},
    )


GLOB = Tool(name="glob", about=about("glob"), takes=GlobInput, run=glob, announces=True)
