"""Call several tools at once."""

import asyncio
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from weft.tool.contract import Tool, ToolContext, ToolResult
from weft.tool.description import about

MOST: Final = 25
TOO_MANY: Final = f"Maximum of {MOST} tools allowed in batch"
NESTED: Final = "A batch cannot be called from a batch. Put its calls into this one."


class BatchCall(Struct, frozen=True, kw_only=True):
    tool: Annotated[str, Meta(description="The name of the tool.")]
    parameters: Annotated[dict[str, Any], Meta(description="What the tool takes, as if called alone.")]


class BatchInput(Struct, frozen=True, kw_only=True):
    tool_calls: Annotated[
        tuple[BatchCall, ...], Meta(min_length=1, description=f"The calls, {MOST} at most.")
    ]


async def batch(wanted: BatchInput, ctx: ToolContext) -> ToolResult:
    calls = wanted.tool_calls
    went = await asyncio.gather(
        *(_call(call, ctx, too_many=number > MOST) for number, call in enumerate(calls, 1))
    )
    well = sum(went)
    failed = len(calls) - well
    return ToolResult(
        title=f"Batch execution ({well}/{len(calls)} successful)",
        # What each brought stands with its own call, pictures too. OpenCode attaches those here once more.
        output=(
            f"Executed {well}/{len(calls)} tools successfully. {failed} failed."
            if failed
            else f"All {well} tools executed successfully."
        ),
        metadata={
            "totalCalls": len(calls),
            "successful": well,
            "failed": failed,
            "tools": [call.tool for call in calls],
            "details": [
                {"tool": call.tool, "success": success} for call, success in zip(calls, went, strict=True)
            ],
        },
    )


async def _call(call: BatchCall, ctx: ToolContext, *, too_many: bool) -> bool:
    error = TOO_MANY if too_many else NESTED if call.tool == "batch" else ""
    return await ctx.call(call.tool, call.parameters, error=error)


BATCH = Tool(name="batch", about=about("batch"), takes=BatchInput, run=batch, announces=True)
