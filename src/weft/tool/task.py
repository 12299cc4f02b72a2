"""The `task` tool: hand a task to a subagent, which does it in a child session."""

from collections.abc import Mapping

from msgspec.structs import replace

from weft.errors import ToolError
from weft.model.agent import Agent, list_offered
from weft.tool.contract import ChildTask, ToolContext, ToolResult
from weft.tool.inputs import TaskInput
from weft.tool.truncate import truncate_result


async def task(wanted: TaskInput, ctx: ToolContext) -> ToolResult:
    agent = ctx.agents.get(wanted.subagent_type)
    # OpenCode accepts any agent by name, so a planning agent can have its plan carried out by `build`.
    if agent is None or agent.mode == "primary":
        raise unknown_agent_error(wanted.subagent_type, ctx.agents)
    metadata = {"description": wanted.description, "subagent_type": wanted.subagent_type}
    await ctx.ask("task", wanted.subagent_type, always=("*",), metadata=metadata)
    return await run_child_task(wanted, ctx)


async def run_child_task(wanted: TaskInput, ctx: ToolContext) -> ToolResult:
    """Run the task with any agent, without asking for permission. For tasks that a person started directly."""
    child_task = ChildTask(
        description=wanted.description,
        prompt=wanted.prompt,
        agent=wanted.subagent_type,
        session_id=(wanted.session_id or "").strip() or None,
    )
    child = await ctx.spawn(child_task)
    result = ToolResult(title=wanted.description, output=child.text, metadata=child.metadata)
    # Truncate here, so that the model always sees the metadata below the answer.
    truncated = await truncate_result(result, ctx.resources.spill)
    tail = f"<task_metadata>\nsession_id: {child.session_id}\n</task_metadata>"
    return replace(truncated, output=f"{truncated.output}\n\n{tail}")


def unknown_agent_error(name: str, agents: Mapping[str, Agent]) -> ToolError:
    """Return the error for an agent that does not exist or cannot be used for tasks."""
    there = ", ".join(list_offered(agents)) or "none"
    return ToolError(f"Unknown agent type: {name} is not a valid agent type. There are: {there}.")
