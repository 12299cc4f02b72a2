"""Preview the next request of a session, without sending or storing anything."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from weft.context.notes import apply_history_notes, list_notes
from weft.context.system import Briefing
from weft.context.tokens import project_tokens
from weft.context.view import View
from weft.model.agent import AgentInfo, ReadInstructions
from weft.model.catalog import Model
from weft.model.event import MessageUpdated, PartUpdated
from weft.model.ids import Mint
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import Moment, TextPart
from weft.model.project import Place
from weft.model.session import SessionInfo
from weft.model.transcript import Transcript
from weft.provider.contract import ModelRequest
from weft.provider.registry import Registry
from weft.run.briefing import (
    list_plan_notes,
    list_session_notes,
    make_briefing,
    make_note_events,
    read_briefing,
    was_seen,
)
from weft.run.compaction import find_compaction_limit, to_pruning_events
from weft.run.decide import ModelStep, decide, find_newest_prompt
from weft.run.request import (
    build_request,
    estimate_overhead,
    list_summary_requests,
    remove_forbidden_tools,
    split_for_summary,
)
from weft.run.runtime import CompactionPolicy, Runtime
from weft.session.revert_point import cut_at_revert
from weft.session.settle import to_settling_events
from weft.tool.contract import AnyTool

PLACEHOLDER = "[your next prompt]"
SUMMARISER = "compaction"


class Preview(Struct, frozen=True, kw_only=True):
    """The request, and the agent that answers it.

    With `placeholder`, a placeholder stands for the person's next prompt. `overflows` means that the request does not fit:
    a run would compact the conversation first. `servers` and `plugins` name the MCP servers and plugins that could add to
    the request; they were not started.
    """

    request: ModelRequest
    agent: str
    placeholder: bool
    overflows: bool = False
    servers: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


class PreviewContext(Struct, frozen=True, kw_only=True):
    """What a run in a directory would use. `now` is the time in milliseconds."""

    place: Place
    platform: str
    models: Registry
    agents: Mapping[str, AgentInfo]
    default_agent: str
    tools: Mapping[str, AnyTool]
    output_limit: int
    compaction: CompactionPolicy
    instructions: ReadInstructions
    plans: str
    plan_files: bool
    mint: Mint
    now: int
    view: View = field(default_factory=View)
    servers: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


def preview_request(
    context: PreviewContext,
    session: SessionInfo,
    history: Sequence[MessageWithParts],
    stored_briefings: Iterable[Any],
) -> Preview:
    """Return the request that the next step of a session would send. It reads instruction files."""
    transcript = Transcript(cut_at_revert(session.revert, history).kept)
    transcript.feed(*to_settling_events(transcript.messages()))
    if context.compaction.prune:
        transcript.feed(*to_pruning_events(transcript.messages(), context.now))
    step = decide(transcript.messages())
    placeholder = not isinstance(step, ModelStep)
    if not isinstance(step, ModelStep):
        step = ModelStep(_next_prompt(context, session, transcript))
    model = context.models.get(step.prompt.model or context.models.get_default()).model
    if step.summary:
        request = _make_summary_request(context, transcript.messages(), step, model)
        return Preview(request=request, agent=SUMMARISER, placeholder=False, plugins=context.plugins)
    kept = (read_briefing(each) for each in stored_briefings)
    briefing = next((each for each in kept if each is not None), None) or make_briefing(
        context, session, context.now
    )
    _add_notes(context, session, transcript, briefing, step.prompt)
    built = build_request(context, transcript.messages(), step, model, briefing)
    return Preview(
        request=remove_forbidden_tools(built, context.agents[step.prompt.agent], session),
        agent=step.prompt.agent,
        placeholder=placeholder,
        overflows=_overflows(context, transcript.messages(), step.prompt, model, briefing),
        servers=context.servers,
        plugins=context.plugins,
    )


def _overflows(
    context: PreviewContext,
    history: list[MessageWithParts],
    prompt: UserMessage,
    model: Model,
    briefing: Briefing,
) -> bool:
    limit = find_compaction_limit(context.compaction, model, context.output_limit)
    if limit is None:
        return False
    return project_tokens(history, overhead=estimate_overhead(context, prompt, model, briefing)) > limit


def make_preview_context(runtime: Runtime) -> PreviewContext:
    """Return what a run of this process would use now, with the tools of the MCP servers that are connected."""
    servers = runtime.mcp()
    return PreviewContext(
        place=runtime.place,
        platform=runtime.platform,
        models=runtime.models,
        agents=runtime.agents,
        default_agent=runtime.default_agent,
        tools={**runtime.tools, **servers.tools()},
        output_limit=runtime.output_limit,
        compaction=runtime.compaction,
        instructions=runtime.instructions,
        plans=runtime.plans,
        plan_files=runtime.plan_files,
        mint=runtime.mint,
        now=runtime.clock.now(),
    )


def _next_prompt(context: PreviewContext, session: SessionInfo, transcript: Transcript) -> UserMessage:
    """Return the next prompt as it would be if the person named no agent and no model."""
    agent, last = context.default_agent, find_newest_prompt(transcript.messages())
    model = context.agents[agent].model or (last.model if last else None) or context.models.get_default()
    prompt = UserMessage(
        id=context.mint.message(),
        session_id=session.id,
        time=Moment(created=transcript.next_time(context.now)),
        agent=agent,
        model=model,
    )
    text = TextPart(id=context.mint.part(), session_id=session.id, message_id=prompt.id, text=PLACEHOLDER)
    transcript.feed(MessageUpdated(info=prompt), PartUpdated(part=text))
    return prompt


def _add_notes(
    context: PreviewContext,
    session: SessionInfo,
    transcript: Transcript,
    briefing: Briefing,
    prompt: UserMessage,
) -> None:
    """Add the notes that a run would add to the prompt."""
    history, message = transcript.messages(), transcript.find(prompt.id)
    if message is None or was_seen(history, prompt):
        return
    known = apply_history_notes(briefing, history)
    notes = [
        *list_session_notes(session, context.place, history),
        *list_notes(known, make_briefing(context, session, context.now, known.instructions)),
        *list_plan_notes(context, session, history, message),
    ]
    transcript.feed(*make_note_events(notes, prompt, context.mint))


def _make_summary_request(
    context: PreviewContext, history: list[MessageWithParts], step: ModelStep, model: Model
) -> ModelRequest:
    agent, limit = context.agents[SUMMARISER], context.output_limit
    first = split_for_summary(history, step.prompt, model, output_limit=limit)[0]
    return next(
        list_summary_requests(first, "", request=step.prompt, agent=agent, model=model, output_limit=limit)
    )
