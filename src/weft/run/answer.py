"""An answer that is being made: the models to ask, its message, the stream from the provider, and its failure."""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing, suppress
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import (
    ModelNotFoundError,
    NoModelError,
    NotFoundError,
    ProviderError,
    StoreError,
    WeftError,
)
from weft.host.tasks import run_to_completion
from weft.model.catalog import Model
from weft.model.event import Durable, Event, MessageUpdated, PartGrew, SessionFailed
from weft.model.failure import AbortedFailure, AnyFailure
from weft.model.message import (
    AnyMessage,
    AssistantMessage,
    AssistantTime,
    MessagePath,
    MessageWithParts,
    UserMessage,
)
from weft.model.part import ModelRef
from weft.model.session import SessionInfo, get_ledger
from weft.model.transcript import Transcript
from weft.provider.chunk import ReasoningDelta, TextDelta
from weft.provider.contract import ModelRequest, Provider
from weft.run.changes import AnswerChanges
from weft.run.decide import ModelStep
from weft.run.processor import AnswerInput, Processor
from weft.run.runtime import Runtime
from weft.session.totals import count_spending, update_ledger

SUMMARY_AGENT = "compaction"


def get_model_chain(runtime: Runtime, prompt: UserMessage, *, summary: bool = False) -> tuple[ModelRef, ...]:
    """Return the models to ask for the next answer, those that failed recently last. It is empty if none is set.

    The models of the prompt's agent were resolved when the prompt was admitted. The agent for summaries may have its own.
    """
    summariser = runtime.agents.get(SUMMARY_AGENT) if summary else None
    source = prompt if summariser is None or summariser.model is None else summariser
    chain = () if source.model is None else (source.model, *source.fallback)
    return runtime.models.health.order(chain, runtime.clock.now())


def find_next_model(runtime: Runtime, prompt: UserMessage, *, summary: bool = False) -> Model | None:
    """Return the model that will be asked next, or None if it does not exist: the request itself reports that."""
    first = next(iter(get_model_chain(runtime, prompt, summary=summary)), None)
    try:
        return runtime.models.get(first or runtime.models.get_default()).model
    except (ModelNotFoundError, NoModelError):
        return None


class PendingAnswer:
    """The answer of one step while it is being made.

    Its events are stored through `commit`, and its end through `store_end`. `changes` stores the changes that its calls make to files.
    """

    def __init__(
        self, runtime: Runtime, session: SessionInfo, transcript: Transcript, step: ModelStep
    ) -> None:
        self.runtime = runtime
        self.session = session
        self.transcript = transcript
        self.step = step
        self.agent = SUMMARY_AGENT if step.summary else step.prompt.agent
        self.chain = get_model_chain(runtime, step.prompt, summary=step.summary)
        self.processor = Processor(self._make_message(), runtime.mint, runtime.clock.now)
        self.changes = AnswerChanges(runtime, self.processor, transcript)
        self._held: list[Event] = []

    @property
    def message(self) -> AssistantMessage:
        return self.processor.message

    def history(self) -> list[MessageWithParts]:
        return self.transcript.messages()

    async def begin(self) -> None:
        await self.commit([MessageUpdated(info=self.message)])

    async def fail(self, failure: AnyFailure) -> None:
        """End the answer with a failure, and close all its open parts."""
        failed = SessionFailed(session_id=self.session.id, error=failure)
        await self.commit([*self.processor.settle(failure), failed])
        await run_to_completion(self.changes.take())

    @property
    def has_held(self) -> bool:
        """Whether events wait for the next commit."""
        return bool(self._held)

    def hold(self, events: list[Event]) -> None:
        """Keep events, and store them with the next commit. Use this only if another commit is sure to follow soon."""
        self._held += events

    async def commit(self, events: Sequence[Event] = ()) -> None:
        """Publish growth at once. Store what was held, then all other events."""
        if not self._held and len(events) == 1 and type(events[0]) is PartGrew:  # nearly always
            self.runtime.journal.grow(events[0])
            return
        growth = [event for event in events if isinstance(event, PartGrew)]
        rest = [event for event in events if not isinstance(event, PartGrew)]
        if growth and self._held:
            await self.commit()  # it may be the part that grows
        for event in growth:
            self.runtime.journal.grow(event)
        held, self._held = self._held, []
        if held or rest:
            try:
                await self.runtime.journal.commit(*held, *rest, into=self.transcript)
            except StoreError:
                # A concurrent commit, of a tool that notes something, may have failed too and put back what it had taken.
                self._held = [*held, *self._held]
                raise

    async def store_end(self, events: Sequence[Event]) -> None:
        """Store the end of the answer, and count its cost in the ledger of the session with it."""
        message, history = self.message, self.history()

        def count(stored: SessionInfo) -> SessionInfo:
            # Nearly always only this answer is new, and the rest of the history need not be looked at.
            until = get_ledger(stored).until
            new = takewhile(lambda each: each.info.time.created > until, reversed(history))
            infos = [message if each.info.id == message.id else each.info for each in new]
            return count_spending(stored, infos)

        durable = [event for event in (*self._held, *events) if isinstance(event, Durable)]
        try:
            await self.runtime.journal.edit(self.session.id, count, *durable, into=self.transcript)
            self._held = []
        except NotFoundError:  # the session was removed meanwhile, and needs no ledger
            await self.commit(events)

    def _make_message(self) -> AssistantMessage:
        runtime, prompt, model = self.runtime, self.step.prompt, next(iter(self.chain), None)
        return AssistantMessage(
            id=runtime.mint.message(),
            session_id=prompt.session_id,
            time=AssistantTime(created=self.transcript.next_time(runtime.clock.now())),
            parent_id=prompt.id,
            model_id=model.model_id if model else "",
            provider_id=model.provider_id if model else "",
            mode=self.agent,
            agent=self.agent,
            summary=self.step.summary,
            path=MessagePath(cwd=runtime.place.directory, root=runtime.place.worktree),
        )


class StreamEnded(Struct, frozen=True, kw_only=True):
    """The stream of the provider has ended, with an `error` if it broke off."""

    error: ProviderError | None = None


class AnswerQueue:
    """What the stream and its calls produce, in order, for one consumer."""

    def __init__(self) -> None:
        self._items: deque[AnswerInput | StreamEnded] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._growing: tuple[type, str] | None = None  # the text that the last item added to

    def put(self, item: AnswerInput | StreamEnded) -> None:
        self._items.append(item)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def empty(self) -> bool:
        return not self._items

    def wait(self) -> asyncio.Future[None]:
        """Return a future that is done as soon as there is an item."""
        self._waiter = asyncio.get_running_loop().create_future()
        if self._items:
            self._waiter.set_result(None)
        return self._waiter

    def take(self) -> AnswerInput | StreamEnded:
        """Return the next item. There must be one.

        Pieces of one text that have arrived together are returned as one, except the first piece, which creates the part.
        """
        items = self._items
        item = items.popleft()
        if type(item) is not TextDelta and type(item) is not ReasoningDelta:
            self._growing = None
            return item
        growing, self._growing = self._growing, (type(item), item.id)
        return self._join(item) if items and self._growing == growing else item

    def _join(self, first: TextDelta | ReasoningDelta) -> TextDelta | ReasoningDelta:
        items, kind, pieces = self._items, type(first), [first.text]
        while items:
            following = items[0]
            if not isinstance(following, kind) or following.id != first.id:
                break
            pieces.append(following.text)
            items.popleft()
        return first if len(pieces) == 1 else kind(id=first.id, text="".join(pieces))


async def pump_stream(provider: Provider, request: ModelRequest, queue: AnswerQueue) -> None:
    """Send the request, and put all chunks of the answer and a `StreamEnded` into the queue. Cancelling this closes the connection."""
    error = None
    try:
        async with aclosing(provider.stream(request)) as chunks:
            async for chunk in chunks:
                queue.put(chunk)
    except ProviderError as raised:
        error = raised
    queue.put(StreamEnded(error=error))


async def record_failure(
    runtime: Runtime,
    session: SessionInfo,
    transcript: Transcript,
    *,
    failure: AnyFailure,
    unanswered_step: ModelStep | None,
) -> WeftError | None:
    """Store why a run failed: in the answer that it left open, and in a new answer to another prompt that has none.

    That prompt is the one of `unanswered_step`. If there is neither, only publish the failure. Return the error if the failure
    could not be stored. OpenCode only sends an event, and returns whichever message is last.
    """
    open_answer = find_open_answer(transcript.messages())
    failed = SessionFailed(session_id=session.id, error=failure)
    if open_answer is None and unanswered_step is None:
        # A person who aborts a run needs no event that says so.
        if not isinstance(failure, AbortedFailure):
            await runtime.journal.commit(failed)
        return None
    try:
        if open_answer is not None:
            await _end_answer(runtime, transcript, open_answer, failure)
        # Its sender waits for an answer, too, if the prompt came in while another one was being answered.
        if unanswered_step is not None and (
            open_answer is None or open_answer.parent_id != unanswered_step.prompt.id
        ):
            await PendingAnswer(runtime, session, transcript, unanswered_step).fail(failure)
        with suppress(StoreError):  # the next run counts the cost
            await update_ledger(
                runtime.journal, session.id, [message.info for message in transcript.messages()]
            )
    except WeftError as error:
        await runtime.journal.commit(failed)
        return error
    return None


async def _end_answer(
    runtime: Runtime, transcript: Transcript, answer: AssistantMessage, failure: AnyFailure
) -> None:
    """End an answer with a failure, and leave its open parts open: the journal may still have to store some of their text.

    They are settled when the session is next opened. With other nodes, the run settles them as soon as the text is stored.
    """

    def end(stored: AnyMessage) -> AnyMessage:
        # The write may have succeeded although it raised. Then the answer is complete, and has its cost.
        if not isinstance(stored, AssistantMessage) or stored.time.completed is not None:
            return stored
        time = replace(stored.time, completed=max(runtime.clock.now(), stored.time.created))
        return replace(stored, error=failure, time=time)

    await runtime.journal.edit_message(answer.session_id, answer.id, end, into=transcript)
    await runtime.journal.commit(SessionFailed(session_id=answer.session_id, error=failure))


def find_open_answer(history: Sequence[MessageWithParts]) -> AssistantMessage | None:
    """Return the last answer if it has neither an end nor an error."""
    infos = (message.info for message in reversed(history) if isinstance(message.info, AssistantMessage))
    last = next(infos, None)
    return last if last is not None and last.time.completed is None and last.error is None else None
