"""The choices in a session: agents as modes, models, and slash commands (pure)."""

from collections.abc import Iterable, Iterator
from typing import Final

from acp.schema import (
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    UnstructuredCommandInput,
)
from msgspec import Struct

from weft.model.agent import AgentInfo, Command
from weft.model.part import ModelRef
from weft.model.provider import ProviderList

MODE: Final = "mode"
MODEL: Final = "model"
# The model that the agent, the conversation or the configuration names; a prompt shows which one that is.
DEFAULT_MODEL: Final = "default"
COMPACT: Final = "compact"


class Choices(Struct, frozen=True, kw_only=True):
    """The agents and models of a directory. Models are named `provider/model`; `sizes` are their context windows."""

    agents: tuple[AgentInfo, ...]
    models: dict[str, str]
    sizes: dict[str, int]


class SessionChoice(Struct, frozen=True, kw_only=True):
    """The agent of a session, and its model if one was chosen."""

    agent: str
    model: ModelRef | None = None


def to_choices(agents: Iterable[AgentInfo], providers: ProviderList) -> Choices:
    connected = [info for info in providers.all if info.id in providers.connected]
    models = {
        f"{info.id}/{model.id}": (f"{info.name}: {model.name}", model)
        for info in connected
        for model in info.models.values()
    }
    return Choices(
        agents=tuple(agent for agent in agents if agent.mode != "subagent" and not agent.hidden),
        models={name: label for name, (label, _) in models.items()},
        sizes={name: model.limit.context for name, (_, model) in models.items()},
    )


def to_modes(choices: Choices, choice: SessionChoice) -> SessionModeState:
    modes = [
        SessionMode(id=agent.name, name=agent.name.capitalize(), description=agent.description)
        for agent in choices.agents
    ]
    return SessionModeState(current_mode_id=choice.agent, available_modes=modes)


def to_options(choices: Choices, choice: SessionChoice) -> list[SessionConfigOptionSelect]:
    """Return both choices as options, for clients that show all choices alike."""
    modes = [
        SessionConfigSelectOption(
            value=agent.name, name=agent.name.capitalize(), description=agent.description
        )
        for agent in choices.agents
    ]
    current = format_model(choice.model)
    names = {
        DEFAULT_MODEL: "Default",
        **({current: current} if current not in {DEFAULT_MODEL, *choices.models} else {}),
        **choices.models,
    }
    models = [SessionConfigSelectOption(value=value, name=name) for value, name in names.items()]
    return [
        SessionConfigOptionSelect(
            type="select", id=MODE, name="Agent", category="mode", current_value=choice.agent, options=modes
        ),
        SessionConfigOptionSelect(
            type="select", id=MODEL, name="Model", category="model", current_value=current, options=models
        ),
    ]


def format_model(model: ModelRef | None) -> str:
    return f"{model.provider_id}/{model.model_id}" if model else DEFAULT_MODEL


def to_commands(commands: Iterable[Command]) -> AvailableCommandsUpdate:
    return AvailableCommandsUpdate(
        session_update="available_commands_update", available_commands=list(_list_commands(commands))
    )


def _list_commands(commands: Iterable[Command]) -> Iterator[AvailableCommand]:
    listed = list(commands)
    for command in listed:
        arguments = [f"{each.name}=…" for each in command.arguments] or command.hints
        hint = UnstructuredCommandInput(hint=" ".join(arguments) or "what to tell it")
        yield AvailableCommand(
            name=command.name,
            description=command.description or "",
            input=AvailableCommandInput(root=hint) if command.hints else None,
        )
    if all(command.name != COMPACT for command in listed):
        yield AvailableCommand(name=COMPACT, description="compact the conversation")
