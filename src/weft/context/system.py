"""The system prompt, layer by layer, and the texts we wrote for models."""

import os
import re
from functools import cache

from weft.model.agent import Agent, Instruction
from weft.model.catalog import Model
from weft.model.message import UserMessage
from weft.model.wire import Wire, always


class Environment(Wire, frozen=True, kw_only=True):
    """The facts of a place. `today` is a day in words, as the person's calendar has it."""

    directory: str
    git: bool
    platform: str
    today: str


def describe(environment: Environment) -> str:
    return "\n".join(
        (
            "This is where you work:",
            "<env>",
            f"  Working directory: {environment.directory}",
            f"  Is directory a git repo: {'yes' if environment.git else 'no'}",
            f"  Platform: {environment.platform}",
            f"  Today's date: {environment.today}",
            "</env>",
        )
    )


@cache
def written(name: str) -> str:
    path = os.path.join(os.path.dirname(__file__), "prompts", f"{name}.md")
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


# The first that is found in a model's name. OpenCode looks for `o1` and `o3` anywhere in it, `nemo12b` included.
FAMILIES = (
    ("codex", re.compile(r"gpt-5|codex")),
    ("gpt", re.compile(r"gpt-|\bo[134]\b")),
    ("gemini", re.compile(r"gemini-")),
    ("claude", re.compile(r"claude")),
)


class Basis(Wire, frozen=True, kw_only=True):
    """What a session's model is told beside who it is. Made once for a session: models remember what begins alike."""

    environment: Environment
    instructions: tuple[Instruction, ...] = always(())


def system_prompt(agent: Agent, prompt: UserMessage, model: Model, basis: Basis) -> tuple[str, ...]:
    """What changes least comes first, each in an entry of its own, so that a provider can keep what stays the same.

    OpenCode puts a sentence before it, for providers named after Anthropic, that says to be another program. No API
    asks for that of who comes with a key of their own, and it is not true.
    """
    entries = (agent.prompt or core_prompt(model.api.id), ground(basis), prompt.system or "")
    return tuple(entry for entry in entries if entry)


def core_prompt(api_id: str) -> str:
    return written(family(api_id))


def family(api_id: str) -> str:
    """Whose way of working a model is written to for."""
    name = api_id.lower()
    return next((family for family, pattern in FAMILIES if pattern.search(name)), "generic")


def ground(basis: Basis) -> str:
    return "\n\n".join((describe(basis.environment), *map(headed, basis.instructions)))


def headed(instruction: Instruction) -> str:
    return f"Instructions from: {instruction.source}\n{instruction.text}"
