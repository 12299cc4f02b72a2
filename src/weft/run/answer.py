"""An answer in the making: who may give it, its message and its stream."""

import asyncio
from contextlib import aclosing

from msgspec import Struct

from weft.errors import ModelNotFoundError, NoModelError, ProviderError
from weft.host.tasks import undivided
from weft.model.catalog import Model
from weft.model.event import Event, MessageUpdated, PartGrew, SessionFailed
from weft.model.failure import AnyFailure
from weft.model.message import AssistantMessage, AssistantTime, MessagePath, MessageWithParts, UserMessage
from weft.model.part import ModelRef
from weft.model.session import Session
from weft.model.transcript import Transcript
from weft.provider.contract import ModelRequest, Provider
from weft.run.changes import Changes
from weft.run.decide import Step
from weft.run.kit import Kit
from weft.run.processor import Feed, Processor

SUMMARISER = "compaction"


def chain_for(kit: Kit, prompt: UserMessage, *, summary: bool = False) -> tuple[ModelRef, ...]:
    """The models to ask for the next answer, those that failed lately last; none if nobody said which.

    What the prompt's agent prefers was weighed when the prompt was admitted. Who sums up may have models of its own.
    """
    summariser = kit.agents.get(SUMMARISER) if summary else None
    asked = prompt if summariser is None or summariser.model is None else summariser
    chain = () if asked.model is None else (asked.model, *asked.fallback)
    return kit.models.health.order(chain, kit.clock.now())


def next_model(kit: Kit, prompt: UserMessage, *, summary: bool = False) -> Model | None:
    """The model that will answer next, as things are; None if it is not there. Who asks it will say so."""
    named = next(iter(chain_for(kit, prompt, summary=summary)), None)
    try:
        return kit.models.get(named or kit.models.default()).model
    except (ModelNotFoundError, NoModelError):
        return None


class Answer:
    """What one step makes, and what it is made with."""

    def __init__(self, kit: Kit, session: Session, transcript: Transcript, step: Step) -> None:
        self.kit = kit
        self.session = session
        self.transcript = transcript
        self.step = step
        self.agent = SUMMARISER if step.summary else step.prompt.agent
        self.chain = chain_for(kit, step.prompt, summary=step.summary)
        self.processor = Processor(self._message(), kit.mint, kit.clock.now)
        self.changes = Changes(kit, self.processor, transcript)

    @property
    def message(self) -> AssistantMessage:
        return self.processor.message

    def history(self) -> list[MessageWithParts]:
        return self.transcript.messages()

    async def begin(self) -> None:
        await self.commit([MessageUpdated(info=self.message)])

    async def fail(self, failure: AnyFailure) -> None:
        """It does not come to its end: say why, and leave nothing open."""
        said = SessionFailed(session_id=self.session.id, error=failure)
        await self.commit([*self.processor.settle(failure), said])
        await undivided(self.changes.take())

    async def commit(self, events: list[Event]) -> None:
        lasting = [event for event in events if not isinstance(event, PartGrew)]
        for event in events:
            if isinstance(event, PartGrew):
                self.kit.journal.grow(event)
        if lasting:
            await self.kit.journal.commit(*lasting, into=self.transcript)

    def _message(self) -> AssistantMessage:
        kit, prompt, model = self.kit, self.step.prompt, next(iter(self.chain), None)
        return AssistantMessage(
            id=kit.mint.message(),
            session_id=prompt.session_id,
            time=AssistantTime(created=self.transcript.next_time(kit.clock.now())),
            parent_id=prompt.id,
            model_id=model.model_id if model else "",
            provider_id=model.provider_id if model else "",
            mode=self.agent,
            agent=self.agent,
            summary=self.step.summary,
            path=MessagePath(cwd=kit.place.directory, root=kit.place.worktree),
        )


class StreamEnded(Struct, frozen=True, kw_only=True):
    """The provider has no more to say; `error` when it broke off."""

    error: ProviderError | None = None


Queue = asyncio.Queue[Feed | StreamEnded]


async def pump(provider: Provider, request: ModelRequest, queue: Queue) -> None:
    """Ask, and bring what the provider says to the queue; leaving it closes the connection."""
    error = None
    try:
        async with aclosing(provider.stream(request)) as chunks:
            async for chunk in chunks:
                queue.put_nowait(chunk)
    except ProviderError as broke:
        error = broke
    queue.put_nowait(StreamEnded(error=error))
