"""One answer of the model, from the request to settled parts.

The stream and the calls it starts run side by side; what they have to say comes to one queue, and one consumer folds
it. So the order of events in a session is total, and a call that outlives the stream is waited for.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import NotPermittedError, ProviderError, WeftError
from weft.host.tasks import open_tasks
from weft.model.agent import Agent
from weft.model.event import Event, MessageUpdated, PartGrew, SessionFailed, StatusChanged
from weft.model.failure import AnyFailure, aborted
from weft.model.message import AssistantMessage, AssistantTime, MessagePath
from weft.model.part import ModelRef
from weft.model.permission import CallRef
from weft.model.session import Session
from weft.model.status import Busy, Retry
from weft.model.transcript import Transcript
from weft.provider.chunk import AnyChunk, Finished, ToolCall, Usage
from weft.provider.contract import ModelRequest
from weft.provider.registry import Served
from weft.run.briefing import brief
from weft.run.calls import Caller, ask_for, carry_out, context_for, prepare
from weft.run.decide import Step
from weft.run.doom import find_doom, hint, made_for, was_blocked
from weft.run.failure import to_failure
from weft.run.kit import Kit
from weft.run.moment import after
from weft.run.processor import Bill, CallDone, CallFailed, CallReported, CallStarted, Feed, Processor
from weft.run.request import build_request, permitted, summary_requests
from weft.run.retry import decide_retry
from weft.run.usage import cost_of, to_tokens
from weft.tool.contract import ToolContext
from weft.window.system import Basis


class StreamEnded(Struct, frozen=True, kw_only=True):
    """The provider has no more to say; `error` when it broke off."""

    error: ProviderError | None = None


class Outcome(Struct, frozen=True, kw_only=True):
    """How a step ended: the message as it was left, whether the person refused a call in it, and whether it failed
    because the history is too long."""

    message: AssistantMessage
    refused: bool = False
    overflowed: bool = False


Queue = asyncio.Queue[Feed | StreamEnded]


async def take_step(kit: Kit, session: Session, transcript: Transcript, step: Step) -> Outcome:
    """Have the model answer. The message stands in the store first, and is complete when this returns or raises."""
    return await _Taking(kit, session, transcript, step).take()


class _Taking:
    """A step while it is being taken."""

    def __init__(self, kit: Kit, session: Session, transcript: Transcript, step: Step) -> None:
        self._kit = kit
        self._session = session
        self._transcript = transcript
        self._step = step
        self._prompt = step.prompt
        self._agent = "compaction" if step.summary else step.prompt.agent
        self._model = self._choose_model()
        self._queue: Queue = asyncio.Queue()
        self._open: set[str] = set()
        self._calls = 0
        self._seen: set[str] = set()
        self._refused = False
        self._overflowed = False
        self._processor = Processor(self._message(), kit.mint, kit.clock.now)

    async def take(self) -> Outcome:
        await self._commit([MessageUpdated(info=self._processor.message)])
        try:
            failure = await self._answer()
        except WeftError as error:
            failure = to_failure(error)
        except asyncio.CancelledError:
            await self._fail(aborted())
            raise
        except BaseException as error:
            await self._fail(to_failure(error))
            raise
        if failure is not None:
            await self._fail(failure)
        return Outcome(message=self._processor.message, refused=self._refused, overflowed=self._overflowed)

    async def _fail(self, failure: AnyFailure) -> None:
        said = SessionFailed(session_id=self._session.id, error=failure)
        await self._commit([*self._processor.settle(failure), said])

    async def _answer(self) -> AnyFailure | None:
        agent = self._kit.agents[self._agent]
        served = self._kit.models.get(self._model or self._kit.models.default())
        error: ProviderError | None = None
        basis = (
            None
            if self._step.summary
            else await brief(self._kit, self._session, self._transcript, self._prompt)
        )
        for request in self._requests(served, agent, basis):
            error = await self._try(served, request, agent)
            if error is None or error.kind != "overflow":
                break
        self._overflowed = error is not None and error.kind == "overflow"
        return None if error is None else to_failure(error)

    def _requests(self, served: Served, agent: Agent, basis: Basis | None) -> Iterator[ModelRequest]:
        """What to ask with. For a summary there is less and less to fall back on, if it does not fit."""
        history = self._transcript.messages()
        if basis is None:
            yield from summary_requests(
                history, self._prompt, served.model, agent, most=self._kit.output_limit
            )
        else:
            request = build_request(self._kit, history, self._step, served.model, basis)
            yield permitted(request, agent, self._session)

    async def _try(self, served: Served, request: ModelRequest, agent: Agent) -> ProviderError | None:
        """Ask until there is an answer, or no point in asking again."""
        attempt, waited = 1, 0
        while (error := await self._attempt(served, request, agent)) is not None:
            again = decide_retry(error, attempt=attempt, waited_ms=waited, chance=self._kit.chance())
            if again is None:
                return error
            await self._wait(again.wait_ms, attempt, error)
            attempt, waited = attempt + 1, waited + again.wait_ms
        return None

    async def _attempt(self, served: Served, request: ModelRequest, agent: Agent) -> ProviderError | None:
        """Ask the model once. None when the answer is whole, or when what it did already has to stand."""
        async with open_tasks() as tasks:
            tasks.create_task(pump(served.provider.stream(request), self._queue))
            finished, error = await self._consume(tasks, agent)
        if self._step.summary and finished is not None and not self._processor.has_spoken:
            return ProviderError("the summary is empty", retryable=True)
        if finished is None and not self._calls:
            return error or ProviderError("the model's answer broke off before its end", retryable=True)
        # An answer that broke off after its calls were carried out is not asked for again: they would be done twice.
        # It ends here, what it used unknown, and the model goes on from the results.
        finished = finished or Finished(reason="unknown", usage=Usage())
        cost = None if error else cost_of(finished.usage, served.model)
        bill = Bill(tokens=to_tokens(finished.usage), cost=cost)
        await self._commit(self._processor.finish(finished, bill))
        return None

    async def _wait(self, wait_ms: int, attempt: int, error: ProviderError) -> None:
        """Tell that we try again and when, and wait; aborting ends it at once."""
        kit, session = self._kit, self._session.id
        until = kit.clock.now() + wait_ms
        retry = StatusChanged(
            session_id=session, status=Retry(attempt=attempt, message=str(error), next=until)
        )
        await self._commit([*self._processor.discard(attempt, to_failure(error)), retry])
        await kit.clock.sleep(wait_ms / 1000)
        await self._commit([StatusChanged(session_id=session, status=Busy())])

    async def _consume(
        self, tasks: asyncio.TaskGroup, agent: Agent
    ) -> tuple[Finished | None, ProviderError | None]:
        finished, ended = None, None
        while ended is None or self._open:
            match feed := await self._queue.get():
                case StreamEnded():
                    ended = feed
                case Finished():
                    finished = feed
                case ToolCall():
                    await self._start(feed, tasks, agent)
                case CallDone() | CallFailed():
                    self._open.discard(feed.call_id)
                    self._refused |= isinstance(feed, CallFailed) and feed.refused
                    await self._commit(self._processor.feed(feed))
                case _:
                    await self._commit(self._processor.feed(feed))
        return (None if ended.error else finished), ended.error

    async def _start(self, call: ToolCall, tasks: asyncio.TaskGroup, agent: Agent) -> None:
        # Some servers give every call of an answer the same id; a history needs them apart.
        self._calls += 1
        if call.call_id in self._seen:
            call = replace(call, call_id=f"{call.call_id}_{self._calls}")
        self._seen.add(call.call_id)
        started = prepare(call, self._kit.tools)
        # `running` is stored before the tool runs: after a crash it is known that the call may have had effects.
        await self._commit(self._processor.feed(started))
        self._open.add(started.call_id)
        context = self._context(started.call_id, agent)

        async def settle() -> None:
            blocked = await self._blocked(started, context)
            outcome = blocked or await carry_out(started, self._kit.tools[started.tool], context)
            self._queue.put_nowait(outcome)

        tasks.create_task(settle())

    async def _blocked(self, call: CallStarted, context: ToolContext) -> CallFailed | None:
        """A call that goes round in a circle is made only if that is allowed: first it is pointed out, then it ends."""
        made = made_for(self._transcript.messages(), self._prompt)
        doom = find_doom(made, call.tool, call.input)
        if doom is None:
            return None
        try:
            await context.ask(
                "doom_loop", call.tool, always=(call.tool,), metadata={"tool": call.tool, "input": call.input}
            )
        except NotPermittedError:
            return CallFailed(call_id=call.call_id, error=hint(doom), refused=was_blocked(made))
        return None

    async def _commit(self, events: list[Event]) -> None:
        lasting = [event for event in events if not isinstance(event, PartGrew)]
        for event in events:
            if isinstance(event, PartGrew):
                self._kit.journal.grow(event)
        if lasting:
            await self._kit.journal.commit(*lasting)
            self._transcript.feed(*lasting)

    def _context(self, call_id: str, agent: Agent) -> ToolContext:
        async def report(*, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
            self._queue.put_nowait(CallReported(call_id=call_id, title=title, metadata=metadata))

        call = CallRef(message_id=self._processor.message.id, call_id=call_id)
        caller = Caller(session=self._session.id, agent=agent.name, call=call)
        return context_for(
            self._kit, caller, ask=ask_for(self._kit, self._session, agent, call), report=report
        )

    def _choose_model(self) -> ModelRef | None:
        """The prompt's own: what its agent prefers was weighed when it was admitted. Who sums up may have another."""
        summariser = self._kit.agents.get(self._agent) if self._step.summary else None
        return (summariser.model if summariser else None) or self._prompt.model

    def _message(self) -> AssistantMessage:
        kit, prompt, model = self._kit, self._prompt, self._model
        return AssistantMessage(
            id=kit.mint.message(),
            session_id=prompt.session_id,
            time=AssistantTime(created=after(self._transcript, kit.clock.now())),
            parent_id=prompt.id,
            model_id=model.model_id if model else "",
            provider_id=model.provider_id if model else "",
            mode=self._agent,
            agent=self._agent,
            summary=self._step.summary,
            path=MessagePath(cwd=kit.place.directory, root=kit.place.worktree),
        )


async def pump(stream: AsyncGenerator[AnyChunk], queue: Queue) -> None:
    """Bring what the provider says to the queue; leaving it closes the connection."""
    error = None
    try:
        async with aclosing(stream) as chunks:
            async for chunk in chunks:
                queue.put_nowait(chunk)
    except ProviderError as broke:
        error = broke
    queue.put_nowait(StreamEnded(error=error))
