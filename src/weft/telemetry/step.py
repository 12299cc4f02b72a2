"""One step as it is told, and what it comes to: the model's call, the calls of tools, the figures (pure)."""

from collections.abc import Callable, Iterator
from decimal import Decimal

from weft.model.failure import AnyFailure, ApiFailure, OtherFailure
from weft.model.ids import PartID
from weft.model.message import AssistantMessage
from weft.model.part import (
    AnyPart,
    CacheTokens,
    CompletedState,
    ErrorState,
    PendingState,
    ReasoningPart,
    RetryPart,
    RunningState,
    StepFinishPart,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.telemetry import names, words
from weft.telemetry.record import Attributes, Mark, Measurement, SpanRecord

Chance = Callable[[int], bytes]


def new_id(chance: Chance, size: int = 8) -> int:
    return int.from_bytes(chance(size)) or 1


def error_of(failure: AnyFailure) -> str:
    """The kind of a failure, in few words that are always the same ones. What it says may hold anything."""
    if isinstance(failure, ApiFailure) and failure.data.status_code is not None:
        return str(failure.data.status_code)
    if isinstance(failure, OtherFailure):
        return "_OTHER"
    return str(failure.__struct_config__.tag)


class Step:
    """An answer of the model from its first word on. `asked` is what it answers, if that is to be recorded."""

    def __init__(self, message: AssistantMessage, number: int, chance: Chance, asked: str | None) -> None:
        self.message = message
        self.number = number
        self.asked = asked
        self.id = new_id(chance)
        self.last = message.time.created
        self.parts: dict[PartID, AnyPart] = {}
        self.calls: dict[PartID, int] = {}  # those that were carried out, by the spans they get
        self.open: set[PartID] = set()
        self._chance = chance

    def take(self, part: AnyPart) -> bool:
        """Whether a call is over by this."""
        self.parts[part.id] = part
        match part:
            case ToolPart(state=RunningState(time=time)):
                self._carry_out(part.id, time.start)
            case ToolPart(state=CompletedState(time=time)) | ToolPart(state=ErrorState(time=time)):
                over = part.id in self.open
                self.open.discard(part.id)
                self.last = max(self.last, time.end)
                return over
            case TextPart(time=time) | ReasoningPart(time=time) if time is not None:
                self.last = max(self.last, time.end or time.start)
            case RetryPart(time=time):
                self.last = max(self.last, time.created)
            case _:
                pass
        return False

    def _carry_out(self, id: PartID, start: int) -> None:
        if id not in self.calls:
            self.calls[id] = new_id(self._chance)
            self.open.add(id)
        self.last = max(self.last, start)

    # --- what it came to ---

    def counted(self) -> bool:
        """Whether the provider said how many tokens it used."""
        return all(part.counted for part in self.parts.values() if isinstance(part, StepFinishPart))

    def tokens(self) -> Tokens:
        counted = [part.tokens for part in self.parts.values() if isinstance(part, StepFinishPart)]
        return Tokens(
            input=sum(each.input for each in counted),
            output=sum(each.output for each in counted),
            reasoning=sum(each.reasoning for each in counted),
            cache=CacheTokens(
                read=sum(each.cache.read for each in counted), write=sum(each.cache.write for each in counted)
            ),
        )

    def cost(self) -> Decimal | None:
        """None when the price is unknown."""
        ends = [part for part in self.parts.values() if isinstance(part, StepFinishPart)]
        priced = all(part.priced for part in ends)
        return sum((part.cost for part in ends), Decimal(0)) if priced else None

    def ended_at(self) -> int:
        return max(self.message.time.completed or 0, self.last)

    def said_by(self) -> int:
        """When the model had said its last word. It is in no event; the last word itself, or the last call, is."""
        times = [self.message.time.created]
        for part in self.parts.values():
            match part:
                case TextPart(time=time) | ReasoningPart(time=time) if time is not None:
                    times.append(time.end or time.start)
                case ToolPart(state=state) if part.id in self.calls and not isinstance(state, PendingState):
                    times.append(state.time.start)
                case _:
                    pass
        return max(times) if self.calls else self.ended_at()

    def error(self) -> str | None:
        return error_of(self.message.error) if self.message.error else None

    def about(self) -> Attributes:
        return {
            names.PROVIDER: names.provider_name(self.message.provider_id),
            names.MODEL: self.message.model_id,
        }

    # --- spans ---

    def to_span(self, trace: int, parent: int | None) -> SpanRecord:
        return SpanRecord(
            trace=trace,
            id=self.id,
            parent=parent,
            name="step",
            start=self.message.time.created,
            end=self.ended_at(),
            attributes={names.STEP: self.number, names.CONVERSATION: self.message.session_id},
            error=self.error(),
        )

    def to_chat(self, trace: int, *, content: bool) -> SpanRecord:
        attributes: Attributes = {
            names.OPERATION: "chat",
            **self.about(),
            names.CONVERSATION: self.message.session_id,
        }
        attributes |= {names.ANSWERED_BY: self.message.model_id, names.AGENT: self.message.agent}
        if self.message.finish:
            attributes[names.FINISH] = (self.message.finish,)
        if self.message.summary:
            attributes[names.SUMMARY] = True
        if content:
            attributes |= {names.ASKED: self.asked or "[]"}
            attributes[names.ANSWERED] = words.answered(self.parts.values(), self.message.finish or "")
        return SpanRecord(
            trace=trace,
            id=new_id(self._chance),
            parent=self.id,
            name=f"chat {self.message.model_id}",
            kind="client",
            start=self.message.time.created,
            end=self.said_by(),
            attributes=attributes | (usage_of(self.tokens()) if self.counted() else {}),
            marks=tuple(self._retries()),
            error=self.error(),
        )

    def _retries(self) -> Iterator[Mark]:
        for part in self.parts.values():
            if isinstance(part, RetryPart):
                about: Attributes = {names.ATTEMPT: part.attempt, names.ERROR: error_of(part.error)}
                yield Mark(name="weft.retry", at=part.time.created, attributes=about)

    def to_call(self, trace: int, part: ToolPart, *, content: bool) -> SpanRecord:
        state = part.state
        # A message may be a moment ahead of the clock, to be later than those before it; its calls are not before it.
        begun = self.message.time.created
        start, end = (begun, begun) if isinstance(state, PendingState) else (state.time.start, state.time.end)
        attributes: Attributes = {
            names.OPERATION: "execute_tool",
            names.TOOL: part.tool,
            names.TOOL_TYPE: "function",
            names.CALL: part.call_id,
            names.CONVERSATION: self.message.session_id,
        }
        if content:
            attributes |= {names.ARGUMENTS: words.arguments_of(part), names.RESULT: words.result_of(part)}
        return SpanRecord(
            trace=trace,
            id=self.calls[part.id],
            parent=self.id,
            name=f"execute_tool {part.tool}",
            start=max(start, begun),
            end=max(self.last if end is None else end, begun),
            attributes=attributes,
            error=None if isinstance(state, CompletedState) else "tool_error",
        )

    # --- figures ---

    def measure(self) -> Iterator[Measurement]:
        tokens, about = self.tokens(), {names.OPERATION: "chat", **self.about()}
        took = self.said_by() - self.message.time.created
        failed: Attributes = {names.ERROR: error} if (error := self.error()) else {}
        yield Measurement(name=names.DURATION, value=took / 1000, attributes=about | failed)
        if not any(isinstance(part, StepFinishPart) for part in self.parts.values()):
            return
        for kind, count in (
            (("input", taken_in(tokens)), ("output", tokens.output + tokens.reasoning))
            if self.counted()
            else ()
        ):
            yield Measurement(
                name=names.TOKEN_USAGE, value=count, attributes=about | {names.TOKEN_TYPE: kind}
            )
        for kind, count in each_kind(tokens) if self.counted() else ():
            yield Measurement(
                name=names.TOKENS, value=count, attributes=self.about() | {names.TOKEN_TYPE: kind}
            )
        if taken_in(tokens):
            rate = tokens.cache.read / taken_in(tokens)
            yield Measurement(name=names.CACHE_RATE, value=rate, attributes=self.about())
        if (cost := self.cost()) is not None:
            yield Measurement(name=names.COST, value=float(cost), attributes=self.about())


def taken_in(tokens: Tokens) -> int:
    """All that the model read, cached or not, as the conventions count it."""
    return tokens.input + tokens.cache.read + tokens.cache.write


def each_kind(tokens: Tokens) -> Iterator[tuple[str, int]]:
    yield "input", tokens.input
    yield "output", tokens.output
    yield "reasoning", tokens.reasoning
    yield "cache_read", tokens.cache.read
    yield "cache_write", tokens.cache.write


def usage_of(tokens: Tokens) -> Attributes:
    return {
        names.INPUT_TOKENS: taken_in(tokens),
        names.OUTPUT_TOKENS: tokens.output + tokens.reasoning,
        names.REASONING: tokens.reasoning,
        names.CACHE_READ: tokens.cache.read,
        names.CACHE_WRITE: tokens.cache.write,
    }
