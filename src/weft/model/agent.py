"""Agent: a definition of who answers: prompt, rules, model, limits; and what people leave for agents to keep to."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from weft.model.part import ModelRef
from weft.model.permission import Limits, Ruleset
from weft.model.wire import Wire, always

Mode = Literal["subagent", "primary", "all"]


class Agent(Wire, frozen=True, kw_only=True):
    """When its `model` fails for good, those in `fallback` are asked in turn.

    `limits` are rules that may only withhold: those of a project nobody has vouched for.
    """

    name: str
    description: str | None = None
    mode: Mode
    native: bool = False
    hidden: bool = False
    top_p: float | None = None
    temperature: float | None = None
    color: str | None = None
    permission: Ruleset = always(())
    model: ModelRef | None = None
    fallback: tuple[ModelRef, ...] = ()
    prompt: str | None = None
    options: dict[str, Any] = always({})
    steps: int | None = None
    limits: Limits = ()


class Instruction(Wire, frozen=True, kw_only=True):
    """Words for agents, and the file or address they come from. What could not be read says so in its text."""

    source: str
    text: str


# Gives the instructions there are now. What is known already, by source, need not be fetched again.
ReadInstructions = Callable[[Mapping[str, str]], tuple[Instruction, ...]]


def no_instructions(_: Mapping[str, str]) -> tuple[Instruction, ...]:
    return ()


class Skill(Wire, frozen=True, kw_only=True):
    """Instructions for one kind of task, that an agent reads when it comes to it; `location` is their file."""

    name: str
    description: str
    location: str


class CommandArgument(Wire, frozen=True, kw_only=True):
    """Something that a prompt of an MCP server is filled in with, by its name."""

    name: str
    description: str | None = None
    required: bool = False


class Command(Wire, frozen=True, kw_only=True):
    """A prompt that has a name: a template to be filled in, and who is to answer it, `hints` being its placeholders.

    As a `subtask` it is done in a session of its own. What an `mcp` server wrote is words, and nothing of it is run; it
    takes `arguments` that have names. (OpenCode does not tell them.)
    """

    name: str
    description: str | None = None
    agent: str | None = None
    model: str | None = None
    mcp: bool = False
    template: str
    subtask: bool | None = None
    hints: tuple[str, ...] = always(())
    arguments: tuple[CommandArgument, ...] = ()
