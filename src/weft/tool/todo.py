"""The `todowrite` and `todoread` tools: write and read the todo list of the session."""

from collections.abc import Sequence

from weft.model.session import Todo
from weft.model.wire import encode_pretty, to_plain
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.inputs import TodoReadInput, TodoWriteInput


async def todowrite(arguments: TodoWriteInput, ctx: ToolContext) -> ToolResult:
    await ctx.ask("todowrite", "*", always=("*",))
    todos = tuple(
        Todo(content=item.content, status=item.status, priority=item.priority, id=item.id)
        for item in arguments.todos
    )
    await ctx.resources.todos.write(todos)
    return _to_result(todos)


async def todoread(arguments: TodoReadInput, ctx: ToolContext) -> ToolResult:
    del arguments
    await ctx.ask("todoread", "*", always=("*",))
    return _to_result(await ctx.resources.todos.read())


def _to_result(todos: Sequence[Todo]) -> ToolResult:
    open_count = sum(todo.status != "completed" for todo in todos)
    output = encode_pretty(list(todos)).decode()
    return ToolResult(title=f"{open_count} todos", output=output, metadata={"todos": to_plain(list(todos))})
