"""Compact a session: request a summary of the history, and continue from it. No stored message is changed."""

from collections.abc import Sequence

from msgspec.structs import replace

from weft.context.compaction import format_carryover, list_prunable_calls
from weft.context.tokens import Threshold, get_request_limit, project_tokens
from weft.model.catalog import Model
from weft.model.event import Event, MessageUpdated, PartUpdated, SessionCompacted
from weft.model.ids import MessageID, SessionID
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import AnyPart, CompactionPart, CompletedState, ModelRef, Moment, TextPart
from weft.model.session import Session
from weft.model.transcript import Transcript
from weft.run.answer import find_next_model
from weft.run.brief import get_briefing
from weft.run.request import estimate_overhead
from weft.run.runtime import CompactionPolicy, Runtime

CONTINUE_PROMPT = "Continue if you have next steps"


def exceeds_context(
    runtime: Runtime, history: Sequence[MessageWithParts], prompt: UserMessage, *, overhead: int = 0
) -> bool:
    """Return True if the next request is expected not to fit the model's context."""
    model = find_next_model(runtime, prompt)
    if not runtime.compaction.auto or model is None:
        return False
    most = get_request_limit(model, runtime.output_limit, get_threshold(runtime.compaction, model))
    return most is not None and project_tokens(history, overhead=overhead) > most


async def find_overhead(runtime: Runtime, session: Session, prompt: UserMessage) -> int:
    """Return an estimate of the tokens of a request besides the conversation."""
    model = find_next_model(runtime, prompt)
    if model is None or prompt.agent not in runtime.agents:
        return 0
    return estimate_overhead(runtime, prompt, model, await get_briefing(runtime, session))


def get_threshold(compaction: CompactionPolicy, model: Model) -> Threshold | None:
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
    mark = CompactionPart(id=runtime.mint.part(), session_id=session, message_id=message.id, auto=auto)
    parts: list[AnyPart] = [mark, *([_make_text(runtime, message, carryover)] if carryover else [])]
    await _commit(
        runtime, transcript, [MessageUpdated(info=message), *(PartUpdated(part=part) for part in parts)]
    )
    return message.id


async def continue_after_summary(runtime: Runtime, transcript: Transcript, request: UserMessage) -> None:
    """Publish that the session was compacted. If that was automatic, add a prompt that continues the work."""
    await runtime.journal.commit(SessionCompacted(session_id=request.session_id))
    asked = transcript.find(request.id)
    if asked is None or not any(isinstance(part, CompactionPart) and part.auto for part in asked.parts):
        return
    message = _make_prompt(runtime, transcript, request)
    text = _make_text(runtime, message, CONTINUE_PROMPT)
    await _commit(runtime, transcript, [MessageUpdated(info=message), PartUpdated(part=text)])


async def prune_old_outputs(runtime: Runtime, transcript: Transcript) -> None:
    """Mark old tool outputs, so that the model no longer sees them. They stay stored."""
    if not runtime.compaction.prune:
        return
    forgotten = to_pruning_events(transcript.messages(), runtime.clock.now())
    if forgotten:
        await _commit(runtime, transcript, forgotten)


def to_pruning_events(history: Sequence[MessageWithParts], now: int) -> list[Event]:
    forgotten: list[Event] = []
    for part in list_prunable_calls(history):
        if isinstance(part.state, CompletedState):
            state = replace(part.state, time=replace(part.state.time, compacted=now))
            forgotten.append(PartUpdated(part=replace(part, state=state)))
    return forgotten


def _make_prompt(runtime: Runtime, transcript: Transcript, like: UserMessage) -> UserMessage:
    return UserMessage(
        id=runtime.mint.message(),
        session_id=like.session_id,
        time=Moment(created=transcript.next_time(runtime.clock.now())),
        agent=like.agent,
        model=like.model,
        system=like.system,
        tools=like.tools,
        variant=like.variant,
        format=like.format,
        fallback=like.fallback,
    )


def _make_text(runtime: Runtime, message: UserMessage, text: str) -> TextPart:
    return TextPart(
        id=runtime.mint.part(),
        session_id=message.session_id,
        message_id=message.id,
        text=text,
        synthetic=True,
    )


async def _commit(runtime: Runtime, transcript: Transcript, events: list[Event]) -> None:
    await runtime.journal.commit(*events, into=transcript)
