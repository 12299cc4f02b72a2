"""Terminals of this process: each runs in its own task and keeps a bounded history."""

import asyncio
import os
import shutil
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from msgspec.structs import replace

from weft.errors import ConflictError, InvalidInputError, NotFoundError
from weft.host.processes import Command
from weft.host.tasks import open_tasks
from weft.host.terminal import Terminal, open_terminal
from weft.model.event import Event
from weft.model.ids import Mint, PtyID, checked
from weft.model.wire import to_plain
from weft.model.workspace import Pty, PtyChange, PtyInput
from weft.model.workspace_event import PtyCreated, PtyDeleted, PtyExited, PtyUpdated

MOST: Final = 32
HELD_BYTES: Final = 2 << 20
PIECE: Final = 1 << 16
MOST_ARGUMENTS: Final = 1000
SHELL: Final = "/bin/sh"
TOLD: Final = {"TERM": "xterm-256color", "WEFT_TERMINAL": "1", "OPENCODE_TERMINAL": "1"}

Tell = Callable[[Event], Awaitable[None]]


class Scroll:
    """What a terminal said, the last so much of it, for any number of readers at their own pace."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._start = self._end = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self.closed = False

    def put(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._end += len(piece)
        while self._end - self._start > HELD_BYTES and len(self._pieces) > 1:
            self._start += len(self._pieces.popleft())
        self._wake()

    def close(self) -> None:
        self.closed = True
        self._wake()

    async def read(self, position: int) -> tuple[bytes, int]:
        """What stands from a position on, and where to go on; nothing when it is over."""
        while position >= self._end:
            if self.closed:
                return b"", position
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.add(waiting)
            try:
                await waiting
            finally:
                self._waiting.discard(waiting)
        at = max(position, self._start)
        found = b"".join(self._pieces)[at - self._start :][:PIECE]
        return found, at + len(found)

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)


class Held:
    """A terminal we keep: what is told of it, what it said, and the way to it while it runs."""

    def __init__(self, info: Pty) -> None:
        self.info = info
        self.scroll = Scroll()
        self.terminal: Terminal | None = None
        self.task: asyncio.Task[None] | None = None


class OpenScreen:
    """One look at a terminal."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._position = 0

    async def read(self) -> bytes:
        found, self._position = await self._held.scroll.read(self._position)
        return found

    async def write(self, typed: bytes) -> None:
        if self._held.terminal is not None:
            await self._held.terminal.write(typed)


class OpenTerminals:
    """`Terminals` below a directory. Open it with `open_terminals`."""

    def __init__(
        self, directory: str, environment: Mapping[str, str], mint: Mint, tell: Tell, tasks: asyncio.TaskGroup
    ) -> None:
        self._directory = directory
        self._environment = environment
        self._mint = mint
        self._tell = tell
        self._tasks = tasks
        self._held: dict[PtyID, Held] = {}

    async def list_ptys(self) -> list[Pty]:
        return [held.info for held in self._held.values()]

    async def create_pty(self, input: PtyInput) -> Pty:
        self._make_room()
        command = await asyncio.to_thread(self._command, input)
        id = self._mint.pty()
        info = Pty(
            id=id,
            title=input.title or f"Terminal {id[-4:]}",
            command=command.argv[0],
            args=command.argv[1:],
            cwd=command.directory,
            status="running",
            pid=0,
        )
        held = Held(info)
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        held.task = self._tasks.create_task(self._keep(held, command, started))
        try:
            await started
        except OSError as error:
            raise InvalidInputError("command", f"it cannot be started: {error.strerror}") from error
        self._held[id] = held
        await self._tell(PtyCreated(info=to_plain(held.info)))
        return held.info

    async def get_pty(self, id: PtyID) -> Pty:
        return self._get(id).info

    async def update_pty(self, id: PtyID, change: PtyChange) -> Pty:
        held = self._get(id)
        if change.title is not None:
            held.info = replace(held.info, title=change.title)
        if change.size is not None and held.terminal is not None:
            held.terminal.resize(change.size.rows, change.size.cols)
        await self._tell(PtyUpdated(info=to_plain(held.info)))
        return held.info

    async def remove_pty(self, id: PtyID) -> None:
        held = self._get(id)
        del self._held[id]
        if held.task is not None:
            held.task.cancel()
            await asyncio.wait([held.task])
        await self._tell(PtyDeleted(id=id))

    @asynccontextmanager
    async def open_screen(self, id: PtyID) -> AsyncIterator[OpenScreen]:
        yield OpenScreen(self._get(id))

    def close(self) -> None:
        for held in self._held.values():
            if held.task is not None:
                held.task.cancel()

    def _get(self, id: PtyID) -> Held:
        held = self._held.get(PtyID(checked("pty", id)))
        if held is None:
            raise NotFoundError("terminal", id)
        return held

    def _make_room(self) -> None:
        ended = [id for id, held in self._held.items() if held.terminal is None]
        for id in ended[: max(0, len(self._held) + 1 - MOST)]:
            del self._held[id]
        if len(self._held) >= MOST:
            raise ConflictError("terminal", "more", f"cannot be opened: there are {MOST}", hint="close one")

    def _command(self, input: PtyInput) -> Command:
        program = input.command or self._environment.get("SHELL") or SHELL
        # OpenCode puts `-l` behind whatever arguments were given, where a shell takes it for one of the command's.
        usual = ("-l",) if program.endswith("sh") else ()
        directory = os.path.join(self._directory, input.cwd or "")
        if len(input.args or ()) + len(input.env or ()) > MOST_ARGUMENTS:
            raise InvalidInputError("args", "there are too many")
        try:
            if not os.path.isdir(directory):
                raise InvalidInputError("cwd", "it is not a directory")
        except ValueError as error:
            raise InvalidInputError("cwd", "it is not a path") from error
        environment = {**self._environment, **TOLD, **(input.env or {})}
        if not _is_there(program, directory, environment.get("PATH")):
            raise InvalidInputError("command", f"there is no program {program[:80]!r}")
        if any(not name or "=" in name for name in input.env or ()):
            raise InvalidInputError("env", "a variable needs a name, without =")
        return Command(
            argv=(program, *(usual if input.args is None else input.args)),
            directory=os.path.normpath(directory),
            environment=environment,
        )

    async def _keep(self, held: Held, command: Command, started: asyncio.Future[None]) -> None:
        try:
            async with open_terminal(command) as terminal:
                held.terminal = terminal
                held.info = replace(held.info, pid=terminal.pid)
                started.set_result(None)
                code = await self._attend(held, terminal)
            held.info = replace(held.info, status="exited", exit_code=code)
            await self._tell(PtyExited(id=held.info.id, exit_code=code))
        except OSError as error:
            if not started.done():
                started.set_exception(error)
        finally:
            held.terminal = None
            held.scroll.close()
            if not started.done():
                started.cancel()

    async def _attend(self, held: Held, terminal: Terminal) -> int:
        """Hear it until the program has ended, and all that it said by then."""
        listening = self._tasks.create_task(self._listen(held, terminal))
        try:
            return await terminal.over()
        finally:
            listening.cancel()
            await asyncio.wait([listening])
            if rest := terminal.read_rest():
                held.scroll.put(rest)

    async def _listen(self, held: Held, terminal: Terminal) -> None:
        while piece := await _heard(terminal):
            held.scroll.put(piece)
            await asyncio.sleep(0)  # one that never pauses must not keep everybody else from the loop


def _is_there(program: str, directory: str, path: str | None) -> bool:
    """Whether it can be started from a directory: by its path, or as one of those on the `PATH`."""
    try:
        named = os.path.join(directory, program) if os.sep in program else program
        return shutil.which(named, path=path) is not None
    except ValueError:  # a NUL in it, or half a character
        return False


async def _heard(terminal: Terminal) -> bytes:
    try:
        return await terminal.read()
    except OSError:
        return b""  # a terminal that cannot be read is one that says nothing


@asynccontextmanager
async def open_terminals(
    directory: str, environment: Mapping[str, str], mint: Mint, tell: Tell
) -> AsyncIterator[OpenTerminals]:
    """No terminal outlives this."""
    async with open_tasks() as tasks:
        terminals = OpenTerminals(directory, environment, mint, tell, tasks)
        try:
            yield terminals
        finally:
            terminals.close()
