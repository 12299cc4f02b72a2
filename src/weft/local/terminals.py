"""The terminals of this process. Each runs in its own task and keeps a bounded scrollback."""

import asyncio
import os
import shutil
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from msgspec.structs import replace

from weft.errors import ConflictError, InvalidInputError, NotFoundError
from weft.host.processes import ProcessCommand
from weft.host.terminal import PseudoTerminal, open_pseudo_terminal
from weft.model.event import Publish
from weft.model.ids import Mint, PtyID, check_id
from weft.model.wire import to_plain
from weft.model.workspace import Pty, PtyChange, PtyInput
from weft.model.workspace_event import PtyCreated, PtyDeleted, PtyExited, PtyUpdated

MAX_TERMINALS: Final = 32
MAX_SCROLLBACK_BYTES: Final = 2 << 20
READ_BYTES: Final = 1 << 16
MAX_ARGUMENTS: Final = 1000
DEFAULT_SHELL: Final = "/bin/sh"
TERMINAL_VARIABLES: Final = {"TERM": "xterm-256color", "WEFT_TERMINAL": "1", "OPENCODE_TERMINAL": "1"}


class Scrollback:
    """The last output of a terminal, for any number of readers at their own pace."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._start = self._end = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self.closed = False

    def put(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._end += len(piece)
        while self._end - self._start > MAX_SCROLLBACK_BYTES and len(self._pieces) > 1:
            self._start += len(self._pieces.popleft())
        self._wake()

    def close(self) -> None:
        self.closed = True
        self._wake()

    async def read(self, position: int) -> tuple[bytes, int]:
        """Wait for output after `position`. Return it with the next position, or empty bytes when the program has ended."""
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
        found = b"".join(self._pieces)[at - self._start :][:READ_BYTES]
        return found, at + len(found)

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)


class TerminalRecord:
    """A terminal: its public record, its scrollback and, while it runs, its process and task."""

    def __init__(self, info: Pty) -> None:
        self.info = info
        self.scrollback = Scrollback()
        self.terminal: PseudoTerminal | None = None
        self.task: asyncio.Task[None] | None = None


class LocalScreen:
    """A reader of one terminal."""

    def __init__(self, record: TerminalRecord) -> None:
        self._record = record
        self._position = 0

    async def read(self) -> bytes:
        found, self._position = await self._record.scrollback.read(self._position)
        return found

    async def write(self, typed: bytes) -> None:
        if self._record.terminal is not None:
            await self._record.terminal.write(typed)


class LocalTerminals:
    """The terminals of a directory, in tasks of the given group. `close` ends all of them."""

    def __init__(
        self,
        directory: str,
        environment: Mapping[str, str],
        mint: Mint,
        publish: Publish,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._directory = directory
        self._environment = environment
        self._mint = mint
        self._publish = publish
        self._tasks = tasks
        self._records: dict[PtyID, TerminalRecord] = {}
        self._starting = 0  # terminals that are not in the records yet

    async def list_ptys(self) -> list[Pty]:
        return [record.info for record in self._records.values()]

    async def create_pty(self, input: PtyInput) -> Pty:
        self._make_room()
        self._starting += 1
        try:
            record = await self._open(input)
        finally:
            self._starting -= 1
        self._records[record.info.id] = record
        await self._publish(PtyCreated(info=to_plain(record.info)))
        return record.info

    async def _open(self, input: PtyInput) -> TerminalRecord:
        """Start the program of a terminal. Raise `InvalidInputError` if it cannot be started."""
        command = await asyncio.to_thread(self._make_command, input)
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
        record = TerminalRecord(info)
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        record.task = self._tasks.create_task(self._run(record, command, started))
        try:
            await started
        except OSError as error:
            raise InvalidInputError("command", f"cannot be started: {error.strerror}") from error
        except asyncio.CancelledError:
            record.task.cancel()  # nobody else knows of it
            raise
        return record

    async def get_pty(self, id: PtyID) -> Pty:
        return self._get(id).info

    async def update_pty(self, id: PtyID, change: PtyChange) -> Pty:
        record = self._get(id)
        if change.title is not None:
            record.info = replace(record.info, title=change.title)
        if change.size is not None and record.terminal is not None:
            record.terminal.resize(change.size.rows, change.size.cols)
        await self._publish(PtyUpdated(info=to_plain(record.info)))
        return record.info

    async def remove_pty(self, id: PtyID) -> None:
        record = self._get(id)
        del self._records[id]
        if record.task is not None:
            record.task.cancel()
            await asyncio.wait([record.task])
        await self._publish(PtyDeleted(id=id))

    @asynccontextmanager
    async def open_screen(self, id: PtyID) -> AsyncIterator[LocalScreen]:
        yield LocalScreen(self._get(id))

    async def close(self) -> None:
        for record in self._records.values():
            if record.task is not None:
                record.task.cancel()

    def _get(self, id: PtyID) -> TerminalRecord:
        record = self._records.get(PtyID(check_id("pty", id)))
        if record is None:
            raise NotFoundError("terminal", id)
        return record

    def _make_room(self) -> None:
        ended = [id for id, record in self._records.items() if record.terminal is None]
        for id in ended[: max(0, len(self._records) + self._starting + 1 - MAX_TERMINALS)]:
            del self._records[id]
        if len(self._records) + self._starting >= MAX_TERMINALS:
            raise ConflictError(
                "terminal", "new", f"cannot be opened: {MAX_TERMINALS} are open", hint="close one"
            )

    def _make_command(self, input: PtyInput) -> ProcessCommand:
        program = input.command or self._environment.get("SHELL") or DEFAULT_SHELL
        # OpenCode appends `-l` to the given arguments, where a shell takes it as an argument of the command.
        default = ("-l",) if program.endswith("sh") else ()
        directory = os.path.join(self._directory, input.cwd or "")
        if len(input.args or ()) + len(input.env or ()) > MAX_ARGUMENTS:
            raise InvalidInputError("args", "too many arguments")
        try:
            if not os.path.isdir(directory):
                raise InvalidInputError("cwd", "not a directory")
        except ValueError as error:
            raise InvalidInputError("cwd", "not a valid path") from error
        environment = {**self._environment, **TERMINAL_VARIABLES, **(input.env or {})}
        if not _can_start(program, directory, environment.get("PATH")):
            raise InvalidInputError("command", f"there is no program {program[:80]!r}")
        if any(not name or "=" in name for name in input.env or ()):
            raise InvalidInputError("env", "a variable needs a name, without =")
        return ProcessCommand(
            argv=(program, *(default if input.args is None else input.args)),
            directory=os.path.normpath(directory),
            environment=environment,
        )

    async def _run(
        self, record: TerminalRecord, command: ProcessCommand, started: asyncio.Future[None]
    ) -> None:
        try:
            async with open_pseudo_terminal(command) as terminal:
                if started.cancelled():
                    return
                record.terminal = terminal
                record.info = replace(record.info, pid=terminal.pid)
                started.set_result(None)
                code = await self._read_until_exit(record, terminal)
            record.info = replace(record.info, status="exited", exit_code=code)
            await self._publish(PtyExited(id=record.info.id, exit_code=code))
        except OSError as error:
            if not started.done():
                started.set_exception(error)
        finally:
            record.terminal = None
            record.scrollback.close()
            if not started.done():
                started.cancel()

    async def _read_until_exit(self, record: TerminalRecord, terminal: PseudoTerminal) -> int:
        """Collect the output until the program has ended. Return its exit code."""
        reading = self._tasks.create_task(self._listen(record, terminal))
        try:
            return await terminal.wait()
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            if rest := terminal.read_rest():
                record.scrollback.put(rest)

    async def _listen(self, record: TerminalRecord, terminal: PseudoTerminal) -> None:
        while piece := await _read_output(terminal):
            record.scrollback.put(piece)
            await asyncio.sleep(0)  # a program that never pauses must not block the event loop


def _can_start(program: str, directory: str, path: str | None) -> bool:
    """Return True if the program exists: as a path relative to `directory`, or on the `PATH`."""
    try:
        named = os.path.join(directory, program) if os.sep in program else program
        return shutil.which(named, path=path) is not None
    except ValueError:  # a NUL or a lone surrogate in the name
        return False


async def _read_output(terminal: PseudoTerminal) -> bytes:
    try:
        return await terminal.read()
    except OSError:
        return b""  # a terminal that cannot be read has no more output
