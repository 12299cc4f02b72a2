"""Settle what a dead run left open: running calls, growing texts and answers without an end (pure)."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from weft.model.event import Event, MessageUpdated, PartUpdated
from weft.model.failure import aborted_failure
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

INTERRUPTED = "Tool execution was interrupted"  # the run died
ABORTED = "Tool execution aborted"  # a person aborted the run; OpenCode stores the same text
STREAMED_PARTS = (TextPart, ReasoningPart)
OPEN_STATES = (PendingState, RunningState)
INTERRUPTED_ANSWER = "The run was interrupted before this answer was whole."


def to_settling_events(history: Iterable[MessageWithParts]) -> list[Event]:
    """Return the events that close all that is open. Do not use this on a session with a live run.

    Each part ends when its answer ended, else at the last known time of the answer: the current time may be a year later.
    """
    return [event for message in history for event in _settle(message)]


def _settle(message: MessageWithParts) -> list[Event]:
    info = message.info
    open_parts = [part for part in message.parts if _is_open(part)]
    is_unfinished = isinstance(info, AssistantMessage) and info.time.completed is None
    if not (open_parts or is_unfinished):
        return []
    end = _find_end(message)
    events: list[Event] = [PartUpdated(part=_close(part, end)) for part in open_parts]
    if isinstance(info, AssistantMessage) and is_unfinished:
        error = info.error or (aborted_failure(INTERRUPTED_ANSWER) if info.finish is None else None)
        events.append(MessageUpdated(info=replace(info, time=replace(info.time, completed=end), error=error)))
    return events


def _find_end(message: MessageWithParts) -> int:
    info = message.info
    if isinstance(info, AssistantMessage) and info.time.completed is not None:
        return info.time.completed
    return max(info.time.created, *(moment for part in message.parts for moment in _list_times(part)), 0)


def _list_times(part: AnyPart) -> Iterator[int]:
    """Yield the known times of a part."""
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
    # Called for every part of a history. isinstance is faster here than match.
    if isinstance(part, STREAMED_PARTS):
        return part.time is not None and part.time.end is None
    return isinstance(part, ToolPart) and isinstance(part.state, OPEN_STATES)


def _close(part: AnyPart, end: int) -> AnyPart:
    """Return the part with an end."""
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
