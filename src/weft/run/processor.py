"""Fold the pieces of one answer into events (pure: ids and time are given)."""

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
    PatchOwn,
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
UNWRITTEN = "The call was not written to its end, and not carried out."


class CallStarted(Struct, frozen=True, kw_only=True):
    """A call is being carried out, by this tool, with this input."""

    call_id: str
    tool: str
    input: dict[str, Any]
    metadata: Metadata | None = None


class CallReported(Struct, frozen=True, kw_only=True):
    """A call tells how it is getting on."""

    call_id: str
    title: str | None
    metadata: dict[str, Any] | None


class CallDone(Struct, frozen=True, kw_only=True):
    """A call was carried out, and this came of it."""

    call_id: str
    title: str
    output: str
    metadata: dict[str, Any]
    files: tuple[FileInput, ...] = ()


class CallFailed(Struct, frozen=True, kw_only=True):
    """A call was not carried out; `refused` when the person said no, which ends the run."""

    call_id: str
    error: str
    refused: bool = False


Feed = AnyChunk | CallStarted | CallReported | CallDone | CallFailed


class Words:
    """A text or reasoning part while it grows. Pieces are joined when somebody needs the whole."""

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
            return []  # nobody was told of it
        span = Span(start=part.time.start if part.time else now, end=now)
        self.part = replace(part, text=text, time=span, metadata=metadata)
        return [PartUpdated(part=self.part)]


class Processor:
    """One answer in the making. `feed` it in the order things happen; `settle` leaves nothing open."""

    def __init__(self, message: AssistantMessage, mint: Mint, now: Callable[[], int]) -> None:
        self.message = message
        self._mint = mint
        self._now = now
        self._words: dict[tuple[type, str], Words] = {}
        self._calls: dict[str, ToolPart] = {}
        self._said: list[TextPart | ReasoningPart] = []
        self._begun: StepStartPart | None = None
        self._acts = False
        self.owed: Bill | None = None

    def feed(self, feed: Feed) -> list[Event]:
        match feed:
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
                return self._set(self._part(call, tool), PendingState(input={}, raw=""))
            case CallStarted():
                return self._start(feed)
            case CallReported():
                return self._report(feed)
            case CallDone():
                return self._done(feed)
            case CallFailed(call_id=call, error=error):
                return self._failed(call, error)
            case ToolInputDelta() | ToolCall() | Finished():
                # The text of a call is not kept while it is written, as in OpenCode; a whole call comes back
                # as `CallStarted`, and the end of the answer as `finish`, once every call has settled.
                return []

    @property
    def has_spoken(self) -> bool:
        """Whether there are words in the answer so far."""
        return any(isinstance(part, TextPart) and part.text for part in self._said)

    @property
    def words(self) -> str:
        """The text of the answer so far, without its thoughts."""
        return "".join(part.text for part in self._said if isinstance(part, TextPart))

    def finish(self, finished: Finished, bill: Bill, changed: Patch | None = None) -> list[Event]:
        """The answer is over: what it used goes on the message, and what it changed is named at both its ends. A call that
        never became whole is one that failed."""
        closed = self._close_all()
        for call in list(self._calls):
            closed += self._failed(call, UNWRITTEN)
        before, after = (_snapshot(changed.hash), _snapshot(changed.until)) if changed else (None, None)
        if before is not None and self._begun is not None:
            closed.append(PartUpdated(part=replace(self._begun, snapshot=before)))
        charged = self._charge(bill, finished.reason, snapshot=after)
        self.message = replace(self.message, finish=finished.reason, tokens=bill.tokens)
        return [*closed, charged, *self._complete()]

    def lay_by(self, bill: Bill) -> tuple[str, list[Event]]:
        """What was said so far, for us alone: it is kept to be read and marked, what it used is counted, and the answer goes
        on anew."""
        closed = self._close_all()
        words = "".join(part.text for part in self._said if isinstance(part, TextPart))
        marked = [PartUpdated(part=replace(part, ignored=True)) for part in self._said]
        used = self._charge(bill, "stop")
        self._said, self._begun = [], None
        return words, [*closed, *marked, used, MessageUpdated(info=self.message)]

    def owe(self, bill: Bill) -> None:
        """The model began to answer, which is to be paid for even if it comes to nothing: what is known of it so far."""
        self.owed = bill

    def settle(self, failure: AnyFailure) -> list[Event]:
        """It did not come to its end: close what is open and say why."""
        closed = self._close_all()
        for call in list(self._calls):
            closed += self._failed(call, ABORTED)
        # OpenCode shows a model what was aborted if anything but thought stands in it, and an end of a step would do: a
        # thought alone is refused by its maker. What it cost stands on the message all the same.
        paid = self._pay()
        if isinstance(failure, AbortedFailure) and not (self._acts or self.has_spoken):
            paid = []
        self.message = replace(self.message, error=failure)
        return [*closed, *paid, *self._complete()]

    def discard(self, attempt: int, failure: AnyFailure) -> list[Event]:
        """The answer so far is not worth keeping for the model: it stays to be read, marked, and is begun anew.

        OpenCode 1.1.34 leaves it standing, so that the model reads the half answer before the whole one.
        """
        closed = self._close_all()
        marked = [PartUpdated(part=replace(part, ignored=True)) for part in self._said]
        unwritten = [PartRemoved(**self._place(), part_id=part.id) for part in self._calls.values()]
        tried = RetryPart(**self._ids(), attempt=attempt, error=failure, time=Moment(created=self._now()))
        paid = self._pay()
        self._said, self._calls = [], {}
        return [*closed, *marked, *unwritten, *paid, PartUpdated(part=tried)]

    def patched(self, patches: Iterable[Patch], call_id: str) -> list[Event]:
        """What was changed, by a call if it is known which."""
        return [
            PartUpdated(
                part=PatchPart(
                    **self._ids(), hash=patch.hash, files=(), weft=PatchOwn(patch=patch, call_id=call_id)
                )
            )
            for patch in patches
        ]

    def structure(self, value: Any) -> None:
        """The value that was asked for. It is told with the end of the answer."""
        self.message = replace(self.message, structured=value)

    def reword(self, part: TextPart, text: str) -> Event:
        """A text that has ended, in other words."""
        changed = replace(part, text=text)
        self._said = [changed if each.id == part.id else each for each in self._said]
        return PartUpdated(part=changed)

    def take_over(self, model: ModelRef) -> list[Event]:
        """From here on the answer is this model's."""
        message = replace(self.message, provider_id=model.provider_id, model_id=model.model_id)
        changed, self.message = message != self.message, message
        return [MessageUpdated(info=message)] if changed else []

    def _begin(self) -> list[Event]:
        if self._begun is not None:
            return []
        self._begun = StepStartPart(**self._ids())
        return [PartUpdated(part=self._begun)]

    def _complete(self) -> list[Event]:
        time = self.message.time
        # A message may be a moment ahead of the clock, to be later than those before it; it does not end before it began.
        self.message = replace(self.message, time=replace(time, completed=max(self._now(), time.created)))
        return [MessageUpdated(info=self.message)]

    def _ids(self) -> dict[str, Any]:
        return {"id": self._mint.part(), **self._place()}

    def _place(self) -> dict[str, Any]:
        return {"session_id": self.message.session_id, "message_id": self.message.id}

    # --- what it cost ---

    def _charge(self, bill: Bill, reason: FinishReason, snapshot: str | None = None) -> Event:
        """Put what an answer used on the message. Nothing more is owed for it."""
        self.owed = None
        message = self.message
        self.message = replace(
            message,
            cost=message.cost + bill.cost,
            priced=message.priced and bill.priced,
            counted=message.counted and bill.counted,
        )
        return PartUpdated(
            part=StepFinishPart(**self._ids(), reason=reason, snapshot=snapshot, **bill.to_fields())
        )

    def _pay(self) -> list[Event]:
        """An answer broke off. OpenCode charges nothing for it; the provider does."""
        owed, self.owed = self.owed, None
        if owed is None:
            return []
        if owed.tokens == Tokens():  # all that is known is that what it said was not for nothing
            if self._said:
                self.message = replace(
                    self.message, priced=self.message.priced and owed.priced, counted=False
                )
            return []
        self.message = replace(self.message, tokens=owed.tokens)
        return [self._charge(owed, "error")]

    # --- words ---

    def _open(
        self, kind: type[TextPart] | type[ReasoningPart], id: str, metadata: Metadata | None
    ) -> list[Event]:
        closed = self._close(kind, id, None)
        part = kind(**self._ids(), text="", time=Span(start=self._now()), metadata=metadata)
        self._words[kind, id] = Words(part)
        return closed

    def _grow(self, kind: type[TextPart] | type[ReasoningPart], id: str, text: str) -> list[Event]:
        if (kind, id) not in self._words:
            self._open(kind, id, None)
        return [self._words[kind, id].grow(text)] if text else []

    def _close(self, kind: type, id: str, metadata: Metadata | None) -> list[Event]:
        words = self._words.pop((kind, id), None)
        ended = [] if words is None else words.end(self._now(), metadata)
        if words is not None and ended:
            self._said.append(words.part)
        return ended

    def _close_all(self) -> list[Event]:
        return [event for kind, name in list(self._words) for event in self._close(kind, name, None)]

    # --- calls ---

    def _part(self, call: str, tool: str) -> ToolPart:
        known = self._calls.get(call)
        pending = PendingState(input={}, raw="")
        return known or ToolPart(**self._ids(), call_id=call, tool=tool, state=pending)

    def _set(self, part: ToolPart, state: AnyToolState) -> list[Event]:
        self._acts = True
        self._calls[part.call_id] = part = replace(part, state=state)
        return [PartUpdated(part=part)]

    def _start(self, started: CallStarted) -> list[Event]:
        part = replace(
            self._part(started.call_id, started.tool), tool=started.tool, metadata=started.metadata
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
            FilePart(**self._ids(), mime=file.mime, url=file.url, filename=file.filename)
            for file in done.files
        )
        state = CompletedState(
            input=part.state.input,
            output=done.output,
            title=done.title,
            metadata=done.metadata,
            time=CallTime(start=self._since(part), end=self._now()),
            attachments=files or None,
        )
        return [PartUpdated(part=replace(part, state=state))]

    def _failed(self, call: str, error: str) -> list[Event]:
        part = self._calls.pop(call)
        metadata = part.state.metadata if isinstance(part.state, RunningState) else None
        time = CallTime(start=self._since(part), end=self._now())
        state = ErrorState(input=part.state.input, error=error, metadata=metadata, time=time)
        return [PartUpdated(part=replace(part, state=state))]

    def _since(self, part: ToolPart) -> int:
        return part.state.time.start if isinstance(part.state, RunningState) else self._now()


def _snapshot(tree: Tree) -> str | None:
    """Return the name of a tree for a step, or None for the empty tree.

    OpenCode compares the first and the last snapshot that a session names, in a repository of its own. It cannot find our
    trees there and says nothing, but it finds the empty one, and takes every file that it changes itself for new.
    """
    return None if tree == EMPTY_TREE else tree
