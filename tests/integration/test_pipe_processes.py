"""Processes that exchange lines with us over pipes: they are read, answered, and never left behind."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from weft.host.pipes import open_pipe_process
from weft.host.processes import ProcessCommand
from weft.testing.tool_contract import list_processes


class OutputRecorder:
    """Records output."""

    def __init__(self) -> None:
        self.heard = b""
        self._news = asyncio.Event()

    async def hear(self, piece: bytes) -> None:
        self.heard += piece
        self._news.set()

    async def wait_for(self, words: bytes) -> None:
        while words not in self.heard:
            self._news.clear()
            await self._news.wait()


def shell(script: str, directory: Path) -> ProcessCommand:
    return ProcessCommand(
        argv=("sh", "-c", script),
        directory=str(directory),
        environment={"PATH": os.environ["PATH"], "MINE": "1"},
    )


async def test_a_process_reads_what_is_written_and_its_output_is_heard(tmp_path: Path) -> None:
    ear = OutputRecorder()
    async with open_pipe_process(shell("echo $MINE; exec cat", tmp_path), ear.hear) as talk:
        talk.write(b"hello ")
        talk.write(b"there")
        await ear.wait_for(b"hello there")
    assert ear.heard == b"1\nhello there"


@pytest.mark.parametrize(
    "script", ["cat", "trap '' TERM; echo started; sleep 999", "setsid sleep 999 & echo started; cat"]
)
async def test_leaving_the_context_ends_everything(script: str, tmp_path: Path) -> None:
    ear = OutputRecorder()
    async with open_pipe_process(shell(f"echo started; {script}", tmp_path), ear.hear):
        await ear.wait_for(b"started")
        assert list_processes(tmp_path) != []
    assert list_processes(tmp_path) == []


async def test_an_exception_in_the_body_is_raised_and_the_process_ended(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        async with open_pipe_process(shell("cat", tmp_path), OutputRecorder().hear):
            raise KeyError
    assert list_processes(tmp_path) == []


async def test_writing_to_an_ended_process_is_an_error(tmp_path: Path) -> None:
    async with open_pipe_process(shell("exit 3", tmp_path), OutputRecorder().hear) as talk:
        await talk.wait()
        with pytest.raises(BrokenPipeError):
            talk.write(b"hello")


async def test_writes_to_a_process_that_does_not_read_are_limited(tmp_path: Path) -> None:
    async with open_pipe_process(shell("sleep 999", tmp_path), OutputRecorder().hear) as talk:
        talk.write(bytes(12 << 20))
        with pytest.raises(BlockingIOError):
            talk.write(bytes(12 << 20))


async def test_a_process_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    command = ProcessCommand(argv=("cat", "a\0b"), directory=str(tmp_path), environment={})
    with pytest.raises(OSError, match="null"):
        async with open_pipe_process(command, OutputRecorder().hear):
            pass
    with pytest.raises(FileNotFoundError):
        async with open_pipe_process(shell("cat", tmp_path / "nowhere"), OutputRecorder().hear):
            pass


TALKER = """
import asyncio, os, sys
from weft.host.processes import ProcessCommand
from weft.host.pipes import open_pipe_process

async def hear(piece):
    print(piece.decode(), flush=True)

async def main():
    command = ProcessCommand(argv=("sh", "-c", "setsid sleep 999 & trap '' TERM; echo started; while :; do sleep 1; done"),
                      directory=sys.argv[1], environment=dict(os.environ))
    async with open_pipe_process(command, hear):
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_no_process_survives_if_we_are_killed(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    talker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", TALKER, str(work)), stdout=asyncio.subprocess.PIPE
    )
    assert talker.stdout is not None
    assert await talker.stdout.readline() == b"started\n"
    assert list_processes(work) != []
    talker.send_signal(signal.SIGKILL)
    await talker.communicate()
    while list_processes(work):  # noqa: ASYNC110  nobody tells of processes that start or end
        await asyncio.sleep(0.01)
