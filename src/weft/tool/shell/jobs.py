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
from weft.host.files import hold_lock
from weft.host.processes import ProcessCommand, ProcessOutput, run_command
from weft.host.tasks import open_tasks, run_to_completion
from weft.model.display import format_count
from weft.model.ids import SessionID
from weft.model.wire import encode, to_plain
from weft.tool.contract import Job, ToolContext, ToolResult
from weft.tool.inputs import JobsInput


async def jobs(arguments: JobsInput, ctx: ToolContext) -> ToolResult:
    await ctx.ask("jobs", arguments.stop or "*", always=("*",))
    session_jobs = ctx.resources.jobs
    if arguments.stop is None:
        listed = session_jobs.list(ctx.session_id)
        return _to_result(format_count(len(listed), "job"), listed)
    try:
        return _to_result(f"Stop {arguments.stop}", [await session_jobs.stop(ctx.session_id, arguments.stop)])
    except NotFoundError as error:
        ids = ", ".join(job.id for job in session_jobs.list(ctx.session_id)) or "none"
        raise ToolError(f"There is no job {arguments.stop!r} in this session; there are: {ids}.") from error


def _to_result(title: str, listed: list[Job]) -> ToolResult:
    metadata: dict[str, Any] = {"jobs": [to_plain(job) for job in listed], "truncated": False}
    return ToolResult(title=title, output="\n".join(map(_format_job, listed)) or "No jobs", metadata=metadata)


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
    new = os.path.join(directory, "record.new")
    with hold_lock(os.path.join(directory, "lock")):
        with suppress(FileNotFoundError):
            os.unlink(new)  # whoever left it is dead: it held the lock of the directory
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(fd, encode(job))
            # It gets its name when it is locked: `list_running` takes a record that nobody holds for that of a dead process.
            os.rename(new, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(new)
            os.close(fd)
            raise
    return JobRecord(path=path, fd=fd)


def remove_record(record: JobRecord) -> None:
    """Remove the record of a job."""
    with suppress(OSError):
        os.unlink(record.path)
    os.close(record.fd)


def list_running(directory: str, session: SessionID | None = None) -> list[Job]:
    """Return the running jobs of one session or of all, of every process, oldest first."""
    running = [job for path in _list_paths(directory) if (job := _read_record(path)) is not None]
    return sorted((job for job in running if session in (None, job.session_id)), key=lambda job: job.started)


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


MAX_RUNNING_JOBS = 10


class _StartedJob(Struct, kw_only=True):
    """A job, and while it is running, its record and task."""

    job: Job
    record: JobRecord | None = None
    task: asyncio.Task[None] | None = None


class BackgroundJobs:
    """The background jobs of one directory. Other processes can list them by the records in `record_directory`, if set.

    Every process that a job started ends with the job. All jobs end when `open_jobs` is left or this process dies.
    """

    def __init__(self, tasks: asyncio.TaskGroup, clock: Clock, record_directory: str = "") -> None:
        self._tasks = tasks
        self._clock = clock
        self._record_directory = record_directory
        self._jobs: dict[str, _StartedJob] = {}

    async def start(self, job: Job, command: ProcessCommand) -> None:
        """Start a job. Raise `ToolError` if the session has too many, or if the record cannot be written."""
        running = [other for other in self.list(job.session_id) if other.ended is None]
        if len(running) >= MAX_RUNNING_JOBS:
            raise ToolError(
                f"There are {MAX_RUNNING_JOBS} jobs running in this session. Stop one of them first."
            )
        # It counts before its record is written: other jobs may be started, and all may be stopped, meanwhile.
        started_job = self._jobs[job.id] = _StartedJob(job=job)
        try:
            if self._record_directory:
                await run_to_completion(self._write_record(started_job))
        except OSError as error:
            self._jobs.pop(job.id, None)
            raise ToolError(f"The job could not be started: {error}") from error
        except asyncio.CancelledError:
            self._finish(started_job)
            raise
        if started_job.job.ended is None:
            started_job.task = self._tasks.create_task(self._run_job(started_job, command))
        else:
            self._finish(started_job)

    async def _write_record(self, started_job: _StartedJob) -> None:
        started_job.record = await asyncio.to_thread(write_record, self._record_directory, started_job.job)

    def list(self, session: SessionID) -> list[Job]:
        """Return the jobs of a session, oldest first, including those that have ended."""
        return [
            started_job.job for started_job in self._jobs.values() if started_job.job.session_id == session
        ]

    async def stop(self, session: SessionID, id: str) -> Job:
        """End a job with every process it started, if it is still running.

        Raise `NotFoundError` if the session has no such job.
        """
        started_job = self._jobs.get(id)
        if started_job is None or started_job.job.session_id != session:
            raise NotFoundError("job", id)
        if started_job.task is not None:
            started_job.task.cancel()
            await asyncio.wait([started_job.task])
        self._finish(started_job)  # it was stopped before it started
        return started_job.job

    async def end(self, *sessions: SessionID) -> None:
        """End the jobs of these sessions and forget them."""
        for started_job in [other for other in self._jobs.values() if other.job.session_id in sessions]:
            await self.stop(started_job.job.session_id, started_job.job.id)
            self._jobs.pop(started_job.job.id, None)

    async def close(self) -> None:
        await self.end(*{started_job.job.session_id for started_job in self._jobs.values()})

    async def _run_job(self, started_job: _StartedJob, command: ProcessCommand) -> None:
        # Keep nothing in memory: all output goes to the file, which exists from the start.
        output = ProcessOutput(lambda: started_job.job.output, memory=-1)
        code: int | None = None
        try:
            await output.add(b"")
            code = (await run_command(command, output.add)).code
        except OSError as error:
            await output.add(f"The command could not be run: {error}\n".encode())
        finally:
            output.close()
            self._finish(started_job, code)

    def _finish(self, started_job: _StartedJob, code: int | None = None) -> None:
        if started_job.job.ended is None:
            started_job.job = replace(started_job.job, ended=self._clock.now(), code=code)
        if started_job.record is not None:
            remove_record(started_job.record)
        started_job.record = started_job.task = None


@asynccontextmanager
async def open_jobs(clock: Clock, record_directory: str = "") -> AsyncIterator[BackgroundJobs]:
    """Open the background jobs of a directory. Leaving ends them all."""
    async with open_tasks() as tasks:
        jobs = BackgroundJobs(tasks, clock, record_directory)
        try:
            yield jobs
        finally:
            await jobs.close()
