"""Load a skill: instructions for one kind of task, left there by people."""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

from msgspec import Meta, Struct

from weft.errors import ConfigError, ToolError
from weft.model.agent import Skill
from weft.tool.contract import Audience, Tool, ToolContext, ToolResult
from weft.tool.description import about


class SkillInput(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="The skill, by its name in the list of this tool.")]


class Shelf(Struct, frozen=True, kw_only=True):
    """Where skills are: `find` gives those there are, `read` what one of them says. Both look at the disk."""

    find: Callable[[], Sequence[Skill]]
    read: Callable[[Skill], str]


async def skill(shelf: Shelf, wanted: SkillInput, ctx: ToolContext) -> ToolResult:
    found = {each.name: each for each in await asyncio.to_thread(shelf.find)}
    if wanted.name not in found:
        # OpenCode lists numbers where it means the names.
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


def told(shelf: Shelf, audience: Audience) -> str | None:
    """What a model reads: the skills its agent may load. With none there is nothing to offer.

    OpenCode offers the tool all the same, to say that there are no skills.
    """
    allowed = [each for each in shelf.find() if audience.allowed("skill", each.name)]
    if not allowed:
        return None
    return "\n".join([about("skill"), "", *(f"- {each.name}: {each.description}" for each in allowed)])


def skill_tool(shelf: Shelf) -> Tool[SkillInput]:
    return Tool(
        name="skill",
        about=about("skill"),
        takes=SkillInput,
        run=partial(skill, shelf),
        tell=partial(told, shelf),
        announces=True,
    )


SKILL = skill_tool(Shelf(find=lambda: (), read=lambda each: each.description))
