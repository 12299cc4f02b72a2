"""One answer of the model, from the request to settled parts.

The stream and the calls it starts run side by side; what they have to say comes to one queue, and one consumer folds
it. So the order of events in a session is total, and a call that outlives the stream is waited for. How the model is
asked is in `ask/asking.py`, how its calls are carried out in `ask/calling.py`.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from msgspec import Struct

from weft.host.tasks import undivided
from weft.model.failure import aborted
from weft.model.message import AssistantMessage
from weft.model.session import Session
from weft.model.transcript import Transcript
from weft.run.answer import Answer
from weft.run.attempts import Asking
from weft.run.decide import Step
from weft.run.failure import to_failure
from weft.run.kit import Kit
from weft.run.structured import find_failure

Within = Callable[[], AbstractAsyncContextManager[None]]


class Outcome(Struct, frozen=True, kw_only=True):
    """How a step ended: the message as it was left, whether the person refused a call in it, whether it failed because
    the history is too long, and whether it was only answered because some of that was left out."""

    message: AssistantMessage
    refused: bool = False
    overflowed: bool = False
    squeezed: bool = False


async def take_step(
    kit: Kit, session: Session, transcript: Transcript, step: Step, within: Within
) -> Outcome:
    """Have the model answer `within` its time. The message stands in the store first, and is complete when this returns
    or raises: a failure stands on the message."""
    answer = Answer(kit, session, transcript, step)
    try:
        return await _taken(answer, within)
    finally:
        await undivided(answer.changes.add_up(step.prompt.id))


async def _taken(answer: Answer, within: Within) -> Outcome:
    try:
        await answer.begin()
        async with within():
            return await _answered(answer)
    except asyncio.CancelledError:
        await answer.fail(aborted())
        raise
    except Exception as error:  # noqa: BLE001  a provider is a stranger's code: its fault ends the step, and is told
        await answer.fail(to_failure(error))
        return Outcome(message=answer.message)


async def _answered(answer: Answer) -> Outcome:
    asking = Asking(answer)
    error = await asking.ask()
    failure = find_failure(answer.history(), answer.step) if error is None else to_failure(error)
    if failure is not None:
        await answer.fail(failure)
    overflowed = error is not None and error.kind == "overflow"
    return Outcome(
        message=answer.message, refused=asking.refused, overflowed=overflowed, squeezed=asking.squeezed
    )
