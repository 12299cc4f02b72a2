"""Commands run in terminals of the editor if it offers them, with the same limits and the same cleanup."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from given.editor import TERMINALS, open_editor
from weft.provider.scripted import Say, UseTool
from weft.testing.tool_contract import list_processes


def bash(command: str, **more: Any) -> UseTool:
    return UseTool(tool="bash", input={"command": command, "description": "try it", **more})


async def output_of(connection: Any, session: str) -> list[str]:
    """Return the output of every call, as the editor shows it after loading the session again."""
    loaded = await connection.agent.load_session(
        cwd=str(connection.project), session_id=session, mcp_servers=[]
    )
    assert loaded is not None
    return [call["content"][-1]["content"]["text"] for call in connection.editor.calls().values()]


async def test_a_command_runs_in_a_terminal_that_its_call_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    said = "echo one; pwd; echo key=$ANTHROPIC_API_KEY; exit 3"
    async with open_editor(tmp_path, [bash(said)], [Say(text="Done.")], capabilities=TERMINALS) as connection:
        session = await connection.new_session()
        await connection.editor.prompt(session, "run it")
        [(asked_in, command, _)] = connection.editor.opened
        assert (asked_in, command) == (session, "env")
        call = connection.editor.call("execute")
        assert (call["status"], call["content"]) == (
            "completed",
            [{"type": "terminal", "terminal_id": "term_0"}],
        )
        assert connection.editor.released == ["term_0"]
        connection.editor.received.clear()
        [text] = await output_of(connection, session)
        assert text == f"one\n{connection.project}\nkey=\n(exit code 3)"


async def test_a_command_past_its_timeout_is_killed_with_its_children(tmp_path: Path) -> None:
    slow = bash("echo begun; sleep 600 & sleep 600", timeout=500)
    async with open_editor(tmp_path, [slow], [Say(text="Slow.")], capabilities=TERMINALS) as connection:
        session = await connection.new_session()
        await connection.editor.prompt(session, "run it")
        assert list_processes(connection.project) == []
        connection.editor.received.clear()
        [text] = await output_of(connection, session)
        assert text.startswith("begun\n")
        assert "exceeding timeout 500 ms" in text


async def test_processes_left_by_a_command_are_ended(tmp_path: Path) -> None:
    leaves = bash("sleep 600 >/dev/null 2>&1 & echo left")
    async with open_editor(tmp_path, [leaves], [Say(text="Done.")], capabilities=TERMINALS) as connection:
        session = await connection.new_session()
        await connection.editor.prompt(session, "run it")
        assert list_processes(connection.project) == []
        connection.editor.received.clear()
        [text] = await output_of(connection, session)
        assert "1 background process(es) still running were ended" in text


async def test_cancelling_ends_the_command(tmp_path: Path) -> None:
    async with open_editor(tmp_path, [bash("echo begun; sleep 600")], capabilities=TERMINALS) as connection:
        session = await connection.new_session()
        prompting = asyncio.ensure_future(connection.editor.prompt(session, "run it"))
        while not any(each.said for each in connection.editor.terminals.values()):  # noqa: ASYNC110  a process wakes nobody
            await asyncio.sleep(0.01)
        await connection.agent.cancel(session_id=session)
        assert (await prompting).stop_reason == "cancelled"
        assert (list_processes(connection.project), connection.editor.released) == ([], ["term_0"])


async def test_commands_run_without_a_terminal_if_the_editor_offers_none(tmp_path: Path) -> None:
    async with open_editor(tmp_path, [bash("echo hello")], [Say(text="Done.")]) as connection:
        await connection.editor.prompt(await connection.new_session(), "run it")
        assert connection.editor.opened == []
        assert connection.editor.call("execute")["content"][0]["content"]["text"] == "hello\n"
