"""`weft acp`: sessions for editors, over standard input and output."""

import argparse
import asyncio
import os
import stat
import sys
from asyncio.streams import FlowControlMixin
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from typing import TextIO

from msgspec.structs import replace

from weft.api.editor import EditorWorkspace
from weft.cli.arguments import add_store
from weft.cli.exit import ExitCode
from weft.cli.follow import StopSignals
from weft.cli.output import Paint, sanitize
from weft.errors import InvalidInputError, UnsupportedError, WeftError
from weft.host.exit import ExitTimer
from weft.local.api import LocalApi
from weft.local.open import OpenOptions, open_directory
from weft.version import VERSION


def add_acp_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--cwd",
        metavar="PATH",
        default=".",
        help="the directory for editors that name none (default: the current one)",
    )
    add_store(parser, memory=True)
    # OpenCode also listens for HTTP here, and takes these options. We do not, and ignore them.
    for flag in ("--port", "--hostname"):
        add(flag, help=argparse.SUPPRESS)
    add("--mdns", action="store_true", help=argparse.SUPPRESS)
    add("--cors", nargs="+", action="extend", help=argparse.SUPPRESS)


def serve_acp(args: argparse.Namespace) -> int:
    if find_spec("acp") is None:
        raise UnsupportedError(
            "the Agent Client Protocol, without its package", hint="in weft's checkout: pip install '.[acp]'"
        )
    args.cwd = os.path.realpath(args.cwd)
    check_pipe("standard input", sys.stdin)
    check_pipe("standard output", sys.stdout)
    # Standard output is for messages of the protocol alone: anything that is printed goes to standard error.
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    exit_timer = ExitTimer(own_process=args.own_process)
    try:
        return asyncio.run(_serve(args, out, exit_timer))
    finally:
        exit_timer.disarm_if_idle()


async def _serve(args: argparse.Namespace, out: int, exit_timer: ExitTimer) -> int:
    from weft.acp.agent import AgentSetup  # noqa: PLC0415  the protocol's package is optional and slow to import
    from weft.acp.connection import serve_editor  # noqa: PLC0415  it needs the optional package

    def open_for_editor(directory: str, editor: EditorWorkspace) -> AbstractAsyncContextManager[LocalApi]:
        options = OpenOptions(directory=directory, env=os.environ, store=args.store, can_ask=True, warn=warn)
        return open_directory(replace(options, editor=editor))

    setup = AgentSetup(
        open=open_for_editor,
        default_directory=args.cwd,
        note=print_note,
        version=VERSION,
    )
    reader, writer = await connect_pipes(out)
    stop = StopSignals(exit_timer)
    try:
        with stop.listening():
            await serve_editor(setup, reader, writer)
    except asyncio.CancelledError:
        if stop.signal is None:
            raise
    # The SDK treats a cancellation as the end of its input, so a signal may look like an editor that hung up.
    code = ExitCode.DONE if stop.signal is None else 128 + stop.signal
    stop.exit_soon(code)
    return code


def check_pipe(name: str, stream: TextIO | None) -> None:
    """Raise `InvalidInputError` unless asyncio can wait for this stream: files and `/dev/null` never report that they are ready."""
    if stream is not None:
        mode = os.fstat(stream.fileno()).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty():
            return
    raise InvalidInputError(name, "it is not a pipe", hint="weft acp is started by an editor")


async def connect_pipes(out: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a reader of standard input and a writer to the file descriptor `out`."""
    from weft.acp.connection import MAX_LINE_BYTES  # noqa: PLC0415  it needs the optional package

    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    pipe, protocol = await loop.connect_write_pipe(FlowControlMixin, os.fdopen(out, "wb"))
    return reader, asyncio.StreamWriter(pipe, protocol, reader, loop)


def warn(warning: WeftError) -> None:
    print_note(f"warning: {warning}{f' ({warning.hint})' if warning.hint else ''}")


def print_note(line: str) -> None:
    """Print one line for the log of the editor."""
    print(Paint(sys.stderr).dim(sanitize(line).replace("\n", " ")), file=sys.stderr, flush=True)
