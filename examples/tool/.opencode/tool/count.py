"""A tool for every agent: counts what is in a file."""

import asyncio
from pathlib import Path
from typing import Annotated, Literal

from weft.errors import ToolError
from weft.plugin.tools import ToolAnswer, ToolCallContext, tool


@tool
async def count(
    path: Annotated[str, "the file, from the project's directory"],
    ctx: ToolCallContext,
    what: Annotated[Literal["lines", "words"], "what to count"] = "lines",
) -> ToolAnswer:
    """Count the lines or the words of a text file. Cheaper than reading it."""
    file = Path(ctx.directory, path)
    await ctx.ask("read", str(file))  # the rules on reading hold here, too
    try:
        text = await asyncio.to_thread(file.read_text)
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from error
    number = len(text.splitlines() if what == "lines" else text.split())
    return ToolAnswer(output=f"{number} {what}", title=f"{path}: {number} {what}")
