"""Find parts and messages without an end in a session that does not run."""

from collections.abc import Sequence

from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import AnyPart, PendingState, ReasoningPart, RunningState, TextPart, ToolPart
from weft.session.settle import to_settling_events


def list_unfinished(history: Sequence[MessageWithParts]) -> list[str]:
    """Describe each message, part or run that has no end."""
    unended = [
        f"{message.info.id} has no end"
        for message in history
        if isinstance(message.info, AssistantMessage) and message.info.time.completed is None
    ]
    parts = [f"{part} is open" for message in history for part in message.parts if is_open(part)]
    settled = to_settling_events(history)
    return [*unended, *parts, *(f"to be settled: {event}" for event in settled)]


def is_open(part: AnyPart) -> bool:
    match part:
        case ToolPart(state=PendingState() | RunningState()):
            return True
        case TextPart(time=time) | ReasoningPart(time=time):
            return time is not None and time.end is None
        case _:
            return False
