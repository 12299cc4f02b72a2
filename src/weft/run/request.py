"""Everything one call of a model carries."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from weft.context.compaction import leaner, pieces, shortened
from weft.context.exclusions import as_taken
from weft.context.history import since_compaction, to_model_messages, without_media
from weft.context.notes import with_notes
from weft.context.reminders import NAME, wanted, with_last_step
from weft.context.system import Basis, system_prompt, written
from weft.context.tokens import estimate, usable
from weft.context.view import Shown, View
from weft.errors import InvalidInputError
from weft.model.agent import Agent
from weft.model.catalog import Model
from weft.model.message import MessageWithParts, UserMessage
from weft.model.session import Session
from weft.permission.rules import disabled, hidden, judge, limits_for
from weft.provider.catalog import choice as table
from weft.provider.catalog.models import merge
from weft.provider.contract import ModelRequest, Parameters, TextContent, ToolSpec, UserTurn
from weft.run.decide import Step
from weft.run.structured import ask_for_value
from weft.tool.contract import AnyTool, Audience, schema_of
from weft.tool.registry import AFTER_A_CUT, AFTER_A_JOB, UNSEEN

PARTS = (1, 2, 4, 16)


class SummaryAsk(NamedTuple):
    """Who sums up, how long the summary may be, and with which words it is asked for if not the usual ones."""

    model: Model
    most: int
    words: str = ""


class Means(Protocol):
    """What of a kit goes into a request."""

    @property
    def agents(self) -> Mapping[str, Agent]: ...

    @property
    def tools(self) -> Mapping[str, AnyTool]: ...

    @property
    def output_limit(self) -> int: ...

    @property
    def plan_files(self) -> bool: ...

    @property
    def view(self) -> View: ...


def build_request(
    means: Means, history: Sequence[MessageWithParts], step: Step, model: Model, basis: Basis
) -> ModelRequest:
    seen = means.view.show(history, model, plan_files=means.plan_files)
    return ask_for_value(to_request(means, seen, step, model, basis), history, step)


def to_request(means: Means, seen: Shown, step: Step, model: Model, basis: Basis) -> ModelRequest:
    """The request of what is shown, not yet for the value that the prompt may want."""
    prompt, format = step.prompt, wanted(step.prompt)
    agent = means.agents[prompt.agent]
    # Notes that were cut off with the old part of the conversation go into what comes before it.
    told = with_notes(basis, seen.notes)
    return ModelRequest(
        model=model,
        system=system_prompt(agent, prompt, model, told),
        messages=with_last_step(seen.turns) if step.last and format is None else seen.turns,
        # OpenCode only asks for an end on the last step, and a model may go on for ever. Without tools it cannot.
        tools=()
        if step.last
        else to_specs(
            offered(means, agent, prompt, cut=seen.is_cut, jobs=seen.has_jobs),
            audience_of(means, agent, model),
        ),
        parameters=parameters(model, agent, prompt, most=means.output_limit),
        session=prompt.session_id,
    )


def permitted(request: ModelRequest, agent: Agent, session: Session) -> ModelRequest:
    """The request without the tools that the session, those above it or an untrusted project forbid for good.

    OpenCode hides what an agent may never use, and shows what its session may not.
    """
    # Handing over what was asked for is no use of a tool that anybody would have to permit.
    off = hidden([tool.name for tool in request.tools if tool.name != NAME], limits_for(agent, session))
    return (
        replace(request, tools=tuple(tool for tool in request.tools if tool.name not in off))
        if off
        else request
    )


def to_sum_up(
    history: Sequence[MessageWithParts], request: UserMessage, model: Model, *, most: int
) -> list[Sequence[MessageWithParts]]:
    """What a summary is asked for of: all before `request` since the last cut, in pieces that the model has room for."""
    place = next(index for index, message in enumerate(history) if message.info.id == request.id)
    *window, mark = since_compaction(as_taken(history, model)[: place + 1])
    *first, last = pieces(window, usable(model, most))
    return [*first, [*last, mark]]


def summary_requests(
    piece: Sequence[MessageWithParts], told: str, request: UserMessage, agent: Agent, ask: SummaryAsk
) -> Iterator[ModelRequest]:
    """Requests for a summary of one piece, each with less in it than the one before. `told` is what was summed up of
    those before it."""
    model = ask.model
    turns = without_media(to_model_messages(piece, model))
    before = (UserTurn(content=(TextContent(text=f"{written('so_far')}\n\n{told}"),)),) if told else ()
    last = UserTurn(content=(TextContent(text=ask.words or written("summarise")),))
    short = shortened(turns)
    for shown in (turns, *leaner(turns), *(short[-max(1, len(short) // part) :] for part in PARTS)):
        yield ModelRequest(
            model=model,
            system=(agent.prompt or "",),
            messages=(*before, *shown, last),
            parameters=parameters(model, agent, request, most=ask.most),
            session=request.session_id,
        )


def with_less(request: ModelRequest) -> Iterator[ModelRequest]:
    """The request, and then with less and less in it, should it not fit."""
    yield request
    for messages in leaner(request.messages):
        yield replace(request, messages=messages)


def overhead_of(means: Means, prompt: UserMessage, model: Model, basis: Basis) -> int:
    """An estimate of what a request holds beside the conversation: what the model is told first, and its tools."""
    agent = means.agents[prompt.agent]
    told = system_prompt(agent, prompt, model, basis)
    specs = to_specs(shown(means.tools, agent, prompt), audience_of(means, agent, model))
    return sum(map(estimate, told)) + sum(estimate(f"{each.name}{each.about}{each.schema}") for each in specs)


def parameters(
    model: Model, agent: Agent, prompt: UserMessage, *, most: int, small: bool = False
) -> Parameters:
    """How a model is asked: what the agent says, else what is best for the model. `most` limits the answer.

    For `small` work, such as a title, it is to think as little as it can.
    """
    warmth = table.temperature(model) if agent.temperature is None else agent.temperature
    options = options_for(model, agent, prompt, small=small)
    return Parameters(
        temperature=warmth if model.capabilities.temperature else None,
        top_p=table.top_p(model) if agent.top_p is None else agent.top_p,
        top_k=table.top_k(model),
        max_output=table.max_output(model, most, options),
        options=options,
        headers=headers_for(model, prompt),
    )


def options_for(model: Model, agent: Agent, prompt: UserMessage, *, small: bool) -> dict[str, Any]:
    """From the weakest word to the strongest: the table's, the model's, the agent's, the variant's."""
    usual = table.small_options(model) if small else table.options(model, prompt.session_id)
    said = merge(merge(usual, model.options), agent.options)
    return said if small else merge(said, variant_of(model, prompt.variant))


def variant_of(model: Model, name: str | None) -> Mapping[str, Any]:
    """OpenCode passes over a variant the model does not have, and one believes that it thinks hard."""
    if not name:
        return {}
    offered = model.variants or {}
    if name not in offered:
        known = ", ".join(offered) or "none"
        raise InvalidInputError("variant", f"{model.provider_id}/{model.id} has no {name!r}; it has {known}")
    return offered[name]


def headers_for(model: Model, prompt: UserMessage) -> dict[str, str]:
    if not model.provider_id.startswith("opencode"):
        return dict(model.headers)
    told = {"x-opencode-session": prompt.session_id, "x-opencode-request": prompt.id}
    return told | model.headers


def offered(
    means: Means, agent: Agent, prompt: UserMessage, *, cut: bool, jobs: bool = False
) -> list[AnyTool]:
    """The tools a model is shown; one to look back with only where something was `cut` off, and one to see to
    `jobs` only where there are any."""
    unused = (frozenset() if cut else AFTER_A_CUT) | (frozenset() if jobs else AFTER_A_JOB)
    return [tool for tool in shown(means.tools, agent, prompt) if tool.name not in unused]


def shown(tools: Mapping[str, AnyTool], agent: Agent, prompt: UserMessage) -> list[AnyTool]:
    """The tools a model is told of: not ours alone, none its agent may never use, none the prompt switched off."""
    off = {name for name, on in (prompt.tools or {}).items() if not on}
    unseen = UNSEEN | disabled(tools, agent.permission) | off
    return [tool for name, tool in tools.items() if name not in unseen]


def audience_of(means: Means, agent: Agent, model: Model) -> Audience:
    """Who is told of the tools: some words, and some tools, are for some only."""

    def allowed(permission: str, pattern: str) -> bool:
        return judge(permission, pattern, (agent.permission, *agent.limits)).action != "deny"

    return Audience(provider_id=model.provider_id, api_id=model.api.id, allowed=allowed, agents=means.agents)


def to_specs(tools: Iterable[AnyTool], audience: Audience) -> tuple[ToolSpec, ...]:
    told = ((tool, tool.tell(audience) if tool.tell else tool.about) for tool in tools)
    return tuple(
        ToolSpec(name=tool.name, about=about, schema=schema_of(tool))
        for tool, about in told
        if about is not None
    )
