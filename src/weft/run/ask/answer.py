"""An answer in the making: its message, and the one way in which anything gets into it."""

from weft.host.undivided import undivided
from weft.model.event import Event, MessageUpdated, PartGrew, SessionFailed
from weft.model.failure import AnyFailure
from weft.model.message import AssistantMessage, AssistantTime, MessagePath, MessageWithParts
from weft.model.session import Session
from weft.model.transcript import Transcript
from weft.run.ask.changes import Changes
from weft.run.chain import SUMMARISER, chain_for
from weft.run.decide import Step
from weft.run.kit import Kit
from weft.run.processor import Processor


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
