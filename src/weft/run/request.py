"""Build the request to a model: system prompt, messages, tools and parameters."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from weft.context.compaction import list_smaller_versions, shorten_messages, split_history
from weft.context.exclusions import exclude_refused
from weft.context.history import since_compaction, to_model_messages, without_media
from weft.context.notes import apply_notes
from weft.context.reminders import VALUE_TOOL, find_json_format, with_last_step
from weft.context.system import Briefing, build_system_prompt, read_text
from weft.context.tokens import estimate, find_usable_tokens
from weft.context.view import ShownHistory, View
from weft.errors import InvalidInputError
from weft.model.agent import AgentInfo
from weft.model.catalog import Model
from weft.model.message import MessageWithParts, UserMessage
from weft.model.session import SessionInfo
from weft.permission.rules import judge, list_disabled, list_hidden, to_rulesets
from weft.provider.catalog import choice as defaults
from weft.provider.catalog.models import merge_deep
from weft.provider.contract import ModelRequest, Parameters, TextContent, ToolSpec, UserModelMessage
from weft.run.decide import ModelStep
from weft.run.json_schema import request_value
from weft.tool.contract import AnyTool, Audience, build_schema, schema_of
from weft.tool.registry import AFTER_BACKGROUND_JOB, AFTER_COMPACTION

# If a shortened history does not fit, its newest 1/n messages are summarised.
HISTORY_FRACTIONS = (1, 2, 4, 16)


class RequestSettings(Protocol):
    """The part of a `Runtime` that goes into a request."""

    @property
    def agents(self) -> Mapping[str, AgentInfo]: ...

    @property
    def tools(self) -> Mapping[str, AnyTool]: ...

    @property
    def output_limit(self) -> int: ...

    @property
    def plan_files(self) -> bool: ...

    @property
    def view(self) -> View: ...


def build_request(
    settings: RequestSettings,
    history: Sequence[MessageWithParts],
    step: ModelStep,
    model: Model,
    briefing: Briefing,
) -> ModelRequest:
    """Build the request for a step, before plugins and the rules of the session change it."""
    shown = settings.view.show(history, model, plan_files=settings.plan_files)
    return request_value(to_request(settings, shown, step, model, briefing), history, step)


def to_request(
    settings: RequestSettings, shown: ShownHistory, step: ModelStep, model: Model, briefing: Briefing
) -> ModelRequest:
    """Build the request for a shown history. `request_value` adds what makes the model give a value."""
    prompt, format = step.prompt, find_json_format(step.prompt)
    agent = settings.agents[prompt.agent]
    # Notes in the part of the conversation that was cut off go into the system prompt.
    briefing = apply_notes(briefing, shown.notes)
    return ModelRequest(
        model=model,
        system=build_system_prompt(agent, prompt, model, briefing),
        messages=with_last_step(shown.messages) if step.last and format is None else shown.messages,
        # OpenCode only asks the model to end on the last step, so it may go on for ever. Without tools it cannot.
        tools=()
        if step.last
        else to_specs(
            list_offered_tools(settings, agent, prompt, cut=shown.is_cut, jobs=shown.has_jobs),
            make_audience(settings, agent, model),
        ),
        parameters=make_parameters(model, agent, prompt, output_limit=settings.output_limit),
        session=prompt.session_id,
    )


def remove_forbidden_tools(request: ModelRequest, agent: AgentInfo, session: SessionInfo) -> ModelRequest:
    """Return the request without the tools that the session, its ancestors or an untrusted project always deny.

    OpenCode hides the tools that the agent may never use, but shows those that only the session denies.
    """
    # Handing over the requested value needs no permission.
    hidden = list_hidden(
        [tool.name for tool in request.tools if tool.name != VALUE_TOOL], to_rulesets(agent, session)
    )
    return (
        replace(request, tools=tuple(tool for tool in request.tools if tool.name not in hidden))
        if hidden
        else request
    )


def split_for_summary(
    history: Sequence[MessageWithParts], request: UserMessage, model: Model, *, output_limit: int
) -> list[Sequence[MessageWithParts]]:
    """Return the history to summarise, since the last compaction and before `request`, in pieces that fit the model's context."""
    end = next(index for index, message in enumerate(history) if message.info.id == request.id)
    *messages, cut = since_compaction(exclude_refused(history, model)[: end + 1])
    *first, last = split_history(messages, find_usable_tokens(model, output_limit))
    return [*first, [*last, cut]]


def list_summary_requests(
    piece: Sequence[MessageWithParts],
    summary: str,
    *,
    request: UserMessage,
    agent: AgentInfo,
    model: Model,
    output_limit: int,
    summary_prompt: str = "",
) -> Iterator[ModelRequest]:
    """Yield requests for a summary of one piece, each smaller than the one before.

    `summary` is the summary of the pieces before this one. `output_limit` limits the tokens of the answer. `summary_prompt`
    replaces our usual prompt for a summary.
    """
    messages = without_media(to_model_messages(piece, model))
    earlier = (
        (UserModelMessage(content=(TextContent(text=f"{read_text('so_far')}\n\n{summary}"),)),)
        if summary
        else ()
    )
    last = UserModelMessage(content=(TextContent(text=summary_prompt or read_text("summarise")),))
    shortened = shorten_messages(messages)
    for version in (
        messages,
        *list_smaller_versions(messages),
        *(shortened[-max(1, len(shortened) // fraction) :] for fraction in HISTORY_FRACTIONS),
    ):
        yield ModelRequest(
            model=model,
            system=(agent.prompt or "",),
            messages=(*earlier, *version, last),
            parameters=make_parameters(model, agent, request, output_limit=output_limit),
            session=request.session_id,
        )


def list_smaller_requests(request: ModelRequest) -> Iterator[ModelRequest]:
    """Yield the request, then smaller ones in case it does not fit."""
    yield request
    for messages in list_smaller_versions(request.messages):
        yield replace(request, messages=messages)


def estimate_overhead(
    settings: RequestSettings, prompt: UserMessage, model: Model, briefing: Briefing
) -> int:
    """Estimate the tokens of a request besides the conversation: the system prompt and the tools."""
    agent = settings.agents[prompt.agent]
    system = build_system_prompt(agent, prompt, model, briefing)
    described = describe_tools(
        list_visible_tools(settings.tools, agent, prompt), make_audience(settings, agent, model)
    )
    return sum(map(_estimate_system, system)) + sum(_estimate_tool(tool, about) for tool, about in described)


# The system prompt and the built-in tools are mostly the same for every session, and long.
_estimate_system = lru_cache(maxsize=64)(estimate)


def _estimate_tool(tool: AnyTool, about: str) -> int:
    if tool.schema is not None:
        return estimate(f"{tool.name}{about}{tool.schema}")
    takes: type[Struct] = tool.takes
    return _estimate_typed_tool(tool.name, about, takes)


@lru_cache(maxsize=256)
def _estimate_typed_tool(name: str, about: str, takes: type[Struct]) -> int:
    return estimate(f"{name}{about}{build_schema(takes)}")


def make_parameters(
    model: Model, agent: AgentInfo, prompt: UserMessage, *, output_limit: int, small: bool = False
) -> Parameters:
    """Return the parameters of a request: the agent's, else the defaults for the model. `output_limit` limits the answer's tokens.

    For `small` work, such as a title, the options ask for as little reasoning as the model allows.
    """
    temperature = defaults.choose_temperature(model) if agent.temperature is None else agent.temperature
    options = make_options(model, agent, prompt, small=small)
    return Parameters(
        temperature=temperature if model.capabilities.temperature else None,
        top_p=defaults.choose_top_p(model) if agent.top_p is None else agent.top_p,
        top_k=defaults.choose_top_k(model),
        max_output=defaults.get_max_output(model, output_limit, options),
        options=options,
        headers=make_headers(model, prompt),
    )


def make_options(model: Model, agent: AgentInfo, prompt: UserMessage, *, small: bool) -> dict[str, Any]:
    """Merge the options of the built-in table, the model, the agent and the variant. Later ones override earlier ones."""
    base = defaults.get_small_options(model) if small else defaults.get_options(model, prompt.session_id)
    options = merge_deep(merge_deep(base, model.options), agent.options)
    return options if small else merge_deep(options, get_variant(model, prompt.variant))


def get_variant(model: Model, name: str | None) -> Mapping[str, Any]:
    """Return the options of a variant. Raise `InvalidInputError` if the model has none of that name: OpenCode ignores it silently."""
    if not name:
        return {}
    variants = model.variants or {}
    if name not in variants:
        hint = f"it has {', '.join(variants)}" if variants else "it has no variants: leave it out"
        raise InvalidInputError("variant", f"{model.provider_id}/{model.id} has no {name!r}", hint=hint)
    return variants[name]


def make_headers(model: Model, prompt: UserMessage) -> dict[str, str]:
    if not model.provider_id.startswith("opencode"):
        return dict(model.headers)
    request_headers = {"x-opencode-session": prompt.session_id, "x-opencode-request": prompt.id}
    return request_headers | model.headers


def list_offered_tools(
    settings: RequestSettings, agent: AgentInfo, prompt: UserMessage, *, cut: bool, jobs: bool = False
) -> list[AnyTool]:
    """Return the tools to offer. Tools that search the cut-off history are offered only if it was `cut`, tools for background
    jobs only if there are `jobs`."""
    unused = (frozenset() if cut else AFTER_COMPACTION) | (frozenset() if jobs else AFTER_BACKGROUND_JOB)
    return [tool for tool in list_visible_tools(settings.tools, agent, prompt) if tool.name not in unused]


def list_visible_tools(tools: Mapping[str, AnyTool], agent: AgentInfo, prompt: UserMessage) -> list[AnyTool]:
    """Return the tools that a model may see: no internal ones, none that its agent may never use, none that the prompt switched off."""
    switched_off = {name for name, on in (prompt.tools or {}).items() if not on}
    unusable = list_disabled(tools, agent.permission) | switched_off
    return [tool for name, tool in tools.items() if not tool.hidden and name not in unusable]


def make_audience(settings: RequestSettings, agent: AgentInfo, model: Model) -> Audience:
    """Return the model and the agent that tools are described for: some tools and descriptions depend on them."""

    def allowed(permission: str, pattern: str) -> bool:
        return judge(permission, pattern, (agent.permission, *agent.limits)).action != "deny"

    return Audience(
        provider_id=model.provider_id, api_id=model.api.id, allowed=allowed, agents=settings.agents
    )


def to_specs(tools: Iterable[AnyTool], audience: Audience) -> tuple[ToolSpec, ...]:
    """Return the tools as a model sees them, without those that have no description for this audience."""
    return tuple(
        ToolSpec(name=tool.name, about=about, schema=schema_of(tool))
        for tool, about in describe_tools(tools, audience)
    )


def describe_tools(tools: Iterable[AnyTool], audience: Audience) -> Iterator[tuple[AnyTool, str]]:
    """Yield each tool with its description, except those that have none for this audience."""
    for tool in tools:
        about = tool.describe(audience) if tool.describe else tool.about
        if about is not None:
            yield tool, about
