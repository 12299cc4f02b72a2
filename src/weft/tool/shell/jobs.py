"""Background commands: each belongs to a session, is listed, and ends with it at the latest."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from weft.errors import NotFoundError, ToolError
from weft.host.clock import Clock
from weft.host.processes import Command, Output, run
from weft.host.tasks import open_tasks, undivided
from weft.model.ids import SessionID
from weft.model.readable import plural
from weft.model.wire import encode, to_plain
from weft.tool.contract import Job, Tool, ToolContext, ToolResult
from weft.tool.description import about


class JobsInput(Struct, frozen=True, kw_only=True):
    stop: Annotated[str | None, Meta(description="The id of a job to stop; leave it out to list them.")] = (
        None
    )


async def jobs(wanted: JobsInput, ctx: ToolContext) -> ToolResult:
    await ctx.ask("jobs", wanted.stop or "*", always=("*",))
    held = ctx.desk.jobs
    if wanted.stop is None:
        found = held.list(ctx.session_id)
        return _told(plural(len(found), "job"), found)
    try:
        return _told(f"Stop {wanted.stop}", [await held.stop(ctx.session_id, wanted.stop)])
    except NotFoundError as error:
        known = ", ".join(job.id for job in held.list(ctx.session_id)) or "none"
        raise ToolError(f"There is no job {wanted.stop!r} in this session; there are: {known}.") from error


def _told(title: str, found: list[Job]) -> ToolResult:
    metadata: dict[str, Any] = {"jobs": [to_plain(job) for job in found], "truncated": False}
    return ToolResult(title=title, output="\n".join(map(_line, found)) or "No jobs", metadata=metadata)


def _line(job: Job) -> str:
    if job.ended is None:
        state = "running"
    else:
        state = "stopped" if job.code is None else f"ended with exit code {job.code}"
    return f"{job.id}  {state}  {job.description}\n  command: {job.command}\n  output: {job.output}"


JOBS = Tool(name="jobs", about=about("jobs"), takes=JobsInput, run=jobs)


class Entry(Struct, frozen=True, kw_only=True):
    """A line of the roll in our hands."""

    path: str
    fd: int


def enter(directory: str, job: Job) -> Entry:
    """Put a job on the roll. Blocks."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = os.path.join(directory, f"{job.session_id}.{job.id}.json")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.write(fd, encode(job))
    return Entry(path=path, fd=fd)


def strike(entry: Entry) -> None:
    """Take it off."""
    with suppress(OSError):
        os.unlink(entry.path)
    os.close(entry.fd)


def list_running(directory: str, session: SessionID | None = None) -> list[Job]:
    """The jobs that run right now, of one session or of all, oldest first."""
    found = [job for path in _paths(directory) if (job := _read(path)) is not None]
    return sorted((job for job in found if session in (None, job.session_id)), key=lambda job: job.started)


def _paths(directory: str) -> Iterator[str]:
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        yield from (entry.path for entry in entries if entry.name.endswith(".json"))


def _read(path: str) -> Job | None:
    """None when nobody holds it any more; such a line goes."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        with suppress(msgspec.DecodeError, OSError):
            return msgspec.json.decode(os.pread(fd, 1 << 20, 0), type=Job)
        return None
    else:
        with suppress(OSError):
            os.unlink(path)
        return None
    finally:
        os.close(fd)


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
