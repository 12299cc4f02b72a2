"""Let tools ask the person questions and hand the session to another agent."""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

from weft.model.ids import SessionID
from weft.model.input import PromptInput, TextInput
from weft.model.message import MessageWithParts
from weft.model.permission import CallRef, Question, QuestionRequest
from weft.run.runtime import Runtime
from weft.session.lifecycle import get_plan_path
from weft.tool.contract import Answers, AskQuestions, ToolResources


class Prompter(Protocol):
    """Adds prompts to sessions."""

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts: ...


def with_questions(runtime: Runtime, runs: Prompter) -> Callable[[SessionID], ToolResources]:
    """Return the runtime's `make_resources`, extended by questions to the person and by handover to another agent."""

    def make_resources(session: SessionID) -> ToolResources:
        return replace(
            runtime.make_resources(session),
            ask_questions=make_ask_questions(runtime, session),
            handover=SessionHandover(runtime, runs, session),
        )

    return make_resources


def make_ask_questions(runtime: Runtime, session: SessionID) -> AskQuestions:
    """Return the function with which the tools of a session ask the person questions."""

    async def ask_questions(questions: Sequence[Question], *, agent: str, call: CallRef) -> Answers:
        if not questions:
            return ()
        request = QuestionRequest(
            id=runtime.mint.question(), session_id=session, questions=tuple(questions), tool=call
        )
        return await runtime.questions.ask(request, agent=agent)

    return ask_questions


class SessionHandover:
    """Hands the work in a session to another agent."""

    def __init__(self, runtime: Runtime, runs: Prompter, session: SessionID) -> None:
        self._runtime = runtime
        self._runs = runs
        self._session = session

    async def get_plan(self) -> str:
        """Return the path of the session's plan file."""
        session = await self._runtime.store.get_session(self._session)
        return get_plan_path(session, self._runtime.place, self._runtime.plans)

    async def hand_over(self, agent: str, words: str) -> None:
        """Add a prompt for another agent. The run continues with the newest prompt, and so with that agent."""
        # OpenCode keeps the model of the prompt before. Here the agent's own model is used if it has one.
        text = TextInput(text=words, synthetic=True)
        await self._runs.prompt(self._session, PromptInput(agent=agent, no_reply=True, parts=(text,)))
