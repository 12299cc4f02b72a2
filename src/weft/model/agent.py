"""Agents, instructions, skills and commands."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from weft.model.part import ModelRef
from weft.model.permission import Ruleset, Rulesets
from weft.model.wire import Wire, always

Mode = Literal["subagent", "primary", "all"]


class AgentInfo(Wire, frozen=True, kw_only=True):
    """The definition of an agent.

    A `native` agent is built in. A `hidden` one is not offered to people or models. `steps` is the most steps that a turn
    may have. If `model` fails for good, the models in `fallback` are tried in turn. `limits` are additional rules that can
    only deny: those of an untrusted project.
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
    limits: Rulesets = ()


class Instruction(Wire, frozen=True, kw_only=True):
    """Text for agents, and the file or URL it is from. If the source could not be read, the text says so."""

    source: str
    text: str


# Returns the current instructions. The argument maps URLs that were fetched before to their texts, so that they need not be
# fetched again.
ReadInstructions = Callable[[Mapping[str, str]], tuple[Instruction, ...]]


def no_instructions(_: Mapping[str, str]) -> tuple[Instruction, ...]:
    return ()


class Skill(Wire, frozen=True, kw_only=True):
    """Instructions for one kind of task, which an agent reads when it needs them. `location` is their file."""

    name: str
    description: str
    location: str


class CommandArgument(Wire, frozen=True, kw_only=True):
    """A named argument of a prompt from an MCP server."""

    name: str
    description: str | None = None
    required: bool = False


class Command(Wire, frozen=True, kw_only=True):
    """A named prompt: a template, the agent and model that answer it, and the placeholders in it (`hints`).

    A `subtask` runs in a child session. The template of an `mcp` server is plain text, of which nothing is executed; it
    takes named `arguments`, which OpenCode does not have.
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


def list_offered(agents: Mapping[str, AgentInfo]) -> dict[str, AgentInfo]:
    """Return the agents that models are told about. Hidden ones can still be used by name, as in OpenCode."""
    return {name: agent for name, agent in agents.items() if agent.mode != "primary" and not agent.hidden}
