"""One step of a run: request an answer from a model, run the tool calls in it, and store both.

The model's stream and its tool calls run concurrently, and put chunks and results into one queue, which one consumer folds into
events. So a call that outlives the stream is waited for. A call stores its notes and its file changes itself, because it must not go
on before they are stored. The journal puts all events of a session into one order.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import count

from msgspec import UNSET, Struct
from msgspec.structs import replace

from weft.context.exclusions import BAD_REQUEST, can_exclude
from weft.context.reminders import find_json_format
from weft.context.system import Briefing, read_text
from weft.errors import ModelNotFoundError, ProviderError
from weft.host.tasks import find_time_left, open_tasks, run_to_completion
from weft.model.catalog import to_ref
from weft.model.event import Event, StatusChanged
from weft.model.failure import aborted_failure
from weft.model.message import AssistantMessage
from weft.model.part import ModelRef
from weft.model.session import Busy, Retry, SessionInfo
from weft.model.transcript import Transcript
from weft.plugin.hooks import ChatRequest
from weft.provider.chunk import (
    Finished,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Started,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolInputStart,
    Usage,
)
from weft.provider.contract import ModelRequest
from weft.provider.faults import make_error
from weft.provider.registry import ServedModel
from weft.run.admit import get_agent
from weft.run.answer import AnswerQueue, PendingAnswer, StreamEnded, pump_stream
from weft.run.briefing import prepare_briefing
from weft.run.calls import ToolCalls
from weft.run.decide import ModelStep
from weft.run.failure import to_attempt_failure, to_failure
from weft.run.hooks import apply_message_hooks, apply_request_hooks, apply_text_hooks, get_summary_prompt
from weft.run.json_schema import find_value, find_value_failure, request_value
from weft.run.processor import CallDone, CallFailed
from weft.run.request import (
    list_smaller_requests,
    list_summary_requests,
    remove_forbidden_tools,
    split_for_summary,
    to_request,
)
from weft.run.retry import Attempt, Change, EmptySummaryError, TriedAttempt, is_worth_fallback, next_attempt
from weft.run.runtime import Runtime
from weft.run.usage import UNKNOWN_USAGE, AnswerUsage, to_answer_usage

# A long answer that arrives at once must not starve the listeners: they would fall behind further than the bus can hold.
MAX_ITEMS_BEFORE_YIELD = 256
# After one of these, the next item of the stream comes soon. So their events are not stored at once, but together with its events.
SOON_FOLLOWED = Started, TextEnd, ReasoningEnd, Finished


class StepOutcome(Struct, frozen=True, kw_only=True):
    """How a step ended.

    `refused` says that the person refused a tool call. `overflowed` says that the step failed because the history does not fit
    the model's context, `shrunk` that the model answered only after some of the history was left out of the request.
    """

    message: AssistantMessage
    refused: bool = False
    overflowed: bool = False
    shrunk: bool = False


async def take_step(
    runtime: Runtime,
    session: SessionInfo,
    transcript: Transcript,
    step: ModelStep,
    *,
    within: AbstractAsyncContextManager[None],
) -> StepOutcome:
    """Request an answer and wait until it is complete. `within` limits the time.

    The message of the answer is stored first. When this returns or raises, the message is complete; it holds the failure if
    there was one.
    """
    answer = PendingAnswer(runtime, session, transcript, step)
    try:
        await answer.begin()
        async with within:
            request = AnswerRequest(answer)
            error = await request.run()
            failure = find_value_failure(answer.history(), step) if error is None else to_failure(error)
            if failure is not None:
                await answer.fail(failure)
            return StepOutcome(
                message=answer.message,
                refused=request.refused,
                overflowed=error is not None and error.kind == "overflow",
                shrunk=request.shrunk,
            )
    except asyncio.CancelledError:
        await answer.fail(aborted_failure())
        raise
    except Exception as error:  # noqa: BLE001  providers and plugins are foreign code: their fault ends the step, not the run
        await answer.fail(to_failure(error))
        return StepOutcome(message=answer.message)
    finally:
        await run_to_completion(answer.changes.store_totals(step.prompt.id))


class PreparedRequests:
    """The requests to one model for one answer.

    A summary of a long history is requested piece by piece; any other answer is one piece. Each piece has one request, and
    smaller ones in case that one does not fit.
    """

    def __init__(self, pieces: Iterable[Callable[[str], Iterator[ModelRequest]]], summary: str) -> None:
        self._pieces = deque(pieces)
        self.take_piece(summary)

    def take_piece(self, summary: str) -> None:
        """Go to the next piece. `summary` is the summary of the pieces before it."""
        self._candidates = self._pieces.popleft()(summary)
        self._smaller: ModelRequest | None = None
        self.current = next(self._candidates)

    @property
    def has_more(self) -> bool:
        return bool(self._pieces)

    def can_shrink(self) -> bool:
        """Return True if there is a smaller request for this piece. It is built now."""
        self._smaller = self._smaller or next(self._candidates, None)
        return self._smaller is not None

    def shrink(self) -> None:
        assert self._smaller is not None, "can_shrink comes first"
        self.current, self._smaller = self._smaller, None


class AnswerRequest:
    """The request for one answer, over all its attempts."""

    _served: ServedModel
    _requests: PreparedRequests

    def __init__(self, answer: PendingAnswer) -> None:
        self._answer = answer
        self._runtime = answer.runtime
        self._agent = get_agent(answer.runtime, answer.agent)
        self._queue = AnswerQueue()
        self._calls = ToolCalls(answer, self._agent, self._queue)
        self._failures = 0
        self._summary = ""  # of the pieces of the history so far
        self.shrunk = False

    @property
    def refused(self) -> bool:
        """Whether the person refused a tool call."""
        return self._calls.refused

    async def run(self) -> ProviderError | None:
        """Make attempts as `next_attempt` decides. Return None if the answer is complete, else the error of the last attempt."""
        answer, models = self._answer, self._runtime.models
        chain = answer.chain or (models.get_default(),)
        briefing = await self._prepare_briefing()
        tried: list[TriedAttempt] = []
        while (attempt := next_attempt(chain, tried)) is not None:
            if tried:
                await self._report_and_wait(attempt, after=tried[-1])
            if attempt.change == "model":
                await answer.commit(answer.processor.set_model(attempt.model))
                try:
                    self._served = models.get(attempt.model)
                except ModelNotFoundError as unknown:
                    if attempt.model == chain[-1]:
                        raise
                    tried.append(TriedAttempt(attempt=attempt, error=make_error("not-found", str(unknown))))
                    continue
            await self._prepare_request(attempt.change, briefing)
            tried.append(self._record(attempt, await self._send()))
        model, error = tried[-1].attempt.model, tried[-1].error
        if error is None:
            models.health.succeed(model)
            return None
        if is_worth_fallback(error):
            models.health.fail(model, error, self._runtime.clock.now())
        if answer.step.summary and (error.kind == "overflow" or isinstance(error, EmptySummaryError)):
            await self._cut_without_summary(model, error)
            return None
        return error

    # --- the request ---

    async def _prepare_briefing(self) -> Briefing | None:
        """Return the briefing of the session. A request for a summary has none."""
        answer = self._answer
        if answer.step.summary:
            return None
        return await prepare_briefing(answer.runtime, answer.session, answer.transcript, answer.step.prompt)

    async def _prepare_request(self, change: Change, briefing: Briefing | None) -> None:
        """Make `self._requests.current` the request for the next attempt. Without a briefing, it is a request for a summary."""
        match change:
            case "model" | "excluded":
                if briefing is None:
                    self._requests = await self._build_summary_requests()
                else:
                    self._requests = await self._build_requests(briefing)
            case "smaller":
                self._requests.shrink()
                self.shrunk = True
            case "piece":
                self._requests.take_piece(self._summary)
            case "same":
                pass

    async def _build_requests(self, briefing: Briefing) -> PreparedRequests:
        runtime, session, model = self._runtime, self._answer.session, self._served.model
        step, history = _fit_variant(self._answer.step, self._served), self._answer.history()
        shown = runtime.view.show(history, model, plan_files=runtime.plan_files)
        shown = await apply_message_hooks(runtime.hooks, session.id, shown, runtime.view, model)
        request = request_value(to_request(runtime, shown, step, model, briefing), history, step)
        request = remove_forbidden_tools(request, self._agent, session)
        return PreparedRequests([lambda _: list_smaller_requests(request)], self._summary)

    async def _build_summary_requests(self) -> PreparedRequests:
        """Split a history that is too long for one request. Each piece is sent with the summary of the pieces before it."""
        prompt, model = _fit_variant(self._answer.step, self._served).prompt, self._served.model
        output_limit = self._runtime.output_limit
        summary_prompt = await get_summary_prompt(self._runtime.hooks, prompt.session_id)
        pieces = [
            partial(
                list_summary_requests,
                piece,
                request=prompt,
                agent=self._agent,
                model=model,
                output_limit=output_limit,
                summary_prompt=summary_prompt,
            )
            for piece in split_for_summary(self._answer.history(), prompt, model, output_limit=output_limit)
        ]
        return PreparedRequests(pieces, self._summary)

    # --- one attempt ---

    async def _send(self) -> ProviderError | None:
        """Send the current request once, and run the tool calls of the answer.

        Return None if the answer is complete, or if it broke off after tool calls ran; otherwise return the error.
        """
        model = self._served.model
        hook_input = ChatRequest(
            session_id=self._answer.session.id,
            agent=self._agent.name,
            model=model,
            message=self._answer.step.prompt,
        )
        request = await apply_request_hooks(
            self._runtime.hooks, self._requests.current, hook_input, output_limit=self._runtime.output_limit
        )
        self._calls.offered = tuple(tool.name for tool in request.tools)
        processor = self._answer.processor
        # From now on the request may be charged, and only the answer tells how much.
        processor.set_partial_usage(to_answer_usage(Usage(), model, whole=False))
        async with open_tasks() as tasks:
            tasks.create_task(pump_stream(self._served.provider, request, self._queue))
            finished, error = await self._consume(tasks)
        if error is not None and not error.may_be_charged:
            processor.note_refusal()
        if self._answer.step.summary and finished is not None and not processor.has_text:
            return EmptySummaryError()
        if finished is None and not self._calls.count:
            return error or ProviderError("the model's answer broke off before its end", retryable=True)
        # An answer that broke off after its calls ran is not requested again, because the calls would run twice. The answer ends
        # here, although its usage is not fully known, and the model continues from the results of the calls.
        if finished is None:
            answer_usage = processor.partial_usage or UNKNOWN_USAGE
        else:
            answer_usage = to_answer_usage(finished.usage, model)
        if self._requests.has_more:
            self._summary, events = processor.finish_piece(answer_usage)
            await self._answer.commit(events)
        else:
            await self._finish(finished or Finished(reason="unknown", usage=Usage()), answer_usage)
        return None

    async def _consume(self, tasks: asyncio.TaskGroup) -> tuple[Finished | None, ProviderError | None]:
        """Fold everything from the stream and from its calls until both have ended. What arrives together is stored together."""
        processor = self._answer.processor
        finished, ended, item = None, None, None
        for number in count(1):
            if ended is not None and not self._calls.is_running:
                break
            if self._answer.has_held and self._queue.empty() and not isinstance(item, SOON_FOLLOWED):
                await self._answer.commit()
            if number % MAX_ITEMS_BEFORE_YIELD == 0:
                await asyncio.sleep(0)
            if self._queue.empty():
                await self._queue.wait()
            match item := self._queue.take():
                case TextDelta() | ReasoningDelta():
                    await self._answer.commit(processor.feed(item))
                case StreamEnded():
                    ended = item
                case Finished(usage=counted):
                    finished = item
                    # Its calls may still run, and be aborted: the answer is charged anyway.
                    processor.set_partial_usage(to_answer_usage(counted, self._served.model))
                case ToolCall():
                    await self._calls.start(item, tasks)
                case CallDone() | CallFailed():
                    await self._calls.store_result(item)
                case TextEnd():
                    self._answer.hold(
                        await apply_text_hooks(self._runtime.hooks, processor, processor.feed(item))
                    )
                case Started(usage=usage):
                    processor.set_partial_usage(
                        to_answer_usage(usage or Usage(), self._served.model, whole=False)
                    )
                    self._answer.hold(processor.feed(item))
                case ReasoningStart() | ToolInputStart():
                    # Snapshots can scan the files while the model thinks or writes the arguments of a call, so that the first
                    # command has less to wait for. An answer in plain words needs no scan.
                    self._runtime.undo_context.snapshots.begin()
                    begun = self._calls.announce(item) if isinstance(item, ToolInputStart) else item
                    self._answer.hold(processor.feed(begun))
                case _:
                    self._answer.hold(processor.feed(item))
        assert ended is not None
        return (None if ended.error else finished), ended.error

    async def _finish(self, finished: Finished, answer_usage: AnswerUsage) -> None:
        answer, format = self._answer, find_json_format(self._answer.step.prompt)
        # If the answer has calls, one of them contains the value.
        if format is not None and not answer.step.summary and not self._calls.count:
            value = find_value(answer.processor.text, format)
            if value is not UNSET:
                answer.processor.set_value(value)
        await answer.changes.take()
        changed = await answer.changes.combine()
        await answer.store_end(answer.processor.finish(finished, answer_usage, changed))

    def _record(self, attempt: Attempt, error: ProviderError | None) -> TriedAttempt:
        """Return the attempt with all that `next_attempt` needs to know of its result."""
        if error is None:
            return TriedAttempt(attempt=attempt, has_more=self._requests.has_more)
        has_format = self._requests.current.format is not None
        seconds_left = find_time_left()
        return TriedAttempt(
            attempt=attempt,
            error=error,
            can_shrink=error.kind == "overflow" and self._requests.can_shrink(),
            can_exclude=(has_format and error.kind == BAD_REQUEST)
            or can_exclude(self._answer.history(), error.kind, self._served.model),
            left_ms=None if seconds_left is None else int(seconds_left * 1000),
            jitter=self._runtime.jitter(),
        )

    async def _cut_without_summary(self, model: ModelRef, error: ProviderError) -> None:
        """Store a text that says why there is no summary. The history is cut there anyway, because the session could not continue otherwise."""
        await self._discard_attempt(model, error, str(error))
        processor = self._answer.processor
        text = read_text("no_summary").replace("{reason}", str(error))
        events: list[Event] = []
        for chunk in (Started(), TextStart(id="cut"), TextDelta(id="cut", text=text), TextEnd(id="cut")):
            events += processor.feed(chunk)
        finished = Finished(reason="stop", usage=Usage())
        await self._answer.commit([*events, *processor.finish(finished, AnswerUsage())])

    # --- between attempts ---

    async def _report_and_wait(self, attempt: Attempt, *, after: TriedAttempt) -> None:
        """If the last attempt failed, report that and when the next one follows, then wait. An abort ends the wait at once.

        A model that is given up for another one is recorded as failing.
        """
        if after.error is None:
            return
        message, model = str(after.error), attempt.model
        if attempt.change == "model":
            self._runtime.models.health.fail(after.attempt.model, after.error, self._runtime.clock.now())
            message += f"; asking {model.provider_id}/{model.model_id} instead"
        await self._discard_attempt(after.attempt.model, after.error, message, wait_ms=attempt.wait_ms)

    async def _discard_attempt(
        self, model: ModelRef, error: ProviderError, message: str, *, wait_ms: int = 0
    ) -> None:
        """Mark what the model said so far as ignored, store the error next to it, and wait for `wait_ms`."""
        self._failures += 1
        discarded = self._answer.processor.discard(self._failures, to_attempt_failure(error, model))
        retry = Retry(attempt=self._failures, message=message, next=self._runtime.clock.now() + wait_ms)
        session = self._answer.session.id
        await self._answer.commit([*discarded, StatusChanged(session_id=session, status=retry)])
        if wait_ms:
            await self._runtime.clock.sleep(wait_ms / 1000)
        await self._answer.commit([StatusChanged(session_id=session, status=Busy())])


def _fit_variant(step: ModelStep, served: ServedModel) -> ModelStep:
    """Return the step without its variant if the model has none of that name.

    The variant was checked for the first model of the chain when the prompt came in; a fallback model may not have it.
    """
    prompt = step.prompt
    has_variant = prompt.model == to_ref(served.model) or prompt.variant in (served.model.variants or {})
    if prompt.variant is None or has_variant:
        return step
    return replace(step, prompt=replace(prompt, variant=None))
