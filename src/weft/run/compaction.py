"""Make room: ask for a summary of what no longer fits, and go on from it. Nothing stored is ever changed by it."""

from collections.abc import Sequence

from msgspec.structs import replace

from weft.context.compaction import carried, to_forget
from weft.context.tokens import Threshold, projected, room
from weft.model.catalog import Model
from weft.model.event import Event, MessageUpdated, PartUpdated, SessionCompacted
from weft.model.ids import MessageID, SessionID
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import AnyPart, CompactionPart, CompletedState, ModelRef, Moment, TextPart
from weft.model.session import Session
from weft.model.transcript import Transcript
from weft.run.answer import next_model
from weft.run.briefing import basis_of
from weft.run.kit import Compaction, Kit
from weft.run.request import overhead_of

CONTINUE = "Continue if you have next steps"


def is_crowded(
    kit: Kit, history: Sequence[MessageWithParts], prompt: UserMessage, *, overhead: int = 0
) -> bool:
    """Whether the next request would not fit, as far as can be told before it is sent."""
    model = next_model(kit, prompt)
    if not kit.compaction.auto or model is None:
        return False
    most = room(model, kit.output_limit, threshold_of(kit.compaction, model))
    return most is not None and projected(history, overhead=overhead) > most


async def overhead_in(kit: Kit, session: Session, prompt: UserMessage) -> int:
    """What a request holds beside the conversation, as far as can be told."""
    model = next_model(kit, prompt)
    if model is None or prompt.agent not in kit.agents:
        return 0
    return overhead_of(kit, prompt, model, await basis_of(kit, session))


def threshold_of(compaction: Compaction, model: Model) -> Threshold | None:
    """Where to sum up: what is said of the very model, else of all."""
    return compaction.models.get(f"{model.provider_id}/{model.id}", compaction.threshold)


async def ask_for_summary(
    kit: Kit, session: SessionID, transcript: Transcript, *, auto: bool, model: ModelRef | None = None
) -> MessageID:
    """Mark where the history is to be cut; what must not be lost goes along word for word. Gives the mark's message."""
    history = transcript.messages()
    last = next(message.info for message in reversed(history) if isinstance(message.info, UserMessage))
    words = carried(history, await kit.store.list_todos(session))
    message = _message(kit, transcript, last)
    if model is not None:
        message = replace(message, model=model, variant=None, fallback=())
    mark = CompactionPart(id=kit.mint.part(), session_id=session, message_id=message.id, auto=auto)
    parts: list[AnyPart] = [mark, *([_synthetic(kit, message, words)] if words else [])]
    await _commit(
        kit, transcript, [MessageUpdated(info=message), *(PartUpdated(part=part) for part in parts)]
    )
    return message.id


async def go_on(kit: Kit, transcript: Transcript, request: UserMessage) -> None:
    """The summary stands: tell it, and let the work that was interrupted continue."""
    await kit.journal.commit(SessionCompacted(session_id=request.session_id))
    asked = transcript.find(request.id)
    if asked is None or not any(isinstance(part, CompactionPart) and part.auto for part in asked.parts):
        return
    message = _message(kit, transcript, request)
    said = _synthetic(kit, message, CONTINUE)
    await _commit(kit, transcript, [MessageUpdated(info=message), PartUpdated(part=said)])


async def forget_old_outputs(kit: Kit, transcript: Transcript) -> None:
    """Old results are no longer shown to the model. They stay where they are."""
    if not kit.compaction.prune:
        return
    forgotten = to_forgotten(transcript.messages(), kit.clock.now())
    if forgotten:
        await _commit(kit, transcript, forgotten)


def to_forgotten(history: Sequence[MessageWithParts], now: int) -> list[Event]:
    forgotten: list[Event] = []
    for part in to_forget(history):
        if isinstance(part.state, CompletedState):
            state = replace(part.state, time=replace(part.state.time, compacted=now))
            forgotten.append(PartUpdated(part=replace(part, state=state)))
    return forgotten


def _message(kit: Kit, transcript: Transcript, like: UserMessage) -> UserMessage:
    return UserMessage(
        id=kit.mint.message(),
        session_id=like.session_id,
        time=Moment(created=transcript.next_time(kit.clock.now())),
        agent=like.agent,
        model=like.model,
        system=like.system,
        tools=like.tools,
        variant=like.variant,
        format=like.format,
        fallback=like.fallback,
    )


def _synthetic(kit: Kit, message: UserMessage, text: str) -> TextPart:
    return TextPart(
        id=kit.mint.part(), session_id=message.session_id, message_id=message.id, text=text, synthetic=True
    )


async def _commit(kit: Kit, transcript: Transcript, events: list[Event]) -> None:
    await kit.journal.commit(*events, into=transcript)
