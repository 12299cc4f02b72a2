"""Compact a session: request a summary of the history, and continue from it. No stored message is changed."""

from collections.abc import Sequence

from msgspec.structs import replace

from weft.context.compaction import format_carryover, list_prunable_calls
from weft.context.tokens import Threshold, find_request_limit, project_tokens
from weft.model.catalog import Model
from weft.model.event import Event, MessageUpdated, PartUpdated, SessionCompacted
from weft.model.ids import MessageID, SessionID
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import AnyPart, CompactionPart, CompletedState, ModelRef, Moment, TextPart
from weft.model.session import SessionInfo
from weft.model.transcript import Transcript
from weft.run.answer import find_next_model
from weft.run.briefing import get_briefing
from weft.run.request import estimate_overhead
from weft.run.runtime import CompactionPolicy, Runtime

CONTINUE_PROMPT = "Continue if you have next steps"


def exceeds_context(
    runtime: Runtime, history: Sequence[MessageWithParts], prompt: UserMessage, *, overhead: int = 0
) -> bool:
    """Return True if the next request is expected not to fit the model's context."""
    model = find_next_model(runtime, prompt)
    if model is None:
        return False
    limit = find_compaction_limit(runtime.compaction, model, runtime.output_limit)
    return limit is not None and project_tokens(history, overhead=overhead) > limit


def find_compaction_limit(compaction: CompactionPolicy, model: Model, output_limit: int) -> int | None:
    """Return how many tokens a request may have before the session is compacted; None if it never is by itself."""
    if not compaction.auto:
        return None
    return find_request_limit(model, output_limit, find_threshold(compaction, model))


async def compute_overhead(runtime: Runtime, session: SessionInfo, prompt: UserMessage) -> int:
    """Return an estimate of the tokens of a request besides the conversation."""
    model = find_next_model(runtime, prompt)
    if model is None or prompt.agent not in runtime.agents:
        return 0
    return estimate_overhead(runtime, prompt, model, await get_briefing(runtime, session))


def find_threshold(compaction: CompactionPolicy, model: Model) -> Threshold | None:
    """Return the threshold for this model, else the one for all models."""
    return compaction.models.get(f"{model.provider_id}/{model.id}", compaction.threshold)


async def request_summary(
    runtime: Runtime, session: SessionID, transcript: Transcript, *, auto: bool, model: ModelRef | None = None
) -> MessageID:
    """Store a prompt that marks where the history is cut, and return its id. The goal and the last request go into it verbatim."""
    history = transcript.messages()
    last = next(message.info for message in reversed(history) if isinstance(message.info, UserMessage))
    carryover = format_carryover(history, await runtime.store.list_todos(session))
    message = _make_prompt(runtime, transcript, last)
    if model is not None:
        message = replace(message, model=model, variant=None, fallback=())
    cut = CompactionPart(id=runtime.mint.part(), session_id=session, message_id=message.id, auto=auto)
    parts: list[AnyPart] = [cut, *([_make_text(runtime, message, carryover)] if carryover else [])]
    await runtime.journal.commit(
        MessageUpdated(info=message), *(PartUpdated(part=part) for part in parts), into=transcript
    )
    return message.id


async def continue_after_summary(runtime: Runtime, transcript: Transcript, request: UserMessage) -> None:
    """Publish that the session was compacted. If that was automatic, add a prompt that continues the work."""
    await runtime.journal.commit(SessionCompacted(session_id=request.session_id))
    message = transcript.find(request.id)
    if message is None or not any(isinstance(part, CompactionPart) and part.auto for part in message.parts):
        return
    prompt = _make_prompt(runtime, transcript, request)
    text = _make_text(runtime, prompt, CONTINUE_PROMPT)
    await runtime.journal.commit(MessageUpdated(info=prompt), PartUpdated(part=text), into=transcript)


async def prune_old_outputs(runtime: Runtime, transcript: Transcript) -> None:
    """Mark old tool outputs, so that the model no longer sees them. They stay stored."""
    if not runtime.compaction.prune:
        return
    events = to_pruning_events(transcript.messages(), runtime.clock.now())
    if events:
        await runtime.journal.commit(*events, into=transcript)


def to_pruning_events(history: Sequence[MessageWithParts], now: int) -> list[Event]:
    """Return the events that mark old tool outputs as pruned."""
    events: list[Event] = []
    for part in list_prunable_calls(history):
        if isinstance(part.state, CompletedState):
            state = replace(part.state, time=replace(part.state.time, compacted=now))
            events.append(PartUpdated(part=replace(part, state=state)))
    return events


def _make_prompt(runtime: Runtime, transcript: Transcript, template: UserMessage) -> UserMessage:
    """Return a new prompt with the agent, the model and the settings of another."""
    return UserMessage(
        id=runtime.mint.message(),
        session_id=template.session_id,
        time=Moment(created=transcript.next_time(runtime.clock.now())),
        agent=template.agent,
        model=template.model,
        system=template.system,
        tools=template.tools,
        variant=template.variant,
        format=template.format,
        fallback=template.fallback,
    )


def _make_text(runtime: Runtime, message: UserMessage, text: str) -> TextPart:
    return TextPart(
        id=runtime.mint.part(),
        session_id=message.session_id,
        message_id=message.id,
        text=text,
        synthetic=True,
    )
