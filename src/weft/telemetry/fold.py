"""Fold events into spans and measurements (pure)."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Final

from weft.model.event import (
    Event,
    MessageUpdated,
    PartUpdated,
    SessionCompacted,
    SessionCreated,
    SessionDeleted,
    SessionFailed,
    SessionUpdated,
    StatusChanged,
)
from weft.model.failure import AnyFailure, ApiFailure, OtherFailure
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage, UserMessage
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
from weft.model.session import Idle
from weft.telemetry import names
from weft.telemetry.record import Attributes, Mark, Measurement, Record, SpanRecord

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
            attributes[names.ANSWERED] = names.answered(self.parts.values(), self.message.finish or "")
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
            attributes |= {names.ARGUMENTS: names.arguments_of(part), names.RESULT: names.result_of(part)}
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


CUT: Final = "cut_off"


class Prompt:
    """What is to be answered. Its parts are kept only if they are to be recorded."""

    def __init__(self, info: UserMessage) -> None:
        self.info = info
        self.parts: dict[PartID, AnyPart] = {}


class Run:
    """From a prompt until the session is idle."""

    def __init__(self, trace: int, id: int, prompt: Prompt | None) -> None:
        self.trace = trace
        self.id = id
        self.prompt = prompt
        self.start = prompt.info.time.created if prompt else None
        self.end = self.start or 0
        self.steps: dict[MessageID, Step] = {}
        self.over: set[MessageID] = set()
        self.last: Step | None = None
        self.tokens = Tokens()
        self.counted = True
        self.cost: Decimal | None = Decimal(0)
        self.error: str | None = None
        self.cut = False

    def count(self, step: Step) -> None:
        """A step is over, and what it took is the run's."""
        self.over.add(step.message.id)
        self.last = step
        self.end = max(self.end, step.ended_at())
        self.error = step.error()
        self.tokens = add(self.tokens, step.tokens())
        self.counted &= step.counted()
        cost = step.cost()
        self.cost = None if cost is None or self.cost is None else self.cost + cost

    def to_span(self, session: SessionID, parent: int | None) -> SpanRecord | None:
        """None for a run in which nothing happened that has a time."""
        if self.start is None:
            return None
        told = self.last.message if self.last else None
        agent = (self.prompt.info.agent if self.prompt else "") or (told.agent if told else "")
        attributes: Attributes = {
            names.OPERATION: "invoke_agent",
            names.CONVERSATION: session,
            names.AGENT: agent,
        }
        if self.last is not None:
            attributes |= self.last.about() | (usage_of(self.tokens) if self.counted else {})
            if self.last.message.finish:
                attributes[names.FINISH] = (self.last.message.finish,)
            if self.cost is not None:
                attributes[names.COST] = float(self.cost)
        return SpanRecord(
            trace=self.trace,
            id=self.id,
            parent=parent,
            name=f"invoke_agent {agent}".strip(),
            start=self.start,
            end=self.end,
            attributes=attributes,
            error=self.error or (CUT if self.cut else None),
        )


class Fold:
    """With `content`, what was said is recorded, too; else no word of it gets anywhere."""

    def __init__(self, chance: Chance, *, content: bool = False) -> None:
        self._chance = chance
        self._content = content
        self._runs: dict[SessionID, Run] = {}
        self._prompts: dict[SessionID, Prompt] = {}
        self._parents: dict[SessionID, SessionID] = {}
        self._errands: dict[SessionID, int] = {}  # the span of the call that a child works for

    def feed(self, event: Event) -> list[Record]:
        match event:
            case SessionCreated(info=info) | SessionUpdated(info=info):
                # Before a child runs it is made, or touched: either way it is told whose child it is.
                if info.parent_id is not None:
                    self._parents[info.id] = info.parent_id
            case SessionDeleted(info=info):
                self._forget(info.id)
            case StatusChanged(session_id=session, status=Idle()):
                return list(self._end(session))
            case StatusChanged(session_id=session):
                self._begin(session)
            case MessageUpdated(info=UserMessage() as info):
                self._prompted(info)
            case MessageUpdated(info=AssistantMessage() as info):
                return list(self._answering(info))
            case PartUpdated(part=part):
                return list(self._part(part))
            case SessionFailed(session_id=failed, error=error) if failed in self._runs and error is not None:
                self._runs[failed].error = error_of(error)
            case SessionCompacted():
                return [Measurement(name=names.COMPACTIONS, value=1)]
            case _:
                pass
        return []

    def lose(self) -> None:
        """Something was not heard: what is open cannot be told to its end any more."""
        self._runs.clear()
        self._prompts.clear()
        self._errands.clear()

    def close(self) -> Iterator[Record]:
        """Nothing more will be heard: what is open was cut off. Those below come before those above."""
        for session in reversed(list(self._runs)):
            self._runs[session].cut = True
            yield from self._end(session)

    # --- runs ---

    def _begin(self, session: SessionID) -> None:
        if session in self._runs:
            return
        above = self._runs.get(self._parents.get(session, SessionID("")))
        trace = above.trace if above else new_id(self._chance, 16)
        self._runs[session] = Run(trace, new_id(self._chance), self._prompts.pop(session, None))

    def _end(self, session: SessionID) -> Iterator[Record]:
        run = self._runs.pop(session, None)
        if run is None:
            return
        for step in list(run.steps.values()):
            yield from self._finish(run, step)
        above = self._runs.get(self._parents.get(session, SessionID("")))
        parent = self._errands.pop(session, above.id if above else None)
        self._parents.pop(session, None)
        span = run.to_span(session, parent)
        if span is not None:
            yield span

    def _forget(self, session: SessionID) -> None:
        self._prompts.pop(session, None)
        self._parents.pop(session, None)
        self._errands.pop(session, None)

    def _prompted(self, info: UserMessage) -> None:
        run = self._runs.get(info.session_id)
        known = run.prompt if run else self._prompts.get(info.session_id)
        if known is not None and known.info.id == info.id:
            return  # what it led to was added
        if run is None:
            self._prompts[info.session_id] = Prompt(info)
            return
        run.prompt, run.last = Prompt(info), None
        run.end = max(run.end, info.time.created)
        if run.start is None:
            run.start = info.time.created

    # --- steps ---

    def _answering(self, info: AssistantMessage) -> Iterator[Record]:
        run = self._runs.get(info.session_id)
        if run is None or info.id in run.over:
            return
        step = run.steps.get(info.id)
        if step is None:
            number = len(run.steps) + len(run.over) + 1
            step = run.steps[info.id] = Step(info, number, self._chance, self._asked(run))
        step.message = info
        if run.start is None:
            run.start = info.time.created
        if info.time.completed is not None:
            yield from self._finish(run, step)

    def _asked(self, run: Run) -> str | None:
        if not self._content:
            return None
        if run.last is None:
            return names.asked(run.prompt.parts.values()) if run.prompt else None
        return names.brought(part for part in run.last.parts.values() if isinstance(part, ToolPart))

    def _part(self, part: AnyPart) -> Iterator[Record]:
        run = self._runs.get(part.session_id)
        prompt = run.prompt if run else self._prompts.get(part.session_id)
        if self._content and prompt is not None and part.message_id == prompt.info.id:
            prompt.parts[part.id] = part
        step = run.steps.get(part.message_id) if run else None
        if run is None or step is None:
            return
        if isinstance(part, RetryPart) and part.id not in step.parts:
            about = {**step.about(), names.ERROR: error_of(part.error)}
            yield Measurement(name=names.RETRIES, value=1, attributes=about)
        if step.take(part) and isinstance(part, ToolPart):
            yield step.to_call(run.trace, part, content=self._content)
        if isinstance(part, ToolPart) and isinstance(part.state, RunningState):
            child = (part.state.metadata or {}).get("sessionId")
            if isinstance(child, str):
                self._errands[SessionID(child)] = step.calls[part.id]

    def _finish(self, run: Run, step: Step) -> Iterator[Record]:
        del run.steps[step.message.id]
        for id in sorted(step.open):
            part = step.parts[id]
            assert isinstance(part, ToolPart), "only calls are open"
            yield step.to_call(run.trace, part, content=self._content)
        run.count(step)
        yield step.to_chat(run.trace, content=self._content)
        yield step.to_span(run.trace, run.id)
        yield from step.measure()


def add(one: Tokens, other: Tokens) -> Tokens:
    return Tokens(
        input=one.input + other.input,
        output=one.output + other.output,
        reasoning=one.reasoning + other.reasoning,
        cache=CacheTokens(read=one.cache.read + other.cache.read, write=one.cache.write + other.cache.write),
    )
