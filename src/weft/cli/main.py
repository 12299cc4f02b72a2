"""Run one command of the command line, and report errors in a sentence instead of a traceback."""

import argparse
import errno
import os
import sys
from collections.abc import Sequence

from weft.cli.commands import build_parser, import_function, normalise
from weft.cli.exit import ExitCode, to_exit_code
from weft.cli.output import Paint
from weft.errors import InvalidInputError, WeftError

# What a full disk, a full quota and a limit on the size of files answer.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def run_command(arguments: Sequence[str], *, own_process: bool = False) -> int:
    """Run one command and return its exit code.

    `own_process` says that this process does nothing else: if it hangs when the work is done, it may be killed.
    """
    arguments = normalise(arguments)
    if not arguments and sys.stdin.isatty() and sys.stdout.isatty():
        # At a terminal this opens a conversation. A script that forgot the command gets the help instead.
        arguments = ["chat"]
    try:
        args = parse_arguments(arguments)
        if args.command_function is None:  # `weft` or `weft session`: the command itself is missing
            args.command_parser.print_help()
            return ExitCode.USAGE if arguments else ExitCode.DONE
        # Not an option: the commands that start runs pass it on to their `ExitTimer`.
        args.own_process = own_process
        code: int = import_function(args.command_function)(args)
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
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            where = error.filename or "what this command prints"
            report_error(
                WeftError(
                    f"{where} cannot be written: {error.strerror}", hint="free some space and try again"
                )
            )
            return ExitCode.FAILED
        hint = "this is a bug in weft; WEFT_DEBUG=1 shows where it happened"
        report_error(WeftError(f"something unexpected happened: {type(error).__name__}: {error}", hint=hint))
        return ExitCode.FAILED
    return code


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line.

    Raise `NotFoundError` for a command that does not exist and `InvalidInputError` for any other mistake. The hint
    says what to type instead.
    """
    parser = build_parser(arguments)
    parser.set_defaults(command_function=None, command_parser=parser)
    try:
        args, leftover = parser.parse_known_args(arguments)
    except InvalidInputError as error:
        from weft.cli.mistake import find_wrong_command  # noqa: PLC0415  only a mistake needs it

        raise find_wrong_command(arguments) or error from None
    if leftover:
        from weft.cli.mistake import find_wrong_command, make_leftover_error  # noqa: PLC0415  only a mistake needs it

        raise find_wrong_command(arguments) or make_leftover_error(args.command_parser, leftover)
    return args


def report_error(error: WeftError) -> int:
    """Print an error with its hint, and return the exit code for it."""
    paint = Paint(sys.stderr)
    print(f"{paint.red('error:')} {error}", file=sys.stderr)
    if error.hint:
        print(f"       {error.hint}", file=sys.stderr)
    return to_exit_code(error)
