"""The `skill` tool: load a skill, a text with instructions for one kind of task."""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

from msgspec import Meta, Struct

from weft.errors import ConfigError, ToolError
from weft.model.agent import Skill
from weft.tool.contract import Audience, Tool, ToolContext, ToolResult, read_text


class SkillInput(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="The skill, by its name in the list of this tool.")]


class SkillSource(Struct, frozen=True, kw_only=True):
    """Where skills come from: `find` lists them, `read` returns the text of one. Both read the disk."""

    find: Callable[[], Sequence[Skill]]
    read: Callable[[Skill], str]


async def load_skill(source: SkillSource, arguments: SkillInput, ctx: ToolContext) -> ToolResult:
    skills = {each.name: each for each in await asyncio.to_thread(source.find)}
    if arguments.name not in skills:
        # OpenCode prints numbers here instead of names.
        names = ", ".join(skills) or "none"
        raise ToolError(f'Skill "{arguments.name}" not found. Available skills: {names}')
    skill = skills[arguments.name]
    await ctx.ask("skill", skill.name, always=(skill.name,))
    try:
        body = await asyncio.to_thread(source.read, skill)
    except ConfigError as error:
        raise ToolError(str(error)) from error
    directory = os.path.dirname(skill.location)
    return ToolResult(
        title=f"Loaded skill: {skill.name}",
        output=f"## Skill: {skill.name}\n\n**Base directory**: {directory}\n\n{body.strip()}",
        metadata={"name": skill.name, "dir": directory},
    )


def describe_skills(source: SkillSource, audience: Audience) -> str | None:
    """Return the tool's description with the skills that the agent may load, or None if there are none.

    OpenCode offers the tool in any case, with a note that there are no skills.
    """
    allowed = [skill for skill in source.find() if audience.allowed("skill", skill.name)]
    if not allowed:
        return None
    return "\n".join([read_text("skill"), "", *(f"- {skill.name}: {skill.description}" for skill in allowed)])


def make_skill_tool(source: SkillSource) -> Tool[SkillInput]:
    """Return a `skill` tool that loads skills from a source."""
    return Tool(
        name="skill",
        about=read_text("skill"),
        takes=SkillInput,
        run=partial(load_skill, source),
        describe=partial(describe_skills, source),
        watch_all=False,
    )


SKILL = make_skill_tool(SkillSource(find=lambda: (), read=lambda each: each.description))
