"""Preview what the next request of a session would carry, without sending or writing anything."""

import os
import sys
from collections.abc import Mapping

from msgspec import Struct

from weft.config.load import load_config
from weft.config.skills import find_skills
from weft.context.notes import Note, as_told, list_notes
from weft.context.reminders import is_reminded, plan_note
from weft.context.system import Basis
from weft.context.tokens import projected, room
from weft.context.view import View
from weft.host.clock import SystemClock
from weft.host.paths import paths_from
from weft.local.assemble import Settings
from weft.local.mcp import list_enabled
from weft.local.models import Around, find_models
from weft.local.open import Opening, to_settings, to_situation
from weft.local.plugin_sources import find_plugins, list_commands
from weft.local.reader import Reading
from weft.model.agent import Agent
from weft.model.catalog import Model
from weft.model.event import MessageUpdated, PartUpdated
from weft.model.ids import Mint
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import Moment, TextPart
from weft.model.project import Place
from weft.model.session import Session
from weft.model.transcript import Transcript
from weft.provider.contract import ModelRequest
from weft.provider.registry import Registry
from weft.run.briefing import basis_keys, is_answered, to_basis, to_environment, to_events, to_pinned
from weft.run.compaction import threshold_of, to_forgotten
from weft.run.decide import Step, decide, newest_prompt
from weft.run.request import (
    SummaryAsk,
    build_request,
    overhead_of,
    permitted,
    summary_requests,
    to_sum_up,
)
from weft.session.lifecycle import plan_path
from weft.session.revert_point import cut_at
from weft.session.settle import to_settle
from weft.store.files.messages import Messages
from weft.tool.contract import AnyTool

PLACEHOLDER = "[your next prompt]"
SUMMARISER = "compaction"


class Preview(Struct, frozen=True, kw_only=True):
    """The request, and who answers it. With `placeholder`, the person's next words are yet to come.

    It is `crowded` when there is no room for it: then the conversation is summed up first, and this is not sent so.
    `servers` and `plugins` are those by name that would have more to add, and were not started for this.
    """

    request: ModelRequest
    agent: str
    placeholder: bool
    crowded: bool = False
    servers: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


class Means(Struct, frozen=True, kw_only=True):
    agents: Mapping[str, Agent]
    tools: Mapping[str, AnyTool]
    output_limit: int
    plan_files: bool
    view: View


class _House(Struct, frozen=True, kw_only=True):
    """What a run in this directory would have at hand."""

    place: Place
    settings: Settings
    models: Registry
    mint: Mint
    now: int
    servers: tuple[str, ...]
    plugins: tuple[str, ...]


def preview(reading: Reading, session: Session, env: Mapping[str, str]) -> Preview:
    house = _furnish(reading.place(), env)
    history = Messages(reading.tree).list_messages(session.id)
    transcript = Transcript(cut_at(session.revert, history).kept)
    transcript.feed(*to_settle(transcript.messages()))
    if house.settings.compaction.prune:
        transcript.feed(*to_forgotten(transcript.messages(), house.now))
    step = decide(transcript.messages())
    placeholder = not isinstance(step, Step)
    if not isinstance(step, Step):
        step = Step(_next_prompt(house, session, transcript))
    model = house.models.get(step.prompt.model or house.models.default()).model
    if step.summary:
        request = _summary(house, transcript.messages(), step, model)
        return Preview(request=request, agent=SUMMARISER, placeholder=False, plugins=house.plugins)
    basis = _brief(house, session, reading)
    _note(house, session, transcript, basis, step.prompt)
    built = build_request(_means(house.settings), transcript.messages(), step, model, basis)
    request = permitted(built, house.settings.agents[step.prompt.agent], session)
    return Preview(
        request=request,
        agent=step.prompt.agent,
        placeholder=placeholder,
        crowded=_is_crowded(house.settings, transcript.messages(), step.prompt, model, basis),
        servers=house.servers,
        plugins=house.plugins,
    )


def _is_crowded(
    settings: Settings,
    history: list[MessageWithParts],
    prompt: UserMessage,
    model: Model,
    basis: Basis,
) -> bool:
    most = room(model, settings.output_limit, threshold_of(settings.compaction, model))
    if not settings.compaction.auto or most is None:
        return False
    return projected(history, overhead=overhead_of(_means(settings), prompt, model, basis)) > most


def _furnish(place: Place, env: Mapping[str, str]) -> _House:
    paths, clock = paths_from(env), SystemClock()
    situation = to_situation(place, paths, env)
    loaded = load_config(situation, strict=True)
    around = Around(env=env, paths=paths, warn=lambda _: None)
    opening, skills = Opening(directory=place.directory, env=env), find_skills(situation).skills
    return _House(
        place=place,
        settings=to_settings(loaded, place, situation, opening, skills),
        models=find_models(loaded, around, clock, ()),
        mint=Mint(clock.now, os.urandom),
        now=clock.now(),
        servers=tuple(list_enabled(loaded.config)),
        plugins=(
            *(plugin.name for plugin in find_plugins(loaded, situation).wanted),
            *(" ".join(command.argv) for command in list_commands(loaded, lambda _: None)),
        ),
    )


def _next_prompt(house: _House, session: Session, transcript: Transcript) -> UserMessage:
    """A prompt as it would come in if the person said nothing of agent and model."""
    settings, last = house.settings, newest_prompt(transcript.messages())
    agent = settings.default_agent
    model = settings.agents[agent].model or (last.model if last else None) or house.models.default()
    prompt = UserMessage(
        id=house.mint.message(),
        session_id=session.id,
        time=Moment(created=transcript.next_time(house.now)),
        agent=agent,
        model=model,
    )
    words = TextPart(id=house.mint.part(), session_id=session.id, message_id=prompt.id, text=PLACEHOLDER)
    transcript.feed(MessageUpdated(info=prompt), PartUpdated(part=words))
    return prompt


def _brief(house: _House, session: Session, reading: Reading) -> Basis:
    kept = (to_basis(reading.tree.kept(key)) for key in basis_keys(session))
    return next((basis for basis in kept if basis is not None), None) or _look_around(house, session, {})


def _look_around(house: _House, session: Session, known: Mapping[str, str]) -> Basis:
    environment = to_environment(house.place, sys.platform, house.now)
    return Basis(
        environment=environment, instructions=(*house.settings.instructions(known), *to_pinned(session))
    )


def _note(house: _House, session: Session, transcript: Transcript, basis: Basis, prompt: UserMessage) -> None:
    """Add what would be added to the prompt."""
    history = transcript.messages()
    if is_answered(history, prompt):
        return
    known = as_told(basis, history)
    texts = {each.source: each.text for each in known.instructions}
    notes = [
        *list_notes(known, _look_around(house, session, texts)),
        *_on_plans(house, session, history, prompt),
    ]
    transcript.feed(*to_events(notes, prompt, house.mint))


def _on_plans(
    house: _House, session: Session, history: list[MessageWithParts], prompt: UserMessage
) -> list[Note]:
    at = next(number for number, message in enumerate(history) if message.info.id == prompt.id)
    if not house.settings.plan_files or is_reminded(history[at]):
        return []
    path = plan_path(session, house.place, house.settings.plans)
    note = plan_note(history[:at], prompt, path, exists=os.path.exists(path))
    return [] if note is None else [note]


def _summary(house: _House, history: list[MessageWithParts], step: Step, model: Model) -> ModelRequest:
    agent, most = house.settings.agents[SUMMARISER], house.settings.output_limit
    first = to_sum_up(history, step.prompt, model, most=most)[0]
    return next(summary_requests(first, "", step.prompt, agent, SummaryAsk(model=model, most=most)))


def _means(settings: Settings) -> Means:
    return Means(
        agents=settings.agents,
        tools={tool.name: tool for tool in settings.tools},
        output_limit=settings.output_limit,
        plan_files=settings.plan_files,
        view=View(),
    )
