"""The `skill` tool: load a skill, which is a text with instructions for one kind of task."""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

from msgspec import Meta, Struct

from weft.errors import ConfigError, ToolError
from weft.model.agent import Skill
from weft.tool.contract import Audience, Tool, ToolContext, ToolResult, read_description


class SkillInput(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="The skill, by its name in the list of this tool.")]


class SkillSource(Struct, frozen=True, kw_only=True):
    """Where skills come from: `find` lists them, `read` returns the text of one. Both read the disk."""

    find: Callable[[], Sequence[Skill]]
    read: Callable[[Skill], str]


async def load_skill(shelf: SkillSource, wanted: SkillInput, ctx: ToolContext) -> ToolResult:
    found = {each.name: each for each in await asyncio.to_thread(shelf.find)}
    if wanted.name not in found:
        # OpenCode prints numbers here instead of names.
        known = ", ".join(found) or "none"
        raise ToolError(f'Skill "{wanted.name}" not found. Available skills: {known}')
    chosen = found[wanted.name]
    await ctx.ask("skill", chosen.name, always=(chosen.name,))
    try:
        body = await asyncio.to_thread(shelf.read, chosen)
    except ConfigError as error:
        raise ToolError(str(error)) from error
    directory = os.path.dirname(chosen.location)
    return ToolResult(
        title=f"Loaded skill: {chosen.name}",
        output=f"## Skill: {chosen.name}\n\n**Base directory**: {directory}\n\n{body.strip()}",
        metadata={"name": chosen.name, "dir": directory},
    )


def describe_skills(shelf: SkillSource, audience: Audience) -> str | None:
    """Return the tool's description with the skills that the agent may load, or None if there are none.

    OpenCode offers the tool in any case, with a note that there are no skills.
    """
    allowed = [each for each in shelf.find() if audience.allowed("skill", each.name)]
    if not allowed:
        return None
    return "\n".join(
        [read_description("skill"), "", *(f"- {each.name}: {each.description}" for each in allowed)]
    )


def make_skill_tool(shelf: SkillSource) -> Tool[SkillInput]:
    """Return the tool for these skills."""
    return Tool(
        name="skill",
        about=read_description("skill"),
        takes=SkillInput,
        run=partial(load_skill, shelf),
        tell=partial(describe_skills, shelf),
        announces=True,
    )


SKILL = make_skill_tool(SkillSource(find=lambda: (), read=lambda each: each.description))
