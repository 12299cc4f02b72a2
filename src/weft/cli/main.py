"""The command line: what there is to type, and who does it. Each command's code is imported when it is asked for."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TypeAlias

from weft.cli.exit import EXPLAINED, Exit, exit_for
from weft.cli.paint import Paint
from weft.errors import WeftError
from weft.version import VERSION

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001  it has no public name

EXAMPLES = """examples:
  weft demo                                   watch a scripted agent work, offline
  weft run "fix the failing test"             run a prompt in this directory
  weft run -c "now document it"               go on with the last session
  weft run -m scripted/demo --format json hi  one JSON object a line, for scripts
  weft session list -n 5                      the newest sessions of this project
  weft config                                 what is configured, and where it came from
"""


def run_command(arguments: Sequence[str]) -> int:
    """Run one command. Whatever goes wrong is told in a sentence with the way out, never with a traceback."""
    parser = build_parser()
    chosen = parser.parse_args(arguments)
    named: str | None = getattr(chosen, "command_", None)
    if named is None:
        parser.print_help()
        return Exit.DONE
    try:
        return find_command(named)(chosen)
    except WeftError as error:
        return complain(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough, as `head` does. Python would complain once more while closing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE


def find_command(named: str) -> Callable[[argparse.Namespace], int]:
    """`module:function` in this package. Only the command that was asked for is imported: starting stays fast."""
    module, function = named.split(":")
    command: Callable[[argparse.Namespace], int] = getattr(import_module(f"weft.cli.{module}"), function)
    return command


def complain(error: WeftError) -> int:
    paint = Paint(sys.stderr)
    print(f"{paint.red('error:')} {error}", file=sys.stderr)
    if error.hint:
        print(f"       {error.hint}", file=sys.stderr)
    return exit_for(error)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="weft",
        description="The session engine for coding agents.",
        epilog=f"{EXAMPLES}\n{EXPLAINED}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-v", "--version", action="version", version=VERSION)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_run(commands)
    _add_session(commands)
    _add_config(commands)
    _add_demo(commands)
    return parser


def _add_run(commands: Commands) -> None:
    run = commands.add_parser(
        "run", help="run a prompt", description="Run a prompt and show the agent's work as it goes."
    )
    run.add_argument("message", nargs="*", help="the prompt; text piped in is added to it")
    run.add_argument(
        "-c", "--continue", dest="go_on", action="store_true", help="go on with the last session"
    )
    run.add_argument("-s", "--session", metavar="ID", help="go on with this session")
    run.add_argument("-m", "--model", metavar="PROVIDER/MODEL", help="the model to ask")
    run.add_argument("--agent", help="the agent to use")
    run.add_argument("--variant", help="the model's variant, such as how hard it thinks")
    run.add_argument(
        "-f", "--file", action="append", default=[], metavar="PATH", help="a file to attach (repeatable)"
    )
    run.add_argument(
        "--title", nargs="?", const="", help="the session's title; without a value, the prompt's beginning"
    )
    run.add_argument(
        "--format", choices=("default", "json"), default="default", help="json: one object a line"
    )
    run.add_argument("--command", metavar="NAME", help=argparse.SUPPRESS)
    run.add_argument("--share", action="store_true", help=argparse.SUPPRESS)
    run.add_argument("--attach", metavar="URL", help=argparse.SUPPRESS)
    run.add_argument("--port", type=int, help=argparse.SUPPRESS)
    _add_place(run)
    run.set_defaults(command_="run:run_prompt")


def _add_session(commands: Commands) -> None:
    session = commands.add_parser("session", help="list and show sessions", description="Sessions at rest.")
    verbs = session.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = verbs.add_parser("list", help="the sessions of this project, newest first")
    listing.add_argument("-n", "--max-count", type=_count, metavar="N", help="at most this many")
    listing.add_argument("--all", action="store_true", help="of every project")
    listing.add_argument("--format", choices=("table", "json"), default="table")
    _add_place(listing)
    listing.set_defaults(command_="sessions:list_sessions")
    show = verbs.add_parser("show", help="one session, whole")
    show.add_argument("session", metavar="ID")
    show.add_argument(
        "--format", choices=("default", "json"), default="default", help="json: as OpenCode exports it"
    )
    _add_place(show)
    show.set_defaults(command_="show:show_session")


def _add_config(commands: Commands) -> None:
    config = commands.add_parser("config", help="what is configured, and where it came from")
    config.add_argument("--format", choices=("table", "json"), default="table")
    _add_place(config)
    config.set_defaults(command_="config:config_command")


def _add_demo(commands: Commands) -> None:
    demo = commands.add_parser("demo", help="watch a scripted agent work in a scratch repository, offline")
    demo.set_defaults(command_="demo:demo")


def _add_place(parser: argparse.ArgumentParser) -> None:
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
