"""Agent: a definition of who answers: prompt, rules, model, limits."""

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
