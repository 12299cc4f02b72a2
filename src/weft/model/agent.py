"""Agent: a definition of who answers: prompt, rules, model, limits; and what people leave for agents to keep to."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from weft.model.part import ModelRef
from weft.model.permission import Ruleset
from weft.model.wire import Wire, always

Mode = Literal["subagent", "primary", "all"]


class Agent(Wire, frozen=True, kw_only=True):
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
    prompt: str | None = None
    options: dict[str, Any] = always({})
    steps: int | None = None


class Instruction(Wire, frozen=True, kw_only=True):
    """Words for agents, and the file or address they come from. What could not be read says so in its text."""

    source: str
    text: str


# Gives the instructions there are now. What is known already, by source, need not be fetched again.
ReadInstructions = Callable[[Mapping[str, str]], tuple[Instruction, ...]]


def no_instructions(_: Mapping[str, str]) -> tuple[Instruction, ...]:
    return ()
