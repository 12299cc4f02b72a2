"""`weft command`: list and show slash commands."""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from weft.cli.arguments import add_directory, add_format
from weft.cli.config import load_and_warn
from weft.cli.output import Paint, sanitize, shorten_line, to_table, warn, write_json
from weft.config.commands import build_commands, get_command
from weft.local.mcp_settings import list_enabled_servers
from weft.model.agent import Command
from weft.project.checkout import find_checkout
from weft.trust.decision import to_warning


class SlashCommands(Struct, frozen=True, kw_only=True):
    """All commands by name, and the MCP servers that may offer more: they are not started for a list."""

    commands: dict[str, Command]
    unasked: tuple[str, ...]


def find_commands(directory: str, env: Mapping[str, str]) -> SlashCommands:
    """Return the commands of a directory, and warn about what is broken or held back."""
    at = find_checkout(directory)
    scope, loaded = load_and_warn(at.directory, at.top or at.directory, env)
    held = [each for each in loaded.held if each.kind == "command"]
    if held:
        warn(to_warning(scope, held))
    return SlashCommands(
        commands=build_commands(loaded.config, scope.worktree),
        unasked=tuple(list_enabled_servers(loaded.config)),
    )


def format_servers_note(unasked: Sequence[str]) -> str:
    """Return a note that prompts of MCP servers are commands too, and how to list them."""
    servers = "1 MCP server was" if len(unasked) == 1 else f"{len(unasked)} MCP servers were"
    names = sanitize(", ".join(unasked))
    return f"{servers} not asked for prompts, which are commands too ({names}): weft mcp debug NAME asks one"


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    add_directory(parser)


def list_commands(chosen: argparse.Namespace) -> int:
    found = find_commands(chosen.dir, os.environ)
    if chosen.format == "json":
        write_json(list(found.commands.values()))
    else:
        rows = [
            (name, " ".join(command.hints), shorten_line(command.description or ""))
            for name, command in found.commands.items()
        ]
        print("\n".join(to_table(("command", "takes", "what it is for"), rows, Paint(sys.stdout))))
    if found.unasked:
        print(format_servers_note(found.unasked), file=sys.stderr)
    return 0


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the name of the command, with or without its slash")
    add_format(parser)
    add_directory(parser)


def show_command(chosen: argparse.Namespace) -> int:
    found = find_commands(chosen.dir, os.environ)
    if found.unasked and ":" in chosen.name:
        print(format_servers_note(found.unasked), file=sys.stderr)
    command = get_command(found.commands, chosen.name)
    if chosen.format == "json":
        write_json(command)
    else:
        print("\n".join(to_lines(command, Paint(sys.stdout))))
    return 0


def to_lines(command: Command, paint: Paint) -> Iterator[str]:
    yield paint.bold(sanitize(command.name))
    if command.description:
        yield sanitize(command.description)
    yield ""
    facts = {
        "takes": " ".join(command.hints) or "words, put at its end",
        "agent": command.agent or "the one in use",
        "model": command.model or "the agent's, else the one in use",
        "subtask": {True: "yes", False: "no", None: "if its agent is a subagent"}[command.subtask],
    }
    yield from (f"{name:<8} {sanitize(value)}" for name, value in facts.items())
    yield ""
    yield paint.dim(sanitize(command.template))
