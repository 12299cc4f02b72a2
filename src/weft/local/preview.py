"""Preview the next request of a session, without sending or storing anything."""

import os
import sys
from collections.abc import Mapping

from msgspec import Struct

from weft.config.load import load_config
from weft.config.skills import find_skills
from weft.context.notes import ContextNote, apply_history_notes, list_notes
from weft.context.reminders import has_plan_note, make_plan_note
from weft.context.system import Briefing
from weft.context.tokens import find_request_limit, project_tokens
from weft.context.view import View
from weft.host.clock import SystemClock
from weft.host.paths import paths_from
from weft.local.assembly import Settings
from weft.local.mcp_settings import list_enabled_servers
from weft.local.models import ProviderEnvironment, load_models
from weft.local.open import OpenOptions, read_scope, read_settings
from weft.local.plugin_host import list_hook_commands
from weft.local.plugin_sources import find_plugins
from weft.local.reader import SessionReader
from weft.model.agent import AgentInfo
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
    is_answered,
    list_briefing_keys,
    make_note_events,
    read_briefing,
    to_environment,
    to_pinned_instructions,
)
from weft.run.compaction import find_threshold, to_pruning_events
from weft.run.decide import ModelStep, decide, find_newest_prompt
from weft.run.request import (
    build_request,
    estimate_overhead,
    list_summary_requests,
    remove_forbidden_tools,
    split_for_summary,
)
from weft.session.lifecycle import get_plan_path
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


class PreviewSettings(Struct, frozen=True, kw_only=True):
    """What `build_request` needs to know, without a run."""

    agents: Mapping[str, AgentInfo]
    tools: Mapping[str, AnyTool]
    output_limit: int
    plan_files: bool
    view: View


class _PreviewContext(Struct, frozen=True, kw_only=True):
    """What a run in this directory would use."""

    place: Place
    settings: Settings
    models: Registry
    mint: Mint
    now: int
    servers: tuple[str, ...]
    plugins: tuple[str, ...]


def preview(reader: SessionReader, session: SessionInfo, env: Mapping[str, str]) -> Preview:
    """Return the request that the next step of a session would send."""
    context = _load_context(reader.place(), env)
    history = reader.store.list_messages(session.id)
    transcript = Transcript(cut_at_revert(session.revert, history).kept)
    transcript.feed(*to_settling_events(transcript.messages()))
    if context.settings.compaction.prune:
        transcript.feed(*to_pruning_events(transcript.messages(), context.now))
    step = decide(transcript.messages())
    placeholder = not isinstance(step, ModelStep)
    if not isinstance(step, ModelStep):
        step = ModelStep(_next_prompt(context, session, transcript))
    model = context.models.get(step.prompt.model or context.models.get_default()).model
    if step.summary:
        request = _make_summary_request(context, transcript.messages(), step, model)
        return Preview(request=request, agent=SUMMARISER, placeholder=False, plugins=context.plugins)
    briefing = _get_briefing(context, session, reader)
    _add_notes(context, session, transcript, briefing, step.prompt)
    built = build_request(
        _to_request_settings(context.settings), transcript.messages(), step, model, briefing
    )
    request = remove_forbidden_tools(built, context.settings.agents[step.prompt.agent], session)
    return Preview(
        request=request,
        agent=step.prompt.agent,
        placeholder=placeholder,
        overflows=_overflows(context.settings, transcript.messages(), step.prompt, model, briefing),
        servers=context.servers,
        plugins=context.plugins,
    )


def _overflows(
    settings: Settings,
    history: list[MessageWithParts],
    prompt: UserMessage,
    model: Model,
    briefing: Briefing,
) -> bool:
    limit = find_request_limit(model, settings.output_limit, find_threshold(settings.compaction, model))
    if not settings.compaction.auto or limit is None:
        return False
    return (
        project_tokens(
            history, overhead=estimate_overhead(_to_request_settings(settings), prompt, model, briefing)
        )
        > limit
    )


def _load_context(place: Place, env: Mapping[str, str]) -> _PreviewContext:
    paths, clock = paths_from(env), SystemClock()
    scope = read_scope(place, paths, env)
    loaded = load_config(scope, strict=True)
    environment = ProviderEnvironment(env=env, paths=paths, warn=lambda _: None)
    options, skills = OpenOptions(directory=place.directory, env=env), find_skills(scope).skills
    return _PreviewContext(
        place=place,
        settings=read_settings(loaded, place, scope, options, skills),
        models=load_models(loaded, environment, clock, ()),
        mint=Mint(clock.now, os.urandom),
        now=clock.now(),
        servers=tuple(list_enabled_servers(loaded.config)),
        plugins=(
            *(plugin.name for plugin in find_plugins(loaded, scope).sources),
            *(" ".join(command.argv) for command in list_hook_commands(loaded, lambda _: None)),
        ),
    )


def _next_prompt(context: _PreviewContext, session: SessionInfo, transcript: Transcript) -> UserMessage:
    """Return the next prompt as it would be if the person named no agent and no model."""
    settings, last = context.settings, find_newest_prompt(transcript.messages())
    agent = settings.default_agent
    model = settings.agents[agent].model or (last.model if last else None) or context.models.get_default()
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


def _get_briefing(context: _PreviewContext, session: SessionInfo, reader: SessionReader) -> Briefing:
    kept = (read_briefing(reader.store.find_value(key)) for key in list_briefing_keys(session))
    return next((briefing for briefing in kept if briefing is not None), None) or _make_briefing(
        context, session, {}
    )


def _make_briefing(context: _PreviewContext, session: SessionInfo, known: Mapping[str, str]) -> Briefing:
    environment = to_environment(context.place, sys.platform, context.now)
    return Briefing(
        environment=environment,
        instructions=(*context.settings.instructions(known), *to_pinned_instructions(session)),
    )


def _add_notes(
    context: _PreviewContext,
    session: SessionInfo,
    transcript: Transcript,
    briefing: Briefing,
    prompt: UserMessage,
) -> None:
    """Add the notes that a run would add to the prompt."""
    history = transcript.messages()
    if is_answered(history, prompt):
        return
    known = apply_history_notes(briefing, history)
    texts = {each.source: each.text for each in known.instructions}
    notes = [
        *list_notes(known, _make_briefing(context, session, texts)),
        *_list_plan_notes(context, session, history, prompt),
    ]
    transcript.feed(*make_note_events(notes, prompt, context.mint))


def _list_plan_notes(
    context: _PreviewContext, session: SessionInfo, history: list[MessageWithParts], prompt: UserMessage
) -> list[ContextNote]:
    at = next(number for number, message in enumerate(history) if message.info.id == prompt.id)
    if not context.settings.plan_files or has_plan_note(history[at]):
        return []
    path = get_plan_path(session, context.place, context.settings.plans)
    note = make_plan_note(history[:at], prompt, path, exists=os.path.exists(path))
    return [] if note is None else [note]


def _make_summary_request(
    context: _PreviewContext, history: list[MessageWithParts], step: ModelStep, model: Model
) -> ModelRequest:
    agent, limit = context.settings.agents[SUMMARISER], context.settings.output_limit
    first = split_for_summary(history, step.prompt, model, output_limit=limit)[0]
    return next(
        list_summary_requests(first, "", request=step.prompt, agent=agent, model=model, output_limit=limit)
    )


def _to_request_settings(settings: Settings) -> PreviewSettings:
    return PreviewSettings(
        agents=settings.agents,
        tools={tool.name: tool for tool in settings.tools},
        output_limit=settings.output_limit,
        plan_files=settings.plan_files,
        view=View(),
    )
