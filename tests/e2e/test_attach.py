"""`weft run --attach` and `weft attach`, against a server over real HTTP."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from given.http_server import ProjectServer, serve_project
from weft.provider.scripted import Fail, Say, UseTool, Wait
from weft.server.access import AccessPolicy


def weft(*arguments: str, typed: str = "", cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "weft", *arguments],
        input=typed,
        cwd=cwd,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProjectServer]:
    with serve_project(tmp_path, [[Say(text="Here is a short answer.")]] * 10) as server:
        yield server


def test_a_prompt_runs_on_the_server_and_is_shown_here(server: ProjectServer, tmp_path: Path) -> None:
    done = weft("run", "--attach", server.url, "--title", "Mine", "hello", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Here is a short answer.\n"), done.stderr
    (session,) = server.get("/session")
    assert (session["title"], session["directory"]) == ("Mine", str(server.project))
    again = weft("run", "--attach", server.url, "-c", "--format", "json", "more", cwd=tmp_path)
    result = json.loads(again.stdout.splitlines()[-1])
    assert (result["status"], result["text"]) == ("done", "Here is a short answer.")
    assert len(server.get(f"/session/{session['id']}/message")) == 4


def test_options_that_only_work_locally_are_refused(server: ProjectServer, tmp_path: Path) -> None:
    for option in (["--record", "tape"], ["--replay", "tape"], ["--store", "memory:"]):
        done = weft("run", "--attach", server.url, *option, "hello", cwd=tmp_path)
        assert done.returncode == 2
        assert "not with --attach" in done.stderr
    assert server.get("/session") == []


def test_without_a_user_a_permission_request_is_refused_with_a_message(tmp_path: Path) -> None:
    script = [[UseTool(tool="bash", input={"command": "echo hi", "description": "x"})], [Say(text="Done.")]]
    with serve_project(tmp_path, script, config={"permission": {"bash": "ask"}}) as server:
        done = weft("run", "--attach", server.url, "hello", cwd=tmp_path)
        assert done.returncode == 3, done.stderr
        assert "nobody was there to allow bash echo hi" in done.stderr
        assert server.get("/permission") == []


def test_a_wrong_password_is_wrong_usage(tmp_path: Path) -> None:
    with serve_project(tmp_path, [[Say(text="Here.")]], access=AccessPolicy(password="right")) as server:
        address = server.url.replace("http://", "http://opencode:wrong@")
        done = weft("run", "--attach", address, "hello", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the password is wrong\n       set OPENCODE_SERVER_PASSWORD" in done.stderr


def test_a_missing_server_is_reported(tmp_path: Path) -> None:
    done = weft("run", "--attach", "http://127.0.0.1:9", "hello", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "weft serve starts one" in done.stderr


def test_a_conversation_works_line_by_line(server: ProjectServer, tmp_path: Path) -> None:
    done = weft("attach", server.url, typed="hello\n/help\n", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Here is a short answer.\n"
    (session,) = server.get("/session")
    again = weft("attach", server.url, "-s", session["id"], typed="/nonsense\nmore\n/exit\n", cwd=tmp_path)
    assert again.returncode == 2, again.stderr
    assert "> hello" in again.stderr
    assert "there is no command 'nonsense'" in again.stderr
    copied = weft("attach", server.url, "-s", session["id"], "--fork", typed="aside\n", cwd=tmp_path)
    assert copied.returncode == 0, copied.stderr
    assert len(server.get("/session")) == 2
    assert weft("attach", server.url, "--fork", cwd=tmp_path).returncode == 2


def test_an_earlier_answer_is_printed_without_the_attempts_that_failed(tmp_path: Path) -> None:
    broken = Fail(message="reset", kind="network", retryable=True, wait_ms=1)
    with serve_project(tmp_path, [[Say(text="half an"), broken], [Say(text="a whole answer")]]) as server:
        assert weft("run", "--attach", server.url, "--title", "Mine", "hello", cwd=tmp_path).returncode == 0
        again = weft("attach", server.url, "-c", typed="/exit\n", cwd=tmp_path)
        assert again.stdout == "a whole answer\n", again.stderr


def test_a_session_is_named_by_the_start_of_its_id_or_as_the_last_one(
    server: ProjectServer, tmp_path: Path
) -> None:
    for number in range(2):
        server.post("/session", {"title": f"Number {number}"})
    newer, older = server.get("/session")
    for typed, session in [("last", newer), (older["id"][:-3], older), (older["id"][4:-3], older)]:
        done = weft("attach", server.url, "-s", typed, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert session["id"] in done.stderr
    done = weft("run", "--attach", server.url, "-s", "last", "hello", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Here is a short answer.\n"), done.stderr
    assert len(server.get(f"/session/{newer['id']}/message")) == 2
    ambiguous = weft("attach", server.url, "-s", "ses_", cwd=tmp_path)
    assert ambiguous.returncode == 2
    assert older["id"] in ambiguous.stderr
    unknown = weft("attach", server.url, "-s", "nonsense", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "there is no session 'nonsense'" in unknown.stderr


def test_a_mistake_leaves_no_empty_session_behind(server: ProjectServer, tmp_path: Path) -> None:
    for options, line, message in [
        ([], "/nonsense", "there is no command 'nonsense'"),
        (["--agent", "nonsense"], "hello", "there is no agent 'nonsense'"),
        (["-m", "nonsense/x"], "hello", "nonsense"),
        (["--variant", "nonsense"], "hello", "scripted/test has no 'nonsense'"),
    ]:
        done = weft("attach", server.url, *options, typed=f"{line}\n", cwd=tmp_path)
        assert message in done.stderr
        assert done.returncode == 2
    assert server.get("/session") == []


def test_piped_input_ends_with_the_code_of_the_first_line_that_failed(tmp_path: Path) -> None:
    script = [
        [Fail(message="no credit", status=402)],
        [Say(text="Here.")],
        [Fail(message="again", status=402)],
    ]
    with serve_project(tmp_path, script) as server:
        assert weft("attach", server.url, typed="!exit 3\n", cwd=tmp_path).returncode == 0
        failed = weft("attach", server.url, "--agent", "plan", typed="hello\n", cwd=tmp_path)
        assert (failed.returncode, failed.stdout) == (1, ""), failed.stderr
        assert "no credit" in failed.stderr
        assert weft("attach", server.url, "-s", "last", typed="hello\n", cwd=tmp_path).returncode == 0
        both = weft("attach", server.url, "-s", "last", typed="/nonsense\nhello\n", cwd=tmp_path)
        assert both.returncode == 2, both.stderr
        assert "again" in both.stderr


def test_piped_commands_have_the_agent_that_was_chosen(tmp_path: Path) -> None:
    config = {"command": {"weave": {"template": "Weave $ARGUMENTS"}}}
    with serve_project(tmp_path, config=config) as server:
        for line in ("/weave cloth", "!echo hi"):
            done = weft("attach", server.url, "--agent", "plan", typed=f"{line}\n", cwd=tmp_path)
            assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr
        prompts = [server.get(f"/session/{each['id']}/message")[0] for each in server.get("/session")]
    assert [each["info"]["agent"] for each in prompts] == ["plan", "plan"]


def test_a_permission_request_stays_open_after_piped_input_has_ended(tmp_path: Path) -> None:
    script = [[UseTool(tool="bash", input={"command": "echo hi", "description": "x"})], [Say(text="Done.")]]
    with serve_project(tmp_path, script, config={"permission": {"bash": "ask"}}) as server:
        done = weft("attach", server.url, typed="hello\n", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (3, ""), done.stderr
        (session,) = server.get("/session")
        assert f"continue: weft attach {server.url} -s {session['id']}" in done.stderr
        (request,) = server.get("/permission")
        assert request["sessionID"] == session["id"]


def test_requests_are_answered_at_the_terminal(tmp_path: Path) -> None:
    script = [[UseTool(tool="bash", input={"command": "echo hi", "description": "x"})], [Say(text="Done.")]]
    with serve_project(tmp_path, script, config={"permission": {"bash": "ask"}}) as server:
        talking = subprocess.Popen(
            [sys.executable, "-m", "weft", "attach", server.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        assert talking.stdin is not None
        assert talking.stderr is not None
        talking.stdin.write("hello\n")
        talking.stdin.flush()
        while "• echo hi" not in (line := talking.stderr.readline()):
            assert line, "it ended and did not ask"
        said, _ = talking.communicate("once\n", timeout=60)
        assert (talking.returncode, said) == (0, "Done.\n")


def test_an_interrupt_ends_the_run_on_the_server(tmp_path: Path) -> None:
    with serve_project(tmp_path, [[Say(text="Wait"), Wait(seconds=600)]]) as server:
        running = subprocess.Popen(
            [sys.executable, "-m", "weft", "run", "--attach", server.url, "hello"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        assert running.stdout is not None
        assert running.stdout.read(4) == "Wait"
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
        assert running.returncode == 130
        assert server.get("/session/status") == {}
        (session,) = server.get("/session")
        last = server.get(f"/session/{session['id']}/message")[-1]
        assert last["info"]["error"]["name"] == "MessageAbortedError"
