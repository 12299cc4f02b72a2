"""Settle what a dead run left open: running calls, growing texts and answers without an end (pure)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from weft.model.event import Event, MessageUpdated, PartUpdated
from weft.model.failure import aborted_failure
from weft.model.ids import PartID, SessionID
from weft.model.message import AssistantMessage, MessageWithParts, count_same
from weft.model.part import (
    AnyPart,
    CallTime,
    CompletedState,
    ErrorState,
    OpenState,
    PendingState,
    ReasoningPart,
    RetryPart,
    RunningState,
    Span,
    TextPart,
    ToolPart,
)
from weft.model.verdict import CallVerdict, with_verdict, without_evidence

INTERRUPTED = "Tool execution was interrupted"  # the run died; a sentence with the verdict may follow
ABORTED = "Tool execution aborted"  # a person aborted the run; OpenCode stores the same text
STREAMED_PARTS = (TextPart, ReasoningPart)
OPEN_STATES = (PendingState, RunningState)
RECORDED_LATE = "(recorded after a crash)"
MAX_HISTORIES: Final = 4
INTERRUPTED_ANSWER = "The run was interrupted before this answer was whole."


def to_settling_events(
    history: Iterable[MessageWithParts], verdicts: Mapping[PartID, CallVerdict] | None = None
) -> list[Event]:
    """Return the events that close all that is open. Do not use this on a session with a live run.

    A call that finished according to its verdict is completed with its result. Any other fails, and its error says what is known of it.
    Each part ends when its answer ended, else at the last known time of the answer: the current time may be a year later.
    The cost of an answer that was cut off is unknown.
    """
    return [event for message in history if is_open(message) for event in _settle(message, verdicts or {})]


def is_open(message: MessageWithParts) -> bool:
    """Return True if a run left something open in a message."""
    if isinstance(message.info, AssistantMessage) and message.info.time.completed is None:
        return True
    # A loop, because `any` with a generator takes three times as long, and each run looks at the whole history.
    for part in message.parts:  # noqa: SIM110
        if _is_open(part):
            return True
    return False


class ClosedHistories:
    """The histories of the sessions that were opened last, in which nothing is open.

    A history mostly begins with the messages that it had when it was opened before, so only the others are looked at.
    """

    def __init__(self) -> None:
        self._histories: dict[SessionID, Sequence[MessageWithParts]] = {}

    def has_open(self, session: SessionID, history: Sequence[MessageWithParts]) -> bool:
        """Return True if a run left something open in a history."""
        known = self._histories.pop(session, ())
        if any(map(is_open, history[count_same(known, history) :])):
            return True
        self._histories[session] = history
        while len(self._histories) > MAX_HISTORIES:
            del self._histories[next(iter(self._histories))]
        return False


def is_interrupted(state: ErrorState) -> bool:
    """Return True if the run of a call died."""
    return state.error.startswith(INTERRUPTED)


def list_open_calls(message: MessageWithParts) -> list[ToolPart]:
    """Return the calls of an answer that have not ended."""
    return [part for part in message.parts if isinstance(part, ToolPart) and _is_open(part)]


def _settle(message: MessageWithParts, verdicts: Mapping[PartID, CallVerdict]) -> list[Event]:
    info = message.info
    open_parts = [part for part in message.parts if _is_open(part)]
    end = _find_end(message)
    events: list[Event] = [PartUpdated(part=_close(part, end, verdicts.get(part.id))) for part in open_parts]
    if isinstance(info, AssistantMessage) and info.time.completed is None:
        ended = replace(info, time=replace(info.time, completed=end))
        events.append(MessageUpdated(info=_interrupt(ended) if info.finish is None else ended))
    return events


def _interrupt(answer: AssistantMessage) -> AssistantMessage:
    """Return an answer that was cut off. A request may have been made for it, and nobody knows what the provider charges."""
    error = answer.error or aborted_failure(INTERRUPTED_ANSWER)
    return replace(answer, error=error, priced=False, counted=False)


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


def _close(part: AnyPart, end: int, verdict: CallVerdict | None) -> AnyPart:
    """Return the part with an end."""
    match part:
        case ToolPart(state=PendingState() | RunningState() as state):
            return replace(part, state=_close_call(state, end, verdict))
        case TextPart(time=time) | ReasoningPart(time=time) if time is not None:
            return replace(part, time=replace(time, end=max(time.start, end)))
        case _:
            return part


def _close_call(state: OpenState, end: int, verdict: CallVerdict | None) -> CompletedState | ErrorState:
    start = state.time.start if isinstance(state, RunningState) else end
    time = CallTime(start=start, end=max(start, end))
    metadata = without_evidence(state.metadata) if isinstance(state, RunningState) else None
    if verdict is None:
        return ErrorState(input=state.input, error=INTERRUPTED, metadata=metadata, time=time)
    if verdict.result is not None:
        result = verdict.result
        return CompletedState(
            input=state.input,
            output=f"{result.output}\n\n[weft died while this call was under way. {verdict.why}]",
            title=f"{result.title} {RECORDED_LATE}".lstrip(),
            metadata=with_verdict({**(metadata or {}), **result.metadata}, verdict),
            time=time,
        )
    return ErrorState(
        input=state.input,
        error=f"{INTERRUPTED}: weft died while this call was under way. {verdict.why}",
        metadata=with_verdict(metadata, verdict),
        time=time,
    )
