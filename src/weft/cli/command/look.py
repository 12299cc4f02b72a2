"""`weft command list` and `show`: the commands there are in a directory, and what each says."""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from weft.cli.offers import warn
from weft.cli.paint import Paint, plain, write_json
from weft.cli.table import to_table
from weft.config.commands import build_commands, get_command
from weft.config.load import load_config
from weft.config.sources import Situation
from weft.host.paths import paths_from
from weft.local.mcp import list_enabled
from weft.model.agent import Command
from weft.project.look import look
from weft.trust.decision import is_trusted, to_warning

SHORT = 80


class Found(Struct, frozen=True, kw_only=True):
    """Every command by its name; and the MCP servers that may bring more of them, which nobody started for this."""

    commands: dict[str, Command]
    unasked: tuple[str, ...]


def find_commands(directory: str, env: Mapping[str, str]) -> Found:
    """What there is. What is broken, and what is held back, is told."""
    at, paths = look(directory), paths_from(env)
    worktree = at.top or at.directory
    trusted = is_trusted(paths, env, worktree, at.directory)
    situation = Situation(directory=at.directory, worktree=worktree, paths=paths, env=env, trusted=trusted)
    loaded = load_config(situation)
    for problem in (*loaded.problems, *loaded.warnings):
        warn(problem)
    held = [each for each in loaded.held if each.kind == "command"]
    if held:
        warn(to_warning(situation, held))
    return Found(commands=build_commands(loaded.config, worktree), unasked=tuple(list_enabled(loaded.config)))


def to_remark(unasked: Sequence[str]) -> str:
    """That prompts of MCP servers are commands too, and how one sees them."""
    servers = "1 MCP server was" if len(unasked) == 1 else f"{len(unasked)} MCP servers were"
    names = plain(", ".join(unasked))
    return f"{servers} not asked for prompts, which are commands too ({names}): weft mcp debug NAME asks one"


def list_commands(chosen: argparse.Namespace) -> int:
    found = find_commands(chosen.dir, os.environ)
    if chosen.format == "json":
        write_json(list(found.commands.values()))
    else:
        rows = [
            (name, " ".join(command.hints), _short(command.description or ""))
            for name, command in found.commands.items()
        ]
        print("\n".join(to_table(("command", "takes", "what it is for"), rows, Paint(sys.stdout))))
    if found.unasked:
        print(to_remark(found.unasked), file=sys.stderr)
    return 0


def show_command(chosen: argparse.Namespace) -> int:
    found = find_commands(chosen.dir, os.environ)
    if found.unasked and ":" in chosen.name:
        print(to_remark(found.unasked), file=sys.stderr)
    command = get_command(found.commands, chosen.name)
    if chosen.format == "json":
        write_json(command)
    else:
        print("\n".join(to_lines(command, Paint(sys.stdout))))
    return 0


def to_lines(command: Command, paint: Paint) -> Iterator[str]:
    yield paint.bold(plain(command.name))
    if command.description:
        yield plain(command.description)
    yield ""
    facts = {
        "takes": " ".join(command.hints) or "words, put at its end",
        "agent": command.agent or "the one in use",
        "model": command.model or "the agent's, else the one in use",
        "subtask": {True: "yes", False: "no", None: "if its agent is a subagent"}[command.subtask],
    }
    yield from (f"{name:<8} {plain(value)}" for name, value in facts.items())
    yield ""
    yield paint.dim(plain(command.template))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHORT else line[: SHORT - 1] + "…"
