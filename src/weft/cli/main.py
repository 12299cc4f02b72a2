"""Run one command of the command line, and report errors in a sentence instead of a traceback."""

import os
import sys
from collections.abc import Sequence

from weft.cli.commands import build_parser, import_function, normalise
from weft.cli.exit import ExitCode, to_exit_code
from weft.cli.output import Paint
from weft.errors import WeftError


def run_command(arguments: Sequence[str], *, alone: bool = False) -> int:
    """Run one command and return its exit code.

    `alone` says that this process does nothing else: if it hangs when the work is done, it may be killed.
    """
    arguments = normalise(arguments)
    parser = build_parser(arguments)
    args = parser.parse_args(arguments)
    args.alone = alone
    function: str | None = getattr(args, "command_function", None)
    if function is None:
        parser.print_help()
        return ExitCode.DONE
    try:
        code: int = import_function(function)(args)
    except WeftError as error:
        return report_error(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output closed the pipe, as `head` does. Without this, Python would report it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except Exception as error:
        if os.environ.get("WEFT_DEBUG"):
            raise
        hint = "this is a bug in weft; WEFT_DEBUG=1 shows where it happened"
        report_error(WeftError(f"something unexpected happened: {type(error).__name__}: {error}", hint=hint))
        return ExitCode.FAILED
    return code


def report_error(error: WeftError) -> int:
    """Print an error with its hint, and return the exit code for it."""
    paint = Paint(sys.stderr)
    print(f"{paint.red('error:')} {error}", file=sys.stderr)
    if error.hint:
        print(f"       {error.hint}", file=sys.stderr)
    return to_exit_code(error)
