"""Hooks that are shell commands: their input, the meaning of their exit code, and that they get no secret."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from given.plugins import Project, list_calls, prompt, text_of
from weft.errors import BlockedError
from weft.model.ids import SessionID
from weft.plugin.hooks import CHAT_HEADERS, TOOL_BEFORE, CallArguments, CallHookInput, ChatHeaders
from weft.provider.scripted import Say, UseTool
from weft.testing.clock import HandClock

TOLD = CallHookInput(tool="bash", session_id=SessionID("ses_x"), call_id="call_x", args={"command": "ls"})
NOW = CallArguments(args={"command": "ls"})


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def write_hook(project: Project, script: str, **more: Any) -> list[str]:
    path = project.write("hook.sh", f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    hooks = {"tool.execute.before": [{"command": ["./hook.sh"], **more}]}
    project.configure(experimental={"weft": {"hooks": hooks}})
    return ["./hook.sh"]


async def call_hook(project: Project) -> CallArguments:
    async with asyncio.timeout(60), project.open() as local:
        return await local.runtime.hooks.ask(TOOL_BEFORE, TOLD, NOW)


async def test_a_command_gets_json_and_changes_the_named_fields(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    seen, env = tmp_path / "seen", tmp_path / "env"
    write_hook(project, f'cat >{seen}\nenv >{env}\necho \'{{"output": {{"args": {{"command": "pwd"}}}}}}\'')

    assert await call_hook(project) == CallArguments(args={"command": "pwd"})
    assert json.loads(seen.read_text()) == {
        "hook": "tool.execute.before",
        "input": {"tool": "bash", "sessionID": "ses_x", "callID": "call_x", "args": {"command": "ls"}},
        "output": {"args": {"command": "ls"}},
    }
    assert "secret" not in env.read_text()
    assert f"PWD={project.root}" in env.read_text()
    assert project.warnings == []


@pytest.mark.parametrize(
    "script", ["exit 0", "echo '{}'", "echo '{\"output\": null}'", "exec cat >/dev/null"]
)
async def test_a_shell_hook_without_output_changes_nothing(project: Project, script: str) -> None:
    write_hook(project, script)
    assert await call_hook(project) is NOW
    assert project.warnings == []


async def test_exit_code_2_blocks_with_stderr_as_the_reason(project: Project) -> None:
    write_hook(project, "echo 'not on a Friday' >&2\nexit 2")
    with pytest.raises(BlockedError, match="not on a Friday"):
        await call_hook(project)
    assert project.warnings == []


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo went wrong >&2\nexit 1", "the command: ended with code 1: went wrong"),
        ("echo hello", "what it printed: not JSON"),
        ("echo '[1]'", 'what it printed: is not an object with an "output"'),
        ("echo '{\"later\": {}}'", 'what it printed: is not an object with an "output"'),
        ("echo '{\"output\": 3}'", 'what it printed: "output" is not an object'),
        ('echo \'{"output": {"args": 3}}\'', "what it returned: Expected `object`, got `int`"),
        ('echo \'{"output": {"arg": {}}}\'', "what it returned: unknown field 'arg'"),
        ("exec nosuchcommand_", "the command: ended with code 127"),
    ],
)
async def test_any_other_failure_is_ignored_with_a_warning(project: Project, script: str, said: str) -> None:
    write_hook(project, script)
    assert await call_hook(project) is NOW
    (line,) = project.list_warnings()
    assert line.startswith(f"./hook.sh: hook tool.execute.before: {said}")
    assert line.endswith("that was fault 1 of 3")


async def test_a_hanging_shell_hook_is_killed_at_its_deadline(project: Project, tmp_path: Path) -> None:
    write_hook(project, "exec sleep 60", timeout=3)
    clock = HandClock()
    async with asyncio.timeout(60), project.open(clock=clock) as local:
        asking = asyncio.ensure_future(local.runtime.hooks.ask(TOOL_BEFORE, TOLD, NOW))
        while not asking.done():
            clock.turn(3000)
            await asyncio.wait([asking], timeout=0.01)
        assert asking.result() is NOW
    (line,) = project.list_warnings()
    assert "took longer than 3 seconds" in line


async def test_a_matcher_selects_the_tools_of_a_hook(project: Project) -> None:
    write_hook(project, "echo no >&2; exit 2", matcher="edit|gl*")
    script = (
        [UseTool(tool="glob", input={"pattern": "*.sh"})],
        [UseTool(tool="todoread")],
        [Say(text="Done.")],
    )
    async with asyncio.timeout(60), project.open(*script) as local:
        messages = await prompt(local)

    (glob, said), (read, other) = list_calls(messages)
    assert (glob, read) == ("glob", "todoread")
    assert "no" in said.split()
    assert "no" not in other.split()
    assert text_of(messages).endswith("Done.")


async def test_a_hook_that_cannot_block_is_reported_if_it_tries(project: Project) -> None:
    hooks = {"chat.headers": [{"command": ["sh", "-c", "exit 2"], "matcher": "x"}]}
    project.configure(experimental={"weft": {"hooks": hooks}})
    async with project.open() as local:
        now = ChatHeaders(headers={})
        assert await local.runtime.hooks.ask(CHAT_HEADERS, None, now) is now  # type: ignore[arg-type]
    matcher, fault = project.list_warnings()
    assert "this hook has no matcher" in matcher
    assert "hook chat.headers cannot block anything" in fault


async def test_an_unknown_hook_is_reported_with_similar_names(project: Project) -> None:
    project.configure(
        experimental={
            "weft": {"hooks": {"tool.execute.befor": [{"command": ["x"]}], "event": [{"command": []}]}}
        }
    )
    async with project.open():
        pass
    meant, empty = project.warnings
    assert str(meant).endswith("experimental.weft.hooks.tool.execute.befor: there is no such hook")
    assert meant.hint == "did you mean 'tool.execute.before'?"
    assert "the command is empty" in str(empty)


async def test_a_project_adds_hooks_to_those_of_the_person_and_removes_none(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"tool.execute.before": [{"command": ["sh", "-c", "echo mine >&2; exit 2"]}]}
    monkeypatch.setenv("OPENCODE_CONFIG", str(tmp_path / "own.json"))
    (tmp_path / "own.json").write_text(json.dumps({"experimental": {"weft": {"hooks": own}}}))
    write_hook(project, "exit 0")

    with pytest.raises(BlockedError, match="mine"):
        await call_hook(project)
