"""What the words of a prompt mention with an `@`: it comes along, as it does with a command."""

import argparse
import os

from msgspec.structs import replace

from weft.api import Api
from weft.model.agent import Agent
from weft.model.input import PromptInput
from weft.model.project import Place, Project
from weft.permission.rules import narrowed
from weft.run.attachments import Reader, names_in, resolve


async def with_mentioned(api: Api, chosen: argparse.Namespace, input: PromptInput) -> PromptInput:
    """The prompt with the files, directories and agents that were typed. What was piped in mentions nothing: it need not
    be the person's. OpenCode's `run` leaves all of it words."""
    typed = " ".join(chosen.message)
    if not names_in(typed):
        return input
    agents = await api.surroundings.list_agents()
    answering = next((each for each in agents if each.name == chosen.agent or not chosen.agent), None)
    if answering is None:
        return input  # whoever takes the prompt in says so
    place = _here(chosen.dir, await api.current_project())
    _, *found = await resolve(typed, _reader(place, answering, agents))
    return replace(input, parts=(*input.parts, *found))


def _here(directory: str, project: Project) -> Place:
    """Names are those where the person stands, and lead nowhere outside of that."""
    return Place(project=project, directory=os.path.abspath(os.path.expanduser(directory)), worktree="/")


def _reader(place: Place, answering: Agent, agents: list[Agent]) -> Reader:
    helping = {each.name: each for each in agents if each.mode != "primary" and not each.hidden}
    return Reader(place=place, limits=narrowed((answering.permission, *answering.limits), ()), agents=helping)
