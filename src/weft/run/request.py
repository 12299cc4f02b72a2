"""Everything one call of a model carries."""

from collections.abc import Iterable, Mapping, Sequence

from weft.model.agent import Agent
from weft.model.catalog import Model
from weft.model.message import MessageWithParts, UserMessage
from weft.permission.rules import disabled
from weft.provider.contract import ModelRequest, Parameters, ToolSpec
from weft.run.decide import Step
from weft.run.kit import Kit
from weft.tool.contract import AnyTool, schema_of
from weft.tool.registry import UNSEEN
from weft.window.history import since_compaction, to_model_messages
from weft.window.system import system_prompt


def build_request(
    kit: Kit, history: Sequence[MessageWithParts], step: Step, model: Model, agent: Agent
) -> ModelRequest:
    prompt = step.prompt
    return ModelRequest(
        model=model,
        system=system_prompt(agent, prompt, kit.place, platform=kit.platform, now=prompt.time.created),
        messages=to_model_messages(since_compaction(history), model),
        # OpenCode only asks for an end on the last step, and a model may go on for ever. Without tools it cannot.
        tools=() if step.last else to_specs(shown(kit.tools, agent, prompt)),
        parameters=Parameters(
            temperature=agent.temperature if model.capabilities.temperature else None,
            top_p=agent.top_p,
            max_output=min(model.limit.output or kit.output_limit, kit.output_limit),
            options=dict(model.options) | dict(agent.options),
            headers=dict(model.headers),
        ),
        session=prompt.session_id,
    )


def shown(tools: Mapping[str, AnyTool], agent: Agent, prompt: UserMessage) -> list[AnyTool]:
    """The tools a model is told of: not ours alone, none its agent may never use, none the prompt switched off."""
    off = {name for name, on in (prompt.tools or {}).items() if not on}
    hidden = UNSEEN | disabled(tools, agent.permission) | off
    return [tool for name, tool in tools.items() if name not in hidden]


def to_specs(tools: Iterable[AnyTool]) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(name=tool.name, about=tool.about, schema=schema_of(tool)) for tool in tools)
