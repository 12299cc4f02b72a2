"""Request one answer: which model, how often, and what to wait for in between."""

import asyncio
from collections.abc import Iterable
from itertools import count

from msgspec import UNSET
from msgspec.structs import replace

from weft.context.exclusions import BAD_REQUEST, can_leave_out
from weft.context.reminders import wanted
from weft.context.system import Basis, written
from weft.errors import ModelNotFoundError, ProviderError
from weft.host.tasks import find_time_left, open_tasks
from weft.model.catalog import Model
from weft.model.event import Event, StatusChanged
from weft.model.part import ModelRef
from weft.model.session import Busy, Retry
from weft.plugin.hooks import Asked
from weft.provider.chunk import Finished, Started, TextDelta, TextEnd, TextStart, ToolCall, Usage
from weft.provider.contract import ModelRequest
from weft.provider.faults import fault
from weft.provider.registry import Served
from weft.run.admit import get_agent
from weft.run.answer import Answer, Queue, StreamEnded, pump
from weft.run.briefing import brief
from weft.run.calls import Calling
from weft.run.decide import Step
from weft.run.failure import to_setback
from weft.run.hooks import Reviewing, find_words, retold, reworded, tuned
from weft.run.processor import CallDone, CallFailed
from weft.run.request import SummaryAsk, permitted, summary_requests, to_request, to_sum_up, with_less
from weft.run.retry import ALONE, IN_COMPANY, Patience, decide_retry, is_for_another
from weft.run.structured import ask_for_value, find_value
from weft.run.usage import UNKNOWN_BILL, Bill, to_bill

EMPTY = "the summary is empty"
AT_ONCE = 256


class Asking:
    """One answer while it is being asked for."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._kit = answer.kit
        self._agent = get_agent(answer.kit, answer.agent)
        self._queue: Queue = asyncio.Queue()
        self._calling = Calling(answer, self._agent, self._queue)
        self._failed = 0
        self._laying_by = False
        self._summed_up = ""
        self._formatted = False
        self.squeezed = False

    @property
    def refused(self) -> bool:
        """Whether the person said no to a call."""
        return self._calling.refused

    async def ask(self) -> ProviderError | None:
        """Have the answer made. None when it is whole; else why there is none."""
        error = await self._ask_chain()
        if error is not None and self._answer.step.summary and (error.kind == "overflow" or _is_empty(error)):
            await self._do_without(error)
            return None
        return error

    async def _ask_chain(self) -> ProviderError | None:
        """The first model of the chain that can answers."""
        kit, chain = self._kit, self._answer.chain or (self._kit.models.default(),)
        basis, error = await self._brief(), None
        for place, model in enumerate(chain):
            rest = chain[place + 1 :]
            error = await self._ask_one(model, basis, IN_COMPANY if rest else ALONE)
            if error is None:
                kit.models.health.work(model)
                return None
            if not is_for_another(error):
                return error
            kit.models.health.fail(model, error, kit.clock.now())
            if rest:
                await self._tell_switch(error, model, rest[0])
        return error

    async def _brief(self) -> Basis | None:
        """What the model is told first; who sums up is told nothing but that."""
        answer = self._answer
        if answer.step.summary:
            return None
        return await brief(answer.kit, answer.session, answer.transcript, answer.step.prompt)

    async def _ask_one(
        self, model: ModelRef, basis: Basis | None, patience: Patience
    ) -> ProviderError | None:
        """Ask one model. What its API will not take is left out, and it is asked once more."""
        await self._answer.commit(self._answer.processor.take_over(model))
        try:
            served = self._kit.models.get(model)
        except ModelNotFoundError as unknown:
            if patience is ALONE:
                raise
            return fault("not-found", str(unknown))
        error = await self._through(served, basis, patience)
        while error is not None and self._can_do_with_less(error, served.model):
            await self._again(error, model, wait_ms=0)
            error = await self._through(served, basis, patience)
        return error

    def _can_do_with_less(self, error: ProviderError, model: Model) -> bool:
        """Whether the API may take the request without what it refused: thoughts, files, or a format for the answer."""
        formatted = self._formatted and error.kind == BAD_REQUEST
        return formatted or can_leave_out(self._answer.history(), error.kind, model)

    async def _through(self, served: Served, basis: Basis | None, patience: Patience) -> ProviderError | None:
        if basis is None:
            return await self._sum_up(served, patience)
        kit, step, session = self._kit, _suited(self._answer.step, served), self._answer.session
        seen = kit.view.show(self._answer.history(), served.model, plan_files=kit.plan_files)
        seen = await retold(kit.hooks, session.id, seen, kit.view, served.model)
        request = to_request(kit, seen, step, served.model, basis)
        request = permitted(ask_for_value(request, self._answer.history(), step), self._agent, session)
        self._formatted = request.format is not None
        return await self._fit(served, with_less(request), patience)

    async def _sum_up(self, served: Served, patience: Patience) -> ProviderError | None:
        """A history that is too long even to be summed up is summed up piece by piece, each with what the ones before it
        came to."""
        prompt, most = _suited(self._answer.step, served).prompt, self._kit.output_limit
        words = await find_words(self._kit.hooks, prompt.session_id)
        ask = SummaryAsk(model=served.model, most=most, words=words)
        *first, last = to_sum_up(self._answer.history(), prompt, served.model, most=most)
        for piece in first:
            self._laying_by = True
            requests = summary_requests(piece, self._summed_up, prompt, self._agent, ask)
            if (error := await self._fit(served, requests, patience)) is not None:
                return error
        self._laying_by = False
        requests = summary_requests(last, self._summed_up, prompt, self._agent, ask)
        return await self._fit(served, requests, patience)

    async def _fit(
        self, served: Served, requests: Iterable[ModelRequest], patience: Patience
    ) -> ProviderError | None:
        """Ask with the first of the requests that fits. Each that did not is on record."""
        error: ProviderError | None = None
        for request in requests:
            if error is not None:
                await self._again(error, _ref(served), wait_ms=0)
                self.squeezed = True
            error = await self._try(served, request, patience)
            if error is None or error.kind != "overflow":
                break
        return error

    async def _try(self, served: Served, request: ModelRequest, patience: Patience) -> ProviderError | None:
        """Ask until there is an answer, or no point in asking again."""
        attempt, waited = 1, 0
        while (error := await self._attempt(served, request)) is not None:
            left = find_time_left()
            again = decide_retry(
                error,
                attempt=attempt,
                waited_ms=waited,
                chance=self._kit.chance(),
                patience=patience,
                left_ms=None if left is None else int(left * 1000),
            )
            if again is None or (_is_empty(error) and attempt > 1):
                return error
            await self._again(error, _ref(served), wait_ms=again.wait_ms)
            attempt += 1
            waited += again.wait_ms if error.wait_ms is None else 0
        return None

    async def _attempt(self, served: Served, request: ModelRequest) -> ProviderError | None:
        """Ask the model once. None when the answer is whole, or when what it did already has to stand."""
        request = await self._tuned(request)
        self._calling.offered = tuple(tool.name for tool in request.tools)
        async with open_tasks() as tasks:
            tasks.create_task(pump(served.provider, request, self._queue))
            finished, error = await self._consume(tasks, served.model)
        processor = self._answer.processor
        if self._answer.step.summary and finished is not None and not processor.has_spoken:
            processor.owe(to_bill(finished.usage, served.model))
            return ProviderError(EMPTY, retryable=True)
        if finished is None and not self._calling.begun:
            return error or ProviderError("the model's answer broke off before its end", retryable=True)
        # An answer that broke off after its calls were carried out is not asked for again: they would be done twice.
        # It ends here, not all that it used known, and the model goes on from the results.
        owed = processor.owed or UNKNOWN_BILL
        bill = owed if finished is None else to_bill(finished.usage, served.model)
        finished = finished or Finished(reason="unknown", usage=Usage())
        if self._laying_by:
            self._summed_up, events = processor.lay_by(bill)
            await self._answer.commit(events)
            return None
        self._take_value()
        await self._answer.changes.take()
        changed = await self._answer.changes.whole()
        await self._answer.commit(processor.finish(finished, bill, changed))
        return None

    def _take_value(self) -> None:
        """Take the value that was asked for from an answer in words. One that makes calls hands it over by a call."""
        format, processor = wanted(self._answer.step.prompt), self._answer.processor
        if format is None or self._answer.step.summary or self._calling.begun:
            return
        value = find_value(processor.words, format)
        if value is not UNSET:
            processor.structure(value)

    async def _tuned(self, request: ModelRequest) -> ModelRequest:
        asked = Asked(
            session_id=self._answer.session.id,
            agent=self._agent.name,
            model=request.model,
            message=self._answer.step.prompt,
        )
        return await tuned(Reviewing(self._kit.hooks, self._kit.output_limit), request, asked)

    async def _consume(
        self, tasks: asyncio.TaskGroup, model: Model
    ) -> tuple[Finished | None, ProviderError | None]:
        """Fold what comes, from the stream and from its calls, until both are at their end."""
        finished, ended = None, None
        for number in count(1):
            if ended is not None and not self._calling.under_way:
                break
            if number % AT_ONCE == 0:
                # An answer that comes in one lump is no reason to keep others waiting: whoever listens would fall behind
                # further than the bus remembers.
                await asyncio.sleep(0)
            match feed := await self._queue.get():
                case StreamEnded():
                    ended = feed
                case Finished():
                    finished = feed
                case ToolCall():
                    await self._calling.start(feed, tasks)
                case CallDone() | CallFailed():
                    await self._calling.settle(feed)
                case TextEnd():
                    processor = self._answer.processor
                    said = await reworded(self._kit.hooks, processor, processor.feed(feed))
                    await self._answer.commit(said)
                case Started(usage=usage):
                    self._answer.processor.owe(to_bill(usage or Usage(), model, whole=False))
                    # The files are looked through while the model is thinking: no request waits for that, nor shares
                    # the machine with it; only the first command does.
                    self._kit.undoer.snapshots.begin()
                    await self._answer.commit(self._answer.processor.feed(feed))
                case _:
                    await self._answer.commit(self._answer.processor.feed(feed))
        assert ended is not None
        return (None if ended.error else finished), ended.error

    async def _do_without(self, error: ProviderError) -> None:
        """No summary can be had. The conversation is cut all the same, or it could never go on; and that is said."""
        await self._again(error, self._answer.chain[-1], wait_ms=0)
        processor = self._answer.processor
        words = written("no_summary").replace("{reason}", str(error))
        said: list[Event] = []
        for piece in (Started(), TextStart(id="cut"), TextDelta(id="cut", text=words), TextEnd(id="cut")):
            said += processor.feed(piece)
        ended = Finished(reason="stop", usage=Usage())
        await self._answer.commit([*said, *processor.finish(ended, Bill())])

    # --- what is told in between ---

    async def _again(self, error: ProviderError, model: ModelRef, *, wait_ms: int) -> None:
        """Tell that we try again and when, and wait; aborting ends it at once."""
        await self._set_back(error, model, str(error), self._kit.clock.now() + wait_ms)
        if wait_ms:
            await self._kit.clock.sleep(wait_ms / 1000)
        await self._answer.commit([self._status(Busy())])

    async def _tell_switch(self, error: ProviderError, model: ModelRef, other: ModelRef) -> None:
        instead = f"{error}; asking {other.provider_id}/{other.model_id} instead"
        await self._set_back(error, model, instead, self._kit.clock.now())
        await self._answer.commit([self._status(Busy())])

    async def _set_back(self, error: ProviderError, model: ModelRef, words: str, until: int) -> None:
        """The answer so far counts for nothing: it is marked, and why is kept beside it."""
        self._failed += 1
        discarded = self._answer.processor.discard(self._failed, to_setback(error, model))
        retry = Retry(attempt=self._failed, message=words, next=until)
        await self._answer.commit([*discarded, self._status(retry)])

    def _status(self, status: Busy | Retry) -> Event:
        return StatusChanged(session_id=self._answer.session.id, status=status)


def _ref(served: Served) -> ModelRef:
    return ModelRef(provider_id=served.model.provider_id, model_id=served.model.id)


def _is_empty(error: ProviderError) -> bool:
    return str(error) == EMPTY


def _suited(step: Step, served: Served) -> Step:
    """A variant is the first model's own (it was checked when the prompt came in); one that steps in may not have it."""
    prompt = step.prompt
    if (
        prompt.variant is None
        or prompt.model == _ref(served)
        or prompt.variant in (served.model.variants or {})
    ):
        return step
    return replace(step, prompt=replace(prompt, variant=None))
