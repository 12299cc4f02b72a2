"""Settle what a run that died left open: no call stays running, no answer stays without an end."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from weft.model.event import Event, MessageUpdated, PartUpdated
from weft.model.failure import aborted
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import (
    AnyPart,
    CallTime,
    CompletedState,
    ErrorState,
    PendingState,
    ReasoningPart,
    RetryPart,
    RunningState,
    Span,
    TextPart,
    ToolPart,
)

INTERRUPTED = "Tool execution was interrupted"
STREAMED = (TextPart, ReasoningPart)
UNDER_WAY = (PendingState, RunningState)
BROKEN_OFF = "The run was interrupted before this answer was whole."


def to_settle(history: Iterable[MessageWithParts]) -> list[Event]:
    """What has to be said so that nothing is open any more. Of a run that is alive this must not be asked.

    What is closed ends when its answer ended, or else with the last that is known of the answer. When it is found may be
    a year later, and says nothing about it.
    """
    return [event for message in history for event in _settled(message)]


def _settled(message: MessageWithParts) -> list[Event]:
    info = message.info
    left_open = [part for part in message.parts if _is_open(part)]
    unended = isinstance(info, AssistantMessage) and info.time.completed is None
    if not (left_open or unended):
        return []
    end = _end_of(message)
    closed: list[Event] = [PartUpdated(part=_closed(part, end)) for part in left_open]
    if isinstance(info, AssistantMessage) and unended:
        error = info.error or (aborted(BROKEN_OFF) if info.finish is None else None)
        closed.append(MessageUpdated(info=replace(info, time=replace(info.time, completed=end), error=error)))
    return closed


def _end_of(message: MessageWithParts) -> int:
    info = message.info
    if isinstance(info, AssistantMessage) and info.time.completed is not None:
        return info.time.completed
    return max(info.time.created, *(moment for part in message.parts for moment in _moments(part)), 0)


def _moments(part: AnyPart) -> Iterator[int]:
    """The times that are known of a part."""
    match part:
        case TextPart(time=Span() as time) | ReasoningPart(time=Span() as time):
            yield time.start if time.end is None else time.end
        case ToolPart(state=RunningState(time=time)):
            yield time.start
        case ToolPart(state=CompletedState(time=time) | ErrorState(time=time)):
            yield time.end
        case RetryPart(time=time):
            yield time.created
        case _:
            pass


def _is_open(part: AnyPart) -> bool:
    # Asked of every part of a conversation before anything is done with it: so by what it is, and not by matching.
    if isinstance(part, STREAMED):
        return part.time is not None and part.time.end is None
    return isinstance(part, ToolPart) and isinstance(part.state, UNDER_WAY)


def _closed(part: AnyPart, end: int) -> AnyPart:
    """The part as it ends."""
    match part:
        case ToolPart(state=PendingState() | RunningState() as state):
            start = state.time.start if isinstance(state, RunningState) else end
            metadata = state.metadata if isinstance(state, RunningState) else None
            time = CallTime(start=start, end=max(start, end))
            return replace(
                part, state=ErrorState(input=state.input, error=INTERRUPTED, metadata=metadata, time=time)
            )
        case TextPart(time=time) | ReasoningPart(time=time) if time is not None:
            return replace(part, time=replace(time, end=max(time.start, end)))
        case _:
            return part
