"""Background commands, and the `jobs` tool that lists and stops them.

Each job belongs to a session and ends with it at the latest.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.errors import NotFoundError, ToolError
from weft.host.clock import Clock
from weft.host.processes import ProcessCommand, ProcessOutput, run_command
from weft.host.tasks import open_tasks, run_to_completion
from weft.model.display import format_count
from weft.model.ids import SessionID
from weft.model.wire import encode, to_plain
from weft.tool.contract import Job, ToolContext, ToolResult
from weft.tool.inputs import JobsInput


async def jobs(wanted: JobsInput, ctx: ToolContext) -> ToolResult:
    await ctx.ask("jobs", wanted.stop or "*", always=("*",))
    held = ctx.resources.jobs
    if wanted.stop is None:
        found = held.list(ctx.session_id)
        return _to_result(format_count(len(found), "job"), found)
    try:
        return _to_result(f"Stop {wanted.stop}", [await held.stop(ctx.session_id, wanted.stop)])
    except NotFoundError as error:
        known = ", ".join(job.id for job in held.list(ctx.session_id)) or "none"
        raise ToolError(f"There is no job {wanted.stop!r} in this session; there are: {known}.") from error


def _to_result(title: str, found: list[Job]) -> ToolResult:
    metadata: dict[str, Any] = {"jobs": [to_plain(job) for job in found], "truncated": False}
    return ToolResult(title=title, output="\n".join(map(_format_job, found)) or "No jobs", metadata=metadata)


def _format_job(job: Job) -> str:
    if job.ended is None:
        state = "running"
    else:
        state = "stopped" if job.code is None else f"ended with exit code {job.code}"
    return f"{job.id}  {state}  {job.description}\n  command: {job.command}\n  output: {job.output}"


class JobRecord(Struct, frozen=True, kw_only=True):
    """The record file of a running job. It is locked while the job runs."""

    path: str
    fd: int


def write_record(directory: str, job: Job) -> JobRecord:
    """Write and lock the record of a job. This blocks."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = os.path.join(directory, f"{job.session_id}.{job.id}.json")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.write(fd, encode(job))
    return JobRecord(path=path, fd=fd)


def remove_record(entry: JobRecord) -> None:
    """Remove the record of a job."""
    with suppress(OSError):
        os.unlink(entry.path)
    os.close(entry.fd)


def list_running(directory: str, session: SessionID | None = None) -> list[Job]:
    """Return the jobs of all processes that are running now, of one session or of all, oldest first."""
    found = [job for path in _list_paths(directory) if (job := _read_record(path)) is not None]
    return sorted((job for job in found if session in (None, job.session_id)), key=lambda job: job.started)


def _list_paths(directory: str) -> Iterator[str]:
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        yield from (entry.path for entry in entries if entry.name.endswith(".json"))


def _read_record(path: str) -> Job | None:
    """Return the job of a record. If nobody holds its lock, the job has ended: remove the record and return None."""
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


MAX_RUNNING = 10


class _StartedJob(Struct, kw_only=True):
    """A job, and while it is running, its record and task."""

    job: Job
    entry: JobRecord | None
    task: asyncio.Task[None] | None = None


class BackgroundJobs:
    """The background jobs of one directory. With `roll`, a directory for records, other processes can list them.

    Every process that a job started ends with the job. All jobs end when `open_jobs` is left or this process dies.
    """

    def __init__(self, tasks: asyncio.TaskGroup, clock: Clock, roll: str = "") -> None:
        self._tasks = tasks
        self._clock = clock
        self._roll = roll
        self._held: dict[str, _StartedJob] = {}

    async def start(self, job: Job, command: ProcessCommand) -> None:
        """Start a job. Raise `ToolError` if the session has too many, or if the record cannot be written."""
        running = [each for each in self.list(job.session_id) if each.ended is None]
        if len(running) >= MAX_RUNNING:
            raise ToolError(f"There are {MAX_RUNNING} jobs running in this session. Stop one of them first.")
        try:
            entry = (
                await run_to_completion(asyncio.to_thread(write_record, self._roll, job))
                if self._roll
                else None
            )
        except OSError as error:
            raise ToolError(f"The job could not be started: {error}") from error
        held = _StartedJob(job=job, entry=entry)
        self._held[job.id] = held
        held.task = self._tasks.create_task(self._see_through(held, command))

    def list(self, session: SessionID) -> list[Job]:
        """Return the jobs of a session, oldest first, including those that have ended."""
        return [held.job for held in self._held.values() if held.job.session_id == session]

    async def stop(self, session: SessionID, id: str) -> Job:
        """End a job with every process it started, if it is still running.

        Raise `NotFoundError` if the session has no such job.
        """
        held = self._held.get(id)
        if held is None or held.job.session_id != session:
            raise NotFoundError("job", id)
        if held.task is not None:
            held.task.cancel()
            await asyncio.wait([held.task])
            self._note_end(held)  # it was stopped before it started
        return held.job

    async def end(self, *sessions: SessionID) -> None:
        """End the jobs of these sessions and forget them."""
        for held in [each for each in self._held.values() if each.job.session_id in sessions]:
            await self.stop(held.job.session_id, held.job.id)
            self._held.pop(held.job.id, None)

    async def close(self) -> None:
        await self.end(*{held.job.session_id for held in self._held.values()})

    async def _see_through(self, held: _StartedJob, command: ProcessCommand) -> None:
        # Keep nothing in memory: all output goes to the file, which exists from the start.
        output = ProcessOutput(lambda: held.job.output, memory=-1)
        code: int | None = None
        try:
            await output.add(b"")
            code = (await run_command(command, output.add)).code
        except OSError as error:
            await output.add(f"The command could not be run: {error}\n".encode())
        finally:
            output.close()
            self._note_end(held, code)

    def _note_end(self, held: _StartedJob, code: int | None = None) -> None:
        if held.job.ended is None:
            held.job = replace(held.job, ended=self._clock.now(), code=code)
        if held.entry is not None:
            remove_record(held.entry)
        held.entry = held.task = None


@asynccontextmanager
async def open_jobs(clock: Clock, roll: str = "") -> AsyncIterator[BackgroundJobs]:
    """Open the background jobs of a directory. Leaving ends them all."""
    async with open_tasks() as tasks:
        jobs = BackgroundJobs(tasks, clock, roll)
        try:
            yield jobs
        finally:
            await jobs.close()
