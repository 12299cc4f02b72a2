"""What a call becomes that cannot be carried out as the model wrote it: an answer that says why."""

from typing import Annotated

from msgspec import Meta, Struct

from weft.tool.about import about
from weft.tool.contract import Tool, ToolContext, ToolResult


class InvalidInput(Struct, frozen=True, kw_only=True):
    tool: Annotated[str, Meta(description="The tool that was called.")]
    error: Annotated[str, Meta(description="What was wrong with the call.")]


async def invalid(wanted: InvalidInput, ctx: ToolContext) -> ToolResult:
    del ctx
    output = f"The arguments provided to the tool are invalid: {wanted.error}"
    return ToolResult(title="Invalid Tool", output=output)


INVALID = Tool(name="invalid", about=about("invalid"), takes=InvalidInput, run=invalid, announces=True)
