"""Calls that are killed at every point get the right verdict, and are not repeated."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from given.killed_call import choose_model
from given.postgres import make_url
from weft.errors import SessionBusyError
from weft.host.clock import SystemClock
from weft.local.open import OpenOptions, open_directory
from weft.model.ids import SessionID
from weft.model.input import prompt
from weft.model.part import CompletedState, ErrorState, ToolPart
from weft.model.verdict import CallVerdict, find_verdict
from weft.provider.catalog.offers import SCRIPTED_PROVIDER
from weft.provider.contract import ToolModelMessage
from weft.provider.demo import serve_script
from weft.provider.scripted import ScriptedProvider

CALL = Path(__file__).parents[1] / "given" / "killed_call.py"
SERVER = Path(__file__).parents[1] / "given" / "mcp_servers" / "raw.py"
WEFT = str(Path(sys.executable).with_name("weft"))
ALLOW = {"permission": {"*": "allow", "interrupted": "deny"}}
PATCH = """*** Begin Patch
*** Update File: a.txt
@@
-one
+two
*** Add File: new.txt
+new
*** Delete File: z.txt
*** End Patch"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEFT_STORE", f"file:{tmp_path}/storage")
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    (project / "z.txt").write_text("last\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "start"]):
        subprocess.run(["git", *command], cwd=project, check=True)
    return project


def start(
    directory: Path, point: str, tool: str, input: dict[str, Any], **more: Any
) -> subprocess.Popen[str]:
    arguments = [str(directory), point, tool, json.dumps(input), json.dumps(ALLOW | more)]
    return subprocess.Popen(
        [sys.executable, str(CALL), *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def kill_at(directory: Path, point: str, tool: str, input: dict[str, Any], **more: Any) -> SessionID:
    """Run a call until it is killed at a point. Return the session."""
    running = start(directory, point, tool, input, **more)
    out, err = running.communicate(timeout=120)
    assert running.returncode == -signal.SIGKILL, out + err
    return SessionID(out.split()[0])


class ReopenedSession:
    """A session that was opened again and continued: its last call, the verdict, and the text that the model reads."""

    def __init__(self, call: ToolPart, told: str) -> None:
        self.call = call
        self.told = told

    @property
    def verdict(self) -> CallVerdict:
        assert isinstance(self.call.state, CompletedState | ErrorState)
        found = find_verdict(self.call.state.metadata)
        assert found is not None
        return found

    @property
    def output(self) -> str:
        assert isinstance(self.call.state, CompletedState), self.call.state
        return self.call.state.output

    @property
    def error(self) -> str:
        assert isinstance(self.call.state, ErrorState), self.call.state
        return self.call.state.error


async def continue_session(directory: Path, session: SessionID, tool: str) -> ReopenedSession:
    script = json.dumps([[{"do": "say", "text": "I see."}]]).encode()
    served = serve_script(choose_model(tool), script, SystemClock(), where="script")
    config = {"model": f"{SCRIPTED_PROVIDER}/{choose_model(tool)}", **ALLOW}
    env = {**os.environ, "OPENCODE_CONFIG_CONTENT": json.dumps(config)}
    async with open_directory(OpenOptions(directory=str(directory), env=env, models=(served,))) as api:
        while True:
            try:
                await api.prompt(session, prompt("go on"))
                break
            except SessionBusyError:  # in Postgres, until the lease of the dead process has run out
                await asyncio.sleep(0.1)
        messages = await api.list_messages(session)
    assert isinstance(served.provider, ScriptedProvider)
    results = [
        result.output
        for message in served.provider.requests[0].messages
        if isinstance(message, ToolModelMessage)
        for result in message.content
        if result.tool == tool
    ]
    (call,) = [
        part
        for message in messages
        for part in message.parts
        if isinstance(part, ToolPart) and part.tool == tool
    ]
    return ReopenedSession(call, results[-1])


def show(directory: Path, session: SessionID) -> str:
    return subprocess.run(
        [WEFT, "session", "show", session],
        cwd=directory, capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip


def write_input(directory: Path) -> dict[str, Any]:
    return {"filePath": str(directory / "a.txt"), "content": "two\n"}


def edit_input(directory: Path) -> dict[str, Any]:
    return {"filePath": str(directory / "a.txt"), "oldString": "one", "newString": "two"}


@pytest.mark.parametrize(
    ("point", "kind", "content"),
    [
        ("started", "not-started", "one\n"),
        ("noted", "unchanged", "one\n"),
        ("rename-1", "unchanged", "one\n"),
        ("patched", "finished", "two\n"),
    ],
)
@pytest.mark.parametrize("tool", ["write", "edit"])
async def test_a_killed_write_or_edit_has_its_verdict(
    directory: Path, tool: str, point: str, kind: str, content: str
) -> None:
    input = write_input(directory) if tool == "write" else edit_input(directory)
    session = kill_at(directory, point, tool, input)
    after = await continue_session(directory, session, tool)

    assert after.verdict.kind == kind
    assert after.verdict.why in after.told
    assert after.verdict.why in show(directory, session)
    assert (directory / "a.txt").read_text() == content
    assert sorted(os.listdir(directory)) == [".git", "a.txt", "z.txt"]
    if kind == "finished":
        assert isinstance(after.call.state, CompletedState)
        assert after.call.state.title == "a.txt (recorded after a crash)"
        assert after.output.startswith(
            "Wrote file successfully." if tool == "write" else "Edit applied successfully."
        )
    else:
        assert after.verdict.repeatable


@pytest.mark.parametrize(
    ("point", "kind", "files"),
    [
        ("noted", "unchanged", ()),
        ("rename-1", "unchanged", ()),
        ("rename-2", "partial", ("a.txt",)),
        ("rename-3", "partial", ("a.txt", "new.txt")),
        ("patched", "finished", ("a.txt", "new.txt", "z.txt")),
    ],
)
async def test_a_killed_patch_of_three_files_has_its_verdict(
    directory: Path, point: str, kind: str, files: tuple[str, ...]
) -> None:
    session = kill_at(directory, point, "apply_patch", {"patchText": PATCH})
    after = await continue_session(directory, session, "apply_patch")

    assert (after.verdict.kind, after.verdict.files) == (kind, files)
    assert after.verdict.why in after.told
    assert (directory / "a.txt").read_text() == ("two\n" if files else "one\n")
    assert (directory / "new.txt").exists() == ("new.txt" in files)
    assert (directory / "z.txt").exists() == (kind != "finished")
    assert not [name for name in os.listdir(directory) if name.endswith(".tmp")]


def bash(command: str) -> dict[str, Any]:
    return {"command": command, "description": "Work"}


RAN = "echo ran >> ../ran.log; "


@pytest.mark.parametrize(
    ("point", "command", "kind", "files"),
    [
        ("started", "true", "not-started", ()),
        ("noted", "true", "not-started", ()),
        ("never", "kill -9 {pid}; sleep 600", "unchanged", ()),
        ("never", "echo b > b.txt; sleep 0.1; kill -9 {pid}; sleep 600", "partial", ("b.txt",)),
        ("result", "echo b > b.txt; sleep 0.1; echo done; exit 3", "finished", ("b.txt",)),
    ],
)
async def test_a_killed_command_has_its_verdict(
    directory: Path, point: str, command: str, kind: str, files: tuple[str, ...]
) -> None:
    session = kill_at(directory, point, "bash", bash(RAN + command))
    after = await continue_session(directory, session, "bash")
    log = directory.parent / "ran.log"

    assert (after.verdict.kind, after.verdict.files) == (kind, files)
    assert after.verdict.why in after.told
    assert (log.read_text() if log.exists() else "") == ("" if kind == "not-started" else "ran\n")
    if kind == "finished":
        assert isinstance(after.call.state, CompletedState)
        assert after.output.startswith("done\n")
        assert after.call.state.metadata["exit"] == 3
    else:
        assert after.error.startswith("Tool execution was interrupted: weft died")


async def test_a_killed_command_in_a_project_without_files_has_its_verdict(directory: Path) -> None:
    (directory / "a.txt").unlink()
    (directory / "z.txt").unlink()
    session = kill_at(directory, "never", "bash", bash("echo b > b.txt; sleep 0.1; kill -9 {pid}; sleep 600"))
    after = await continue_session(directory, session, "bash")
    assert (after.verdict.kind, after.verdict.files) == ("partial", ("b.txt",))
    assert "Since it began, b.txt changed." in after.told


@pytest.fixture
def other_project(directory: Path) -> Path:
    """Another project whose sessions are in the same store."""
    project = directory.parent / "other"
    project.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    return project


async def test_a_killed_command_is_judged_in_its_own_project(directory: Path, other_project: Path) -> None:
    session = kill_at(directory, "never", "bash", bash("echo b > b.txt; sleep 0.1; kill -9 {pid}; sleep 600"))
    async with open_directory(OpenOptions(directory=str(other_project))):
        pass
    after = await continue_session(directory, session, "bash")

    assert (after.verdict.kind, after.verdict.files) == ("partial", ("b.txt",))


async def test_a_killed_command_of_a_removed_project_is_settled_elsewhere(
    directory: Path, other_project: Path
) -> None:
    session = kill_at(directory, "never", "bash", bash("echo b > b.txt; sleep 0.1; kill -9 {pid}; sleep 600"))
    shutil.rmtree(directory)
    async with open_directory(OpenOptions(directory=str(other_project))) as api:
        (call,) = [part for message in await api.list_messages(session) for part in message.parts
                   if isinstance(part, ToolPart) and part.tool == "bash"]  # fmt: skip

    assert ReopenedSession(call, "").verdict == CallVerdict(
        kind="unknown",
        why="It was running when weft died, and was ended with it. It is not known which files it changed.",
    )


async def test_the_files_of_a_killed_command_are_unknown_in_another_project(
    directory: Path, other_project: Path
) -> None:
    session = kill_at(directory, "never", "bash", bash("echo b > b.txt; sleep 0.1; kill -9 {pid}; sleep 600"))
    after = await continue_session(other_project, session, "bash")

    assert (after.verdict.kind, after.verdict.files) == ("unknown", ())
    assert "It is not known which files it changed." in after.told


async def test_the_exit_code_of_an_unobserved_command_comes_from_its_supervisor(directory: Path) -> None:
    command = f"{RAN}echo b > b.txt; sleep 0.1; kill -STOP {{pid}}; exit 7"
    running = start(directory, "never", "bash", bash(command))
    assert running.stdout is not None
    session = SessionID(running.stdout.readline().strip())
    outputs = Path(os.environ["XDG_DATA_HOME"]) if "XDG_DATA_HOME" in os.environ else Path.home()
    while not any(record.read_text() for record in outputs.rglob("tool_*.exit")):
        os.sched_yield()
    running.send_signal(signal.SIGKILL)
    running.communicate()
    after = await continue_session(directory, session, "bash")

    assert isinstance(after.call.state, CompletedState)
    assert (after.verdict.kind, after.verdict.files) == ("finished", ("b.txt",))
    assert after.call.state.metadata["exit"] == 7
    assert "The end of its output may be missing" in after.output
    assert (directory.parent / "ran.log").read_text() == "ran\n"


@pytest.mark.parametrize(
    ("point", "manner", "kind"),
    [
        ("started", "good", "not-started"),
        ("noted", "good", "unknown"),
        ("never", "murderous", "unknown"),
        ("result", "good", "finished"),
    ],
)
async def test_a_killed_call_of_an_mcp_server_has_its_verdict(
    directory: Path, point: str, manner: str, kind: str
) -> None:
    log = directory.parent / "server.log"
    command = [sys.executable, "-S", "-E", str(SERVER), manner, str(log)]
    servers = {"loom": {"type": "local", "command": command}}
    session = kill_at(directory, point, "loom_echo", {"words": "hello"}, mcp=servers)
    calls = log.read_text().count("tools/call")
    after = await continue_session(directory, session, "loom_echo")

    assert after.verdict.kind == kind
    assert after.verdict.why in after.told
    assert log.read_text().count("tools/call") == calls
    if kind == "finished":
        assert "hello" in after.output


@pytest.mark.parametrize("url", ["sqlite:{0}/sessions.db", "postgres"])
async def test_every_store_records_verdicts(
    directory: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "WEFT_STORE", f"{make_url()}&lease=3" if url == "postgres" else url.format(directory.parent)
    )
    session = kill_at(directory, "patched", "write", write_input(directory))
    after = await continue_session(directory, session, "write")

    assert after.verdict.kind == "finished"
    assert after.output.startswith("Wrote file successfully.")
