"""The loop: until decide says stop, take a step."""

from weft.errors import CompactionIneffectiveError
from weft.model.ids import MessageID
from weft.model.message import UserMessage
from weft.model.session import Session
from weft.model.transcript import Transcript
from weft.run.compaction import ask_for_summary, forget_old_outputs, go_on, is_crowded
from weft.run.decide import Compact, Next, Step, Stop, decide, newest_prompt
from weft.run.kit import Kit
from weft.run.step import take_step
from weft.session.totals import keep_count


async def run(kit: Kit, session: Session, transcript: Transcript) -> None:
    """One run, from a stored prompt to idle. The history was read once; from then on it is folded from events.

    A prompt that is admitted meanwhile goes into the same transcript. Nothing is awaited between the last look at it
    and the return, so such a prompt is seen here or starts the next run, and is never lost between the two.
    """
    await _Loop(kit, session, transcript).run()


class _Loop:
    """A run under way: how many steps it took, and what ends it."""

    def __init__(self, kit: Kit, session: Session, transcript: Transcript) -> None:
        self._kit = kit
        self._session = session
        self._transcript = transcript
        self._taken = 0
        self._compacted_at = -1
        self._refused: MessageID | None = None

    async def run(self) -> None:
        # Between turns, where the model's cache of the conversation has to give way anyhow.
        await forget_old_outputs(self._kit, self._transcript)
        while True:
            match self._next():
                case Stop():
                    return
                case Compact(prompt=prompt):
                    await self._make_room(prompt)
                case Step(prompt=prompt) if prompt.id == self._refused:
                    return  # the person said no: it is for them to say what next
                case Step() as step:
                    await self._take(step)

    def _next(self) -> Next:
        history = self._transcript.messages()
        prompt = newest_prompt(history)
        if prompt is None:
            return Stop()
        agent = self._kit.agents.get(prompt.agent)
        return decide(
            history,
            taken=self._taken,
            limit=agent.steps if agent else None,
            crowded=is_crowded(self._kit, history, prompt),
        )

    async def _take(self, step: Step) -> None:
        outcome = await take_step(self._kit, self._session, self._transcript, step)
        told = [message.info for message in self._transcript.messages()]
        await keep_count(self._kit.journal, self._session.id, told)
        if step.summary:
            if outcome.message.error is None:
                await go_on(self._kit, self._transcript, step.prompt)
            return
        self._taken += 1
        self._refused = step.prompt.id if outcome.refused else None
        if outcome.overflowed and self._kit.compaction.auto:
            await self._make_room(step.prompt)

    async def _make_room(self, prompt: UserMessage) -> None:
        """Ask for a summary; but if one has just been made and there is still no room, another will not help."""
        if self._compacted_at == self._taken:
            raise CompactionIneffectiveError(prompt.session_id)
        self._compacted_at = self._taken
        await ask_for_summary(self._kit, self._session.id, self._transcript, auto=True)
