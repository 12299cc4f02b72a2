"""The `batch` tool: call several tools at once."""

import asyncio
from typing import Final

from weft.tool.contract import ToolContext, ToolResult
from weft.tool.inputs import MAX_CALLS, BatchCall, BatchInput

TOO_MANY_CALLS: Final = f"Maximum of {MAX_CALLS} tools allowed in batch"
NESTED_BATCH: Final = "A batch cannot be called from a batch. Put its calls into this one."


async def batch(arguments: BatchInput, ctx: ToolContext) -> ToolResult:
    calls = arguments.tool_calls
    outcomes = await asyncio.gather(
        *(_call_tool(call, ctx, too_many=number > MAX_CALLS) for number, call in enumerate(calls, 1))
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


async def _call_tool(call: BatchCall, ctx: ToolContext, *, too_many: bool) -> bool:
    error = TOO_MANY_CALLS if too_many else NESTED_BATCH if call.tool == "batch" else ""
    return await ctx.call(call.tool, call.parameters, error=error)
