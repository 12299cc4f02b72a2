"""A part of a prompt that is work for a child session: handed over as if a call of the task tool had asked for it."""

import asyncio
from typing import Any

from msgspec.structs import replace

from weft.host.undivided import undivided
from weft.model.event import Event, MessageUpdated, PartUpdated, SessionFailed
from weft.model.failure import AnyFailure, aborted
from weft.model.message import AssistantMessage, AssistantTime, MessagePath, UserMessage
from weft.model.part import Moment, SubtaskPart, TextPart
from weft.model.permission import CallRef
from weft.model.transcript import Transcript
from weft.run.ask.changes import Changes
from weft.run.calls import Caller, carry_out, context_for, unasked
from weft.run.decide import Subtask
from weft.run.failure import to_failure
from weft.run.kit import Kit
from weft.run.processor import CallFailed, CallReported, CallStarted, Processor
from weft.tool.contract import ToolContext
from weft.tool.task import TASK, hand_over

FAILED = "Tool execution failed"
FINISH = "tool-calls"
# OpenCode's sentence: after a command the model is to say what came of it.
SUMMARISE = "Summarize the task tool output above and continue with your task."


async def run_subtask(kit: Kit, transcript: Transcript, subtask: Subtask) -> None:
    """Have a child do it. What it brings stands in a message of its own, complete when this returns or raises."""
    await _Handover(kit, transcript, subtask).run()


class _Handover:
    """A subtask under way."""

    def __init__(self, kit: Kit, transcript: Transcript, subtask: Subtask) -> None:
        self._kit = kit
        self._transcript = transcript
        self._prompt = subtask.prompt
        self._part = subtask.part
        self._processor = Processor(self._message(), kit.mint, kit.clock.now)
        self._changes = Changes(kit, self._processor, transcript)

    async def run(self) -> None:
        started = CallStarted(call_id=self._part.id, tool=TASK.name, input=to_arguments(self._part))
        try:
            await self._commit([MessageUpdated(info=self._processor.message), *self._processor.feed(started)])
            task = replace(TASK, run=hand_over)
            outcome = await carry_out(started, task, self._context(), self._kit.hooks)
        except asyncio.CancelledError:
            await self._fail(aborted())
            raise
        except BaseException as error:
            await self._fail(to_failure(error))
            raise
        if isinstance(outcome, CallFailed):
            outcome = replace(outcome, error=f"{FAILED}: {outcome.error}" if outcome.error else FAILED)
        await self._commit([*self._processor.feed(outcome), self._finished(), *self._request()])
        await self._keep()

    def _context(self) -> ToolContext:
        async def report(*, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
            said = CallReported(call_id=self._part.id, title=title, metadata=metadata)
            await self._commit(self._processor.feed(said))

        message = self._processor.message
        call = CallRef(message_id=message.id, call_id=self._part.id)
        caller = Caller(session=message.session_id, agent=self._part.agent, call=call)
        return context_for(self._kit, caller, ask=unasked, report=report)

    def _finished(self) -> Event:
        message = self._processor.message
        time = replace(message.time, completed=self._kit.clock.now())
        return MessageUpdated(info=replace(message, finish=FINISH, time=time))

    def _request(self) -> list[Event]:
        """After a command, the prompt that asks for a summary. Without one the model is shown the result as it is."""
        if not self._part.command:
            return []
        like = self._prompt
        message = UserMessage(
            id=self._kit.mint.message(),
            session_id=like.session_id,
            time=Moment(created=self._transcript.next_time(self._kit.clock.now())),
            agent=like.agent,
            model=like.model,
            tools=like.tools,
            format=like.format,
            fallback=like.fallback,
        )
        words = TextPart(
            id=self._kit.mint.part(),
            session_id=like.session_id,
            message_id=message.id,
            text=SUMMARISE,
            synthetic=True,
        )
        return [MessageUpdated(info=message), PartUpdated(part=words)]

    async def _fail(self, failure: AnyFailure) -> None:
        said = SessionFailed(session_id=self._prompt.session_id, error=failure)
        await self._commit([*self._processor.settle(failure), said])
        await undivided(self._keep())

    async def _keep(self) -> None:
        await self._changes.take_sent(self._part.id)
        await self._changes.add_up(self._prompt.id)

    async def _commit(self, events: list[Event]) -> None:
        await self._kit.journal.commit(*events, into=self._transcript)

    def _message(self) -> AssistantMessage:
        kit, prompt, part = self._kit, self._prompt, self._part
        model = part.model or prompt.model
        return AssistantMessage(
            id=kit.mint.message(),
            session_id=prompt.session_id,
            time=AssistantTime(created=self._transcript.next_time(kit.clock.now())),
            parent_id=prompt.id,
            model_id=model.model_id if model else "",
            provider_id=model.provider_id if model else "",
            mode=part.agent,
            agent=part.agent,
            path=MessagePath(cwd=kit.place.directory, root=kit.place.worktree),
        )


def to_arguments(part: SubtaskPart) -> dict[str, Any]:
    given = {"prompt": part.prompt, "description": part.description, "subagent_type": part.agent}
    return {**given, "command": part.command} if part.command else given
