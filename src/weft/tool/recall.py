"""The `recall` tool: search the part of the conversation that compaction removed from the context."""

from weft.errors import ToolError
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.inputs import RecallInput


async def recall(wanted: RecallInput, ctx: ToolContext) -> ToolResult:
    if not wanted.query.strip():
        raise ToolError("The query is empty. Name at least one word to look for.")
    await ctx.ask("recall", "*", always=("*",))
    found = await ctx.resources.recall(wanted.query, limit=wanted.limit)
    output = "\n\n".join(f"[{place.by}, {place.message_id}]\n{place.excerpt}" for place in found)
    return ToolResult(
        title=wanted.query,
        output=output or "No message that was summarized contains all of these words.",
        metadata={"count": len(found)},
    )
