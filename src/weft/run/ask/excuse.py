"""Why a run ended, said to those who were to be answered."""

from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from weft.errors import StoreError, WeftError
from weft.model.event import MessageUpdated, SessionFailed
from weft.model.failure import AbortedFailure, AnyFailure
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.session import Session
from weft.model.transcript import Transcript
from weft.run.ask.answer import Answer
from weft.run.decide import Step
from weft.run.kit import Kit
from weft.session.totals import keep_count


async def excuse(
    kit: Kit, session: Session, transcript: Transcript, *, failure: AnyFailure, owed: Step | None
) -> WeftError | None:
    """An answer that was left without an end ends with the reason, and a prompt that is `owed` an answer has it for one,
    so that whoever asked, and whoever reads on later, knows. Return what kept it from being stored. OpenCode tells it at
    most, and gives back whatever message was the last."""
    unsaid: WeftError | None = None
    open_answer = find_open(transcript.messages())
    try:
        if open_answer is not None or owed is not None:
            if open_answer is not None:
                await _end(kit, transcript, open_answer, failure)
            elif owed is not None:
                await Answer(kit, session, transcript, owed).fail(failure)
            with suppress(StoreError):  # what is not counted now is counted the next time
                await keep_count(kit.journal, session.id, [each.info for each in transcript.messages()])
            return None
    except WeftError as error:
        unsaid = error
    if unsaid is not None or not isinstance(failure, AbortedFailure):  # one that was aborted says so itself
        await kit.journal.commit(SessionFailed(session_id=session.id, error=failure))
    return unsaid


async def _end(kit: Kit, transcript: Transcript, answer: AssistantMessage, failure: AnyFailure) -> None:
    """Say on an answer why it has no end. Its parts are left alone: more of them was told than could be stored, and the
    journal still tries to store it; whoever opens the session next settles them."""
    time = replace(answer.time, completed=max(kit.clock.now(), answer.time.created))
    ended = MessageUpdated(info=replace(answer, error=failure, time=time))
    said = SessionFailed(session_id=answer.session_id, error=failure)
    await kit.journal.commit(ended, said, into=transcript)


def find_open(history: Sequence[MessageWithParts]) -> AssistantMessage | None:
    """The last answer, if a run left it without an end and without a reason."""
    infos = (message.info for message in reversed(history) if isinstance(message.info, AssistantMessage))
    last = next(infos, None)
    return last if last is not None and last.time.completed is None and last.error is None else None
