"""The calls of one answer: begun as the stream tells of them, carried out beside it."""

import asyncio
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from weft.errors import (
    CorrectedError,
    DeadlineError,
    NotPermittedError,
    RejectedError,
    UnansweredError,
)
from weft.host.deadline import Deadline
from weft.model.agent import Agent
from weft.model.permission import CallRef
from weft.provider.chunk import ToolCall
from weft.run.ask.answer import Answer
from weft.run.ask.stream import Queue
from weft.run.calls import Caller, ask_for, carry_out, context_for, permits_for, prepare, unavailable
from weft.run.doom import Doom, find_doom, hint, made_for, said_for, was_blocked
from weft.run.processor import CallDone, CallFailed, CallReported, CallStarted
from weft.run.structure.verdict import hand_over
from weft.run.unclear import NOT_AGAIN, is_unclear
from weft.tool.contract import ToolContext
from weft.tool.invalid import INVALID
from weft.window.valued import NAME as HAND_OVER
from weft.window.valued import wanted

# They have deadlines of their own: a command's is the model's to choose, a subtask's counts for all below it, and of a
# batch each call has one.
OWN_CLOCK = frozenset({"bash", "task", "batch"})


class Calling:
    """The calls of an answer while they are under way. What comes of them goes to the queue, like the stream.

    `offered` are the tools that the request offered to the model; no other can be called.
    """

    def __init__(self, answer: Answer, agent: Agent, queue: Queue) -> None:
        self._answer = answer
        self._kit = answer.kit
        self._agent = agent
        self._queue = queue
        self._format = wanted(answer.step.prompt)
        self._seen: set[str] = set()
        self._open: set[str] = set()
        self._awaited: dict[str, asyncio.Future[bool]] = {}
        self._hopeless: dict[str, str] = {}
        self._asking_of_loops = asyncio.Lock()
        self._loop_refused = False
        self.offered: tuple[str, ...] = ()
        self.begun = 0
        self.refused = False

    @property
    def under_way(self) -> bool:
        return bool(self._open)

    async def start(self, call: ToolCall, tasks: asyncio.TaskGroup) -> None:
        # Some servers give every call of an answer the same id; a history needs them apart.
        self.begun += 1
        if call.call_id in self._seen:
            call = replace(call, call_id=f"{call.call_id}_{self.begun}")
        self._seen.add(call.call_id)
        started = prepare(call, self.offered, self._kit.tools)
        # `running` is stored before the tool runs: after a crash it is known that the call may have had effects.
        await self._answer.commit(self._answer.processor.feed(started))
        self._open.add(started.call_id)
        tasks.create_task(self._make(started))

    async def settle(self, outcome: CallDone | CallFailed) -> None:
        self._open.discard(outcome.call_id)
        self.refused |= isinstance(outcome, CallFailed) and outcome.refused
        await self._answer.commit(self._answer.processor.feed(outcome))
        await self._answer.changes.take_sent(outcome.call_id)
        awaited = self._awaited.pop(outcome.call_id, None)
        if awaited is not None and not awaited.done():
            awaited.set_result(isinstance(outcome, CallDone))

    async def also(self, tool: str, arguments: dict[str, Any], *, error: str = "") -> bool:
        """A call that another one makes: it goes the way of all calls, and is waited for."""
        id = self._kit.mint.part()
        if tool not in self.offered or tool not in self._kit.tools:
            error = error or unavailable(tool, self.offered, self._kit.tools)
        self._hopeless[id] = error
        self._awaited[id] = asyncio.get_running_loop().create_future()
        raw = msgspec.json.encode(arguments).decode()
        self._queue.put_nowait(ToolCall(call_id=id, tool=tool, raw=raw))
        return await self._awaited[id]

    async def _make(self, call: CallStarted) -> None:
        if error := self._hopeless.pop(call.call_id, ""):
            self._queue.put_nowait(CallFailed(call_id=call.call_id, error=error))
            return
        if self._format is not None and call.tool == HAND_OVER:
            handed = hand_over(call, self._format)
            if handed.value is not UNSET:
                self._answer.processor.structure(handed.value)
            self._queue.put_nowait(handed.outcome)
            return
        context = self._context(call.call_id)
        blocked = await self._blocked(call, context) or await self._doubted(call, context)
        self._queue.put_nowait(blocked or await self._carried_out(call, context))

    async def _carried_out(self, call: CallStarted, context: ToolContext) -> CallDone | CallFailed:
        """A tool that never returns is ended; the model reads that it was."""
        seconds = None if call.tool in OWN_CLOCK else self._kit.deadlines.tool
        tool = INVALID if call.tool == INVALID.name else self._kit.tools[call.tool]
        try:
            async with Deadline(f"tool {call.tool}", seconds, self._kit.clock).running():
                outcome = await carry_out(call, tool, context, self._kit.hooks)
        except DeadlineError as error:
            return CallFailed(call_id=call.call_id, error=str(error))
        if isinstance(outcome, CallFailed) and self._kit.continue_on_deny:
            return replace(outcome, refused=False)
        return outcome

    async def _blocked(self, call: CallStarted, context: ToolContext) -> CallFailed | None:
        """Ask whether a call that goes round in a circle may be made. Return its failure if not.

        A person who says no ends the run. A rule that forbids it, or nobody to ask, first has the model told; a circle in
        a later answer then ends the run.
        """
        history, prompt = self._answer.transcript.messages(), self._answer.step.prompt
        here = CallRef(message_id=self._answer.message.id, call_id=call.call_id)
        made = made_for(history, prompt, before=here)
        doom = find_doom(made, call.tool, call.input, said_for(history, prompt))
        if doom is None:
            return None
        # One at a time: a no to the first answers for the others, too.
        async with self._asking_of_loops:
            if self._loop_refused:
                return CallFailed(call_id=call.call_id, error=hint(doom), refused=True)
            return await self._asked_of_loop(call, context, doom)

    async def _asked_of_loop(self, call: CallStarted, context: ToolContext, doom: Doom) -> CallFailed | None:
        metadata = {"tool": call.tool, "input": call.input}
        try:
            await context.ask("doom_loop", call.tool, always=(call.tool,), metadata=metadata)
        except CorrectedError as error:
            return CallFailed(call_id=call.call_id, error=f"{hint(doom)} {error}")
        except NotPermittedError as error:
            self._loop_refused = isinstance(error, RejectedError) and not isinstance(error, UnansweredError)
            refused = self._loop_refused or self._was_blocked_before()
            return CallFailed(call_id=call.call_id, error=hint(doom), refused=refused)
        return None

    def _was_blocked_before(self) -> bool:
        """Whether the model has read in an earlier answer that it goes round in a circle."""
        own, history = self._answer.message.id, self._answer.transcript.messages()
        before = [message for message in history if message.info.id != own]
        return was_blocked(made_for(before, self._answer.step.prompt))

    async def _doubted(self, call: CallStarted, context: ToolContext) -> CallFailed | None:
        """What a crash cut off is not simply done again: whether it took effect is for the person to say."""
        if not is_unclear(self._answer.transcript.messages(), call.call_id, call.tool, call.input):
            return None
        try:
            await context.ask("interrupted", call.tool, metadata={"tool": call.tool, "input": call.input})
        except NotPermittedError:
            return CallFailed(call_id=call.call_id, error=NOT_AGAIN)
        return None

    def _context(self, call_id: str) -> ToolContext:
        async def report(*, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
            self._queue.put_nowait(CallReported(call_id=call_id, title=title, metadata=metadata))

        session = self._answer.session
        call = CallRef(message_id=self._answer.message.id, call_id=call_id)
        caller = Caller(session=session.id, agent=self._agent.name, call=call)
        context = context_for(
            self._kit, caller, ask=ask_for(self._kit, session, self._agent, call), report=report
        )
        return replace(
            context,
            call=self.also,
            watch=self._answer.changes.watch(call_id),
            permits=permits_for(session, self._agent),
        )
