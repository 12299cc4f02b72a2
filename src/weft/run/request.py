"""Everything one call of a model carries."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from weft.errors import InvalidInputError
from weft.model.agent import Agent
from weft.model.catalog import Model
from weft.model.message import MessageWithParts, UserMessage
from weft.model.session import Session
from weft.permission.rules import disabled
from weft.permission.rules import merge as join
from weft.provider.contract import ModelRequest, Parameters, TextContent, ToolSpec, UserTurn
from weft.provider.offer import options as table
from weft.provider.offer.entry import merge
from weft.run.decide import Step
from weft.tool.contract import AnyTool, schema_of
from weft.tool.registry import UNSEEN
from weft.window.history import since_compaction, to_model_messages, without_media
from weft.window.notes import as_told
from weft.window.reminders import as_shown, with_last_step
from weft.window.system import Basis, system_prompt
from weft.window.written import written

SHARES = (1.0, 0.5, 0.25, 0.1)


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


def build_request(
    means: Means, history: Sequence[MessageWithParts], step: Step, model: Model, basis: Basis
) -> ModelRequest:
    prompt = step.prompt
    agent = means.agents[prompt.agent]
    window = since_compaction(as_shown(history, plan_files=means.plan_files))
    messages = to_model_messages(window, model)
    # Notes that were cut off with the old part of the conversation go into what comes before it.
    cut = history[: len(history) - len(window)]
    return ModelRequest(
        model=model,
        system=system_prompt(agent, prompt, model, as_told(basis, cut)),
        messages=with_last_step(messages) if step.last else messages,
        # OpenCode only asks for an end on the last step, and a model may go on for ever. Without tools it cannot.
        tools=() if step.last else to_specs(shown(means.tools, agent, prompt)),
        parameters=parameters(model, agent, prompt, most=means.output_limit),
        session=prompt.session_id,
    )


def permitted(request: ModelRequest, agent: Agent, session: Session) -> ModelRequest:
    """The request without the tools that the session's own rules forbid for good: a model need not be told of them.

    OpenCode hides what an agent may never use, and shows what its session may not.
    """
    off = disabled([tool.name for tool in request.tools], join(agent.permission, session.permission or ()))
    return (
        replace(request, tools=tuple(tool for tool in request.tools if tool.name not in off))
        if off
        else request
    )


def summary_requests(
    history: Sequence[MessageWithParts], request: UserMessage, model: Model, agent: Agent, *, most: int
) -> Iterator[ModelRequest]:
    """Requests for a summary of all before `request`, each with less of the oldest in it than the one before."""
    place = next(index for index, message in enumerate(history) if message.info.id == request.id)
    window = since_compaction(history[: place + 1])
    for share in SHARES:
        kept = from_a_prompt(window[len(window) - max(1, int(len(window) * share)) :]) or window[-1:]
        turns = without_media(to_model_messages(kept, model))
        yield ModelRequest(
            model=model,
            system=(agent.prompt or "",),
            messages=(*turns, UserTurn(content=(TextContent(text=written("summarise")),))),
            parameters=parameters(model, agent, request, most=most),
            session=request.session_id,
        )


def from_a_prompt(window: Sequence[MessageWithParts]) -> Sequence[MessageWithParts]:
    """A conversation begins with somebody asking."""
    first = next(
        (n for n, message in enumerate(window) if isinstance(message.info, UserMessage)), len(window)
    )
    return window[first:]


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


def shown(tools: Mapping[str, AnyTool], agent: Agent, prompt: UserMessage) -> list[AnyTool]:
    """The tools a model is told of: not ours alone, none its agent may never use, none the prompt switched off."""
    off = {name for name, on in (prompt.tools or {}).items() if not on}
    hidden = UNSEEN | disabled(tools, agent.permission) | off
    return [tool for name, tool in tools.items() if name not in hidden]


def to_specs(tools: Iterable[AnyTool]) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(name=tool.name, about=tool.about, schema=schema_of(tool)) for tool in tools)
