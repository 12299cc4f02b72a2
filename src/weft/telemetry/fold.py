"""Fold what is told of sessions into spans and measurements (pure: times are those of the events, chance is given)."""

from collections.abc import Iterator
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
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage, UserMessage
from weft.model.part import AnyPart, CacheTokens, RetryPart, RunningState, Tokens, ToolPart
from weft.model.status import Idle
from weft.telemetry import names, words
from weft.telemetry.record import Attributes, Measurement, Record, SpanRecord
from weft.telemetry.step import Chance, Step, error_of, new_id, usage_of

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
            return words.asked(run.prompt.parts.values()) if run.prompt else None
        return words.brought(part for part in run.last.parts.values() if isinstance(part, ToolPart))

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
