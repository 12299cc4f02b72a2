"""Fold the chunks of one answer, and the progress of its tool calls, into events (pure: ids and time are given)."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.model.diff import EMPTY_TREE, Patch, Tree
from weft.model.event import Event, MessageUpdated, PartGrew, PartRemoved, PartUpdated
from weft.model.failure import AbortedFailure, AnyFailure
from weft.model.ids import Mint
from weft.model.input import FileInput
from weft.model.message import AssistantMessage
from weft.model.part import (
    AnyToolState,
    CallTime,
    CompletedState,
    ErrorState,
    FilePart,
    ModelRef,
    Moment,
    PatchPart,
    PendingState,
    ReasoningPart,
    RetryPart,
    RunningState,
    Span,
    StepFinishPart,
    StepStartPart,
    TextPart,
    Tokens,
    ToolPart,
    WeftPatchData,
)
from weft.provider.chunk import (
    AnyChunk,
    Finished,
    FinishReason,
    Metadata,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Started,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolInputDelta,
    ToolInputStart,
)
from weft.run.usage import Bill

ABORTED = "Tool execution aborted"
INCOMPLETE_CALL = "The call was not written to its end, and not carried out."


class CallStarted(Struct, frozen=True, kw_only=True):
    """A call begins, with this tool and this input."""

    call_id: str
    tool: str
    input: dict[str, Any]
    metadata: Metadata | None = None


class CallReported(Struct, frozen=True, kw_only=True):
    """A call reports its progress."""

    call_id: str
    title: str | None
    metadata: dict[str, Any] | None


class CallDone(Struct, frozen=True, kw_only=True):
    """A call succeeded."""

    call_id: str
    title: str
    output: str
    metadata: dict[str, Any]
    files: tuple[FileInput, ...] = ()


class CallFailed(Struct, frozen=True, kw_only=True):
    """A call failed, or did not run. `refused` says that a person refused it, which ends the run."""

    call_id: str
    error: str
    refused: bool = False


AnswerInput = AnyChunk | CallStarted | CallReported | CallDone | CallFailed


class GrowingText:
    """A text or reasoning part while it grows. Its pieces are joined at the end."""

    def __init__(self, part: TextPart | ReasoningPart) -> None:
        self.part = part
        self.pieces: list[str] = []
        self.length = 0

    def grow(self, text: str) -> Event:
        self.pieces.append(text)
        offset, self.length = self.length, self.length + len(text)
        part = self.part
        if offset == 0:
            return PartUpdated(part=replace(part, text=text), delta=text)
        return PartGrew(
            session_id=part.session_id,
            message_id=part.message_id,
            part_id=part.id,
            field="text",
            delta=text,
            offset=offset,
        )

    def end(self, now: int, metadata: Metadata | None) -> list[Event]:
        text, part = "".join(self.pieces).rstrip(), self.part
        metadata = metadata or part.metadata
        if not self.length and not metadata:
            return []  # no event announced it
        span = Span(start=part.time.start if part.time else now, end=now)
        self.part = replace(part, text=text, time=span, metadata=metadata)
        return [PartUpdated(part=self.part)]


class Processor:
    """The state of one answer. `feed` takes what happens, in order; `finish` or `settle` ends the answer."""

    def __init__(self, message: AssistantMessage, mint: Mint, now: Callable[[], int]) -> None:
        self.message = message
        self._mint = mint
        self._now = now
        self._growing: dict[tuple[type, str], GrowingText] = {}
        self._calls: dict[str, ToolPart] = {}
        self._said: list[TextPart | ReasoningPart] = []
        self._begun: StepStartPart | None = None
        self._acts = False
        self.owed: Bill | None = None

    def feed(self, item: AnswerInput) -> list[Event]:
        """Return the events for one chunk of the stream, or for the progress of one call."""
        match item:
            case Started():
                return self._begin()
            case TextStart(id=id, metadata=metadata):
                return self._open(TextPart, id, metadata)
            case ReasoningStart(id=id, metadata=metadata):
                return self._open(ReasoningPart, id, metadata)
            case TextDelta(id=id, text=text):
                return self._grow(TextPart, id, text)
            case ReasoningDelta(id=id, text=text):
                return self._grow(ReasoningPart, id, text)
            case TextEnd(id=id, metadata=metadata):
                return self._close(TextPart, id, metadata)
            case ReasoningEnd(id=id, metadata=metadata):
                return self._close(ReasoningPart, id, metadata)
            case ToolInputStart(call_id=call, tool=tool):
                return self._set(self._get_part(call, tool), PendingState(input={}, raw=""))
            case CallStarted():
                return self._start(item)
            case CallReported():
                return self._report(item)
            case CallDone():
                return self._done(item)
            case CallFailed(call_id=call, error=error):
                return self._failed(call, error)
            case ToolInputDelta() | ToolCall() | Finished():
                # As in OpenCode, the arguments of a call are not stored while they stream. A complete call comes back as
                # `CallStarted`, and the end of the answer as `finish`, when every call has settled.
                return []

    @property
    def has_text(self) -> bool:
        """Whether the answer has any text so far."""
        return any(isinstance(part, TextPart) and part.text for part in self._said)

    @property
    def text(self) -> str:
        """The text of the answer so far, without reasoning."""
        return "".join(part.text for part in self._said if isinstance(part, TextPart))

    def finish(self, finished: Finished, bill: Bill, changed: Patch | None = None) -> list[Event]:
        """End the answer. The message gets the usage, and the first and last step part get the snapshots of `changed`. A call
        whose arguments never became complete fails."""
        closed = self._close_all()
        for call in list(self._calls):
            closed += self._failed(call, INCOMPLETE_CALL)
        before, after = (_to_snapshot(changed.hash), _to_snapshot(changed.until)) if changed else (None, None)
        if before is not None and self._begun is not None:
            closed.append(PartUpdated(part=replace(self._begun, snapshot=before)))
        charged = self._charge(bill, finished.reason, snapshot=after)
        self.message = replace(self.message, finish=finished.reason, tokens=bill.tokens)
        return [*closed, charged, *self._complete()]

    def finish_piece(self, bill: Bill) -> tuple[str, list[Event]]:
        """End one piece of a summary, and return its text. The text stays in the message, but marked as ignored; its usage counts."""
        closed = self._close_all()
        text = self.text
        marked = [PartUpdated(part=replace(part, ignored=True)) for part in self._said]
        used = self._charge(bill, "stop")
        self._said, self._begun = [], None
        return text, [*closed, *marked, used, MessageUpdated(info=self.message)]

    def owe(self, bill: Bill) -> None:
        """Remember what the answer costs so far. It has to be paid even if the answer fails."""
        self.owed = bill

    def settle(self, failure: AnyFailure) -> list[Event]:
        """End the answer with a failure, and close all its open parts."""
        closed = self._close_all()
        for call in list(self._calls):
            closed += self._failed(call, ABORTED)
        # OpenCode shows an aborted answer to the model if it has anything but reasoning in it, and the end of a step would count.
        # But providers refuse an answer of reasoning alone. So there is no end of a step; the cost is on the message anyway.
        paid = self._pay()
        if isinstance(failure, AbortedFailure) and not (self._acts or self.has_text):
            paid = []
        self.message = replace(self.message, error=failure)
        return [*closed, *paid, *self._complete()]

    def discard(self, attempt: int, failure: AnyFailure) -> list[Event]:
        """Begin the answer anew after a failed attempt. What it says so far stays in the message, but marked as ignored.

        OpenCode 1.1.34 does not mark it, so that the model reads the half answer before the whole one.
        """
        closed = self._close_all()
        marked = [PartUpdated(part=replace(part, ignored=True)) for part in self._said]
        unwritten = [PartRemoved(**self._to_place(), part_id=part.id) for part in self._calls.values()]
        tried = RetryPart(
            **self._make_ids(), attempt=attempt, error=failure, time=Moment(created=self._now())
        )
        paid = self._pay()
        self._said, self._calls = [], {}
        return [*closed, *marked, *unwritten, *paid, PartUpdated(part=tried)]

    def to_patch_events(self, patches: Iterable[Patch], call_id: str) -> list[Event]:
        """Return the events that store file changes, made by this call if it is known."""
        return [
            PartUpdated(
                part=PatchPart(
                    **self._make_ids(),
                    hash=patch.hash,
                    files=(),
                    weft=WeftPatchData(patch=patch, call_id=call_id),
                )
            )
            for patch in patches
        ]

    def set_value(self, value: Any) -> None:
        """Set the value that the prompt asked for. It is stored when the answer ends."""
        self.message = replace(self.message, structured=value)

    def replace_text(self, part: TextPart, text: str) -> Event:
        """Replace a text that has ended."""
        changed = replace(part, text=text)
        self._said = [changed if each.id == part.id else each for each in self._said]
        return PartUpdated(part=changed)

    def take_over(self, model: ModelRef) -> list[Event]:
        """Make the answer this model's."""
        message = replace(self.message, provider_id=model.provider_id, model_id=model.model_id)
        changed, self.message = message != self.message, message
        return [MessageUpdated(info=message)] if changed else []

    def _begin(self) -> list[Event]:
        if self._begun is not None:
            return []
        self._begun = StepStartPart(**self._make_ids())
        return [PartUpdated(part=self._begun)]

    def _complete(self) -> list[Event]:
        time = self.message.time
        # A message may be slightly ahead of the clock, because it is later than those before it. It must not end before it began.
        self.message = replace(self.message, time=replace(time, completed=max(self._now(), time.created)))
        return [MessageUpdated(info=self.message)]

    def _make_ids(self) -> dict[str, Any]:
        return {"id": self._mint.part(), **self._to_place()}

    def _to_place(self) -> dict[str, Any]:
        return {"session_id": self.message.session_id, "message_id": self.message.id}

    # --- cost ---

    def _charge(self, bill: Bill, reason: FinishReason, snapshot: str | None = None) -> Event:
        """Add the cost to the message, and return the end of the step. Nothing is owed any more."""
        self.owed = None
        message = self.message
        self.message = replace(
            message,
            cost=message.cost + bill.cost,
            priced=message.priced and bill.priced,
            counted=message.counted and bill.counted,
        )
        return PartUpdated(
            part=StepFinishPart(**self._make_ids(), reason=reason, snapshot=snapshot, **bill.to_fields())
        )

    def _pay(self) -> list[Event]:
        """Charge for an answer that broke off. OpenCode does not, but the provider does."""
        owed, self.owed = self.owed, None
        if owed is None:
            return []
        if owed.tokens == Tokens():  # the usage is unknown, but not zero
            if self._said:
                self.message = replace(
                    self.message, priced=self.message.priced and owed.priced, counted=False
                )
            return []
        self.message = replace(self.message, tokens=owed.tokens)
        return [self._charge(owed, "error")]

    # --- text and reasoning ---

    def _open(
        self, kind: type[TextPart] | type[ReasoningPart], id: str, metadata: Metadata | None
    ) -> list[Event]:
        closed = self._close(kind, id, None)
        part = kind(**self._make_ids(), text="", time=Span(start=self._now()), metadata=metadata)
        self._growing[kind, id] = GrowingText(part)
        return closed

    def _grow(self, kind: type[TextPart] | type[ReasoningPart], id: str, text: str) -> list[Event]:
        if (kind, id) not in self._growing:
            self._open(kind, id, None)
        return [self._growing[kind, id].grow(text)] if text else []

    def _close(self, kind: type, id: str, metadata: Metadata | None) -> list[Event]:
        growing = self._growing.pop((kind, id), None)
        ended = [] if growing is None else growing.end(self._now(), metadata)
        if growing is not None and ended:
            self._said.append(growing.part)
        return ended

    def _close_all(self) -> list[Event]:
        return [event for kind, name in list(self._growing) for event in self._close(kind, name, None)]

    # --- calls ---

    def _get_part(self, call: str, tool: str) -> ToolPart:
        known = self._calls.get(call)
        pending = PendingState(input={}, raw="")
        return known or ToolPart(**self._make_ids(), call_id=call, tool=tool, state=pending)

    def _set(self, part: ToolPart, state: AnyToolState) -> list[Event]:
        self._acts = True
        self._calls[part.call_id] = part = replace(part, state=state)
        return [PartUpdated(part=part)]

    def _start(self, started: CallStarted) -> list[Event]:
        part = replace(
            self._get_part(started.call_id, started.tool), tool=started.tool, metadata=started.metadata
        )
        return self._set(part, RunningState(input=started.input, time=Span(start=self._now())))

    def _report(self, reported: CallReported) -> list[Event]:
        part = self._calls.get(reported.call_id)
        if part is None or not isinstance(part.state, RunningState):
            return []
        metadata = reported.metadata if reported.metadata is not None else part.state.metadata
        return self._set(
            part, replace(part.state, title=reported.title or part.state.title, metadata=metadata)
        )

    def _done(self, done: CallDone) -> list[Event]:
        part = self._calls.pop(done.call_id)
        files = tuple(
            FilePart(**self._make_ids(), mime=file.mime, url=file.url, filename=file.filename)
            for file in done.files
        )
        state = CompletedState(
            input=part.state.input,
            output=done.output,
            title=done.title,
            metadata=done.metadata,
            time=CallTime(start=self._get_start(part), end=self._now()),
            attachments=files or None,
        )
        return [PartUpdated(part=replace(part, state=state))]

    def _failed(self, call: str, error: str) -> list[Event]:
        part = self._calls.pop(call)
        metadata = part.state.metadata if isinstance(part.state, RunningState) else None
        time = CallTime(start=self._get_start(part), end=self._now())
        state = ErrorState(input=part.state.input, error=error, metadata=metadata, time=time)
        return [PartUpdated(part=replace(part, state=state))]

    def _get_start(self, part: ToolPart) -> int:
        return part.state.time.start if isinstance(part.state, RunningState) else self._now()


def _to_snapshot(tree: Tree) -> str | None:
    """Return the name of a tree to store in a step, or None for the empty tree.

    OpenCode compares the first and the last snapshot of a session in its own repository. It does not find our trees there, and
    ignores them. But it would find the empty tree, and take every file that it changes itself for a new one.
    """
    return None if tree == EMPTY_TREE else tree
