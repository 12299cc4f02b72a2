"""`weft serve` as a process: who has access, what it prints, and how it exits."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx2
import pytest

from given.http_server import make_project, prompt
from given.serve_process import DEMO, WEFT, start_serve
from weft.host.machine import SERVER_COLLECT_AFTER

ARENA_BYTES = 64 << 20


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project")


def password_file() -> Path:
    return Path(os.environ["XDG_STATE_HOME"]) / "opencode" / "weft" / "server-password"


def test_a_password_is_created_once_readable_by_its_owner_only(project: Path) -> None:
    with start_serve(project) as running:
        secret = password_file().read_text().strip()
        assert password_file().stat().st_mode & 0o777 == 0o600
        assert httpx2.get(f"{running.url}/path", timeout=60).status_code == 401
        assert httpx2.get(f"{running.url}/global/health", timeout=60).status_code == 401
        assert httpx2.get(f"{running.url}/path", auth=("opencode", "wrong"), timeout=60).status_code == 401
        path = httpx2.get(f"{running.url}/path", auth=("opencode", secret), timeout=60).json()
        assert path["directory"] == str(project)
        assert secret not in "\n".join(running.printed + running.noted)
        assert running.end(signal.SIGTERM) == 0
    with start_serve(project) as running:
        assert httpx2.get(f"{running.url}/path", auth=("opencode", secret), timeout=60).status_code == 200
        assert running.end(signal.SIGINT) == 0


def test_serve_prints_a_command_for_each_client(project: Path) -> None:
    with start_serve(project) as running:
        lines = [line.strip() for line in running.printed if line.startswith("  ")]
        assert [
            re.sub(r'"\$\(cat [^)]+\)"', "SECRET", line).replace(running.url, "URL") for line in lines[:6]
        ] == [
            "weft web URL",
            "weft attach URL",
            'weft run --attach URL "hello"',
            "OPENCODE_SERVER_PASSWORD=SECRET opencode attach URL",
            'OPENCODE_SERVER_PASSWORD=SECRET opencode run --attach URL "hello"',
            "curl -u opencode:SECRET URL/session",
        ]
        ran = subprocess.run(["sh", "-c", lines[5]], capture_output=True, text=True, check=False, timeout=60)
        assert (ran.returncode, ran.stdout) == (0, "[]")


def test_a_password_of_the_environment_has_precedence(project: Path) -> None:
    with start_serve(project, OPENCODE_SERVER_PASSWORD="chosen", OPENCODE_SERVER_USERNAME="ada") as running:
        assert httpx2.get(f"{running.url}/path", auth=("ada", "chosen"), timeout=60).status_code == 200
        assert httpx2.get(f"{running.url}/path", auth=("opencode", "chosen"), timeout=60).status_code == 401
        assert not password_file().exists()


def test_without_a_password_only_this_machine_is_served(project: Path) -> None:
    with start_serve(project, "--auth", "none") as running:
        assert httpx2.get(f"{running.url}/path", timeout=60).status_code == 200
        assert (
            httpx2.get(f"{running.url}/path", headers={"host": "evil.example"}, timeout=60).status_code == 403
        )
        assert (
            httpx2.get(
                f"{running.url}/path", headers={"origin": "https://evil.example"}, timeout=60
            ).status_code
            == 403
        )
    for arguments in (("--auth", "none", "--hostname", "0.0.0.0"), ("--hostname", "0.0.0.0")):
        refused = subprocess.run(
            [WEFT, "serve", *arguments], cwd=project, capture_output=True, text=True, check=False, timeout=30
        )
        assert refused.returncode == 2
        assert "OPENCODE_SERVER_PASSWORD" in refused.stderr


def test_a_password_file_that_others_can_read_is_not_used(project: Path) -> None:
    password_file().parent.mkdir(parents=True)
    password_file().write_text("known to all")
    password_file().chmod(0o644)
    refused = subprocess.run(
        [WEFT, "serve", "--port", "0"], cwd=project, capture_output=True, text=True, check=False, timeout=30
    )
    assert refused.returncode == 2
    assert "known to all" not in refused.stderr


def test_a_listed_origin_may_call_the_server(project: Path) -> None:
    page = {"origin": "https://mine.example"}
    with start_serve(project, "--auth", "none", "--cors", "https://mine.example") as running:
        answer = httpx2.get(f"{running.url}/path", headers=page, timeout=60)
        assert answer.headers["access-control-allow-origin"] == "https://mine.example"
        asked = httpx2.options(
            f"{running.url}/session", headers={**page, "access-control-request-method": "POST"}, timeout=60
        )
        assert asked.status_code == 204


def test_the_access_log_contains_no_secret(project: Path) -> None:
    with start_serve(project, "--access-log") as running:
        httpx2.get(f"{running.url}/path?password=s3cret", auth=("opencode", "s3cret"), timeout=60)
        running.wait_for_note("GET /path 401")
        assert "s3cret" not in "\n".join(running.noted)


def test_the_first_signal_settles_runs_and_ends_streams(project: Path) -> None:
    with (
        start_serve(project, "--auth", "none") as running,
        httpx2.Client(base_url=running.url, timeout=60) as client,
    ):
        session = client.post("/session").json()["id"]
        heard: list[str] = []
        connected = threading.Event()

        def listen() -> None:
            with httpx2.stream("GET", f"{running.url}/event", timeout=60) as stream:
                for line in stream.iter_lines():
                    if line.startswith("data: "):
                        heard.append(json.loads(line[6:])["type"])
                        connected.set()

        listener = threading.Thread(target=listen)
        listener.start()
        assert connected.wait(60)
        sent = client.post(f"/session/{session}/prompt_async", json=prompt("go", model=DEMO))
        assert sent.status_code == 204
        assert running.end(signal.SIGTERM) == 0
        listener.join(60)
        assert not listener.is_alive()
        assert heard[-1] == "server.instance.disposed"
    shown = subprocess.run(
        [WEFT, "session", "show", session, "--format", "json"],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    messages = json.loads(shown.stdout)["messages"]
    states = [
        part["state"]["status"] for each in messages for part in each["parts"] if part["type"] == "tool"
    ]
    assert set(states) <= {"completed", "error"}
    assert all(
        "completed" in each["info"]["time"] for each in messages if each["info"]["role"] == "assistant"
    )


def test_no_process_survives_the_server_however_it_dies(project: Path) -> None:
    with start_serve(project, "--auth", "none") as running:
        made = httpx2.post(f"{running.url}/pty", json={"command": "cat", "args": []}, timeout=60).json()
        assert Path(f"/proc/{made['pid']}").exists()
        running.end(signal.SIGKILL)
        for _ in range(6000):
            if not Path(f"/proc/{made['pid']}").exists():
                return
            threading.Event().wait(0.005)
        raise AssertionError("it is still there")


def test_configured_options_apply_unless_overridden(project: Path) -> None:
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
    own.mkdir(parents=True)
    (own / "opencode.json").write_text(
        json.dumps({"server": {"hostname": "127.0.0.2", "cors": ["https://mine.example"]}})
    )
    (project / "opencode.json").write_text(json.dumps({"server": {"cors": ["https://evil.example"]}}))
    with start_serve(project, "--auth", "none") as running:
        assert running.url.startswith("http://127.0.0.2:")
        mine = httpx2.get(f"{running.url}/path", headers={"origin": "https://mine.example"}, timeout=60)
        evil = httpx2.get(f"{running.url}/path", headers={"origin": "https://evil.example"}, timeout=60)
        assert (mine.status_code, evil.status_code) == (200, 403)


def test_a_port_in_use_is_reported(project: Path) -> None:
    with start_serve(project, "--auth", "none") as running:
        port = running.url.rsplit(":", 1)[1]
        refused = subprocess.run(
            [WEFT, "serve", "--auth", "none", "--port", port],
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert refused.returncode == 2
    assert f"127.0.0.1:{port}" in refused.stderr


# --- as programs that know OpenCode start it ---


def test_programs_that_start_opencode_find_its_output_line_and_flags(
    project: Path,
) -> None:
    flags = (
        "--hostname=127.0.0.1",
        "--log-level=INFO",
        "--print-logs",
        "--mdns",
        "--cors",
        "http://a",
        "http://b",
    )
    with start_serve(project, *flags, WEFT_SERVE_AUTH="none") as running:
        assert [line for line in running.printed if line.startswith("opencode server listening")] == [
            f"opencode server listening on {running.url}"
        ]
        for origin in ("http://a", "http://b"):
            answer = httpx2.get(f"{running.url}/path", headers={"origin": origin}, timeout=60)
            assert answer.status_code == 200
        running.wait_for_note("--mdns")
        assert running.end(signal.SIGTERM) == 0


def test_only_messages_of_the_requested_level_are_logged(project: Path) -> None:
    with start_serve(project, "--access-log", "--log-level", "WARN", WEFT_SERVE_AUTH="none") as running:
        assert httpx2.get(f"{running.url}/path", timeout=60).status_code == 200
        assert running.end(signal.SIGTERM) == 0
    assert running.noted == []


def test_an_unknown_authentication_mode_is_refused(project: Path) -> None:
    refused = subprocess.run(
        [WEFT, "serve", "--port", "0"],
        cwd=project,
        env={**os.environ, "WEFT_SERVE_AUTH": "off"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "WEFT_SERVE_AUTH" in refused.stderr


def test_the_threads_of_a_server_share_two_arenas_of_memory(project: Path) -> None:
    with start_serve(project, "--auth", "none") as running:
        for number in range(4):
            httpx2.post(f"{running.url}/session", json={"title": f"Cloth {number}"}, timeout=60)
        process = Path(f"/proc/{running.process.pid}")
        threads = len(list((process / "task").iterdir()))
        # Each arena but the first lies at a multiple of 64 MB, of which it has reserved the rest.
        maps = [line.split() for line in (process / "maps").read_text().splitlines()]
        starts = [int(each[0].partition("-")[0], 16) for each in maps if each[1] == "rw-p" and each[4] == "0"]
        assert threads > 3
        assert sum(start % ARENA_BYTES == 0 for start in starts) <= 1


# Runs `weft serve`, prints the settings of the garbage collector when it is ready, and ends it.
PRINT_COLLECTOR_SETTINGS = """
import gc, os, signal, sys
from weft.__main__ import COLLECT_AFTER
from weft.cli.main import parse_arguments
from weft.cli.serve import serve

def report(*_):
    sys.stderr.write(f"{gc.get_threshold()[0]} {gc.get_freeze_count() > 0}")
    os.kill(os.getpid(), signal.SIGTERM)

gc.set_threshold(COLLECT_AFTER)
sys.exit(serve(parse_arguments(["serve", "--port", "0"]), on_ready=report))
"""


def test_a_server_runs_the_garbage_collector_more_often_than_a_command(project: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", PRINT_COLLECTOR_SETTINGS],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert told.stderr.startswith(f"{SERVER_COLLECT_AFTER} True")
