"""`weft acp`: sessions for editors, over standard input and output."""

import argparse
import asyncio
import os
import stat
import sys
from asyncio.streams import FlowControlMixin
from importlib.util import find_spec
from typing import TextIO

from msgspec.structs import replace

from weft.acp.connection import LONGEST_LINE
from weft.cli.exit import Exit
from weft.cli.paint import Paint, plain
from weft.cli.running.stop import Stop
from weft.errors import InvalidInputError, UnsupportedError, WeftError
from weft.host.exit import LastResort
from weft.local.open import Opening, open_app
from weft.outlook import EditorWorkspace
from weft.version import VERSION


def acp(chosen: argparse.Namespace) -> int:
    if find_spec("acp") is None:
        raise UnsupportedError(
            "the Agent Client Protocol, without its package", hint="install it: pip install 'weft[acp]'"
        )
    chosen.cwd = os.path.realpath(chosen.cwd)
    check_pipe("standard input", sys.stdin)
    check_pipe("standard output", sys.stdout)
    # What anybody prints from here on is no message of the protocol: it goes where the log goes.
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    last_resort = LastResort(alone=chosen.alone)
    try:
        return asyncio.run(_serve(chosen, out, last_resort))
    finally:
        last_resort.rest()


async def _serve(chosen: argparse.Namespace, out: int, last_resort: LastResort) -> int:
    from weft.acp.agent import Setup  # noqa: PLC0415  the protocol's package is an extra, and takes a second to import
    from weft.acp.connection import serve_editor  # noqa: PLC0415

    def opening(directory: str, editor: EditorWorkspace) -> Opening:
        usual = Opening(directory=directory, env=os.environ, store=chosen.store, answered=True, warn=warn)
        return replace(usual, editor=editor)

    setup = Setup(
        open=lambda directory, editor: open_app(opening(directory, editor)),
        here=chosen.cwd,
        note=note,
        version=VERSION,
    )
    reader, writer = await open_pipes(out)
    stop = Stop(last_resort)
    try:
        with stop.listening():
            await serve_editor(setup, reader, writer)
    except asyncio.CancelledError:
        if stop.signal is None:
            raise
    # The SDK takes being cancelled for the end of its input: a signal may look like an editor that hung up.
    code = Exit.DONE if stop.signal is None else 128 + stop.signal
    stop.done(code)
    return code


def check_pipe(name: str, stream: TextIO | None) -> None:
    """Raise `InvalidInputError` unless one can wait for this stream: a file and `/dev/null` never say that they are ready."""
    if stream is not None:
        mode = os.fstat(stream.fileno()).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty():
            return
    raise InvalidInputError(name, "it is no pipe", hint="weft acp is started by an editor")


async def open_pipes(out: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=LONGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    pipe, protocol = await loop.connect_write_pipe(FlowControlMixin, os.fdopen(out, "wb"))
    return reader, asyncio.StreamWriter(pipe, protocol, reader, loop)


def warn(warning: WeftError) -> None:
    note(f"warning: {warning}{f' ({warning.hint})' if warning.hint else ''}")


def note(line: str) -> None:
    """One line for whoever looks at the editor's log."""
    print(Paint(sys.stderr).dim(plain(line).replace("\n", " ")), file=sys.stderr, flush=True)
