"""The `task` tool: hand a task to a subagent, which does it in a child session."""

from collections.abc import Mapping

from msgspec.structs import replace

from weft.errors import ToolError
from weft.model.agent import AgentInfo, list_offered
from weft.tool.contract import ChildTask, ToolContext, ToolResult
from weft.tool.inputs import TaskInput
from weft.tool.truncate import truncate_result


async def task(arguments: TaskInput, ctx: ToolContext) -> ToolResult:
    agent = ctx.agents.get(arguments.subagent_type)
    # OpenCode accepts any agent by name, so a planning agent can have its plan carried out by `build`.
    if agent is None or agent.mode == "primary":
        raise make_unknown_agent_error(arguments.subagent_type, ctx.agents)
    metadata = {"description": arguments.description, "subagent_type": arguments.subagent_type}
    await ctx.ask("task", arguments.subagent_type, always=("*",), metadata=metadata)
    return await run_child_task(arguments, ctx)


async def run_child_task(arguments: TaskInput, ctx: ToolContext) -> ToolResult:
    """Run the task with any agent, without asking for permission. For tasks that a person started directly."""
    child_task = ChildTask(
        description=arguments.description,
        prompt=arguments.prompt,
        agent=arguments.subagent_type,
        session_id=(arguments.session_id or "").strip() or None,
    )
    child = await ctx.spawn(child_task)
    result = ToolResult(title=arguments.description, output=child.text, metadata=child.metadata)
    # Truncate here, so that the model always sees the metadata below the answer.
    truncated = await truncate_result(result, ctx.resources.spill)
    tail = f"<task_metadata>\nsession_id: {child.session_id}\n</task_metadata>"
    return replace(truncated, output=f"{truncated.output}\n\n{tail}")


def make_unknown_agent_error(name: str, agents: Mapping[str, AgentInfo]) -> ToolError:
    """Return the error for an agent that does not exist or cannot be used for tasks."""
    names = ", ".join(list_offered(agents)) or "none"
    return ToolError(f"Unknown agent type: {name} is not a valid agent type. There are: {names}.")
