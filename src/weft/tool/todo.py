"""The `todowrite` and `todoread` tools: write and read the todo list of the session."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from weft.model.session import Todo
from weft.model.wire import encode_pretty, to_plain
from weft.tool.contract import Tool, ToolContext, ToolResult, read_description


class TodoItem(Struct, frozen=True, kw_only=True):
    content: Annotated[str, Meta(description="What is to be done, in a few words.")]
    status: Annotated[str, Meta(description="pending, in_progress, completed or cancelled.")]
    priority: Annotated[str, Meta(description="high, medium or low.")]
    id: Annotated[str, Meta(description="A name for the item that stays the same.")] = ""


class TodoWriteInput(Struct, frozen=True, kw_only=True):
    todos: Annotated[tuple[TodoItem, ...], Meta(description="The whole list as it now stands.")]


class TodoReadInput(Struct, frozen=True, kw_only=True):
    pass


async def todowrite(wanted: TodoWriteInput, ctx: ToolContext) -> ToolResult:
    await ctx.ask("todowrite", "*", always=("*",))
    todos = tuple(
        Todo(content=item.content, status=item.status, priority=item.priority, id=item.id)
        for item in wanted.todos
    )
    await ctx.resources.todos.write(todos)
    return _to_result(todos)


async def todoread(wanted: TodoReadInput, ctx: ToolContext) -> ToolResult:
    del wanted
    await ctx.ask("todoread", "*", always=("*",))
    return _to_result(await ctx.resources.todos.read())


def _to_result(todos: Sequence[Todo]) -> ToolResult:
    left = sum(todo.status != "completed" for todo in todos)
    output = encode_pretty(list(todos)).decode()
    return ToolResult(title=f"{left} todos", output=output, metadata={"todos": to_plain(list(todos))})


TODOWRITE = Tool(
    name="todowrite", about=read_description("todowrite"), takes=TodoWriteInput, run=todowrite, announces=True
)
TODOREAD = Tool(
    name="todoread", about=read_description("todoread"), takes=TodoReadInput, run=todoread, announces=True
)
