"""Run a child process that serves on its standard input and output, and end it with everything it started."""

import asyncio
import errno
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from weft.host.process_family import MARK, end_all
from weft.host.processes import KILL_SCRIPT, OnOutput, ProcessCommand
from weft.host.tasks import run_to_completion

READ_BYTES: Final = 1 << 16
REAP_SECONDS: Final = 5.0
# The limit for input that the child has not read.
MAX_UNREAD_BYTES: Final = 16 << 20

_STARTER: Final = f"""
( (
    exec <"/dev/fd/$2" >/dev/null 2>&1
    trap '' HUP INT TERM
    read -r _
{KILL_SCRIPT}
) & )
{MARK}=$1
export {MARK}
shift 2
exec "$@"
"""


class PipeProcess:
    """A running child process."""

    def __init__(self, process: asyncio.subprocess.Process, readers: Sequence[asyncio.Task[None]]) -> None:
        self._process = process
        self._input = process.stdin
        self._readers = readers

    def write(self, words: bytes) -> None:
        """Send data without waiting. Raise `OSError` if the process has ended or does not read."""
        if self._input is None or self._input.is_closing() or self._process.returncode is not None:
            raise BrokenPipeError(errno.EPIPE, "the process has ended")
        if self._input.transport.get_write_buffer_size() + len(words) > MAX_UNREAD_BYTES:
            raise BlockingIOError(errno.EAGAIN, "the process does not listen")
        self._input.write(words)

    async def wait(self) -> None:
        """Wait until the process ends by itself."""
        await self._process.wait()

    async def wait_for_output(self, seconds: float) -> None:
        """Wait until all output is read, but not longer than this: a grandchild may hold the pipes open."""
        await asyncio.wait(self._readers, timeout=seconds)


@asynccontextmanager
async def open_pipe_process(
    command: ProcessCommand, on_output: OnOutput, on_errors: OnOutput | None = None
) -> AsyncIterator[PipeProcess]:
    """Start a process and pass its output to `on_output`, its errors to `on_errors` if given.

    Leaving the block ends the process with everything it started. Raise `OSError` if it cannot be started.
    `command.timeout` is ignored: a server runs until it is ended.
    """
    token = secrets.token_hex(16)
    lifeline, ours = os.pipe()
    process: asyncio.subprocess.Process | None = None
    readers: list[asyncio.Task[None]] = []
    try:
        # Not cancellable: a half-started process would have nobody to end it.
        errors = asyncio.subprocess.PIPE if on_errors else asyncio.subprocess.DEVNULL
        process = await run_to_completion(_start(command, token, lifeline, errors))
        os.close(lifeline)
        lifeline = -1
        outputs = [(process.stdout, on_output), *([(process.stderr, on_errors)] if on_errors else [])]
        readers += [asyncio.ensure_future(_pump_output(*each)) for each in outputs]
        yield PipeProcess(process, readers)
    finally:
        if lifeline >= 0:
            os.close(lifeline)
        for each in readers:
            each.cancel()
        if readers:
            await asyncio.wait(readers)
        if process is not None:
            await run_to_completion(_end(process, token))
        os.close(ours)


async def _start(
    command: ProcessCommand, token: str, lifeline: int, errors: int
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _STARTER, f"weft:{token}", token, str(lifeline), *command.argv),
            cwd=command.directory,
            env=dict(command.environment),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            pass_fds=(lifeline,),
            start_new_session=True,
        )
    except ValueError as error:  # a NUL byte or half a surrogate pair in an argument
        raise OSError(errno.EINVAL, str(error)) from error


async def _pump_output(output: asyncio.StreamReader | None, on_output: OnOutput) -> None:
    while output is not None and (piece := await output.read(READ_BYTES)):
        await on_output(piece)


async def _end(process: asyncio.subprocess.Process, token: str) -> None:
    if process.stdin is not None:
        process.stdin.close()
    await asyncio.to_thread(end_all, process.pid, token)
    # A process stuck in the kernel cannot be killed; do not wait for it for ever.
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), REAP_SECONDS)
    if process.stdin is not None:
        with suppress(OSError):  # unread input is lost; a timeout is an OSError, too
            await asyncio.wait_for(process.stdin.wait_closed(), REAP_SECONDS)
    # Close the pipes here; the loop would do it later and with a warning.
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001  there is no public way
