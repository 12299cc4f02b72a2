"""The events of a question as a caller sees them, derived from the events of its session (pure)."""

from collections.abc import Iterator
from typing import Generic, Literal, TypeVar

from msgspec import Struct

from weft.agent.answer import Answer, Call, Step, is_written, to_call, to_step
from weft.model.event import Event, MessageUpdated, PartGrew, PartUpdated, PermissionAsked, StatusChanged
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage
from weft.model.part import ReasoningPart, TextPart, ToolPart
from weft.model.permission import PermissionRequest
from weft.model.session import Retry
from weft.model.transcript import Transcript

T_co = TypeVar("T_co", covariant=True)


class StreamEvent(Struct, frozen=True, kw_only=True):
    """Something that happened while a question was answered. `text` is what it adds to the answer, often nothing."""

    text: str = ""

    def __repr__(self) -> str:
        fields = [name for name in self.__struct_fields__ if name != "text" or self.text]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in fields)})"


class TextEvent(StreamEvent, frozen=True, kw_only=True):
    """The answer grew by `text`. A new paragraph of the model begins on a new line."""


class ReasoningEvent(StreamEvent, frozen=True, kw_only=True):
    """The reasoning of the model grew."""

    reasoning: str


class CallEvent(StreamEvent, frozen=True, kw_only=True):
    """A tool call started, reported its progress or ended; `call.status` and `call.title` say which."""

    call: Call


class PermissionEvent(StreamEvent, frozen=True, kw_only=True):
    """The agent asks for permission."""

    request: PermissionRequest


class RetryEvent(StreamEvent, frozen=True, kw_only=True):
    """The provider failed, and is asked again at the time `next` (ms)."""

    reason: str
    attempt: int
    next: int


class StepEvent(StreamEvent, frozen=True, kw_only=True):
    """The model finished one response, and its calls are done."""

    step: Step


class AnswerEvent(StreamEvent, Generic[T_co], frozen=True, kw_only=True):
    """The answer is complete. This is the last event."""

    answer: Answer[T_co]


AnyStreamEvent = TextEvent | ReasoningEvent | CallEvent | PermissionEvent | RetryEvent | StepEvent


class EventFold:
    """Turns the events of a session into stream events. Of child sessions it passes on permission requests only."""

    def __init__(self, session: SessionID, transcript: Transcript) -> None:
        self._session = session
        self._transcript = transcript
        self._answers: set[MessageID] = set()
        self._finished = {each.info.id for each in transcript.messages()}
        self._kinds: dict[PartID, Literal["text", "reasoning"]] = {}
        self._lengths: dict[PartID, int] = {}
        self._calls: dict[PartID, Call] = {}

    def feed(self, event: Event) -> Iterator[AnyStreamEvent]:
        """Yield what an event means for the caller. The event has been applied to the transcript."""
        match event:
            case PartGrew(session_id=self._session, field="text"):
                yield from self._grow(event.part_id, event.offset, event.delta)
            case PartUpdated(part=TextPart() | ReasoningPart() as part) if part.message_id in self._answers:
                if isinstance(part, ReasoningPart) or is_written(part):
                    self._kinds[part.id] = "text" if isinstance(part, TextPart) else "reasoning"
                    yield from self._grow(part.id, 0, part.text)
            case PartUpdated(part=ToolPart(session_id=self._session) as part):
                call = to_call(part)
                if call.status != "pending" and call != self._calls.get(part.id):
                    self._calls[part.id] = call
                    yield CallEvent(call=call)
            case PermissionAsked(request=request):
                yield PermissionEvent(request=request)
            case StatusChanged(session_id=self._session, status=Retry() as status):
                yield RetryEvent(reason=status.message, attempt=status.attempt, next=status.next)
            case MessageUpdated(info=AssistantMessage(session_id=self._session) as info):
                self._answers.add(info.id)
                yield from self._finish(info)
            case _:
                pass

    def _grow(self, id: PartID, offset: int, delta: str) -> Iterator[AnyStreamEvent]:
        """Yield what a part gained. Growth that is known already, or does not follow what is known, adds nothing."""
        length = self._lengths.get(id, 0)
        added = delta[length - offset :] if offset <= length else ""
        if not added or id not in self._kinds:
            return
        continued = any(self._kinds[each] == "text" for each in self._lengths)
        self._lengths[id] = length + len(added)
        if self._kinds[id] == "reasoning":
            yield ReasoningEvent(reasoning=added)
        else:
            yield TextEvent(text=added if length or not continued else f"\n{added}")

    def _finish(self, info: AssistantMessage) -> Iterator[AnyStreamEvent]:
        if info.time.completed is None or info.id in self._finished:
            return
        self._finished.add(info.id)
        message = self._transcript.find(info.id)
        if message is not None:
            yield StepEvent(step=to_step(info, message))
