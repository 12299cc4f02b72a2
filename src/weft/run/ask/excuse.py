"""Why a run ended, said to those who were to be answered."""

from contextlib import suppress

from weft.errors import StoreError, WeftError
from weft.model.event import SessionFailed
from weft.model.failure import AbortedFailure, AnyFailure
from weft.model.session import Session
from weft.model.transcript import Transcript
from weft.run.ask.answer import Answer
from weft.run.decide import Step
from weft.run.kit import Kit
from weft.session.totals import keep_count


async def excuse(
    kit: Kit, session: Session, transcript: Transcript, *, failure: AnyFailure, owed: Step | None
) -> WeftError | None:
    """A prompt that is `owed` an answer has the reason for one, so that whoever asked, and whoever reads on later, knows.
    Gives what kept it from being stored. OpenCode tells it at most, and gives back whatever message was the last."""
    unsaid: WeftError | None = None
    try:
        if owed is not None:
            await Answer(kit, session, transcript, owed).fail(failure)
            with suppress(StoreError):  # what is not counted now is counted the next time
                await keep_count(kit.journal, session.id, [each.info for each in transcript.messages()])
            return None
    except WeftError as error:
        unsaid = error
    if unsaid is not None or not isinstance(failure, AbortedFailure):  # one that was aborted says so itself
        await kit.journal.commit(SessionFailed(session_id=session.id, error=failure))
    return unsaid
