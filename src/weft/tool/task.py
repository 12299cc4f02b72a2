"""Hand a task to a subagent, which does it in a session of its own."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from weft.errors import ToolError
from weft.model.agent import Agent
from weft.tool.contract import Audience, Errand, Tool, ToolContext, ToolResult
from weft.tool.description import about
from weft.tool.truncate import bound

AGENTS = "{agents}"
ABOUT = about("task")


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
    # OpenCode looks for the name alone, so that a planning agent can have its plan carried out by `build`.
    if agent is None or agent.mode == "primary":
        raise unknown(wanted.subagent_type, ctx.agents)
    asked = {"description": wanted.description, "subagent_type": wanted.subagent_type}
    await ctx.ask("task", wanted.subagent_type, always=("*",), metadata=asked)
    return await hand_over(wanted, ctx)


async def hand_over(wanted: TaskInput, ctx: ToolContext) -> ToolResult:
    """The task done, by whatever agent, and nobody asked: for what a person ordered themselves."""
    errand = Errand(
        description=wanted.description,
        prompt=wanted.prompt,
        agent=wanted.subagent_type,
        session_id=(wanted.session_id or "").strip() or None,
    )
    brought = await ctx.spawn(errand)
    said = ToolResult(title=wanted.description, output=brought.text, metadata=brought.metadata)
    # Bounded here, so that however long the answer is, what comes after it is read.
    short = await bound(said, ctx.desk.spill)
    tail = f"<task_metadata>\nsession_id: {brought.session_id}\n</task_metadata>"
    return replace(short, output=f"{short.output}\n\n{tail}")


def unknown(name: str, agents: Mapping[str, Agent]) -> ToolError:
    there = ", ".join(offered(agents)) or "none"
    return ToolError(f"Unknown agent type: {name} is not a valid agent type. There are: {there}.")


def offered(agents: Mapping[str, Agent]) -> dict[str, Agent]:
    """The agents a model is told of. A hidden one can be used by whoever knows its name, as in OpenCode."""
    return {name: agent for name, agent in agents.items() if agent.mode != "primary" and not agent.hidden}


def tell(audience: Audience) -> str | None:
    """What a model reads of the tool: with the agents that it may use. Where there are none, there is no tool."""
    usable = [
        f"- {name}: {agent.description or 'for what the user says it is for'}"
        for name, agent in offered(audience.agents).items()
        if audience.allowed("task", name)
    ]
    return ABOUT.replace(AGENTS, "\n".join(usable)) if usable else None


TASK = Tool(name="task", about=ABOUT, takes=TaskInput, run=task, tell=tell, announces=True)
