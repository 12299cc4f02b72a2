"""The `recall` tool: search the part of the conversation that compaction removed from the context."""

from weft.errors import ToolError
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.inputs import RecallInput


async def recall(arguments: RecallInput, ctx: ToolContext) -> ToolResult:
    if not arguments.query.strip():
        raise ToolError("The query is empty. Name at least one word to look for.")
    await ctx.ask("recall", "*", always=("*",))
    matches = await ctx.resources.recall(arguments.query, limit=arguments.limit)
    output = "\n\n".join(f"[{match.by}, {match.message_id}]\n{match.excerpt}" for match in matches)
    return ToolResult(
        title=arguments.query,
        output=output or "No message that was summarized contains all of these words.",
        metadata={"count": len(matches)},
    )
