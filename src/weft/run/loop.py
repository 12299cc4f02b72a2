"""The loop: until decide says stop, take a step."""

from collections.abc import Sequence

from weft.model.ids import MessageID
from weft.model.message import MessageWithParts
from weft.model.session import Session
from weft.model.transcript import Transcript
from weft.run.decide import Step, Stop, decide, newest_prompt
from weft.run.kit import Kit
from weft.run.step import take_step
from weft.session.totals import keep_count


async def run(kit: Kit, session: Session, transcript: Transcript) -> None:
    """One run, from a stored prompt to idle. The history was read once; from then on it is folded from events.

    A prompt that is admitted meanwhile goes into the same transcript. Nothing is awaited between the last look at it
    and the return, so such a prompt is seen here or starts the next run, and is never lost between the two.
    """
    taken = 0
    refused: MessageID | None = None
    while True:
        history = transcript.messages()
        match decide(history, taken=taken, limit=_steps(kit, history)):
            case Stop():
                return
            case Step(prompt=prompt) if prompt.id == refused:
                return  # the person said no: it is for them to say what next
            case Step() as step:
                taken += 1
                outcome = await take_step(kit, session, transcript, step)
                await keep_count(kit.journal, session.id, [each.info for each in transcript.messages()])
                refused = step.prompt.id if outcome.refused else None


def _steps(kit: Kit, history: Sequence[MessageWithParts]) -> int | None:
    prompt = newest_prompt(history)
    agent = kit.agents.get(prompt.agent) if prompt else None
    return agent.steps if agent else None
