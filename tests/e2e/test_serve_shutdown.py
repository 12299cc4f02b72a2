"""How `weft serve` shuts down: it refuses new requests, lets runs finish, settles those that do not; and what it logs."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from given.http_server import make_project, prompt
from given.serve_process import DEMO, WEFT, ServeProcess, start_serve

UNTIL_TOLD = "until [ -e go ]; do sleep 0.02; done; echo done"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project")


class Work:
    """A shell command that runs in a session, and its result."""

    def __init__(self, running: ServeProcess, command: str) -> None:
        self._url = running.url
        self._command = command
        self.session = httpx2.post(f"{running.url}/session", timeout=60).json()["id"]
        self.answers: list[httpx2.Response] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asked = {"agent": "build", "command": self._command}
        try:
            answer = httpx2.post(f"{self._url}/session/{self.session}/shell", json=asked, timeout=60)
        except httpx2.TransportError:
            return  # a server that ends at once answers nobody
        self.answers.append(answer)

    def start(self, client: httpx2.Client) -> None:
        self._thread.start()
        for _ in range(6000):
            if client.get("/session/status").json():
                return
            threading.Event().wait(0.01)
        raise AssertionError("it never began")

    def state(self) -> dict[str, Any]:
        self._thread.join(60)
        (answer,) = self.answers
        assert answer.status_code == 200, answer.text
        state: dict[str, Any] = answer.json()["parts"][0]["state"]
        return state


@contextmanager
def start_working_server(
    project: Path, command: str, *more: str
) -> Iterator[tuple[ServeProcess, Work, httpx2.Client]]:
    with (
        start_serve(project, "--auth", "none", *more) as running,
        httpx2.Client(base_url=running.url, timeout=60) as client,
    ):
        work = Work(running, command)
        work.start(client)
        yield running, work, client


def test_current_work_finishes_during_the_grace_period_and_nothing_new_begins(project: Path) -> None:
    with start_working_server(project, UNTIL_TOLD, "--grace", "60") as (running, work, client):
        assert client.get("/weft/ready").json() == {"ready": True, "reasons": []}
        running.process.send_signal(signal.SIGTERM)
        running.wait_for_note("ending")
        # Requests on the open connection are still answered; a new connection is refused.
        ready = client.get("/weft/ready")
        assert (ready.status_code, ready.json()) == (
            503,
            {"ready": False, "reasons": ["the server is ending"]},
        )
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{running.url}/global/health", timeout=60)
        refused = client.post("/session", json={})
        assert (refused.status_code, refused.json()["name"]) == (503, "EndingError")
        (project / "go").touch()
        state = work.state()
        assert (state["status"], "done" in state["output"]) == ("completed", True)
        assert running.process.wait(60) == 0


def test_unfinished_work_is_settled_and_the_next_server_continues(project: Path) -> None:
    with start_working_server(project, "sleep 600", "--grace", "0") as (running, work, _):
        assert running.end(signal.SIGTERM) == 0
        assert work.state()["status"] in {"completed", "error"}
        session = work.session
    with (
        start_serve(project, "--auth", "none") as running,
        httpx2.Client(base_url=running.url, timeout=60) as client,
    ):
        assert client.get("/session/status").json() == {}
        sent = client.post(f"/weft/session/{session}/submit", json=prompt("go on", model=DEMO, noReply=True))
        assert sent.status_code == 200
        assert running.end(signal.SIGTERM) == 0


def test_a_second_signal_ends_the_server_at_once(project: Path) -> None:
    with start_working_server(project, "sleep 600", "--grace", "600") as (running, _, client):
        running.process.send_signal(signal.SIGTERM)
        running.wait_for_note("a second signal ends at once")
        assert client.get("/global/health").status_code == 200
        assert running.end(signal.SIGTERM) == 128 + signal.SIGTERM


def test_log_lines_are_json_on_request_and_contain_no_secret(project: Path) -> None:
    with start_serve(project, "--log-format", "json", "--access-log") as running:
        httpx2.get(
            f"{running.url}/session/ses_x/todo?password=s3cret", auth=("opencode", "s3cret"), timeout=60
        )
        running.wait_for_note('"status":401')
        assert running.end(signal.SIGTERM) == 0
        entries = [json.loads(line) for line in running.noted]
    assert "s3cret" not in "\n".join(running.noted)
    assert running.printed == []  # a program that reads both gets nothing but JSON
    assert (entries[0]["message"], entries[0]["directory"]) == ("serving", os.path.realpath(project))
    (visit,) = [entry for entry in entries if entry["message"] == "request"]
    assert {name: visit[name] for name in ("level", "method", "path", "status")} == {
        "level": "info",
        "method": "GET",
        "path": "/session/ses_x/todo",
        "status": 401,
    }
    assert all(entry["time"] > 1_600_000_000_000 for entry in entries)


# --- output that nobody reads ---


@contextmanager
def start_unread_server(
    project: Path, *arguments: str
) -> Iterator[tuple[subprocess.Popen[bytes], httpx2.Client, int]]:
    """Start a server whose output goes to a small pipe that nobody reads, and yield our end of the pipe."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ours, its = os.pipe()
    fcntl.fcntl(its, fcntl.F_SETPIPE_SZ, 4096)
    process = subprocess.Popen(
        [WEFT, "serve", "--port", str(port), "--auth", "none", *arguments],
        cwd=project,
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=its,
    )
    os.close(its)
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield process, client, ours
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_for(client: httpx2.Client, process: subprocess.Popen[bytes]) -> None:
    for _ in range(3000):
        assert process.poll() is None
        try:
            assert client.get("/global/health").status_code == 200
        except httpx2.ConnectError:
            threading.Event().wait(0.01)
        else:
            return
    raise AssertionError("it never answered")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_with_closed_stdout_continues_and_ends_at_the_first_signal(
    project: Path, number: int
) -> None:
    with start_unread_server(project, "--access-log") as (process, client, ours):
        assert os.read(ours, 20).startswith(b"weft serves ")
        gone = os.open(os.devnull, os.O_RDONLY)
        os.dup2(gone, ours)  # as `head -c 20` does when it has seen enough
        os.close(gone)
        wait_for(client, process)
        assert client.get("/session").json() == []
        process.send_signal(number)
        assert process.wait(60) == 0


def test_a_server_with_blocked_stdout_continues_and_ends_at_the_first_signal(project: Path) -> None:
    with start_unread_server(project, "--access-log") as (process, client, _):
        wait_for(client, process)
        for _ in range(300):  # far more lines than the pipe holds
            assert client.get("/session").json() == []
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
