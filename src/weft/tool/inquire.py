"""What a tool needs to turn to the person: somebody who puts questions, and a way to hand the work to another agent."""

from collections.abc import Sequence
from typing import Protocol

from weft.errors import NobodyError, ToolError
from weft.model.permission import CallRef
from weft.model.question import Question

Answers = tuple[tuple[str, ...], ...]


class Inquire(Protocol):
    """Put questions to the person; gives a list of answers for each.

    Raises `DismissedError` if they will not answer, and `NobodyError` if nobody is there.
    """

    async def __call__(self, questions: Sequence[Question], *, agent: str, call: CallRef) -> Answers: ...


class Handover(Protocol):
    """The change from one agent to another within a session, and the plan it is about."""

    async def find_plan(self) -> str:
        """Where the plan is written down."""
        ...

    async def hand_to(self, agent: str, words: str) -> None:
        """Go on as this agent, which is told these words."""
        ...


async def nobody(questions: Sequence[Question], *, agent: str, call: CallRef) -> Answers:
    """For where there is no person."""
    del questions, agent, call
    raise NobodyError


class NoHandover:
    """For where there is no other agent."""

    async def find_plan(self) -> str:
        raise ToolError("No plan is kept here.")

    async def hand_to(self, agent: str, words: str) -> None:
        raise ToolError(f"The work cannot be handed to {agent} from here: {words}")
