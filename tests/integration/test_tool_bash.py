"""bash with real processes; and the todo tools."""

import asyncio
import os
import resource
from pathlib import Path

import pytest

import weft
from weft.errors import DeniedError, ToolError
from weft.model.session import Todo
from weft.testing import Script
from weft.testing.clock import HandClock
from weft.testing.tool_contract import AskedPermission, ToolHarness, list_processes
from weft.tool.contract import ToolResult
from weft.tool.registry import BASH, TODOREAD, TODOWRITE
from weft.tool.shell.bash import REPORT_INTERVAL_SECONDS, choose_shell


@pytest.fixture
def harness(tmp_path: Path) -> ToolHarness:
    directory = tmp_path / "project"
    directory.mkdir()
    return ToolHarness(directory, outside=tmp_path, environment={**os.environ, "SECRET_KEY": "s3cret"})


def size_of(path: str) -> int:
    return os.stat(path).st_size


async def test_a_command_runs_and_its_output_is_returned(harness: ToolHarness) -> None:
    assert await harness.call(BASH, command="echo hi; pwd", description="Greet") == ToolResult(
        title="Greet",
        output=f"hi\n{harness.directory}\n",
        metadata={
            "output": f"hi\n{harness.directory}\n",
            "exit": 0,
            "description": "Greet",
            "truncated": False,
        },
    )
    assert harness.asked == [
        AskedPermission(permission="bash", patterns=("echo hi", "pwd"), always=("echo *", "pwd *"))
    ]


async def test_a_failed_command_is_a_result_and_not_an_error(harness: ToolHarness) -> None:
    result = await harness.call(BASH, command="echo no >&2; exit 3", description="Fail")
    assert result.output == "no\n\n\n<bash_metadata>\nexit code 3\n</bash_metadata>"
    assert result.metadata["exit"] == 3


async def test_a_command_is_killed_at_its_timeout(harness: ToolHarness) -> None:
    result = await harness.call(BASH, command="echo hi; sleep 999", description="Wait", timeout=1000)
    assert result.output == (
        "hi\n\n\n<bash_metadata>\nbash tool terminated command after exceeding timeout 1000 ms\n</bash_metadata>"
    )
    assert list_processes(harness.directory) == []


@pytest.mark.parametrize(
    "child",
    [
        "setsid sleep 999",
        "(sleep 999 &)",
        "(setsid sleep 999 &)",
        "setsid sh -c '(sleep 999 &) ; sleep 999'",
        "trap '' TERM HUP INT; sleep 999",
    ],
)
async def test_everything_a_command_started_ends_at_its_timeout(harness: ToolHarness, child: str) -> None:
    result = await harness.call(
        BASH, command=f"( {child} ) & echo hi; sleep 999", description="Wait", timeout=500
    )
    assert result.output.startswith("hi\n")
    assert "exceeding timeout 500 ms" in result.output
    assert list_processes(harness.directory) == []


async def test_the_environment_sets_the_default_timeout(tmp_path: Path) -> None:
    env = {**os.environ, "OPENCODE_EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS": "50"}
    script = Script().calls("bash", command="sleep 999", description="Wait").says("ended")
    async with weft.open(tmp_path, model=script, store="memory:", env=env, permissions="allow") as agent:
        answer = await agent.ask("wait")
    [call] = answer.steps[0].calls
    assert "terminated command after exceeding timeout 50 ms" in call.output


async def test_a_child_that_keeps_the_pipe_open_blocks_nobody(harness: ToolHarness) -> None:
    async with asyncio.timeout(60):
        result = await harness.call(BASH, command="(setsid sleep 999 &); echo hi", description="Leave")
    assert result.output.startswith("hi\n")
    assert list_processes(harness.directory) == []


async def test_large_output_is_not_kept_in_memory(harness: ToolHarness) -> None:
    size = 100_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await harness.call(BASH, command=f"head -c {size} /dev/zero", description="Much")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert size_of(result.metadata["outputPath"]) == size
    assert len(result.output) < 60_000
    assert grown * 1024 < size / 4


async def test_background_processes_are_ended_with_a_notice(harness: ToolHarness) -> None:
    result = await harness.call(BASH, command="sleep 999 & echo hi", description="Leave")
    note = "1 background process(es) still running were ended with the command"
    assert result.output == f"hi\n\n\n<bash_metadata>\n{note}\n</bash_metadata>"
    assert list_processes(harness.directory) == []


async def test_an_aborted_command_keeps_its_output_and_leaves_no_process(harness: ToolHarness) -> None:
    calling = asyncio.ensure_future(
        harness.call(BASH, command="echo hi; (setsid sleep 999 &); sleep 999", description="Wait")
    )
    async with asyncio.timeout(60):
        while not any(each.get("output") for each in harness.metadata):  # noqa: ASYNC110  the harness only takes notes
            await asyncio.sleep(0.01)
        calling.cancel()
        await asyncio.wait([calling])
    assert calling.cancelled()
    aborted = "hi\n\n\n<bash_metadata>\nUser aborted the command\n</bash_metadata>"
    assert harness.metadata[-1] == {"output": aborted, "description": "Wait"}
    assert list_processes(harness.directory) == []


async def test_long_output_is_cut_with_a_notice_and_stored(harness: ToolHarness) -> None:
    result = await harness.call(BASH, command="yes | head -c 1000000", description="Much")
    path = result.metadata["outputPath"]
    assert result.metadata["truncated"] is True
    assert size_of(path) == 1_000_000
    assert result.output.startswith(
        "y\n" * 1999 + "y\n\n...996001 bytes truncated...\n\nThe tool call succeeded"
    )
    assert result.metadata["output"] == ("y\n" * 15_000) + "\n\n..."


async def test_many_short_lines_are_cut_and_notices_are_not(harness: ToolHarness) -> None:
    result = await harness.call(BASH, command="seq 5000; exit 1", description="Count")
    assert "\n2000\n\n...3001 lines truncated...\n\n" in result.output
    assert result.output.endswith("\n\n<bash_metadata>\nexit code 1\n</bash_metadata>")
    assert size_of(result.metadata["outputPath"]) == len("".join(f"{number}\n" for number in range(1, 5001)))


async def test_progress_is_reported_at_once_and_then_at_a_limited_rate(tmp_path: Path) -> None:
    harness = ToolHarness(tmp_path, outside=tmp_path, environment=os.environ, clock=HandClock())
    await harness.call(BASH, command="for i in $(seq 300); do echo $i; done", description="Count")
    # The clock stands still: after the first word nothing more may be reported.
    assert harness.metadata == [{"output": "", "description": "Count"}]


def test_output_is_reported_at_least_every_quarter_of_a_second() -> None:
    assert REPORT_INTERVAL_SECONDS <= 0.25, (
        "docs/guides/after-a-crash.md: a killed process loses no more than the last 250 ms of a command's output"
    )


async def test_a_command_does_not_get_our_keys(harness: ToolHarness) -> None:
    result = await harness.call(BASH, command="env", description="Look")
    assert "s3cret" not in result.output
    assert "PATH=" in result.output


async def test_a_command_runs_in_its_directory_and_needs_permission_outside_the_project(
    harness: ToolHarness, tmp_path: Path
) -> None:
    (harness.directory / "sub").mkdir()
    assert (
        await harness.call(BASH, command="pwd", description="", workdir="sub")
    ).output == f"{harness.directory}/sub\n"
    harness.asked.clear()
    harness.denied = {"external_directory"}
    with pytest.raises(DeniedError):
        await harness.call(BASH, command="pwd", description="", workdir=str(tmp_path))
    pattern = f"{tmp_path}/*"
    assert harness.asked == [
        AskedPermission(permission="external_directory", patterns=(pattern,), always=(pattern,))
    ]


async def test_a_command_that_cannot_be_run_is_an_error(harness: ToolHarness) -> None:
    with pytest.raises(ToolError, match="There is no directory"):
        await harness.call(BASH, command="pwd", description="", workdir="nowhere")
    with pytest.raises(ToolError, match="Invalid timeout value: -1"):
        await harness.call(BASH, command="pwd", description="", timeout=-1)
    with pytest.raises(ToolError, match="could not be run"):
        await harness.call(BASH, command="echo \0", description="")


def test_the_shell_of_the_person_is_used_if_models_can_write_for_it(tmp_path: Path) -> None:
    for name in ("fish", "mysh"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert choose_shell({"SHELL": str(tmp_path / "mysh")}) == str(tmp_path / "mysh")
    assert os.path.basename(choose_shell({"SHELL": str(tmp_path / "fish"), "PATH": os.environ["PATH"]})) in {
        "bash",
        "zsh",
        "sh",
    }
    assert choose_shell({"SHELL": "/nowhere/sh", "PATH": ""}) in {"/bin/sh", "/bin/zsh"}


async def test_todos_are_written_and_read(harness: ToolHarness) -> None:
    todos = [
        {"content": "one", "status": "completed", "priority": "high", "id": "1"},
        {"content": "two", "status": "pending", "priority": "low", "id": "2"},
    ]
    written = await harness.call(TODOWRITE, todos=todos)
    assert written == await harness.call(TODOREAD)
    assert (written.title, written.metadata) == ("1 todos", {"todos": todos, "truncated": False})
    assert written.output.startswith('[\n  {\n    "content": "one",')
    assert await harness.todos.read() == (
        Todo(content="one", status="completed", priority="high", id="1"),
        Todo(content="two", status="pending", priority="low", id="2"),
    )
    assert [asked.permission for asked in harness.asked] == ["todowrite", "todoread"]
