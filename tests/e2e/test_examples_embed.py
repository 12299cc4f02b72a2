"""The examples that embed weft in programs work, also if a program is interrupted or closes nothing."""

import json
import os
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
AGENT, DRIVING = EMBED / "agent.py", EMBED / "driving.py"
ASKING = """
import sys, weft
with weft.connect_sync(sys.argv[1]) as api:
    talk = api.converse()
    if sys.argv[2] == "ask":
        print("asking", flush=True)
        talk.ask("hello")
    for piece in talk.stream("hello"):
        print(piece, flush=True)
"""
LEAVING = """
import contextlib, sys, weft
stack = contextlib.ExitStack()
api = stack.enter_context(weft.connect_sync(sys.argv[1]))
words = api.converse().stream("hello")
print(next(words))
"""


def test_an_agent_inside_a_program_works_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "greet.py").write_text(GREETING)
    (tmp_path / "opencode.json").write_text(
        json.dumps({"model": "scripted/demo", "permission": {"bash": "ask"}})
    )
    ran = subprocess.run(
        [sys.executable, AGENT, tmp_path, "greet by name"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "allowed once: bash" in ran.stdout
    assert "[edit: completed]" in ran.stdout
    assert "\nI'll look at the file first.\n" in ran.stdout
    assert (tmp_path / "greet.py").read_text() != GREETING


def until_busy(server: ProjectServer) -> None:
    for _ in range(2000):
        if server.get("/session/status"):
            return
        threading.Event().wait(0.01)
    raise AssertionError("no run began")


def test_a_server_is_driven_from_a_script(tmp_path: Path) -> None:
    with serve_project(tmp_path, [[Say(text="Here is a short answer.")], [Say(text="Yes.")]]) as server:
        ran = subprocess.run(
            [sys.executable, DRIVING, server.url, "hello"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "Here is a short answer.\nYes.\n", "")
        assert [each["title"] for each in server.get("/session")] == ["From a script"]


@pytest.mark.parametrize("how", ["ask", "stream"])
def test_an_interrupt_ends_the_run_of_a_script_and_is_all_it_is_told(how: str, tmp_path: Path) -> None:
    with serve_project(tmp_path, [[Say(text="Wait"), Wait(seconds=600)]]) as server:
        running = subprocess.Popen(
            [sys.executable, "-c", ASKING, server.url, how],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert running.stdout is not None
        assert running.stdout.readline().strip() in ("asking", "Wait")
        until_busy(server)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
        assert errors.strip().endswith("KeyboardInterrupt")
        assert [word for word in ("RuntimeError", "Task was", "never awaited") if word in errors] == []
        assert server.get("/session/status") == {}


def test_a_script_that_ends_without_leaving_ends_and_so_does_its_run(tmp_path: Path) -> None:
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
