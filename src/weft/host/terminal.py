"""Run a program in a pseudo-terminal, and end it with everything it started.

As with other children, a watcher on a lifeline pipe ends everything if we die. The starter opens the terminal itself:
the first terminal that a session leader opens becomes its controlling terminal, with job control.
"""

import asyncio
import errno
import fcntl
import os
import secrets
import struct
import termios
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from weft.host.process_family import MARK, end_all
from weft.host.processes import KILL_SCRIPT, ProcessCommand
from weft.host.tasks import run_to_completion

READ_BYTES: Final = 1 << 16
REAP_SECONDS: Final = 5.0
SIGNAL_EXIT_BASE: Final = 128
NO_SUCH_PROGRAM: Final = 127
INPUT_SECONDS: Final = 3.0

_STARTER: Final = f"""
( (
    exec <"/dev/fd/$2" >/dev/null 2>&1
    trap '' HUP INT TERM
    read -r _
{KILL_SCRIPT}
) & )
{MARK}=$1
export {MARK}
exec <>"$3" >&0 2>&1
shift 3
exec "$@"
"""


class PseudoTerminal:
    """Our side of a terminal."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._write_lock = asyncio.Lock()
        self.process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0

    def resize(self, rows: int, cols: int) -> None:
        """Set the size of the terminal, and notify the program (SIGWINCH)."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    async def write(self, data: bytes) -> None:
        """Send input as if it were typed. Wait while the terminal's buffer is full."""
        view = memoryview(data)
        async with self._write_lock:
            while view:
                try:
                    view = view[os.write(self._master, view) :]
                except BlockingIOError:
                    await self._wait_until_ready(writing=True)

    async def read(self) -> bytes:
        """Return the next output; no bytes when no program is left."""
        while True:
            try:
                return os.read(self._master, READ_BYTES)
            except BlockingIOError:
                await self._wait_until_ready()
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                return b""

    def read_rest(self) -> bytes:
        """Return the output that is left after the program ended, without waiting."""
        pieces: list[bytes] = []
        with suppress(OSError):  # would block, or no program is left: that was all
            while len(pieces) < READ_BYTES and (piece := os.read(self._master, READ_BYTES)):
                pieces.append(piece)
        return b"".join(pieces)

    async def wait(self) -> int:
        """Wait until the program ends by itself; return its exit code as a shell reports it."""
        assert self.process is not None
        code = await self.process.wait()
        return code if code >= 0 else SIGNAL_EXIT_BASE - code

    async def _wait_until_ready(self, *, writing: bool = False) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()

        def set_ready() -> None:
            if not ready.done():
                ready.set_result(None)

        watch: Callable[..., None] = loop.add_writer if writing else loop.add_reader
        watch(self._master, set_ready)
        try:
            await ready
        finally:
            (loop.remove_writer if writing else loop.remove_reader)(self._master)


@asynccontextmanager
async def open_pseudo_terminal(
    command: ProcessCommand, *, rows: int = 24, cols: int = 80
) -> AsyncIterator[PseudoTerminal]:
    """Start a program in a pseudo-terminal. Leaving ends it with everything it started.

    Raise `OSError` if it cannot be started. `command.timeout` is ignored.
    """
    token = secrets.token_hex(16)
    lifeline, ours = os.pipe()
    master, slave = os.openpty()
    terminal = PseudoTerminal(master)
    try:
        os.set_blocking(master, False)
        terminal.resize(rows, cols)
        # Not cancellable, and stored by the coroutine itself: nobody else could end the process if we are cancelled meanwhile.
        await run_to_completion(_start(terminal, command, token, lifeline, os.ttyname(slave)))
        yield terminal
    finally:
        if terminal.process is not None:
            await run_to_completion(_end(terminal.process, token))
        for fd in (lifeline, slave, master, ours):
            os.close(fd)


async def _start(
    terminal: PseudoTerminal, command: ProcessCommand, token: str, lifeline: int, name: str
) -> None:
    try:
        terminal.process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _STARTER, f"weft:{token}", token, str(lifeline), name, *command.argv),
            cwd=command.directory,
            env=dict(command.environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=(lifeline,),
            start_new_session=True,
        )
    except ValueError as error:  # a NUL byte or half a surrogate pair in an argument
        raise OSError(errno.EINVAL, str(error)) from error


async def _end(process: asyncio.subprocess.Process, token: str) -> None:
    await asyncio.to_thread(end_all, process.pid, token)
    # A process stuck in the kernel cannot be killed; do not wait for it for ever.
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), REAP_SECONDS)


async def run_in_terminal(argv: Sequence[str]) -> int:
    """Run a program that has the terminal to itself, such as an editor. Return its exit code; 127 if there is no such program."""
    try:
        process = await asyncio.create_subprocess_exec(*argv)
    except OSError:
        return NO_SUCH_PROGRAM
    return await process.wait()


async def run_with_input(argv: Sequence[str], text: str) -> bool:
    """Run a program with text as its input. Return False if it is not installed, fails, or takes too long."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    try:
        async with asyncio.timeout(INPUT_SECONDS):
            await process.communicate(text.encode())
    except TimeoutError:
        process.kill()
        await process.wait()
        return False
    return process.returncode == 0
