"""The `recall` tool: search the part of the conversation that compaction removed from the context."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from weft.errors import ToolError
from weft.tool.contract import Tool, ToolContext, ToolResult, read_description

MAX_RESULTS: Final = 20


class RecallInput(Struct, frozen=True, kw_only=True):
    query: Annotated[str, Meta(description="Words that must all occur in a message.")]
    limit: Annotated[
        int, Meta(description=f"How many places at most, up to {MAX_RESULTS}.", ge=1, le=MAX_RESULTS)
    ] = 5


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


RECALL = Tool(name="recall", about=read_description("recall"), takes=RecallInput, run=recall, announces=True)
