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
    """All commands by name, and the MCP servers that may offer more. Listing commands does not start the servers."""

    commands: dict[str, Command]
    servers: tuple[str, ...]


def load_commands(directory: str, env: Mapping[str, str]) -> SlashCommands:
    """Return the commands of a directory, and warn about problems in the configuration and commands that are held back."""
    checkout = find_checkout(directory)
    scope, loaded = load_and_warn(checkout.directory, checkout.top or checkout.directory, env)
    held_back = [each for each in loaded.held if each.kind == "command"]
    if held_back:
        warn(to_warning(scope, held_back))
    return SlashCommands(
        commands=build_commands(loaded.config, scope.worktree),
        servers=tuple(list_enabled_servers(loaded.config)),
    )


def format_servers_note(servers: Sequence[str]) -> str:
    """Return a note that the prompts of these MCP servers are commands too, and how to list them."""
    count = "1 MCP server was" if len(servers) == 1 else f"{len(servers)} MCP servers were"
    names = sanitize(", ".join(servers))
    return f"{count} not asked for prompts, which are commands too ({names}): weft mcp debug NAME asks one"


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    add_directory(parser)


def list_commands(args: argparse.Namespace) -> int:
    available = load_commands(args.dir, os.environ)
    if args.format == "json":
        write_json(list(available.commands.values()))
    else:
        rows = [
            (name, " ".join(command.hints), shorten_line(command.description or ""))
            for name, command in available.commands.items()
        ]
        print("\n".join(to_table(("command", "takes", "what it is for"), rows, Paint(sys.stdout))))
    if available.servers:
        print(format_servers_note(available.servers), file=sys.stderr)
    return 0


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the name of the command, with or without its slash")
    add_format(parser)
    add_directory(parser)


def show_command(args: argparse.Namespace) -> int:
    available = load_commands(args.dir, os.environ)
    if available.servers and ":" in args.name:
        print(format_servers_note(available.servers), file=sys.stderr)
    command = get_command(available.commands, args.name)
    if args.format == "json":
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
