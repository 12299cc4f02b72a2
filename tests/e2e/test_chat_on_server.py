"""`weft attach` in a real terminal: a conversation on a server, a lost connection, and leaving while it works."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from given.http_server import make_project
from given.model_server import ModelServer, open_model_server
from given.tmux import open_terminal, weft
from weft.provider.scripted import Say, UseTool, Wait

pytestmark = pytest.mark.slow

SCRIPTS = {
    "wait": [[Say(text="Begun.\n\nStill "), Wait(seconds=0), Say(text="here.")]],
    "list": [[UseTool(tool="bash", input={"command": "ls", "description": "List"})], [Say(text="Listed.")]],
}


def start_server(project: Path, model: ModelServer, port: int = 0) -> tuple["subprocess.Popen[str]", str]:
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
    own.mkdir(parents=True, exist_ok=True)
    (own / "opencode.json").write_text(json.dumps({**model.config, "permission": {"bash": "ask"}}))
    process = subprocess.Popen(
        [sys.executable, "-m", "weft", "serve", "--port", str(port)],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    line = next(line for line in process.stdout if "listening" in line)
    return process, next(word for word in line.split() if word.startswith("http://"))


def stop_server(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


def test_a_conversation_on_a_server_survives_its_restart(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    with open_model_server(SCRIPTS) as model:
        server, url = start_server(project, model)
        try:
            with open_terminal(tmp_path, weft("attach", url), cwd=project) as terminal:
                terminal.wait_for("ready")
                assert "weft at http://" in terminal.get_screen()
                terminal.enter("list")
                assert "1 once" in terminal.wait_for("Allow bash?")
                terminal.enter("1")
                terminal.wait_for("Listed.")
                terminal.wait_for(" ready ")
                terminal.enter("look at @hello.txt")
                terminal.wait_for("attached hello.txt")
                stop_server(server)
                terminal.wait_for("does not answer; trying again")
                terminal.type("still typing")
                terminal.wait_for("> still typing")
                server, _ = start_server(project, model, int(url.rpartition(":")[2]))
                terminal.wait_for("is back")
                terminal.press("Enter")
                terminal.wait_for("You said: still typing")
                terminal.enter("wait")
                terminal.wait_for("Still")
                terminal.press("C-d")
                left = terminal.wait_for("ended 0")
        finally:
            model.go_on.set()
            stop_server(server)
    assert "the run goes on at the server" in left
    assert f"continue: weft attach {url} -s ses_" in left
