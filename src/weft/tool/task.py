"""The `task` tool: hand a task to a subagent, which does it in a child session."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from weft.errors import ToolError
from weft.model.agent import Agent
from weft.tool.contract import Audience, ChildTask, Tool, ToolContext, ToolResult, read_description
from weft.tool.truncate import truncate_result

AGENTS_PLACEHOLDER = "{agents}"
DESCRIPTION = read_description("task")


class TaskInput(Struct, frozen=True, kw_only=True):
    description: Annotated[str, Meta(description="What the task is, in three to five words.")]
    prompt: Annotated[str, Meta(description="All that the subagent has to know, and what it is to do.")]
    subagent_type: Annotated[str, Meta(description="Which subagent is to do it.")]
    session_id: Annotated[
        str | None,
        Meta(description="The session of an earlier task, to go on with it; leave it out to start afresh."),
    ] = None
    command: Annotated[str | None, Meta(description="The command that led to this task, if one did.")] = None


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


def list_offered(agents: Mapping[str, Agent]) -> dict[str, Agent]:
    """Return the agents that models are told about. Hidden ones can still be used by name, as in OpenCode."""
    return {name: agent for name, agent in agents.items() if agent.mode != "primary" and not agent.hidden}


def describe_task(audience: Audience) -> str | None:
    """Return the tool's description with the agents that may be used, or None if there are none."""
    usable = [
        f"- {name}: {agent.description or 'for what the user says it is for'}"
        for name, agent in list_offered(audience.agents).items()
        if audience.allowed("task", name)
    ]
    return DESCRIPTION.replace(AGENTS_PLACEHOLDER, "\n".join(usable)) if usable else None


TASK = Tool(name="task", about=DESCRIPTION, takes=TaskInput, run=task, tell=describe_task, announces=True)
