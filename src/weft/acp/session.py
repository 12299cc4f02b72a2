"""A session that an editor has open, and the prompt that it runs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from acp.schema import StopReason, Usage
from msgspec import Struct

from weft.acp.errors import to_failure_error
from weft.acp.options import SessionChoice
from weft.acp.questions import EditorQuestions
from weft.acp.updates import UpdateStream
from weft.api import Api
from weft.errors import SessionBusyError
from weft.model.event import Event, MessageUpdated, PartUpdated, SessionFailed, SessionIdled
from weft.model.failure import AbortedFailure, AnyFailure, BudgetFailure, OutputLengthFailure
from weft.model.ids import PartID, SessionID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import StepFinishPart, add_tokens, count_used

SendPrompt = Callable[[], Awaitable[MessageWithParts]]
STOP_REASONS: Final[Mapping[str, StopReason]] = {"length": "max_tokens", "content-filter": "refusal"}


class PromptTurn:
    """A prompt under way: whether it was cancelled, and the task that waits for its answer."""

    def __init__(self) -> None:
        self.cancelled = False
        self.task: asyncio.Future[MessageWithParts] | None = None


class PromptOutcome(Struct, frozen=True, kw_only=True):
    """Why a prompt ended, and the tokens it used if they are known."""

    stop: StopReason
    usage: Usage | None = None


class EditorSession:
    """A session that an editor has open."""

    def __init__(
        self,
        id: SessionID,
        api: Api,
        updates: UpdateStream,
        questions: EditorQuestions,
        choice: SessionChoice,
    ) -> None:
        self.id = id
        self.api = api
        self.updates = updates
        self.questions = questions
        self.choice = choice
        self.failure: AnyFailure | None = None
        self.idle = asyncio.Event()
        self._steps: dict[PartID, StepFinishPart] = {}
        self._turns: list[PromptTurn] = []
        self._prompt_lock = asyncio.Lock()
        self._follows_agent = True

    def record(self, event: Event, *, own: bool) -> None:
        """Record the steps and failures from which the result of a prompt is made. Steps of child sessions count, too."""
        match event:
            case PartUpdated(part=StepFinishPart() as part):
                self._steps[part.id] = part
            case MessageUpdated(info=AssistantMessage(time=time)) if own and time.completed is None:
                self.failure = None  # it continued after the failure
            case SessionFailed(error=error) if own and error is not None:
                self.failure = error
            case SessionIdled() if own:
                self.questions.withdraw_all()
                self.idle.set()
            case _:
                pass

    def find_new_agent(self, event: Event) -> str | None:
        """Return the agent that takes over in the middle of a run, None if none does."""
        match event:
            case MessageUpdated(info=UserMessage(agent=agent)) if (
                self._follows_agent and agent != self.choice.agent
            ):
                return agent or None
            case _:
                return None

    async def run_prompt(self, send: SendPrompt, *, follows_agent: bool = True) -> PromptOutcome:
        """Send a prompt and wait for its end. When this returns, all its updates were sent to the editor.

        If `follows_agent`, the session switches to the agent that answers; a command may use an agent for itself alone.
        Raise `SessionBusyError` if another prompt is under way.
        """
        if any(not turn.cancelled for turn in self._turns):
            raise SessionBusyError(self.id, "this editor")
        turn = PromptTurn()
        self._turns.append(turn)
        try:
            async with self._prompt_lock:
                self._follows_agent = follows_agent
                return await self._wait_for_answer(turn, send)
        finally:
            self._turns.remove(turn)

    async def cancel(self) -> None:
        """End the prompts under way. They have settled when this returns."""
        for turn in self._turns:
            turn.cancelled = True
        task = self._turns[0].task if self._turns else None
        if not await self.api.abort(self.id) and task is not None and not task.done():
            task.cancel()  # it has not started, and must not start later
            await asyncio.wait([task])
            await self.api.abort(self.id)

    async def _wait_for_answer(self, turn: PromptTurn, send: SendPrompt) -> PromptOutcome:
        if turn.cancelled:
            return PromptOutcome(stop="cancelled")
        self.failure, self._steps = None, {}
        self.idle.clear()
        turn.task = asyncio.ensure_future(send())
        try:
            await asyncio.wait([turn.task])
        finally:
            turn.task.cancel()
        if turn.task.cancelled():
            return PromptOutcome(stop="cancelled")
        answer = turn.task.result()
        await self.idle.wait()
        return self._to_outcome(turn, answer)

    def _to_outcome(self, turn: PromptTurn, answer: MessageWithParts) -> PromptOutcome:
        stop: StopReason = "cancelled" if turn.cancelled else self._to_stop_reason(answer)
        return PromptOutcome(stop=stop, usage=self._to_usage())

    def _to_stop_reason(self, answer: MessageWithParts) -> StopReason:
        """Return why the prompt ended. Raise a failure for which the protocol has no stop reason.

        OpenCode returns `end_turn` for it.
        """
        info = answer.info if isinstance(answer.info, AssistantMessage) else None
        failure = (info.error if info else None) or self.failure
        match failure:
            case None:
                return STOP_REASONS.get((info.finish if info else None) or "", "end_turn")
            case AbortedFailure():
                return "cancelled"
            case OutputLengthFailure():
                return "max_tokens"
            case BudgetFailure(data=data) if data.measure == "steps":
                return "max_turn_requests"
            case BudgetFailure(data=data) if data.measure == "tokens":
                return "max_tokens"
            case _:
                raise to_failure_error(failure)

    def _to_usage(self) -> Usage | None:
        if not self._steps or not all(step.counted for step in self._steps.values()):
            return None  # an editor would show unknown counts as zero
        tokens = add_tokens(step.tokens for step in self._steps.values())
        return Usage(
            total_tokens=count_used(tokens),
            input_tokens=tokens.input,
            output_tokens=tokens.output,
            thought_tokens=tokens.reasoning,
            cached_read_tokens=tokens.cache.read,
            cached_write_tokens=tokens.cache.write,
        )
