"""Every command: its words, what it is for, what it takes, and the function that does it."""

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft.cli.exit import EXPLAINED
from weft.version import VERSION

WIDTH = 100

EXAMPLES = """examples:
  weft demo                                   watch a scripted agent work, offline
  weft run "fix the failing test"             run a prompt in this directory
  weft run -c "now document it"               go on with the last session
  weft run -m scripted/demo --format json hi  one JSON object a line, for scripts
  weft session list -n 5                      the newest sessions of this project
  weft config                                 what is configured, and where it came from
"""


class Parser(argparse.ArgumentParser):
    """A parser that knows how wide the screen is: argparse would import `shutil` to find out, for every command."""

    def __init__(self, **more: Any) -> None:
        super().__init__(formatter_class=_laid_out, **more)


def _laid_out(prog: str) -> argparse.HelpFormatter:
    try:
        columns = os.get_terminal_size().columns
    except OSError:
        columns = 0
    return argparse.RawDescriptionHelpFormatter(prog, width=(columns or WIDTH) - 2)


class Command(NamedTuple):
    """`runs` is `module:function` in this package; `takes` adds the command's arguments to its parser."""

    words: tuple[str, ...]
    about: str
    takes: Callable[[Parser], None]
    runs: str


def build_parser(arguments: Sequence[str]) -> Parser:
    """A parser for these arguments: only the command they name is furnished, the others are there for the help."""
    parser = Parser(
        prog="weft", description="The session engine for coding agents.", epilog=f"{EXAMPLES}\n{EXPLAINED}"
    )
    parser.add_argument("-v", "--version", action="version", version=VERSION)
    _add(parser, COMMANDS, (), tuple(arguments))
    return parser


def _add(
    parser: Parser, commands: Sequence[Command], under: tuple[str, ...], arguments: tuple[str, ...]
) -> None:
    """Add the commands whose words begin with `under`, by their next word."""
    prog = " ".join(("weft", *under))  # argparse would lay out a usage line to find it
    branches = parser.add_subparsers(title="commands", metavar="COMMAND", prog=prog, required=bool(under))
    depth = len(under)
    for word in dict.fromkeys(command.words[depth] for command in commands):
        words = (*under, word)
        below = [command for command in commands if command.words[: depth + 1] == words]
        about = GROUPS.get(words) or below[0].about
        branch = branches.add_parser(word, help=about, description=about[0].upper() + about[1:] + ".")
        if arguments[: depth + 1] != words:
            continue
        if below[0].words == words:
            below[0].takes(branch)
            branch.set_defaults(runs=below[0].runs)
        else:
            _add(branch, below, words, arguments)


def _run(parser: Parser) -> None:
    add = parser.add_argument
    add("message", nargs="*", help="the prompt; text piped in is added to it")
    add("-c", "--continue", dest="go_on", action="store_true", help="go on with the last session")
    add("-s", "--session", metavar="ID", help="go on with this session")
    add("-m", "--model", metavar="PROVIDER/MODEL", help="the model to ask")
    add("--agent", help="the agent to use")
    add("--variant", help="the model's variant, such as how hard it thinks")
    add("-f", "--file", action="append", default=[], metavar="PATH", help="a file to attach (repeatable)")
    add("--title", nargs="?", const="", help="the session's title; without a value, the prompt's beginning")
    add("--format", choices=("default", "json"), default="default", help="json: one object a line")
    add("--command", metavar="NAME", help=argparse.SUPPRESS)
    add("--share", action="store_true", help=argparse.SUPPRESS)
    add("--attach", metavar="URL", help=argparse.SUPPRESS)
    add("--port", type=int, help=argparse.SUPPRESS)
    _place(parser)


def _session_list(parser: Parser) -> None:
    add = parser.add_argument
    add("-n", "--max-count", type=_count, metavar="N", help="at most this many")
    add("--all", action="store_true", help="of every project")
    add("--format", choices=("table", "json"), default="table")
    _place(parser)


def _session_show(parser: Parser) -> None:
    add = parser.add_argument
    add("session", metavar="ID")
    add("--format", choices=("default", "json"), default="default", help="json: as OpenCode exports it")
    _place(parser)


def _config(parser: Parser) -> None:
    parser.add_argument("--format", choices=("table", "json"), default="table")
    _place(parser)


def _nothing(_: Parser) -> None:
    pass


def _place(parser: Parser) -> None:
    parser.add_argument(
        "--dir", metavar="PATH", default=".", help="work here instead of in the current directory"
    )
    parser.add_argument(
        "--store", metavar="URL", help="where sessions are kept: a directory, file:PATH or memory:"
    )


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a count")
    return int(text)


GROUPS: dict[tuple[str, ...], str] = {("session",): "list and show sessions"}

COMMANDS = (
    Command(("run",), "run a prompt and show the agent's work as it goes", _run, "run:run_prompt"),
    Command(("session", "list"), "the sessions of this project, last worked on first", _session_list, "sessions:list_sessions"),
    Command(("session", "show"), "one session, whole", _session_show, "show:show_session"),
    Command(("config",), "what is configured, and where it came from", _config, "config:config_command"),
    Command(("demo",), "watch a scripted agent work in a scratch repository, offline", _nothing, "demo:demo"),
)  # fmt: skip
