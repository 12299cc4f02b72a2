"""A child process that serves on its standard input and output, and ends with all it started."""

import asyncio
import errno
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from weft.host.processes import MARK, Command, Hear, end_all
from weft.host.tasks import undivided

PIECE: Final = 1 << 16
REAP_SECONDS: Final = 5.0
# How much may lie unread with a child that does not listen.
UNREAD: Final = 16 << 20

_STARTER: Final = f"""
( (
    exec <"/dev/fd/$2" >/dev/null 2>&1
    trap '' HUP INT TERM
    read -r _
    for found in $(grep -lszF "{MARK}=$1" /proc/[0-9]*/environ); do
        found=${{found#/proc/}}
        kill -KILL "${{found%/environ}}"
    done
    kill -KILL -- -$$
) & )
{MARK}=$1
export {MARK}
shift 2
exec "$@"
"""


class Talk:
    """Our side of the conversation."""

    def __init__(self, process: asyncio.subprocess.Process, listening: Sequence[asyncio.Task[None]]) -> None:
        self._process = process
        self._input = process.stdin
        self._listening = listening

    def say(self, words: bytes) -> None:
        """Send something; it is on its way when this returns. Raises `OSError` when nobody listens any more."""
        if self._input is None or self._input.is_closing() or self._process.returncode is not None:
            raise BrokenPipeError(errno.EPIPE, "the process has ended")
        if self._input.transport.get_write_buffer_size() + len(words) > UNREAD:
            raise BlockingIOError(errno.EAGAIN, "the process does not listen")
        self._input.write(words)

    async def over(self) -> None:
        """Wait until it has ended of itself."""
        await self._process.wait()

    async def heard_out(self, seconds: float) -> None:
        """Wait until all it said is heard; not for longer than this, since what it started may hold its pipes."""
        await asyncio.wait(self._listening, timeout=seconds)


@asynccontextmanager
async def open_talk(command: Command, hear: Hear, hear_errors: Hear | None = None) -> AsyncIterator[Talk]:
    """Start a process and hear what it says, its errors only if somebody wants to. Leaving ends it and everything it
    started.

    Raises `OSError` if it cannot be started. `command.timeout` does not count: a server has no end of its own.
    """
    token = secrets.token_hex(16)
    lifeline, ours = os.pipe()
    process: asyncio.subprocess.Process | None = None
    listening: list[asyncio.Task[None]] = []
    try:
        # Undivided: cancelled half way, it would be running with nobody to end it.
        errors = asyncio.subprocess.PIPE if hear_errors else asyncio.subprocess.DEVNULL
        process = await undivided(_start(command, token, lifeline, errors))
        os.close(lifeline)
        lifeline = -1
        heard = [(process.stdout, hear), *([(process.stderr, hear_errors)] if hear_errors else [])]
        listening += [asyncio.ensure_future(_listen(*each)) for each in heard]
        yield Talk(process, listening)
    finally:
        if lifeline >= 0:
            os.close(lifeline)
        for each in listening:
            each.cancel()
        if listening:
            await asyncio.wait(listening)
        if process is not None:
            await undivided(_end(process, token))
        os.close(ours)


async def _start(command: Command, token: str, lifeline: int, errors: int) -> asyncio.subprocess.Process:
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
    except ValueError as error:  # a NUL, or half a character, in a word
        raise OSError(errno.EINVAL, str(error)) from error


async def _listen(output: asyncio.StreamReader | None, hear: Hear) -> None:
    while output is not None and (piece := await output.read(PIECE)):
        await hear(piece)


async def _end(process: asyncio.subprocess.Process, token: str) -> None:
    if process.stdin is not None:
        process.stdin.close()
    await asyncio.to_thread(end_all, process.pid, token)
    # A process stuck in the kernel cannot even be killed; nobody is to wait for it for ever.
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), REAP_SECONDS)
    if process.stdin is not None:
        with suppress(
            OSError
        ):  # what it had not yet read is lost, and nobody's business; a timeout is one, too
            await asyncio.wait_for(process.stdin.wait_closed(), REAP_SECONDS)
    # The pipes are ours to close; the loop would, with a warning, some time later.
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001  there is no other way to it
