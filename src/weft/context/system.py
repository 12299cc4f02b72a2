"""Build the system prompt, and read the texts that weft has for models."""

import os
import re
from functools import cache

from weft.model.agent import AgentInfo, Instruction
from weft.model.catalog import Model
from weft.model.message import UserMessage
from weft.model.wire import Wire, always


class Environment(Wire, frozen=True, kw_only=True):
    """Where a session works. `today` is the date as text."""

    directory: str
    git: bool
    platform: str
    today: str


def describe_environment(environment: Environment) -> str:
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
def read_text(name: str) -> str:
    """Return a text from the `prompts` directory."""
    path = os.path.join(os.path.dirname(__file__), "prompts", f"{name}.md")
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


# The first pattern that matches the model's name wins. OpenCode finds `o1` and `o3` anywhere in a name, even in `nemo12b`.
FAMILIES = (
    ("codex", re.compile(r"gpt-5|codex")),
    ("gpt", re.compile(r"gpt-|\bo[134]\b")),
    ("gemini", re.compile(r"gemini-")),
    ("claude", re.compile(r"claude")),
)


class Briefing(Wire, frozen=True, kw_only=True):
    """The environment and the instructions in a session's system prompt. It does not change, so that providers can cache it."""

    environment: Environment
    instructions: tuple[Instruction, ...] = always(())


def build_system_prompt(
    agent: AgentInfo, prompt: UserMessage, model: Model, briefing: Briefing
) -> tuple[str, ...]:
    """Return the entries of the system prompt. Those that change least come first, so that a provider can cache them.

    For Anthropic, OpenCode begins with a sentence that claims to be another program. No API requires that from users with their
    own key, and it is not true.
    """
    entries = (agent.prompt or get_core_prompt(model.api.id), format_briefing(briefing), prompt.system or "")
    return tuple(entry for entry in entries if entry)


def get_core_prompt(api_id: str) -> str:
    return read_text(choose_family(api_id))


def choose_family(api_id: str) -> str:
    """Return the family of a model, which decides the text that it gets."""
    name = api_id.lower()
    return next((family for family, pattern in FAMILIES if pattern.search(name)), "generic")


def format_briefing(briefing: Briefing) -> str:
    return "\n\n".join(
        (describe_environment(briefing.environment), *map(format_instruction, briefing.instructions))
    )


def format_instruction(instruction: Instruction) -> str:
    return f"Instructions from: {instruction.source}\n{instruction.text}"
