"""The `batch` tool: call several tools at once."""

import asyncio
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from weft.tool.contract import Tool, ToolContext, ToolResult, read_description

MAX_CALLS: Final = 25
TOO_MANY: Final = f"Maximum of {MAX_CALLS} tools allowed in batch"
NESTED: Final = "A batch cannot be called from a batch. Put its calls into this one."


class BatchCall(Struct, frozen=True, kw_only=True):
    tool: Annotated[str, Meta(description="The name of the tool.")]
    parameters: Annotated[dict[str, Any], Meta(description="What the tool takes, as if called alone.")]


class BatchInput(Struct, frozen=True, kw_only=True):
    tool_calls: Annotated[
        tuple[BatchCall, ...], Meta(min_length=1, description=f"The calls, {MAX_CALLS} at most.")
    ]


async def batch(wanted: BatchInput, ctx: ToolContext) -> ToolResult:
    calls = wanted.tool_calls
    outcomes = await asyncio.gather(
        *(_call(call, ctx, too_many=number > MAX_CALLS) for number, call in enumerate(calls, 1))
    )
    succeeded = sum(outcomes)
    failed = len(calls) - succeeded
    return ToolResult(
        title=f"Batch execution ({succeeded}/{len(calls)} successful)",
        # Each result is stored with its own call, including pictures. OpenCode attaches the pictures here again.
        output=(
            f"Executed {succeeded}/{len(calls)} tools successfully. {failed} failed."
            if failed
            else f"All {succeeded} tools executed successfully."
        ),
        metadata={
            "totalCalls": len(calls),
            "successful": succeeded,
            "failed": failed,
            "tools": [call.tool for call in calls],
            "details": [
                {"tool": call.tool, "success": success} for call, success in zip(calls, outcomes, strict=True)
            ],
        },
    )


async def _call(call: BatchCall, ctx: ToolContext, *, too_many: bool) -> bool:
    error = TOO_MANY if too_many else NESTED if call.tool == "batch" else ""
    return await ctx.call(call.tool, call.parameters, error=error)


BATCH = Tool(name="batch", about=read_description("batch"), takes=BatchInput, run=batch, announces=True)
