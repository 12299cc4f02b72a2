"""The examples that embed weft in programs work, also if a program is interrupted or closes nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from given.http_server import ProjectServer, serve_project
from weft.cli.demo import GREETING
from weft.provider.scripted import Say, Wait

EMBED = Path(__file__).parents[2] / "examples" / "embed"
ASKING = """
import sys, weft
with weft.connect(sys.argv[1]) as agent:
    if sys.argv[2] == "ask":
        print("asking", flush=True)
        agent.ask("hello")
    for event in agent.stream("hello"):
        print(event.text, flush=True)
"""
LEAVING = """
import sys, weft
agent = weft.connect(sys.argv[1]).start()
events = agent.stream("hello")
print(next(events).text)
"""


def run_example(name: str, *arguments: object, cwd: Path | None = None) -> str:
    """Run an example and return what it prints. It must succeed and print no errors."""
    ran = subprocess.run(
        [sys.executable, EMBED / name, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.fixture
def greeter(tmp_path: Path) -> Path:
    """A project in which a scripted model changes a file and runs a command, for which it needs permission."""
    (tmp_path / "greet.py").write_text(GREETING)
    (tmp_path / "opencode.json").write_text(
        json.dumps({"model": "scripted/demo", "permission": {"bash": "ask"}})
    )
    return tmp_path


def test_an_agent_inside_a_program_works_in_a_directory(greeter: Path) -> None:
    printed = run_example("agent.py", greeter, "greet by name")
    assert "allowed once: bash" in printed
    assert "\nchanged: greet.py +" in printed
    assert "\ncost: " in printed
    assert (greeter / "greet.py").read_text() != GREETING


def test_an_answer_is_streamed(greeter: Path) -> None:
    (greeter / "opencode.json").write_text(json.dumps({"model": "scripted/demo"}))
    printed = run_example("stream.py", greeter, "greet by name")
    assert printed.startswith("I'll look at the file first.\n")
    assert "[edit: completed]" in printed
    assert " steps in ses_" in printed
    assert (greeter / "greet.py").read_text() != GREETING


def test_a_function_is_used_as_a_tool(tmp_path: Path) -> None:
    assert run_example("tool.py", cwd=tmp_path) == '{"tea":12}\nThere are 12 packs of tea.\n'


def test_an_answer_has_a_type(tmp_path: Path) -> None:
    assert run_example("value.py", cwd=tmp_path) == "wait ['There is no test.']\n"


@pytest.mark.parametrize("name", ["test_note.py", "test_greeting.py"])
def test_the_example_of_a_test_passes(name: str, tmp_path: Path) -> None:
    # A copy, outside of this repository and its configuration of pytest.
    shutil.copytree(EMBED, tmp_path / "embed")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
    ran = subprocess.run(
        command, cwd=tmp_path / "embed", capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


def wait_until_busy(server: ProjectServer) -> None:
    for _ in range(2000):
        if server.get("/session/status"):
            return
        threading.Event().wait(0.01)
    raise AssertionError("no run began")


def test_a_server_is_driven_from_a_script(tmp_path: Path) -> None:
    with serve_project(tmp_path, [[Say(text="Here is a short answer.")], [Say(text="Yes.")]]) as server:
        printed = run_example("server.py", server.url, "hello")
        assert printed == "Here is a short answer.\nYes.\n"
        assert [each["title"] for each in server.get("/session")] == ["From a script"]


@pytest.mark.parametrize("how", ["ask", "stream"])
def test_an_interrupt_ends_the_run_of_a_script(how: str, tmp_path: Path) -> None:
    with serve_project(tmp_path, [[Say(text="Wait"), Wait(seconds=600)]]) as server:
        running = subprocess.Popen(
            [sys.executable, "-c", ASKING, server.url, how],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert running.stdout is not None
        assert running.stdout.readline().strip() in ("asking", "Wait")
        wait_until_busy(server)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
        assert errors.strip().endswith("KeyboardInterrupt")
        assert [word for word in ("RuntimeError", "Task was", "never awaited") if word in errors] == []
        assert server.get("/session/status") == {}


def test_a_script_that_exits_without_closing_ends_its_run(tmp_path: Path) -> None:
    with serve_project(tmp_path, [[Say(text="Wait"), Wait(seconds=600)]]) as server:
        ran = subprocess.run(
            [sys.executable, "-c", LEAVING, server.url],
            env=dict(os.environ),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "Wait\n", "")
        assert server.get("/session/status") == {}
