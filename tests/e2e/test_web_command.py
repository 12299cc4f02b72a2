"""`weft web`: starts a server if none runs, or finds the one that does, and prints a link that logs a browser in."""

import os
import re
import signal
import subprocess
from pathlib import Path

import httpx2

from given.serve_process import WEFT, start_serve

LINK = re.compile(r"open (http://\S+?)/#login=(\S+)")


def run_web(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [WEFT, "web", "--no-open", *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=60, check=False)


def can_log_in(url: str, ticket: str) -> bool:
    with httpx2.Client(base_url=url) as browser:
        browser.post("/web/login", json={"ticket": ticket})
        return browser.get("/session").status_code == 200


def test_the_link_of_a_running_server_logs_in_once(tmp_path: Path) -> None:
    with start_serve(tmp_path) as server:
        done = run_web(tmp_path, server.url)
        assert done.returncode == 0, done.stderr
        link = LINK.search(done.stdout)
        assert link is not None, done.stdout
        assert link[1] == server.url
        assert can_log_in(link[1], link[2])
        assert not can_log_in(link[1], link[2])


def test_without_a_server_one_is_started(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [WEFT, "web", "--no-open", "--port", "0", "--grace", "0"],
        cwd=tmp_path,
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("weft serves ")
        link = next(found for line in process.stdout if (found := LINK.search(line)))
        assert can_log_in(link[1], link[2])
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        process.wait(60)
        process.stdout.close()
    assert process.returncode == 0


def test_the_error_for_a_missing_server_says_how_to_start_one(tmp_path: Path) -> None:
    done = run_web(tmp_path, "http://127.0.0.1:9")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no server of weft answers at http://127.0.0.1:9" in done.stderr
    assert "weft serve" in done.stderr


def test_a_server_without_a_password_needs_no_login(tmp_path: Path) -> None:
    with start_serve(tmp_path, "--auth", "none") as server:
        assert run_web(tmp_path, server.url).stdout == f"open {server.url}/\n"
