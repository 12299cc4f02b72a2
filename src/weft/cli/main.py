"""The command line: find the command, run it, and tell what went wrong in a sentence."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from weft.cli.commands import build_parser, to_plain_words
from weft.cli.exit import Exit, exit_for
from weft.cli.paint import Paint
from weft.errors import WeftError


def run_command(arguments: Sequence[str], *, alone: bool = False) -> int:
    """Run one command. Whatever goes wrong is told with the way out, never with a traceback.

    A process that runs it and nothing else is `alone`: if it hangs when the work is done, it is ended.
    """
    arguments = to_plain_words(arguments)
    parser = build_parser(arguments)
    chosen = parser.parse_args(arguments)
    chosen.alone = alone
    named: str | None = getattr(chosen, "runs", None)
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
    except Exception as error:
        if os.environ.get("WEFT_DEBUG"):
            raise
        hint = "this is a fault of weft; WEFT_DEBUG=1 shows where it happened"
        complain(WeftError(f"something unexpected happened: {type(error).__name__}: {error}", hint=hint))
        return Exit.FAILED


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
