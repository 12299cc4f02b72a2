"""One session that an editor has open, with the prompt under way and what was already sent."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from acp.schema import StopReason, Usage
from msgspec import Struct

from weft.acp.errors import from_failure
from weft.acp.options import Chosen
from weft.acp.questions import Asker
from weft.acp.updates import Teller, total
from weft.api import Api
from weft.errors import SessionBusyError
from weft.model.event import Event, MessageUpdated, PartUpdated, SessionFailed, SessionRested
from weft.model.failure import AbortedFailure, AnyFailure, BudgetFailure, OutputLengthFailure
from weft.model.ids import PartID, SessionID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import StepFinishPart

Send = Callable[[], Awaitable[MessageWithParts]]
FINISHES: Final[Mapping[str, StopReason]] = {"length": "max_tokens", "content-filter": "refusal"}


class Turn:
    """A prompt on its way: whether it was cancelled, and the task that waits for its answer."""

    def __init__(self) -> None:
        self.cancelled = False
        self.task: asyncio.Future[MessageWithParts] | None = None


class Outcome(Struct, frozen=True, kw_only=True):
    stop: StopReason
    usage: Usage | None = None


class Room:
    def __init__(self, id: SessionID, api: Api, teller: Teller, asker: Asker, chosen: Chosen) -> None:
        self.id = id
        self.api = api
        self.teller = teller
        self.asker = asker
        self.chosen = chosen
        self.failure: AnyFailure | None = None
        self.rested = asyncio.Event()
        self._steps: dict[PartID, StepFinishPart] = {}
        self._turns: list[Turn] = []
        self._floor = asyncio.Lock()
        self._follows = True

    def note(self, event: Event, *, own: bool) -> None:
        """What the end of a prompt depends on. What is spent below is on our bill."""
        match event:
            case PartUpdated(part=StepFinishPart() as part):
                self._steps[part.id] = part
            case MessageUpdated(info=AssistantMessage(time=time)) if own and time.completed is None:
                self.failure = None  # it went on: what failed before was got over
            case SessionFailed(error=error) if own and error is not None:
                self.failure = error
            case SessionRested() if own:
                self.asker.leave()
                self.rested.set()
            case _:
                pass

    def moved_to(self, event: Event) -> str | None:
        """The agent that goes on, where one hands over to another in the middle of a run."""
        match event:
            case MessageUpdated(info=UserMessage(agent=agent)) if (
                self._follows and agent != self.chosen.agent
            ):
                return agent or None
            case _:
                return None

    async def take(self, send: Send, *, follows: bool = True) -> Outcome:
        """Send a prompt and see it through: all of it has been told when this returns. A command may name an agent for
        itself alone; else the session `follows` the one that answers."""
        if any(not turn.cancelled for turn in self._turns):
            raise SessionBusyError(
                self.id, "this editor: one prompt at a time, cancel it or wait for its end"
            )
        turn = Turn()
        self._turns.append(turn)
        try:
            async with self._floor:
                self._follows = follows
                return await self._see_through(turn, send)
        finally:
            self._turns.remove(turn)

    async def cancel(self) -> None:
        """End what goes on. It is settled when this returns."""
        for turn in self._turns:
            turn.cancelled = True
        going = self._turns[0].task if self._turns else None
        if not await self.api.abort(self.id) and going is not None and not going.done():
            going.cancel()  # it has not begun: it must not begin behind our back
            await asyncio.wait([going])
            await self.api.abort(self.id)

    async def _see_through(self, turn: Turn, send: Send) -> Outcome:
        if turn.cancelled:
            return Outcome(stop="cancelled")
        self.failure, self._steps = None, {}
        self.rested.clear()
        turn.task = asyncio.ensure_future(send())
        try:
            await asyncio.wait([turn.task])
        finally:
            turn.task.cancel()
        if turn.task.cancelled():
            return Outcome(stop="cancelled")
        answer = turn.task.result()
        await self.rested.wait()
        return self._outcome(turn, answer)

    def _outcome(self, turn: Turn, answer: MessageWithParts) -> Outcome:
        stop: StopReason = "cancelled" if turn.cancelled else self._reason(answer)
        return Outcome(stop=stop, usage=self._usage())

    def _reason(self, answer: MessageWithParts) -> StopReason:
        """Why it ended. What failed is an error, but for what the protocol has a word for. (OpenCode says `end_turn`.)"""
        info = answer.info if isinstance(answer.info, AssistantMessage) else None
        failure = (info.error if info else None) or self.failure
        match failure:
            case None:
                return FINISHES.get((info.finish if info else None) or "", "end_turn")
            case AbortedFailure():
                return "cancelled"
            case OutputLengthFailure():
                return "max_tokens"
            case BudgetFailure(data=data) if data.measure == "steps":
                return "max_turn_requests"
            case BudgetFailure(data=data) if data.measure == "tokens":
                return "max_tokens"
            case _:
                raise from_failure(failure)

    def _usage(self) -> Usage | None:
        if not self._steps or not all(step.counted for step in self._steps.values()):
            return None  # an editor would show what is unknown as nothing
        counted = [step.tokens for step in self._steps.values()]
        return Usage(
            total_tokens=sum(total(each) for each in counted),
            input_tokens=sum(each.input for each in counted),
            output_tokens=sum(each.output for each in counted),
            thought_tokens=sum(each.reasoning for each in counted),
            cached_read_tokens=sum(each.cache.read for each in counted),
            cached_write_tokens=sum(each.cache.write for each in counted),
        )
