"""Readiness and metrics of a server."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from given.http_server import ProjectServer, prompt, serve_project
from weft.server.access import AccessPolicy


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProjectServer]:
    with serve_project(tmp_path) as server:
        yield server


def numbers(server: ProjectServer) -> dict[str, float]:
    answer = server.client.get("/weft/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_metrics_count_what_was_done(server: ProjectServer) -> None:
    session = server.post("/session", {"title": "counted"})["id"]
    with server.client.stream("GET", "/event") as events:
        heard = events.iter_lines()
        next(heard)
        server.post(f"/session/{session}/message", prompt("hi"))
        server.post(f"/session/{session}/fork")
        during = numbers(server)
        assert (during["weft_streams"], during["weft_directories"]) == (1, 1)
    server.client.get("/session/ses_00000000000000000000000000/todo")
    server.client.get("/nothing/here")
    found = numbers(server)
    assert {
        name: found[name]
        for name in ("weft_runs", "weft_runs_total", "weft_prompts_total", "weft_steps_total", "weft_ending")
    } == {
        "weft_runs": 0,
        "weft_runs_total": 1,
        "weft_prompts_total": 1,
        "weft_steps_total": 1,
        "weft_ending": 0,
    }
    assert found['weft_tokens_total{kind="output"}'] > 0
    asked = 'method="POST",route="/session/{sessionID}/message"'
    assert found[f'weft_requests_total{{{asked},status="200"}}'] == 1
    assert found[f"weft_request_seconds_count{{{asked}}}"] == 1
    assert found['weft_requests_total{method="GET",route="/session/{sessionID}/todo",status="404"}'] == 1
    assert found['weft_requests_total{method="GET",route="unknown",status="404"}'] == 1
    assert found["weft_events_total"] > 5
    assert not any(re.search(r"_seconds_.*/event", name) for name in found)
    assert session not in str(found)


def test_metrics_and_readiness_need_the_password(tmp_path: Path) -> None:
    with serve_project(tmp_path, access=AccessPolicy(password="secret")) as server:
        for path in ("/weft/metrics", "/weft/ready"):
            assert server.client.get(path).status_code == 401
            assert (
                httpx2.get(f"{server.url}{path}", auth=("opencode", "secret"), timeout=60).status_code == 200
            )
        refused = httpx2.get(f"{server.url}/weft/metrics", auth=("opencode", "secret"), timeout=60).text
        assert 'weft_requests_total{method="GET",route="unknown",status="401"} 2' in refused


def test_a_server_is_ready_while_it_can_store(server: ProjectServer, tmp_path: Path) -> None:
    assert server.get("/weft/ready") == {"ready": True, "reasons": []}
    kept = tmp_path / "storage" / ".weft" / "kept"
    os.rename(kept, kept.with_name("aside"))
    kept.write_text("in the way")
    assert server.get("/weft/ready", 503) == {
        "ready": False,
        "reasons": ["StoreError: nothing can be stored"],
    }
    os.unlink(kept)
    os.rename(kept.with_name("aside"), kept)
    assert server.get("/weft/ready") == {"ready": True, "reasons": []}
    assert list(kept.glob("weft-probe*")) == []


def test_the_container_health_check_works_with_any_user_name(tmp_path: Path) -> None:
    container = (Path(__file__).parents[2] / "deploy" / "Containerfile").read_text()
    (line,) = re.findall(r"^HEALTHCHECK .* CMD (\[.+\])$", container, re.MULTILINE)
    program: str = json.loads(line)[-1]
    with serve_project(tmp_path, access=AccessPolicy(password="s3cret", username="grace")) as server:
        asked = program.replace("http://127.0.0.1:4096", server.url)
        for password, code in (("s3cret", 0), ("wrong", 1)):
            credentials = {"OPENCODE_SERVER_USERNAME": "grace", "OPENCODE_SERVER_PASSWORD": password}
            done = subprocess.run(
                [sys.executable, "-c", asked], env=credentials, capture_output=True, timeout=60, check=False
            )
            assert done.returncode == code, done.stderr
