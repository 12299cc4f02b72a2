"""`weft acp` as a real process, driven by the official SDK as an editor drives it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from acp import PROTOCOL_VERSION, spawn_agent_process

from given.editor import Editor
from weft.cli.demo import GREETING, make_repository

WEFT = str(Path(sys.executable).with_name("weft"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_repository(tmp_path / "project")
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
    own.mkdir(parents=True)
    (own / "opencode.json").write_text(json.dumps({"model": "scripted/demo", "permission": {"edit": "ask"}}))
    return tmp_path / "project"


@asynccontextmanager
async def run_acp(project: Path, editor: Editor) -> AsyncIterator[Any]:
    """Run an editor with its own `weft acp`, which must write nothing to stderr."""
    log = project.parent / "log"
    with log.open("w") as noted:
        # The SDK ends a process that takes longer than this; its default of two seconds is too short on a busy machine.
        patient = {"stderr": noted, "shutdown_timeout": 60.0}
        spawned = spawn_agent_process(
            editor, WEFT, "acp", env=os.environ, cwd=project, transport_kwargs=patient
        )
        async with spawned as (agent, process):
            editor.agent = agent
            await agent.initialize(protocol_version=PROTOCOL_VERSION)
            yield agent
        assert process.returncode == 0
    assert log.read_text() == ""


async def test_a_session_is_created_prompted_cancelled_and_loaded_in_another_process(project: Path) -> None:
    editor = Editor()
    async with run_acp(project, editor) as agent:
        session = (await agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        assert (await editor.prompt(session, "let it greet a name")).stop_reason == "end_turn"
        [(_, asked, _)] = editor.permission_requests
        [wished] = asked.content
        assert 'print(f"Hello, {name}!")' in wished.new_text
        [diff] = editor.call("edit")["content"]
        assert (diff["old_text"], diff["new_text"]) == (GREETING, (project / "greet.py").read_text())
        assert [call["status"] for call in editor.calls().values()] == ["completed"] * 3
        await agent.set_session_mode(session_id=session, mode_id="plan")

    again = Editor()
    again.hold = asyncio.Event()
    async with run_acp(project, again) as agent:
        await agent.load_session(cwd=str(project), session_id=session, mcp_servers=[])
        assert (again.words(), again.calls()) == (editor.words(), editor.calls())
        (project / "greet.py").write_text(GREETING)
        other = (await agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        prompting = asyncio.ensure_future(again.prompt(other, "let it greet a name"))
        await again.permission_asked.wait()
        await agent.cancel(session_id=other)
        assert (await prompting).stop_reason == "cancelled"
        assert (project / "greet.py").read_text() == GREETING


def call(id: int, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n"


def test_standard_output_carries_the_protocol_and_nothing_else(project: Path) -> None:
    said = call(1, "initialize", protocolVersion=1) + call(2, "session/new", cwd=str(project), mcpServers=[])
    ran = subprocess.run([WEFT, "acp"], input=b"junk\n" + said, capture_output=True, timeout=60, check=False)
    assert ran.returncode == 0
    messages = [json.loads(line) for line in ran.stdout.splitlines()]
    assert all(each["jsonrpc"] == "2.0" for each in messages)
    assert {each.get("id") for each in messages if "method" not in each} >= {None, 1}
    assert b"a line that is not a message" in ran.stderr


def test_a_signal_ends_the_command_with_everything_settled(project: Path) -> None:
    with subprocess.Popen(
        [WEFT, "acp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(call(1, "initialize", protocolVersion=1))
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(signal.SIGTERM)
        # The pipe stays open until the process has ended; otherwise it might see the editor disconnect first.
        assert (process.wait(timeout=60), process.stderr.read()) == (143, b"")


@pytest.mark.parametrize("given", ["</dev/null", "<greet.py", "<&-", ">/dev/full", ">out.txt", ">&-"])
def test_without_a_pipe_acp_exits_with_one_sentence(project: Path, given: str) -> None:
    shell = ["/bin/sh", "-c", f"exec {WEFT} acp {given}"]
    ran = subprocess.run(
        shell,
        cwd=project,
        stdin=subprocess.PIPE,
        capture_output=True,
        timeout=60,
        check=False,
    )
    which = "standard input" if "<" in given else "standard output"
    said = f"error: {which}: it is not a pipe\n       weft acp is started by an editor\n"
    assert (ran.returncode, ran.stdout, ran.stderr.decode()) == (2, b"", said)
