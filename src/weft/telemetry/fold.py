"""Turn events into spans and measurements (pure)."""

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
    add_tokens,
    count_input,
)
from weft.model.session import Idle
from weft.model.spending import Charge
from weft.telemetry import conventions
from weft.telemetry.record import Attributes, Measurement, Record, SpanEvent, SpanRecord

RandomBytes = Callable[[int], bytes]
NO_TOKENS: Final = Tokens()


def new_id(random_bytes: RandomBytes, size: int = 8) -> int:
    return int.from_bytes(random_bytes(size)) or 1


def get_error_type(failure: AnyFailure) -> str:
    """Return the type of a failure from a small fixed set. Its message may contain anything, so it is not used."""
    if isinstance(failure, ApiFailure) and failure.data.status_code is not None:
        return str(failure.data.status_code)
    if isinstance(failure, OtherFailure):
        return "_OTHER"
    return str(failure.__struct_config__.tag)


class StepRecord:
    """One answer of the model, while it is written. `input_messages` is its input, if contents are recorded."""

    def __init__(
        self, message: AssistantMessage, number: int, random_bytes: RandomBytes, input_messages: str | None
    ) -> None:
        self.message = message
        self.number = number
        self.input_messages = input_messages
        self.id = new_id(random_bytes)
        self.last = message.time.created
        self.parts: dict[PartID, AnyPart] = {}
        self.calls: dict[PartID, int] = {}  # span ids of the calls that were run
        self.open_calls: set[PartID] = set()
        self._random_bytes = random_bytes

    def add_part(self, part: AnyPart) -> bool:
        """Add a part. Return True if a call has ended with it."""
        self.parts[part.id] = part
        match part:
            case ToolPart(state=RunningState(time=time)):
                self._start_call(part.id, time.start)
            case ToolPart(state=CompletedState(time=time)) | ToolPart(state=ErrorState(time=time)):
                has_ended = part.id in self.open_calls
                self.open_calls.discard(part.id)
                self.last = max(self.last, time.end)
                return has_ended
            case TextPart(time=time) | ReasoningPart(time=time) if time is not None:
                self.last = max(self.last, time.end or time.start)
            case RetryPart(time=time):
                self.last = max(self.last, time.created)
            case _:
                pass
        return False

    def _start_call(self, id: PartID, start: int) -> None:
        if id not in self.calls:
            self.calls[id] = new_id(self._random_bytes)
            self.open_calls.add(id)
        self.last = max(self.last, start)

    # --- totals ---

    def is_counted(self) -> bool:
        """Return True if all tokens are known: the answer has ended, and the provider reported them."""
        return self.message.time.completed is not None and all(
            charge.counted for charge in (self.message, *self._list_charges())
        )

    def sum_tokens(self) -> Tokens:
        return add_tokens(charge.tokens for charge in self._list_charges())

    def sum_cost(self) -> Decimal | None:
        """Return the cost, or None if it is unknown: the answer has not ended, or a price or a count is missing."""
        charges = self._list_charges()
        if self.message.time.completed is None or not all(each.priced for each in (self.message, *charges)):
            return None
        return sum((charge.cost for charge in charges), Decimal(0))

    def _list_charges(self) -> list[Charge]:
        """Return the ends of the step; the message if there are none, as for an answer that was aborted while the model thought."""
        ends: list[Charge] = [part for part in self.parts.values() if isinstance(part, StepFinishPart)]
        return ends or [self.message]

    def get_end(self) -> int:
        return max(self.message.time.completed or 0, self.last)

    def get_answer_end(self) -> int:
        """Return when the model finished its answer. No event says so: with calls, take the end of the last text or the start of the
        last call, whichever is later; without calls, the end of the step.
        """
        times = [self.message.time.created]
        for part in self.parts.values():
            match part:
                case TextPart(time=time) | ReasoningPart(time=time) if time is not None:
                    times.append(time.end or time.start)
                case ToolPart(state=state) if part.id in self.calls and not isinstance(state, PendingState):
                    times.append(state.time.start)
                case _:
                    pass
        return max(times) if self.calls else self.get_end()

    def find_error(self) -> str | None:
        return get_error_type(self.message.error) if self.message.error else None

    def get_model_attributes(self) -> Attributes:
        return {
            conventions.PROVIDER: conventions.get_provider_name(self.message.provider_id),
            conventions.MODEL: self.message.model_id,
        }

    # --- spans ---

    def to_span(self, trace: int, parent: int | None) -> SpanRecord:
        """Return the span of the step."""
        return SpanRecord(
            trace=trace,
            id=self.id,
            parent=parent,
            name="step",
            start=self.message.time.created,
            end=self.get_end(),
            attributes={conventions.STEP: self.number, conventions.CONVERSATION: self.message.session_id},
            error=self.find_error(),
        )

    def to_request_span(self, trace: int, *, content: bool) -> SpanRecord:
        """Return the span of the model request."""
        attributes: Attributes = {
            conventions.OPERATION: "chat",
            **self.get_model_attributes(),
            conventions.CONVERSATION: self.message.session_id,
        }
        attributes |= {
            conventions.RESPONSE_MODEL: self.message.model_id,
            conventions.AGENT: self.message.agent,
        }
        if self.message.finish:
            attributes[conventions.FINISH_REASONS] = (self.message.finish,)
        if self.message.summary:
            attributes[conventions.SUMMARY] = True
        if content:
            attributes |= {conventions.INPUT_MESSAGES: self.input_messages or "[]"}
            attributes[conventions.OUTPUT_MESSAGES] = conventions.format_answer(
                self.parts.values(), self.message.finish or ""
            )
        return SpanRecord(
            trace=trace,
            id=new_id(self._random_bytes),
            parent=self.id,
            name=f"chat {self.message.model_id}",
            kind="client",
            start=self.message.time.created,
            end=self.get_answer_end(),
            attributes=attributes | (to_usage_attributes(self.sum_tokens()) if self.is_counted() else {}),
            events=tuple(self._iterate_retries()),
            error=self.find_error(),
        )

    def _iterate_retries(self) -> Iterator[SpanEvent]:
        for part in self.parts.values():
            if isinstance(part, RetryPart):
                attributes: Attributes = {
                    conventions.ATTEMPT: part.attempt,
                    conventions.ERROR: get_error_type(part.error),
                }
                yield SpanEvent(name="weft.retry", at=part.time.created, attributes=attributes)

    def to_call_span(self, trace: int, part: ToolPart, *, content: bool) -> SpanRecord:
        """Return the span of a tool call."""
        state = part.state
        # A message's time may be slightly ahead of the clock, so that it sorts after earlier ones. Its calls must not
        # start before it.
        message_start = self.message.time.created
        start, end = (
            (message_start, message_start)
            if isinstance(state, PendingState)
            else (state.time.start, state.time.end)
        )
        attributes: Attributes = {
            conventions.OPERATION: "execute_tool",
            conventions.TOOL: part.tool,
            conventions.TOOL_TYPE: "function",
            conventions.CALL: part.call_id,
            conventions.CONVERSATION: self.message.session_id,
        }
        if content:
            attributes |= {
                conventions.ARGUMENTS: conventions.format_arguments(part),
                conventions.RESULT: conventions.format_result(part),
            }
        return SpanRecord(
            trace=trace,
            id=self.calls[part.id],
            parent=self.id,
            name=f"execute_tool {part.tool}",
            start=max(start, message_start),
            end=max(self.last if end is None else end, message_start),
            attributes=attributes,
            error=None if isinstance(state, CompletedState) else "tool_error",
        )

    # --- measurements ---

    def measure(self) -> Iterator[Measurement]:
        """Yield the measurements of the step."""
        tokens, model = self.sum_tokens(), self.get_model_attributes()
        request: Attributes = {conventions.OPERATION: "chat", **model}
        duration = self.get_answer_end() - self.message.time.created
        error_attributes: Attributes = {conventions.ERROR: error} if (error := self.find_error()) else {}
        yield Measurement(
            name=conventions.DURATION, value=duration / 1000, attributes=request | error_attributes
        )
        if tokens != NO_TOKENS and self.is_counted():
            totals = (("input", count_input(tokens)), ("output", tokens.output + tokens.reasoning))
            for kind, count in totals:
                attributes = request | {conventions.TOKEN_TYPE: kind}
                yield Measurement(name=conventions.TOKEN_USAGE, value=count, attributes=attributes)
            for kind, count in iterate_token_kinds(tokens):
                attributes = model | {conventions.TOKEN_TYPE: kind}
                yield Measurement(name=conventions.TOKENS, value=count, attributes=attributes)
        if count_input(tokens):
            rate = tokens.cache.read / count_input(tokens)
            yield Measurement(name=conventions.CACHE_RATE, value=rate, attributes=model)
        cost = self.sum_cost()
        if cost is not None and (cost or tokens != NO_TOKENS):
            yield Measurement(name=conventions.COST, value=float(cost), attributes=model)


def iterate_token_kinds(tokens: Tokens) -> Iterator[tuple[str, int]]:
    yield "input", tokens.input
    yield "output", tokens.output
    yield "reasoning", tokens.reasoning
    yield "cache_read", tokens.cache.read
    yield "cache_write", tokens.cache.write


def to_usage_attributes(tokens: Tokens) -> Attributes:
    """Return the attributes of a usage. No answer takes zero tokens, so all zeros means that none was reported."""
    if tokens == NO_TOKENS:
        return {}
    return {
        conventions.INPUT_TOKENS: count_input(tokens),
        conventions.OUTPUT_TOKENS: tokens.output + tokens.reasoning,
        conventions.REASONING: tokens.reasoning,
        conventions.CACHE_READ: tokens.cache.read,
        conventions.CACHE_WRITE: tokens.cache.write,
    }


CUT_OFF: Final = "cut_off"


class PromptRecord:
    """A prompt that is to be answered. Its parts are kept only if contents are recorded."""

    def __init__(self, info: UserMessage) -> None:
        self.info = info
        self.parts: dict[PartID, AnyPart] = {}


class RunRecord:
    """A run: from a prompt until the session is idle."""

    def __init__(self, trace: int, id: int, prompt: PromptRecord | None) -> None:
        self.trace = trace
        self.id = id
        self.prompt = prompt
        self.start = prompt.info.time.created if prompt else None
        self.end = self.start or 0
        self.steps: dict[MessageID, StepRecord] = {}
        self.finished: set[MessageID] = set()
        self.last: StepRecord | None = None
        self.tokens = Tokens()
        self.counted = True
        self.cost: Decimal | None = Decimal(0)
        self.error: str | None = None
        self.is_cut_off = False

    def add_step(self, step: StepRecord) -> None:
        """Add a finished step to the run's totals."""
        self.finished.add(step.message.id)
        self.last = step
        self.end = max(self.end, step.get_end())
        self.error = step.find_error()
        self.tokens = add_tokens((self.tokens, step.sum_tokens()))
        self.counted &= step.is_counted()
        cost = step.sum_cost()
        self.cost = None if cost is None or self.cost is None else self.cost + cost

    def to_span(self, session: SessionID, parent: int | None) -> SpanRecord | None:
        """Return the span of the run, or None if nothing happened that has a time."""
        if self.start is None:
            return None
        message = self.last.message if self.last else None
        agent = (self.prompt.info.agent if self.prompt else "") or (message.agent if message else "")
        attributes: Attributes = {
            conventions.OPERATION: "invoke_agent",
            conventions.CONVERSATION: session,
            conventions.AGENT: agent,
        }
        if self.last is not None:
            attributes |= self.last.get_model_attributes() | (
                to_usage_attributes(self.tokens) if self.counted else {}
            )
            if self.last.message.finish:
                attributes[conventions.FINISH_REASONS] = (self.last.message.finish,)
            if self.cost is not None:
                attributes[conventions.COST] = float(self.cost)
        return SpanRecord(
            trace=self.trace,
            id=self.id,
            parent=parent,
            name=f"invoke_agent {agent}".strip(),
            start=self.start,
            end=self.end,
            attributes=attributes,
            error=self.error or (CUT_OFF if self.is_cut_off else None),
        )


class TelemetryFold:
    """Turns events into records. Without `content`, no text of prompts, answers or tools is recorded."""

    def __init__(self, random_bytes: RandomBytes, *, content: bool = False) -> None:
        self._random_bytes = random_bytes
        self._content = content
        self._runs: dict[SessionID, RunRecord] = {}
        self._prompts: dict[SessionID, PromptRecord] = {}
        self._parents: dict[SessionID, SessionID] = {}
        self._parent_calls: dict[SessionID, int] = {}  # span ids of the calls that child sessions run for

    def feed(self, event: Event) -> list[Record]:
        """Return the records that an event completes."""
        match event:
            case SessionCreated(info=info) | SessionUpdated(info=info):
                # A child session is created or updated before it runs, so its parent is known.
                if info.parent_id is not None:
                    self._parents[info.id] = info.parent_id
            case SessionDeleted(info=info):
                self._forget_session(info.id)
            case StatusChanged(session_id=session, status=Idle()):
                return list(self._end_run(session))
            case StatusChanged(session_id=session):
                self._begin_run(session)
            case MessageUpdated(info=UserMessage() as info):
                self._add_prompt(info)
            case MessageUpdated(info=AssistantMessage() as info):
                return list(self._add_answer(info))
            case PartUpdated(part=part):
                return list(self._add_part(part))
            case SessionFailed(session_id=failed, error=error) if failed in self._runs and error is not None:
                self._runs[failed].error = get_error_type(error)
            case SessionCompacted():
                return [Measurement(name=conventions.COMPACTIONS, value=1)]
            case _:
                pass
        return []

    def lose(self) -> None:
        """Forget what is open: events were missed, so it cannot be completed."""
        self._runs.clear()
        self._prompts.clear()
        self._parent_calls.clear()

    def close(self) -> Iterator[Record]:
        """Yield the records of everything that is open, marked as cut off. Child sessions come first."""
        for session in reversed(list(self._runs)):
            self._runs[session].is_cut_off = True
            yield from self._end_run(session)

    # --- runs ---

    def _begin_run(self, session: SessionID) -> None:
        if session in self._runs:
            return
        parent_run = self._runs.get(self._parents.get(session, SessionID("")))
        trace = parent_run.trace if parent_run else new_id(self._random_bytes, 16)
        self._runs[session] = RunRecord(trace, new_id(self._random_bytes), self._prompts.pop(session, None))

    def _end_run(self, session: SessionID) -> Iterator[Record]:
        run = self._runs.pop(session, None)
        if run is None:
            return
        for step in list(run.steps.values()):
            yield from self._finish_step(run, step)
        parent_run = self._runs.get(self._parents.get(session, SessionID("")))
        parent = self._parent_calls.pop(session, parent_run.id if parent_run else None)
        self._parents.pop(session, None)
        span = run.to_span(session, parent)
        if span is not None:
            yield span

    def _forget_session(self, session: SessionID) -> None:
        self._prompts.pop(session, None)
        self._parents.pop(session, None)
        self._parent_calls.pop(session, None)

    def _add_prompt(self, info: UserMessage) -> None:
        run = self._runs.get(info.session_id)
        prompt = run.prompt if run else self._prompts.get(info.session_id)
        if prompt is not None and prompt.info.id == info.id:
            return  # only its summary was added
        if run is None:
            self._prompts[info.session_id] = PromptRecord(info)
            return
        run.prompt, run.last = PromptRecord(info), None
        run.end = max(run.end, info.time.created)
        if run.start is None:
            run.start = info.time.created

    # --- steps ---

    def _add_answer(self, info: AssistantMessage) -> Iterator[Record]:
        run = self._runs.get(info.session_id)
        if run is None or info.id in run.finished:
            return
        step = run.steps.get(info.id)
        if step is None:
            number = len(run.steps) + len(run.finished) + 1
            step = run.steps[info.id] = StepRecord(info, number, self._random_bytes, self._format_input(run))
        step.message = info
        if run.start is None:
            run.start = info.time.created
        if info.time.completed is not None:
            yield from self._finish_step(run, step)

    def _format_input(self, run: RunRecord) -> str | None:
        if not self._content:
            return None
        if run.last is None:
            return conventions.format_prompt(run.prompt.parts.values()) if run.prompt else None
        return conventions.format_results(
            part for part in run.last.parts.values() if isinstance(part, ToolPart)
        )

    def _add_part(self, part: AnyPart) -> Iterator[Record]:
        run = self._runs.get(part.session_id)
        prompt = run.prompt if run else self._prompts.get(part.session_id)
        if self._content and prompt is not None and part.message_id == prompt.info.id:
            prompt.parts[part.id] = part
        step = run.steps.get(part.message_id) if run else None
        if run is None or step is None:
            return
        if isinstance(part, RetryPart) and part.id not in step.parts:
            attributes = {**step.get_model_attributes(), conventions.ERROR: get_error_type(part.error)}
            yield Measurement(name=conventions.RETRIES, value=1, attributes=attributes)
        if step.add_part(part) and isinstance(part, ToolPart):
            yield step.to_call_span(run.trace, part, content=self._content)
        if isinstance(part, ToolPart) and isinstance(part.state, RunningState):
            child = (part.state.metadata or {}).get("sessionId")
            if isinstance(child, str):
                self._parent_calls[SessionID(child)] = step.calls[part.id]

    def _finish_step(self, run: RunRecord, step: StepRecord) -> Iterator[Record]:
        del run.steps[step.message.id]
        for id in sorted(step.open_calls):
            part = step.parts[id]
            assert isinstance(part, ToolPart), "only calls are open"
            yield step.to_call_span(run.trace, part, content=self._content)
        run.add_step(step)
        yield step.to_request_span(run.trace, content=self._content)
        yield step.to_span(run.trace, run.id)
        yield from step.measure()
