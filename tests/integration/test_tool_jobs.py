"""Background commands with real processes: they are listed, stopped, and ended with their session."""

import asyncio
import fcntl
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from given.engine import PLACE, open_engine, text_prompt
from weft.errors import NotFoundError, ToolError
from weft.host.clock import SystemClock
from weft.host.processes import ProcessCommand
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.wire import to_plain
from weft.provider.scripted import Say, UseTool
from weft.testing.tool_contract import ToolHarness, list_processes
from weft.tool.contract import Job
from weft.tool.registry import BASH, JOBS
from weft.tool.shell.jobs import (
    MAX_RUNNING_JOBS,
    BackgroundJobs,
    list_running,
    open_jobs,
    remove_record,
    write_record,
)

OTHER = SessionID("ses_other")


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[BackgroundJobs]:
    async with open_jobs(SystemClock(), str(tmp_path / "roll")) as opened:
        yield opened


@pytest.fixture
def harness(tmp_path: Path, jobs: BackgroundJobs) -> ToolHarness:
    directory = tmp_path / "project"
    directory.mkdir()
    made = ToolHarness(directory, outside=tmp_path, environment=os.environ)
    made.resources = replace(made.resources, jobs=jobs)
    return made


async def start_job(harness: ToolHarness, command: str) -> Job:
    result = await harness.call(BASH, command=command, description="Go on", background=True)
    (job,) = [
        each for each in harness.resources.jobs.list(harness.context().session_id) if each.id in result.output
    ]
    assert result.metadata == {
        "output": "",
        "description": "Go on",
        "job": to_plain(replace(job, ended=None, code=None)),
        "truncated": False,
    }
    return job


async def wait_for_end(jobs: BackgroundJobs, job: Job) -> Job:
    """Wait for a job to end, and return it."""
    async with asyncio.timeout(60):
        while True:
            (found,) = [each for each in jobs.list(job.session_id) if each.id == job.id]
            if found.ended is not None:
                return found
            await asyncio.sleep(0.01)


def output_of(job: Job) -> str:
    path = Path(job.output)
    return path.read_text() if path.exists() else ""


async def wait_for_output(job: Job, words: str) -> None:
    """Wait until a job has printed a text."""
    async with asyncio.timeout(60):
        while words not in output_of(job):  # noqa: ASYNC110  it is another process that says so
            await asyncio.sleep(0.01)


async def wait_for_process_in(directory: Path) -> None:
    """Wait until a process runs in a directory."""
    async with asyncio.timeout(60):
        while not list_processes(directory):  # noqa: ASYNC110  it is another process that begins
            await asyncio.sleep(0.01)


async def test_a_job_continues_after_its_call_returned(harness: ToolHarness, jobs: BackgroundJobs) -> None:
    job = await start_job(harness, "echo up; sleep 999")
    await wait_for_output(job, "up\n")
    listed = await harness.call(JOBS)
    assert listed.output == (
        f"{job.id}  running  Go on\n  command: echo up; sleep 999\n  output: {job.output}"
    )
    stopped = await harness.call(JOBS, stop=job.id)
    assert stopped.output.startswith(f"{job.id}  stopped  Go on\n")
    assert list_processes(harness.directory) == []
    assert [asked.permission for asked in harness.asked] == ["bash", "jobs", "jobs"]


async def test_a_finished_job_reports_its_exit_code(harness: ToolHarness, jobs: BackgroundJobs) -> None:
    job = await wait_for_end(jobs, await start_job(harness, "echo over >&2; exit 3"))
    assert (job.code, output_of(job)) == (3, "over\n")
    assert (await harness.call(JOBS)).output.startswith(f"{job.id}  ended with exit code 3  Go on")


async def test_a_background_job_has_a_timeout_only_on_request(
    harness: ToolHarness, jobs: BackgroundJobs
) -> None:
    result = await harness.call(BASH, command="sleep 999", description="Wait", background=True, timeout=1)
    (job,) = jobs.list(harness.context().session_id)
    assert job.id in result.output
    assert (await wait_for_end(jobs, job)).code == 128 + signal.SIGTERM
    assert list_processes(harness.directory) == []


async def test_a_detached_process_is_ended_with_its_job(harness: ToolHarness, jobs: BackgroundJobs) -> None:
    job = await start_job(harness, "(setsid sleep 999 &); (sleep 999 &); echo up; sleep 999")
    await wait_for_output(job, "up\n")
    await jobs.stop(job.session_id, job.id)
    assert list_processes(harness.directory) == []


async def test_a_session_sees_and_stops_its_own_jobs_only(harness: ToolHarness, jobs: BackgroundJobs) -> None:
    job = await start_job(harness, "sleep 999")
    assert jobs.list(OTHER) == []
    with pytest.raises(NotFoundError):
        await jobs.stop(OTHER, job.id)
    with pytest.raises(ToolError, match=f"there are: {job.id}"):
        await harness.call(JOBS, stop="job_nobody")


async def test_jobs_end_with_their_session_and_with_the_process_that_opened_them(
    harness: ToolHarness, tmp_path: Path
) -> None:
    async with open_jobs(SystemClock()) as opened:
        harness.resources = replace(harness.resources, jobs=opened)
        first = await start_job(harness, "sleep 999")
        await opened.end(OTHER)
        assert opened.list(first.session_id) == [first]
        await opened.end(first.session_id)
        assert (opened.list(first.session_id), list_processes(harness.directory)) == ([], [])
        await start_job(harness, "sleep 999")
    assert list_processes(harness.directory) == []


async def test_the_number_of_jobs_of_a_session_is_limited(harness: ToolHarness) -> None:
    for _ in range(MAX_RUNNING_JOBS):
        await start_job(harness, "sleep 999")
    with pytest.raises(ToolError, match="Stop one of them first"):
        await harness.call(BASH, command="sleep 999", description="One more", background=True)


async def test_the_limit_also_holds_for_jobs_that_are_started_at_once(harness: ToolHarness) -> None:
    starts = [start_job(harness, "sleep 60") for _ in range(MAX_RUNNING_JOBS + 3)]
    outcomes = await asyncio.gather(*starts, return_exceptions=True)
    assert [type(each) for each in outcomes].count(ToolError) == 3


@pytest.mark.parametrize("turns", range(5))
async def test_a_job_whose_call_is_cancelled_while_it_starts_does_not_run(
    jobs: BackgroundJobs, tmp_path: Path, turns: int
) -> None:
    job = Job(id="job_1", session_id=OTHER, command="x", description="", output=f"{tmp_path}/x", started=1)
    command = ProcessCommand(argv=("sleep", "60"), directory=str(tmp_path), environment=os.environ)
    starting = asyncio.ensure_future(jobs.start(job, command))
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    if starting.cancelled():
        assert [each for each in jobs.list(job.session_id) if each.ended is None] == []
        assert list_running(str(tmp_path / "roll")) == []


async def test_a_job_that_is_stopped_while_it_starts_does_not_run(
    jobs: BackgroundJobs, tmp_path: Path
) -> None:
    job = Job(id="job_1", session_id=OTHER, command="x", description="", output=f"{tmp_path}/x", started=1)
    command = ProcessCommand(argv=("sleep", "60"), directory=str(tmp_path), environment=os.environ)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(jobs.start(job, command))
        await asyncio.sleep(0)
        await jobs.end(job.session_id)
    assert (jobs.list(job.session_id), list_running(str(tmp_path / "roll"))) == ([], [])


async def test_other_processes_can_list_running_jobs(
    harness: ToolHarness, jobs: BackgroundJobs, tmp_path: Path
) -> None:
    roll = str(tmp_path / "roll")
    job = await start_job(harness, "sleep 999")
    assert list_running(roll) == [job]
    assert list_running(roll, job.session_id) == [job]
    assert list_running(roll, OTHER) == []
    await jobs.stop(job.session_id, job.id)
    assert list_running(roll) == []


def test_records_of_dead_processes_are_removed(tmp_path: Path) -> None:
    job = Job(id="job_1", session_id=OTHER, command="x", description="", output="/x", started=1)
    entry = write_record(str(tmp_path), job)
    assert list_running(str(tmp_path)) == [job]
    os.close(os.dup(entry.fd))
    left = tmp_path / "ses_other.job_2.json"
    left.write_text("{}")
    assert list_running(str(tmp_path)) == [job]
    assert not left.exists()
    remove_record(entry)
    assert list_running(str(tmp_path / "nowhere")) == []


def test_a_record_that_is_just_being_written_is_not_removed_by_whoever_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(id="job_1", session_id=OTHER, command="x", description="", output="/x", started=1)
    lock, listing = fcntl.flock, False

    def list_before_locking(fd: int, operation: int) -> None:
        nonlocal listing
        if not listing:
            listing = True
            assert list_running(str(tmp_path)) == []
            listing = False
        lock(fd, operation)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", list_before_locking)
        record = write_record(str(tmp_path), job)
    assert list_running(str(tmp_path)) == [job]
    remove_record(record)


def test_a_record_that_a_dead_process_did_not_finish_is_removed_by_the_next_one(tmp_path: Path) -> None:
    job = Job(id="job_1", session_id=OTHER, command="x", description="", output="/x", started=1)
    left = tmp_path / "record.new"
    left.write_text("{")
    assert list_running(str(tmp_path)) == []
    record = write_record(str(tmp_path), job)
    assert list_running(str(tmp_path)) == [job]
    remove_record(record)
    assert [each.name for each in tmp_path.iterdir()] == ["lock"]


def test_a_record_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    job = Job(id="job_1", session_id=OTHER, command="x", description="", output="/x", started=1)
    (tmp_path / f"{OTHER}.job_1.json").mkdir()
    with pytest.raises(OSError, match="job_1"):
        write_record(str(tmp_path), job)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["lock", f"{OTHER}.job_1.json"]


async def test_aborting_or_removing_a_session_ends_its_jobs(tmp_path: Path) -> None:
    place = replace(PLACE, directory=str(tmp_path), worktree=str(tmp_path))
    call = UseTool(tool="bash", input={"command": "sleep 999", "description": "Wait", "background": True})
    async with open_engine(
        [call],
        [Say(text="done")],
        [call],
        [Say(text="done")],
        tools=(BASH, JOBS),
        place=place,
        tool_output=str(tmp_path / "out"),
    ) as engine:
        session = await engine.api.create_session(SessionInput())
        await engine.api.prompt(session.id, text_prompt("go"))
        await wait_for_process_in(tmp_path)
        assert await engine.api.abort(session.id) is False
        assert list_processes(tmp_path) == []
        await engine.api.prompt(session.id, text_prompt("again"))
        await wait_for_process_in(tmp_path)
        await engine.api.remove_session(session.id)
        assert list_processes(tmp_path) == []
        offered = [[tool.name for tool in request.tools] for request in engine.provider.requests]
    assert offered[:2] == [["bash"], ["bash", "jobs"]]
