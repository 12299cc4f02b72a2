"""Settle what a run that died left open: no call stays running, no answer stays without an end."""

from collections.abc import Iterable

from msgspec.structs import replace

from weft.model.event import Event, MessageUpdated, PartUpdated
from weft.model.failure import aborted
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import (
    AnyPart,
    CallTime,
    ErrorState,
    PendingState,
    ReasoningPart,
    RunningState,
    TextPart,
    ToolPart,
)

INTERRUPTED = "Tool execution was interrupted"
STREAMED = (TextPart, ReasoningPart)
UNDER_WAY = (PendingState, RunningState)
BROKEN_OFF = "The run was interrupted before this answer was whole."


def to_settle(history: Iterable[MessageWithParts], now: int) -> list[Event]:
    """What has to be said so that nothing is open any more. Of a run that is alive this must not be asked."""
    return [event for message in history for event in _settled(message, now)]


def _settled(message: MessageWithParts, now: int) -> list[Event]:
    info = message.info
    closed: list[Event] = [PartUpdated(part=_closed(part, now)) for part in message.parts if _is_open(part)]
    if isinstance(info, AssistantMessage) and info.time.completed is None:
        error = info.error or (aborted(BROKEN_OFF) if info.finish is None else None)
        closed.append(MessageUpdated(info=replace(info, time=replace(info.time, completed=now), error=error)))
    return closed


def _is_open(part: AnyPart) -> bool:
    # Asked of every part of a conversation before anything is done with it: so by what it is, and not by matching.
    if isinstance(part, STREAMED):
        return part.time is not None and part.time.end is None
    return isinstance(part, ToolPart) and isinstance(part.state, UNDER_WAY)


def _closed(part: AnyPart, now: int) -> AnyPart:
    """The part as it ends."""
    match part:
        case ToolPart(state=PendingState() | RunningState() as state):
            start = state.time.start if isinstance(state, RunningState) else now
            metadata = state.metadata if isinstance(state, RunningState) else None
            time = CallTime(start=start, end=max(start, now))
            return replace(
                part, state=ErrorState(input=state.input, error=INTERRUPTED, metadata=metadata, time=time)
            )
        case TextPart(time=time) | ReasoningPart(time=time) if time is not None:
            return replace(part, time=replace(time, end=max(time.start, now)))
        case _:
            return part
