"""Child processes: their output is read, they are limited, and none is left behind."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from weft.host.processes import (
    CapturedOutput,
    CommandRecord,
    ProcessCommand,
    ProcessExit,
    ProcessOutput,
    capture_output,
    claim_record,
    run_command,
    tool_environment,
)
from weft.testing.tool_contract import list_processes

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

ENVIRONMENT = tool_environment(os.environ)
# Only against a hang: the test is that it returns at all.
GUARD_SECONDS = 60


@pytest.fixture(autouse=True)
async def guard() -> AsyncIterator[None]:
    async with asyncio.timeout(GUARD_SECONDS):
        yield


def shell(script: str, directory: Path, timeout: float | None = None) -> ProcessCommand:
    return ProcessCommand(
        argv=("bash", "-c", script), directory=str(directory), environment=ENVIRONMENT, timeout=timeout
    )


async def run_and_collect(
    script: str, directory: Path, seconds: float | None = None
) -> tuple[ProcessExit, str]:
    said = bytearray()

    async def hear(piece: bytes) -> None:
        said.extend(piece)

    async with asyncio.timeout(GUARD_SECONDS):
        exit = await run_command(shell(script, directory, seconds), hear)
    return exit, said.decode()


async def test_both_outputs_are_read_in_order(tmp_path: Path) -> None:
    assert await run_and_collect("echo one; echo two >&2; echo three", tmp_path) == (
        ProcessExit(code=0),
        "one\ntwo\nthree\n",
    )


async def test_the_exit_code_is_returned(tmp_path: Path) -> None:
    assert await run_and_collect("exit 7", tmp_path) == (ProcessExit(code=7), "")


async def test_a_process_has_no_stdin(tmp_path: Path) -> None:
    assert await run_and_collect("cat; echo done", tmp_path) == (ProcessExit(code=0), "done\n")


async def test_arguments_are_passed_unchanged(tmp_path: Path) -> None:
    awkward = ("a b", "$HOME", "'", '"', "", "--", "\n")
    argv = (sys.executable, "-c", "import sys; print(sys.argv[1:])", *awkward)
    command = ProcessCommand(argv=argv, directory=str(tmp_path), environment=ENVIRONMENT)
    assert await capture_output(command, limit=1000) == CapturedOutput(
        code=0, output=f"{list(awkward)}\n".encode(), errors=""
    )


async def test_output_at_the_very_end_is_read(tmp_path: Path) -> None:
    exit, said = await run_and_collect("head -c 60000 /dev/zero | tr '\\0' x", tmp_path)
    assert (exit, len(said)) == (ProcessExit(code=0), 60000)


@pytest.mark.parametrize(
    "script",
    [
        "sleep 999 & echo started",
        "setsid sleep 999 & echo started",
        "(setsid sleep 999 &); echo started",
        "set -m; sleep 999 & echo started",
        "nohup sleep 999 >/dev/null 2>&1 & disown; echo started",
        "(trap '' TERM HUP; sleep 999) & echo started",
    ],
)
async def test_background_processes_are_ended_and_counted(script: str, tmp_path: Path) -> None:
    exit, said = await run_and_collect(script, tmp_path)
    assert said == "started\n"
    assert exit.code == 0
    assert exit.leftovers > 0
    assert list_processes(tmp_path) == []


@pytest.mark.parametrize(
    "script",
    [
        "sleep 999",
        "trap '' TERM; sleep 999",
        "setsid sleep 999 & sleep 999",
        "(setsid bash -c 'trap \"\" TERM; sleep 999' &); sleep 999",
        "env -i setsid sleep 999 & sleep 999",
        "yes",
        "kill -STOP $$",
    ],
)
async def test_a_timeout_ends_everything(script: str, tmp_path: Path) -> None:
    exit, _ = await run_and_collect(f"echo started; {script}", tmp_path, seconds=0.2)
    assert exit.timed_out
    assert list_processes(tmp_path) == []


async def test_output_before_the_timeout_is_read(tmp_path: Path) -> None:
    exit, said = await run_and_collect("echo first; sleep 999", tmp_path, seconds=3)
    assert (exit.timed_out, said) == (True, "first\n")


@pytest.mark.parametrize(
    "script", ["sleep 999", "setsid sleep 999 & wait", "(setsid sleep 999 &); sleep 999"]
)
async def test_cancelling_ends_everything(script: str, tmp_path: Path) -> None:
    started = asyncio.Event()

    async def hear(piece: bytes) -> None:
        started.set()

    running = asyncio.ensure_future(run_command(shell(f"echo started; {script}", tmp_path), hear))
    await started.wait()
    running.cancel()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert list_processes(tmp_path) == []


async def test_a_detached_process_is_found_while_it_executes_a_program(tmp_path: Path) -> None:
    """In the middle of `execve` a process has no environment; one that executes again and again often has none."""
    (tmp_path / "again.sh").write_text("exec sh again.sh\n")
    for _ in range(10):
        await run_and_collect("(setsid sh again.sh &); sleep 0.02", tmp_path)
        assert list_processes(tmp_path) == []


async def test_an_exception_of_the_listener_ends_everything_and_is_raised(tmp_path: Path) -> None:
    async def hear(piece: bytes) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        await run_command(shell("echo hello; sleep 999", tmp_path), hear)
    assert list_processes(tmp_path) == []


async def test_no_file_handle_is_left_open(tmp_path: Path) -> None:
    await run_and_collect("true", tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await run_and_collect("sleep 999 & echo x", tmp_path, seconds=5)
    assert len(os.listdir("/proc/self/fd")) == before


SERVER = """
import asyncio, os, sys
from weft.host.processes import ProcessCommand, run_command, tool_environment

async def hear(piece):
    os.write(1, piece)

script = "(setsid sleep 999 &); sleep 999 & echo started; sleep 999"
asyncio.run(run_command(ProcessCommand(argv=("bash", "-c", script), directory=sys.argv[1], environment=tool_environment(os.environ)), hear))
"""


async def test_no_process_survives_a_killed_server(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER, str(work)), stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    assert await server.stdout.readline() == b"started\n"
    assert list_processes(work) != []
    server.send_signal(signal.SIGKILL)
    await server.communicate()
    while list_processes(work):  # noqa: ASYNC110  nobody tells of processes that start or end
        await asyncio.sleep(0.01)


async def test_large_output_is_stored_in_a_file_and_not_in_memory(tmp_path: Path) -> None:
    size = 100_000_000
    spilled = tmp_path / "spilled"
    output = ProcessOutput(lambda: str(spilled), memory=50_000)
    exit = await run_command(shell(f"yes | head -c {size}", tmp_path), output.add)
    output.close()
    assert (exit.code, output.size, output.path, output.lost) == (0, size, str(spilled), 0)
    assert output.head == b"y\n" * 25_000
    assert spilled.stat().st_size == size
    assert spilled.stat().st_mode & 0o777 == 0o600


async def test_the_file_is_bounded_too(tmp_path: Path) -> None:
    spilled = tmp_path / "spilled"
    output = ProcessOutput(lambda: str(spilled), memory=10, limit=1000)
    await run_command(shell("yes | head -c 5000", tmp_path), output.add)
    output.close()
    assert (output.size, output.lost, spilled.stat().st_size) == (5000, 4000, 1000)


async def test_a_file_that_cannot_be_written_loses_output_and_not_the_command(tmp_path: Path) -> None:
    output = ProcessOutput(lambda: str(tmp_path / "nowhere/spilled"), memory=10)
    exit = await run_command(shell("yes | head -c 50", tmp_path), output.add)
    assert (exit.code, bytes(output.head), output.lost) == (0, b"y\n" * 5, 40)


async def test_output_that_is_cancelled_while_it_is_written_is_kept(tmp_path: Path) -> None:
    began, go_on = threading.Event(), threading.Event()

    def choose_slowly() -> str:
        began.set()
        go_on.wait(10)
        return str(tmp_path / "spilled")

    output = ProcessOutput(choose_slowly, memory=4)
    adding = asyncio.create_task(output.add(b"abcdef"))
    await asyncio.to_thread(began.wait)
    adding.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait([adding])
    await output.add(b"ghi")
    output.close()
    assert (bytes(output.head), (tmp_path / "spilled").read_bytes()) == (b"abcd", b"abcdefghi")


async def test_small_output_creates_no_file(tmp_path: Path) -> None:
    output = ProcessOutput(lambda: str(tmp_path / "spilled"), memory=10)
    await run_command(shell("echo hi", tmp_path), output.add)
    output.close()
    assert (bytes(output.head), output.path) == (b"hi\n", None)


async def test_captured_errors_are_separate_and_bounded(tmp_path: Path) -> None:
    both = await capture_output(shell("echo out; echo err >&2; exit 3", tmp_path), limit=100)
    assert both == CapturedOutput(code=3, output=b"out\n", errors="err\n")
    endless = await capture_output(shell("yes", tmp_path), limit=4)
    assert endless == CapturedOutput(code=None, output=b"y\ny\n", errors="", cut=True)
    assert list_processes(tmp_path) == []


async def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await run_and_collect("true", tmp_path / "nowhere")


async def test_a_child_gets_the_allowed_environment_and_no_key(tmp_path: Path) -> None:
    source = {
        "PATH": os.environ["PATH"],
        "LC_ALL": "C",
        "ANTHROPIC_API_KEY": "secret",
        "HTTPS_PROXY": "http://me:secret@proxy.example:3128",
        "MINE": "1",
        "PWD": "/x",
    }
    seen = tool_environment(source, extra=["MINE"])
    assert seen == {
        "PATH": os.environ["PATH"],
        "LC_ALL": "C",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "MINE": "1",
    }
    captured = await capture_output(
        ProcessCommand(argv=("env",), directory=str(tmp_path), environment=seen), limit=10_000
    )
    assert b"secret" not in captured.output
    assert b"MINE=1" in captured.output


async def run_supervised(
    script: str, directory: Path, seconds: float | None = None
) -> tuple[ProcessExit, str, str]:
    """Run a command under a supervisor. Return how it ended, what it said, and what was recorded."""
    said, record = bytearray(), directory / "record"

    async def hear(piece: bytes) -> None:
        said.extend(piece)

    exit = await run_command(replace(shell(script, directory, seconds), record=str(record)), hear)
    return exit, said.decode(), record.read_text()


@pytest.mark.parametrize(
    ("script", "code", "output"),
    [
        ("echo one; echo two >&2", 0, "one\ntwo\n"),
        ("exit 3", 3, ""),
        ("kill -9 $$", 137, ""),
        ("kill -TERM $$; sleep 600", 143, ""),
        ("echo $WEFT_CHILD | wc -c; env | grep -c _weft_; ls /proc/$$/fd; true", 0, "33\n0\n0\n1\n2\n"),
        ("trap 'echo heard; exit 5' TERM; kill -TERM 0; exit 4", 5, "heard\n"),
    ],
)
async def test_a_supervisor_records_the_exit_code_and_changes_nothing_else(
    tmp_path: Path, script: str, code: int, output: str
) -> None:
    assert await run_supervised(script, tmp_path) == (ProcessExit(code=code), output, f"{code}\n")


async def test_a_supervised_command_is_ended_at_its_timeout_with_all_its_children(tmp_path: Path) -> None:
    script = "trap 'echo ends; exit 1' TERM; sleep 600 & setsid sleep 600 & wait"
    exit, said, _ = await run_supervised(script, tmp_path, 0.5)
    assert (exit.timed_out, said) == (True, "ends\n")
    assert list_processes(tmp_path) == []


async def test_a_supervised_command_leaves_nothing_behind(tmp_path: Path) -> None:
    exit, _, recorded = await run_supervised("sleep 600 & echo begun", tmp_path)
    assert (exit, recorded) == (ProcessExit(code=0, leftovers=1), "0\n")
    assert list_processes(tmp_path) == []


async def test_a_command_whose_record_was_claimed_does_not_start(tmp_path: Path) -> None:
    record = tmp_path / "record"
    assert claim_record(str(record)) == CommandRecord(began=False)
    exit, said, _ = await run_supervised("echo ran", tmp_path)
    assert exit.code
    assert "ran" not in said
    assert claim_record(str(record)) == CommandRecord(began=False)


def test_a_record_made_after_a_claim_does_not_count(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.touch()
    assert claim_record(str(record)) == CommandRecord(began=True)
    record.write_text(record.read_text() + "143\n")
    assert claim_record(str(record)) == CommandRecord(began=True)
    record.write_text("0\n")
    assert claim_record(str(record)) == CommandRecord(began=True, code=0)
