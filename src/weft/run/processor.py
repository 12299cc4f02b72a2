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
from weft.model.verdict import CallEvidence, with_evidence, without_evidence
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
from weft.run.usage import AnswerUsage
from weft.session.settle import ABORTED

INCOMPLETE_CALL = "The call was not written to its end, and not carried out."


class CallStarted(Struct, frozen=True, kw_only=True):
    """A call begins, with this tool and this input."""

    call_id: str
    tool: str
    input: dict[str, Any]
    metadata: Metadata | None = None
    evidence: CallEvidence | None = None


class CallNoted(Struct, frozen=True, kw_only=True):
    """A call records what it is about to do, or its result, in case its process dies."""

    call_id: str
    evidence: CallEvidence


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


AnswerInput = AnyChunk | CallStarted | CallNoted | CallReported | CallDone | CallFailed


class GrowingText:
    """A text or reasoning part while it grows. Its pieces are joined at the end."""

    def __init__(self, part: TextPart | ReasoningPart) -> None:
        self.part = part
        self.pieces: list[str] = []
        self.length = 0

    def grow(self, text: str) -> Event:
        """Return the event for a piece of text. The first one creates the part, which is stored before it is published."""
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
        self._evidence: dict[str, CallEvidence] = {}
        self._texts: list[TextPart | ReasoningPart] = []
        self._step_start: StepStartPart | None = None
        self._has_calls = False
        self._step_finish: Event | None = None
        self.partial_usage: AnswerUsage | None = None

    def feed(self, item: AnswerInput) -> list[Event]:
        """Return the events for one chunk of the stream, or for the progress of one call."""
        match item:
            case TextDelta(id=id, text=text):
                return self._grow(TextPart, id, text)
            case ReasoningDelta(id=id, text=text):
                return self._grow(ReasoningPart, id, text)
            case Started():
                return self._begin_step()
            case TextStart(id=id, metadata=metadata):
                return self._open(TextPart, id, metadata)
            case ReasoningStart(id=id, metadata=metadata):
                return self._open(ReasoningPart, id, metadata)
            case TextEnd(id=id, metadata=metadata):
                return self._close(TextPart, id, metadata)
            case ReasoningEnd(id=id, metadata=metadata):
                return self._close(ReasoningPart, id, metadata)
            case ToolInputStart(call_id=call, tool=tool):
                return self._set_state(self._get_call(call, tool), PendingState(input={}, raw=""))
            case CallStarted():
                return self._start_call(item)
            case CallNoted():
                return self._note_call(item)
            case CallReported():
                return self._report_call(item)
            case CallDone():
                return self._complete_call(item)
            case CallFailed(call_id=call, error=error):
                return self._fail_call(call, error)
            case ToolInputDelta() | ToolCall() | Finished():
                # As in OpenCode, the arguments of a call are not stored while they stream. A complete call comes back as
                # `CallStarted`, and the end of the answer as `finish`, when every call has settled.
                return []

    @property
    def has_text(self) -> bool:
        """Whether the answer has any text so far."""
        return any(isinstance(part, TextPart) and part.text for part in self._texts)

    @property
    def text(self) -> str:
        """The text of the answer so far, without reasoning."""
        return "".join(part.text for part in self._texts if isinstance(part, TextPart))

    def finish(
        self, finished: Finished, answer_usage: AnswerUsage, changed: Patch | None = None
    ) -> list[Event]:
        """End the answer, and return the events that store its end and its cost. A call whose arguments never became complete fails.

        The part that starts the step and the part that ends it get the snapshots before and after the `changed` files.
        """
        closed = self._close_all()
        for call in list(self._calls):
            closed += self._fail_call(call, INCOMPLETE_CALL)
        before, after = (
            (_to_snapshot(changed.before), _to_snapshot(changed.after)) if changed else (None, None)
        )
        if before is not None and self._step_start is not None:
            closed.append(PartUpdated(part=replace(self._step_start, snapshot=before)))
        self._step_finish = self._count_usage(answer_usage, finished.reason, snapshot=after)
        self.message = replace(self.message, finish=finished.reason, tokens=answer_usage.tokens)
        return [*closed, self._step_finish, *self._complete()]

    def finish_piece(self, answer_usage: AnswerUsage) -> tuple[str, list[Event]]:
        """End one piece of a summary, and return its text. The text stays in the message, but marked as ignored; its usage counts."""
        closed = self._close_all()
        text = self.text
        marked = [PartUpdated(part=replace(part, ignored=True)) for part in self._texts]
        step_finish = self._count_usage(answer_usage, "stop")
        self._texts, self._step_start = [], None
        return text, [*closed, *marked, step_finish, MessageUpdated(info=self.message)]

    def set_partial_usage(self, answer_usage: AnswerUsage) -> None:
        """Set what the answer used so far. The provider charges it even if the answer fails. No tokens: that is not known yet."""
        self.partial_usage = answer_usage

    def note_refusal(self) -> None:
        """Note that the provider refused the request, so that it charges nothing, unless it had begun to answer."""
        partial = self.partial_usage
        has_begun = self._growing or self._texts or self._has_calls
        if partial is not None and partial.tokens == Tokens() and not has_begun:
            self.partial_usage = None

    def settle(self, failure: AnyFailure) -> list[Event]:
        """End the answer with a failure, and close all its open parts."""
        closed = self._close_all()
        for call in list(self._calls):
            closed += self._fail_call(call, ABORTED)
        # If storing the end of the answer failed, its usage is counted already: store the same end of the step again.
        step_finish = [self._step_finish] if self._step_finish else self._count_partial_usage()
        if isinstance(failure, AbortedFailure) and not (self._has_calls or self.has_text):
            # OpenCode shows an aborted answer to the model if it has any part besides reasoning, and the end of a step is such a
            # part. But providers refuse an answer of reasoning alone. So this answer gets no end of a step; its cost is in the
            # message anyway.
            step_finish = []
        self.message = replace(self.message, error=failure)
        return [*closed, *step_finish, *self._complete()]

    def discard(self, attempt: int, failure: AnyFailure) -> list[Event]:
        """Begin the answer anew after a failed attempt. Its text so far stays in the message, but marked as ignored.

        OpenCode 1.1.34 does not mark it, so that the model reads the half answer before the whole one.
        """
        closed = self._close_all()
        marked = [PartUpdated(part=replace(part, ignored=True)) for part in self._texts]
        removed = [PartRemoved(**self._get_parents(), part_id=part.id) for part in self._calls.values()]
        retry = RetryPart(
            **self._make_ids(), attempt=attempt, error=failure, time=Moment(created=self._now())
        )
        before = self.message
        step_finish = self._count_partial_usage()
        # The cost so far is stored with the end of the step: the next attempt may never end.
        charged = [MessageUpdated(info=self.message)] if self.message != before else []
        self._texts, self._calls, self._has_calls = [], {}, False
        return [*closed, *marked, *removed, *step_finish, *charged, PartUpdated(part=retry)]

    def to_patch_events(self, patches: Iterable[Patch], call_id: str) -> list[Event]:
        """Return the events that store file changes, made by this call if it is known."""
        return [
            PartUpdated(
                part=PatchPart(
                    **self._make_ids(),
                    hash=patch.before,
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
        self._texts = [changed if each.id == part.id else each for each in self._texts]
        return PartUpdated(part=changed)

    def set_model(self, model: ModelRef) -> list[Event]:
        """Store which model gives the answer. Return no event if that is unchanged."""
        message = replace(self.message, provider_id=model.provider_id, model_id=model.model_id)
        changed, self.message = message != self.message, message
        return [MessageUpdated(info=message)] if changed else []

    def _begin_step(self) -> list[Event]:
        if self._step_start is not None:
            return []
        self._step_start = StepStartPart(**self._make_ids())
        return [PartUpdated(part=self._step_start)]

    def _complete(self) -> list[Event]:
        time = self.message.time
        # A message may be slightly ahead of the clock, because it is later than those before it. It must not end before it began.
        # One that fails after its end keeps its end: its time may be counted already.
        completed = time.completed or max(self._now(), time.created)
        self.message = replace(self.message, time=replace(time, completed=completed))
        return [MessageUpdated(info=self.message)]

    def _make_ids(self) -> dict[str, Any]:
        return {"id": self._mint.part(), **self._get_parents()}

    def _get_parents(self) -> dict[str, Any]:
        return {"session_id": self.message.session_id, "message_id": self.message.id}

    # --- cost ---

    def _count_usage(
        self, answer_usage: AnswerUsage, reason: FinishReason, snapshot: str | None = None
    ) -> Event:
        """Add the usage to the message, and return the end of the step. No usage is left to count."""
        self.partial_usage = None
        message = self.message
        self.message = replace(
            message,
            cost=message.cost + answer_usage.cost,
            priced=message.priced and answer_usage.priced,
            counted=message.counted and answer_usage.counted,
        )
        return PartUpdated(
            part=StepFinishPart(
                **self._make_ids(), reason=reason, snapshot=snapshot, **answer_usage.to_fields()
            )
        )

    def _count_partial_usage(self) -> list[Event]:
        """Count the usage of an answer that broke off. OpenCode does not, but the provider charges it."""
        partial, self.partial_usage = self.partial_usage, None
        if partial is None:
            return []
        if partial.tokens == Tokens():  # the usage is unknown, but not zero
            self.message = replace(self.message, priced=self.message.priced and partial.priced, counted=False)
            return []
        self.message = replace(self.message, tokens=partial.tokens)
        return [self._count_usage(partial, "error")]

    # --- text and reasoning ---

    def _open(
        self, kind: type[TextPart] | type[ReasoningPart], id: str, metadata: Metadata | None
    ) -> list[Event]:
        closed = self._close(kind, id, None)
        part = kind(**self._make_ids(), text="", time=Span(start=self._now()), metadata=metadata)
        self._growing[kind, id] = GrowingText(part)
        return closed

    def _grow(self, kind: type[TextPart] | type[ReasoningPart], id: str, text: str) -> list[Event]:
        growing = self._growing.get((kind, id))
        if growing is None:
            self._open(kind, id, None)
            growing = self._growing[kind, id]
        return [growing.grow(text)] if text else []

    def _close(self, kind: type, id: str, metadata: Metadata | None) -> list[Event]:
        growing = self._growing.pop((kind, id), None)
        ended = [] if growing is None else growing.end(self._now(), metadata)
        if growing is not None and ended:
            self._texts.append(growing.part)
        return ended

    def _close_all(self) -> list[Event]:
        return [event for kind, name in list(self._growing) for event in self._close(kind, name, None)]

    # --- calls ---

    def _get_call(self, call: str, tool: str) -> ToolPart:
        part = self._calls.get(call)
        pending = PendingState(input={}, raw="")
        return part or ToolPart(**self._make_ids(), call_id=call, tool=tool, state=pending)

    def _set_state(self, part: ToolPart, state: AnyToolState) -> list[Event]:
        self._has_calls = True
        self._calls[part.call_id] = part = replace(part, state=state)
        return [PartUpdated(part=part)]

    def _start_call(self, started: CallStarted) -> list[Event]:
        part = replace(
            self._get_call(started.call_id, started.tool), tool=started.tool, metadata=started.metadata
        )
        if started.evidence is not None:
            self._evidence[started.call_id] = started.evidence
        metadata = with_evidence(None, started.evidence)
        state = RunningState(input=started.input, metadata=metadata, time=Span(start=self._now()))
        return self._set_state(part, state)

    def _note_call(self, noted: CallNoted) -> list[Event]:
        part = self._calls.get(noted.call_id)
        if part is None or not isinstance(part.state, RunningState):
            return []
        self._evidence[noted.call_id] = noted.evidence
        metadata = with_evidence(part.state.metadata, noted.evidence)
        return self._set_state(part, replace(part.state, metadata=metadata))

    def _report_call(self, reported: CallReported) -> list[Event]:
        part = self._calls.get(reported.call_id)
        if part is None or not isinstance(part.state, RunningState):
            return []
        metadata = reported.metadata if reported.metadata is not None else part.state.metadata
        metadata = with_evidence(metadata, self._evidence.get(reported.call_id))
        return self._set_state(
            part, replace(part.state, title=reported.title or part.state.title, metadata=metadata)
        )

    def _complete_call(self, done: CallDone) -> list[Event]:
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

    def _fail_call(self, call: str, error: str) -> list[Event]:
        part = self._calls.pop(call)
        metadata = without_evidence(part.state.metadata) if isinstance(part.state, RunningState) else None
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
