"""The commands there are: the built-in ones, and those that are configured."""

import os
from collections.abc import Mapping
from difflib import get_close_matches

from weft.config.command.template import list_hints, parse
from weft.config.schema import CommandConfig, Config
from weft.errors import NotFoundError
from weft.model.agent import Command

INIT = "init"
REVIEW = "review"

_WORKTREE = "{worktree}"
# A path with one of these in it would be read as part of the template.
_SPEAKS = frozenset("$`@")


def build_commands(config: Config, worktree: str) -> dict[str, Command]:
    """Every command by its name, the built-in ones first. What is configured takes the place of one of these."""
    built_in = {
        INIT: CommandConfig(description="write or improve AGENTS.md", template=_written(INIT, worktree)),
        REVIEW: CommandConfig(
            description="review changes: not committed (default), a commit, a branch or a pull request",
            template=_written(REVIEW, worktree),
            subtask=True,
        ),
    }
    return {name: _to_command(name, said) for name, said in (built_in | (config.command or {})).items()}


def get_command(commands: Mapping[str, Command], name: str) -> Command:
    """OpenCode fails with a type error for a name it does not know."""
    found = commands.get(name.removeprefix("/"))
    if found is None:
        near = get_close_matches(name, commands, n=3)
        raise NotFoundError("command", name, near=near, hint=f"there are {', '.join(commands) or 'none'}")
    return found


def _to_command(name: str, said: CommandConfig) -> Command:
    return Command(
        name=name,
        description=said.description,
        agent=said.agent,
        model=said.model,
        template=said.template,
        subtask=said.subtask,
        hints=tuple(list_hints(parse(said.template))),
    )


def _written(name: str, worktree: str) -> str:
    path = os.path.join(os.path.dirname(__file__), "prompts", f"{name}.md")
    with open(path, encoding="utf-8") as file:
        text = file.read().strip()
    return text.replace(_WORKTREE, "its root" if _SPEAKS & set(worktree) else worktree)
