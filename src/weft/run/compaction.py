"""Make room: ask for a summary of what no longer fits, and go on from it. Nothing stored is ever changed by it."""

from collections.abc import Sequence

from msgspec.structs import replace

from weft.model.event import Event, MessageUpdated, PartUpdated, SessionCompacted
from weft.model.ids import MessageID, SessionID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import AnyPart, CompactionPart, CompletedState, Moment, TextPart, ToolPart
from weft.model.transcript import Transcript
from weft.run.kit import Kit
from weft.run.moment import after
from weft.window.carry import carried
from weft.window.history import since_compaction
from weft.window.overflow import estimate, usable, used
from weft.window.prune import to_forget

CONTINUE = "Continue if you have next steps"


def is_crowded(kit: Kit, history: Sequence[MessageWithParts], prompt: UserMessage) -> bool:
    """Whether the next request would not fit, as far as can be told before it is sent."""
    if not kit.compaction.auto or prompt.model is None:
        return False
    room = usable(kit.models.get(prompt.model).model, kit.output_limit)
    return room is not None and projected(since_compaction(history)) > room


def projected(window: Sequence[MessageWithParts]) -> int:
    """About how many tokens the next request takes: what the last answer counted, and what came after it."""
    total = 0
    for message in reversed(window):
        info = message.info
        counted = isinstance(info, AssistantMessage) and not info.summary and used(info.tokens) > 0
        total += sum(_added(part, counted=counted) for part in message.parts)
        if counted:
            assert isinstance(info, AssistantMessage)
            return total + used(info.tokens)
    return total


def _added(part: AnyPart, *, counted: bool) -> int:
    """What a part adds to a request. What an answer itself said is in its own count; what its calls brought is not."""
    match part:
        case ToolPart(state=CompletedState(output=output, time=time)) if time.compacted is None:
            return estimate(output)
        case TextPart(text=text) if not counted:
            return estimate(text)
        case _:
            return 0


async def ask_for_summary(kit: Kit, session: SessionID, transcript: Transcript, *, auto: bool) -> MessageID:
    """Mark where the history is to be cut; what must not be lost goes along word for word. Gives the mark's message."""
    history = transcript.messages()
    last = next(message.info for message in reversed(history) if isinstance(message.info, UserMessage))
    words = carried(since_compaction(history), await kit.store.list_todos(session))
    message = _message(kit, transcript, last)
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
        time=Moment(created=after(transcript, kit.clock.now())),
        agent=like.agent,
        model=like.model,
        variant=like.variant,
    )


def _synthetic(kit: Kit, message: UserMessage, text: str) -> TextPart:
    return TextPart(
        id=kit.mint.part(), session_id=message.session_id, message_id=message.id, text=text, synthetic=True
    )


async def _commit(kit: Kit, transcript: Transcript, events: list[Event]) -> None:
    await kit.journal.commit(*events)
    transcript.feed(*events)
