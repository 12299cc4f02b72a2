"""Commands that go on in the background: each belongs to a session, is listed, and ends with it at the latest."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import NotFoundError, ToolError
from weft.host.clock import Clock
from weft.host.process import Command, Output, run
from weft.host.tasks import open_tasks
from weft.host.undivided import undivided
from weft.model.ids import SessionID
from weft.tool.job import Job
from weft.tool.shell.roll import Entry, enter, strike

MOST = 10


class _Held(Struct, kw_only=True):
    """A job, and while it runs the task that sees it through."""

    job: Job
    entry: Entry | None
    task: asyncio.Task[None] | None = None


class Background:
    """Those of one directory. With a `roll`, other processes can see which are running.

    Whatever a job started ends with it, and all of them end when `open_jobs` is left or this process dies.
    """

    def __init__(self, tasks: asyncio.TaskGroup, clock: Clock, roll: str = "") -> None:
        self._tasks = tasks
        self._clock = clock
        self._roll = roll
        self._held: dict[str, _Held] = {}

    async def start(self, job: Job, command: Command) -> None:
        """Raises `ToolError` when the session has enough of them, or it cannot be written down."""
        running = [each for each in self.list(job.session_id) if each.ended is None]
        if len(running) >= MOST:
            raise ToolError(f"There are {MOST} jobs running in this session. Stop one of them first.")
        try:
            entry = await undivided(asyncio.to_thread(enter, self._roll, job)) if self._roll else None
        except OSError as error:
            raise ToolError(f"The job could not be started: {error}") from error
        held = _Held(job=job, entry=entry)
        self._held[job.id] = held
        held.task = self._tasks.create_task(self._see_through(held, command))

    def list(self, session: SessionID) -> list[Job]:
        """The jobs of a session, oldest first, those that have ended too."""
        return [held.job for held in self._held.values() if held.job.session_id == session]

    async def stop(self, session: SessionID, id: str) -> Job:
        """End a job with all that it started, if it has not ended yet."""
        held = self._held.get(id)
        if held is None or held.job.session_id != session:
            raise NotFoundError("job", id)
        if held.task is not None:
            held.task.cancel()
            await asyncio.wait([held.task])
            self._note_end(held)  # one that was stopped before it began
        return held.job

    async def end(self, *sessions: SessionID) -> None:
        """These sessions are over, and their jobs with them."""
        for held in [each for each in self._held.values() if each.job.session_id in sessions]:
            await self.stop(held.job.session_id, held.job.id)
            self._held.pop(held.job.id, None)

    async def close(self) -> None:
        await self.end(*{held.job.session_id for held in self._held.values()})

    async def _see_through(self, held: _Held, command: Command) -> None:
        # Nothing of it in memory: all that it says goes to the file, which is there from the beginning.
        output = Output(lambda: held.job.output, memory=-1)
        code: int | None = None
        try:
            await output.hear(b"")
            code = (await run(command, output.hear)).code
        except OSError as error:
            await output.hear(f"The command could not be run: {error}\n".encode())
        finally:
            output.close()
            self._note_end(held, code)

    def _note_end(self, held: _Held, code: int | None = None) -> None:
        if held.job.ended is None:
            held.job = replace(held.job, ended=self._clock.now(), code=code)
        if held.entry is not None:
            strike(held.entry)
        held.entry = held.task = None


@asynccontextmanager
async def open_jobs(clock: Clock, roll: str = "") -> AsyncIterator[Background]:
    async with open_tasks() as tasks:
        jobs = Background(tasks, clock, roll)
        try:
            yield jobs
        finally:
            await jobs.close()
