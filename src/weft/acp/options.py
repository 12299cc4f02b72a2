"""What can be chosen in a session: the agent, as a mode, and the model; and the slash commands there are (pure)."""

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

from weft.model.agent import Agent, Command
from weft.model.part import ModelRef
from weft.model.provider import ProviderList

MODE: Final = "mode"
MODEL: Final = "model"
# Stands for: whatever the agent, the conversation or the configuration says. Which that is is found out by prompting.
USUAL: Final = "default"
COMPACT: Final = "compact"


class Choices(Struct, frozen=True, kw_only=True):
    """What there is to choose from in a directory. Models are named `provider/model`."""

    agents: tuple[Agent, ...]
    models: dict[str, str]
    sizes: dict[str, int]


class Chosen(Struct, frozen=True, kw_only=True):
    """Who answers in a session, and with which model if one was chosen."""

    agent: str
    model: ModelRef | None = None


def to_choices(agents: Iterable[Agent], providers: ProviderList) -> Choices:
    connected = [info for info in providers.all if info.id in providers.connected]
    listed = {
        f"{info.id}/{model.id}": (f"{info.name}: {model.name}", model)
        for info in connected
        for model in info.models.values()
    }
    return Choices(
        agents=tuple(agent for agent in agents if agent.mode != "subagent" and not agent.hidden),
        models={name: shown for name, (shown, _) in listed.items()},
        sizes={name: model.limit.context for name, (_, model) in listed.items()},
    )


def to_modes(choices: Choices, chosen: Chosen) -> SessionModeState:
    modes = [
        SessionMode(id=agent.name, name=agent.name.capitalize(), description=agent.description)
        for agent in choices.agents
    ]
    return SessionModeState(current_mode_id=chosen.agent, available_modes=modes)


def to_options(choices: Choices, chosen: Chosen) -> list[SessionConfigOptionSelect]:
    """The same for clients that show every choice alike."""
    modes = [
        SessionConfigSelectOption(
            value=agent.name, name=agent.name.capitalize(), description=agent.description
        )
        for agent in choices.agents
    ]
    current = to_name(chosen.model)
    named = {
        USUAL: "Default",
        **({current: current} if current not in {USUAL, *choices.models} else {}),
        **choices.models,
    }
    models = [SessionConfigSelectOption(value=value, name=name) for value, name in named.items()]
    return [
        SessionConfigOptionSelect(
            type="select", id=MODE, name="Agent", category="mode", current_value=chosen.agent, options=modes
        ),
        SessionConfigOptionSelect(
            type="select", id=MODEL, name="Model", category="model", current_value=current, options=models
        ),
    ]


def to_name(model: ModelRef | None) -> str:
    return f"{model.provider_id}/{model.model_id}" if model else USUAL


def to_commands(commands: Iterable[Command]) -> AvailableCommandsUpdate:
    return AvailableCommandsUpdate(
        session_update="available_commands_update", available_commands=list(_listed(commands))
    )


def _listed(commands: Iterable[Command]) -> Iterator[AvailableCommand]:
    known = list(commands)
    for command in known:
        takes = [f"{each.name}=…" for each in command.arguments] or command.hints
        hint = UnstructuredCommandInput(hint=" ".join(takes) or "what to tell it")
        yield AvailableCommand(
            name=command.name,
            description=command.description or "",
            input=AvailableCommandInput(root=hint) if command.hints else None,
        )
    if all(command.name != COMPACT for command in known):
        yield AvailableCommand(name=COMPACT, description="sum the conversation up, to make room")
