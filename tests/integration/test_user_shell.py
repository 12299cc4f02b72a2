"""A shell command that the person runs themselves in a session."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from given.engine import PLACE, Engine, open_engine, text_prompt
from weft.context.history import USER_RAN_TOOL
from weft.errors import InvalidInputError, NotFoundError, SessionBusyError
from weft.host.processes import ProcessCommand, run_command
from weft.model.event import PartUpdated, SessionIdled, StatusChanged
from weft.model.ids import SessionID
from weft.model.input import SessionInput, ShellInput
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import CompletedState, ErrorState, RunningState, TextPart, ToolPart
from weft.model.permission import Rule
from weft.model.session import Busy, Idle
from weft.provider.contract import TextContent, ToolModelMessage, UserModelMessage
from weft.provider.scripted import Say
from weft.run.shell import to_argv

DENY = (Rule(permission="*", pattern="*", action="deny"),)


@asynccontextmanager
async def open_in(directory: Path, *script: Any, **more: Any) -> AsyncIterator[tuple[Engine, SessionID]]:
    place = replace(PLACE, directory=str(directory), worktree=str(directory))
    async with asyncio.timeout(60), open_engine(*script, place=place, skip_waits=True, **more) as engine:
        yield engine, (await engine.api.create_session(SessionInput())).id


def call_in(message: MessageWithParts) -> ToolPart:
    (part,) = message.parts
    assert isinstance(part, ToolPart)
    return part


def get_completed(message: MessageWithParts) -> CompletedState:
    state = call_in(message).state
    assert isinstance(state, CompletedState)
    return state


async def wait_for_output(engine: Engine, session: SessionID, words: str) -> None:
    """Returns once the running command has said these words."""
    async for published in engine.api.events(after=0):
        match published.event:
            case PartUpdated(part=ToolPart(state=RunningState(metadata=metadata))) if metadata:
                if words in metadata["output"]:
                    return
            case _:
                pass


async def wait_for_text(engine: Engine, words: str) -> None:
    """Returns once a part with these words is stored."""
    async for published in engine.api.events(after=0):
        match published.event:
            case PartUpdated(part=TextPart(text=text)) if text == words:
                return
            case _:
                pass


async def test_the_command_is_stored_in_the_session_and_no_model_is_asked(tmp_path: Path) -> None:
    async with open_in(tmp_path, rules=DENY) as (engine, session):
        answer = await engine.api.shell(session, ShellInput(command="echo hello; pwd"))
        said, stored = await engine.api.list_messages(session)

        assert stored == answer
        assert isinstance(said.info, UserMessage)
        assert [(part.text, part.synthetic) for part in said.parts if isinstance(part, TextPart)] == [
            (USER_RAN_TOOL, True)
        ]
        assert isinstance(answer.info, AssistantMessage)
        assert (answer.info.parent_id, answer.info.agent, answer.info.finish, answer.info.error) == (
            said.info.id,
            "build",
            None,
            None,
        )
        assert answer.info.time.completed is not None
        assert (call_in(answer).tool, get_completed(answer).input, get_completed(answer).title) == (
            "bash",
            {"command": "echo hello; pwd"},
            "",
        )
        assert get_completed(answer).output == f"hello\n{tmp_path}\n"
        assert engine.provider.requests == []


async def test_the_model_sees_the_command_with_the_next_prompt(tmp_path: Path) -> None:
    async with open_in(tmp_path, [Say(text="I see.")]) as (engine, session):
        await engine.api.shell(session, ShellInput(command="echo hello; exit 3"))
        await engine.api.prompt(session, text_prompt("why?"))
        (request,) = engine.provider.requests
        prompt_turn, called, result, asked = request.messages

        assert isinstance(prompt_turn, UserModelMessage)
        assert prompt_turn.content == (TextContent(text=USER_RAN_TOOL),)
        assert called.content[0].input == {"command": "echo hello; exit 3"}  # type: ignore[union-attr]
        assert isinstance(result, ToolModelMessage)
        assert result.content[0].output == "hello\n\n\n<metadata>\nexit code 3\n</metadata>"
        assert isinstance(asked, UserModelMessage)


async def test_its_output_is_published_while_it_runs_and_the_session_is_busy(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with open_in(tmp_path) as (engine, session):
        running = asyncio.create_task(
            engine.api.shell(session, ShellInput(command=f"echo first; cat {gate}"))
        )
        await wait_for_output(engine, session, "first")
        assert await engine.api.get_status(session) == Busy()
        await asyncio.to_thread(gate.write_text, "second\n")

        assert get_completed(await running).output == "first\nsecond\n"
        assert await engine.api.get_status(session) == Idle()
        statuses = []
        async for published in engine.api.events(after=0):
            if isinstance(published.event, StatusChanged):
                statuses.append(published.event.status)
            if isinstance(published.event, SessionIdled):
                break
        assert statuses == [Busy(), Idle()]


async def test_a_prompt_sent_during_the_command_is_answered_afterwards(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with open_in(tmp_path, [Say(text="Here I am.")]) as (engine, session):
        running = asyncio.create_task(
            engine.api.shell(session, ShellInput(command=f"echo first; cat {gate}"))
        )
        await wait_for_output(engine, session, "first")
        prompting = asyncio.create_task(engine.api.prompt(session, text_prompt("are you there?")))
        await wait_for_text(engine, "are you there?")
        assert engine.provider.requests == []
        await asyncio.to_thread(gate.write_text, "second\n")
        command, answer = await running, await prompting

        assert get_completed(command).output == "first\nsecond\n"
        assert [part.text for part in answer.parts if isinstance(part, TextPart)] == ["Here I am."]
        (request,) = engine.provider.requests
        assert "second" in str(request.messages)
        assert (await engine.api.get_session(session)).title == "are you there?"


async def test_a_shell_command_is_refused_while_another_one_runs(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with open_in(tmp_path) as (engine, session):
        running = asyncio.create_task(
            engine.api.shell(session, ShellInput(command=f"echo first; cat {gate}"))
        )
        await wait_for_output(engine, session, "first")
        with pytest.raises(SessionBusyError):
            await engine.api.shell(session, ShellInput(command="echo no"))
        await asyncio.to_thread(gate.write_text, "")
        await running
        assert (
            get_completed(await engine.api.shell(session, ShellInput(command="echo yes"))).output == "yes\n"
        )


async def test_an_abort_kills_the_command_with_its_children_and_keeps_its_output(tmp_path: Path) -> None:
    command = f"sleep 600 & echo $! > {tmp_path}/pid; echo first; wait"
    async with open_in(tmp_path) as (engine, session):
        running = asyncio.create_task(engine.api.shell(session, ShellInput(command=command)))
        await wait_for_output(engine, session, "first")
        assert await engine.api.abort(session) is True
        answer = await running

        assert get_completed(answer).output == "first\n\n\n<metadata>\nUser aborted the command\n</metadata>"
        assert isinstance(answer.info, AssistantMessage)
        assert answer.info.time.completed is not None
        assert await engine.api.get_status(session) == Idle()
        assert not is_alive(int((tmp_path / "pid").read_text()))


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False


async def test_an_abort_before_the_command_starts_leaves_nothing_open(tmp_path: Path) -> None:
    async with open_in(tmp_path) as (engine, session):
        running = asyncio.create_task(engine.api.shell(session, ShellInput(command="touch ran")))
        await wait_for_text(engine, USER_RAN_TOOL)
        while not await engine.api.abort(session):
            await asyncio.wait([running], timeout=0)
        answer = await running

        assert isinstance(answer.info, AssistantMessage)
        assert answer.info.time.completed is not None
        assert isinstance(call_in(answer).state, CompletedState)


async def test_invalid_input_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    async with open_in(tmp_path) as (engine, session):
        with pytest.raises(NotFoundError, match="no agent 'biuld'"):
            await engine.api.shell(session, ShellInput(command="ls", agent="biuld"))
        with pytest.raises(InvalidInputError):
            await engine.api.shell(session, ShellInput(command=" "))
        assert await engine.api.list_messages(session) == []


async def test_a_command_that_cannot_be_run_is_a_failed_part(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    async with open_in(gone) as (engine, session):
        state = call_in(await engine.api.shell(session, ShellInput(command="ls"))).state
        assert isinstance(state, ErrorState)
        assert "No such file or directory" in state.error


async def run_and_read(argv: tuple[str, ...], home: Path) -> str:
    heard = bytearray()

    async def hear(piece: bytes) -> None:
        heard.extend(piece)

    await run_command(
        ProcessCommand(
            argv=argv, directory=str(home), environment={"HOME": str(home), "PATH": os.environ["PATH"]}
        ),
        hear,
    )
    return heard.decode()


async def test_in_bash_the_persons_aliases_work_and_the_text_is_used_as_typed(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("echo noise; alias greet='echo hello'\n")
    typed = """greet "$HOME" '$1' `echo "two"` \\$x"""
    assert await run_and_read(to_argv("/bin/bash", typed), tmp_path) == f"hello {tmp_path} $1 two $x\n"


def test_other_shells_get_the_text_unchanged() -> None:
    assert to_argv("/usr/bin/fish", "ls") == ("/usr/bin/fish", "-c", "ls")
    assert to_argv("/bin/sh", "ls") == ("/bin/sh", "-c", "ls")
