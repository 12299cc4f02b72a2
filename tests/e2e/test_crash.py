"""Runs that are killed, and what the next run finds, on every store."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RUN = Path(__file__).parents[1] / "given" / "killed_run.py"
WEFT = str(Path(sys.executable).with_name("weft"))
SLOW_WORDS = json.dumps([[{"do": "say", "text": "word " * 2000}]])
KEPT = 50 * len("word ")
LONG_CALL = json.dumps(
    [
        [
            {"do": "say", "text": "I wait."},
            {
                "do": "call",
                "tool": "bash",
                "input": {"command": "echo begun; sleep 600", "description": "Wait"},
            },
        ]
    ]
)
LONG_TASK = json.dumps(
    [
        [
            {
                "do": "call",
                "tool": "task",
                "input": {"description": "Wait", "prompt": "Wait long.", "subagent_type": "general"},
            }
        ],
        [
            {"do": "say", "text": "I wait."},
            {"do": "call", "tool": "bash", "input": {"command": "sleep 600", "description": "Wait"}},
        ],
    ]
)
ANSWER = json.dumps([[{"do": "say", "text": "Here again."}]])


def start(directory: Path, script: str, session: str = "-") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(RUN), str(directory), session, script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_output(running: subprocess.Popen[str], word: str, times: int = 1) -> str:
    """Wait until the process has printed a word `times` times, and return the last such line."""
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith(word):
            times -= 1
            if times == 0:
                return line
    raise AssertionError(running.stderr.read() if running.stderr else "")


def kill(running: subprocess.Popen[str]) -> None:
    running.send_signal(signal.SIGKILL)
    running.communicate()


def document(directory: Path, session: str) -> dict[str, Any]:
    shown = subprocess.run(
        [WEFT, "session", "show", session, "--format", "json"],
        cwd=directory, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def print_command(directory: Path, *command: str) -> str:
    return subprocess.run(
        [WEFT, *command], cwd=directory, capture_output=True, text=True, check=True, timeout=60
    ).stdout


def continue_session(directory: Path, session: str) -> dict[str, Any]:
    again = start(directory, ANSWER, session)
    out, err = again.communicate(timeout=60)
    assert "answered" in out, err
    return document(directory, session)


def last_text(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


@pytest.fixture(params=["file:{0}/storage", "sqlite:{0}/sessions.db"])
def directory(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    monkeypatch.setenv("WEFT_STORE", request.param.format(tmp_path_factory.mktemp("store")))
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", "start"], cwd=tmp_path, check=True)
    return tmp_path


def test_a_kill_during_an_answer_keeps_its_text_and_the_next_prompt_is_answered(
    directory: Path,
) -> None:
    running = start(directory, SLOW_WORDS)
    session = wait_for_output(running, "session").split()[1]
    wait_for_output(running, "grew", times=150)
    # Published text is stored a quarter of a second later, or later on a busy machine, but long before the answer ends.
    while len(last_text(document(directory, session)["messages"][1])) < KEPT:
        wait_for_output(running, "grew")
    kill(running)
    after = continue_session(directory, session)
    roles = [message["info"]["role"] for message in after["messages"]]
    cut = after["messages"][1]

    assert roles == ["user", "assistant", "user", "assistant"]
    assert cut["info"]["error"]["name"] == "MessageAbortedError"
    assert cut["info"]["time"]["completed"]
    assert len(last_text(cut)) >= KEPT
    assert last_text(after["messages"][3]) == "Here again."


def test_the_cost_of_an_answer_that_a_kill_cut_off_is_unknown_everywhere(directory: Path) -> None:
    running = start(directory, SLOW_WORDS)
    session = wait_for_output(running, "session").split()[1]
    wait_for_output(running, "grew")
    kill(running)
    before = print_command(directory, "session", "show", session).splitlines()[-1]
    after = continue_session(directory, session)
    answers = [message["info"] for message in after["messages"] if message["info"]["role"] == "assistant"]
    shown = print_command(directory, "session", "show", session).splitlines()[-1]
    spent = json.loads(print_command(directory, "session", "cost", session, "--format", "json"))["own"]
    figures = json.loads(print_command(directory, "stats", "--format", "json"))["spent"]
    rows = print_command(directory, "sql", "select priced from steps order by created", "--format", "json")

    assert before == "2 messages · tokens unknown · cost unknown"
    assert [(each.get("priced", True), each.get("counted", True)) for each in answers] == [
        (False, False),
        (True, True),
    ]
    assert "and more: not every answer was counted" in shown
    assert shown.endswith(" and more: not all of the cost is known")
    assert [(each["priced"], each["counted"]) for each in (spent, figures)] == [(False, False)] * 2
    assert [row["priced"] for row in json.loads(rows)] == [0, 1]


def test_a_kill_during_a_tool_call_settles_it_and_ends_its_process(directory: Path) -> None:
    running = start(directory, LONG_CALL)
    session = wait_for_output(running, "session").split()[1]
    wait_for_output(running, "running")
    kill(running)
    after = continue_session(directory, session)
    (call,) = [part for part in after["messages"][1]["parts"] if part["type"] == "tool"]

    assert call["state"]["status"] == "error"
    assert call["state"]["error"].startswith("Tool execution was interrupted: weft died")
    assert call["state"]["input"]["command"] == "echo begun; sleep 600"
    assert last_text(after["messages"][3]) == "Here again."
    assert still_running(str(directory)) == []


def test_a_kill_during_a_child_session_settles_it_and_its_parent(directory: Path) -> None:
    running = start(directory, LONG_TASK)
    session = wait_for_output(running, "session").split()[1]
    wait_for_output(running, "running bash")
    kill(running)
    after = continue_session(directory, session)
    (call,) = [part for part in after["messages"][1]["parts"] if part["type"] == "tool"]
    child = document(directory, call["state"]["metadata"]["sessionId"])
    (command,) = [part for part in child["messages"][1]["parts"] if part["type"] == "tool"]

    assert child["info"]["parentID"] == session
    for left, state in ((after["messages"][1], call["state"]), (child["messages"][1], command["state"])):
        assert left["info"]["error"]["name"] == "MessageAbortedError"
        assert left["info"]["time"]["completed"]
        assert state["status"] == "error"
        assert state["error"].startswith("Tool execution was interrupted: weft died")
    assert last_text(after["messages"][3]) == "Here again."
    assert still_running(str(directory)) == []


def test_opening_a_store_settles_its_dead_runs(directory: Path) -> None:
    running = start(directory, LONG_CALL)
    left = wait_for_output(running, "session").split()[1]
    wait_for_output(running, "running")
    kill(running)
    other = start(directory, ANSWER)
    other.communicate(timeout=60)
    states = [
        p["state"]["status"]
        for m in document(directory, left)["messages"]
        for p in m["parts"]
        if p["type"] == "tool"
    ]

    assert states == ["error"]


def test_a_session_that_another_process_runs_is_busy_and_the_error_names_the_process(directory: Path) -> None:
    running = start(directory, LONG_CALL)
    session = wait_for_output(running, "session").split()[1]
    wait_for_output(running, "running")
    second = subprocess.run(
        [WEFT, "run", "-m", "scripted/demo", "-s", session, "me too"],
        cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    kill(running)

    assert second.returncode == 8
    assert f"Session {session} is busy" in second.stderr
    assert f"process {running.pid}" in second.stderr
    assert [m["info"]["role"] for m in document(directory, session)["messages"]] == ["user", "assistant"]


def test_a_session_that_another_process_answers_is_not_continued_without_words(directory: Path) -> None:
    running = start(directory, SLOW_WORDS)
    session = wait_for_output(running, "session").split()[1]
    wait_for_output(running, "grew")
    second = subprocess.run(
        [WEFT, "run", "-m", "scripted/demo", "-s", session],
        cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    kill(running)

    assert second.returncode == 8, second.stderr
    assert f"process {running.pid}" in second.stderr


def still_running(directory: str) -> list[str]:
    """Return the processes whose working directory is this one."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd") == directory:
                found.append(Path(f"/proc/{pid}/cmdline").read_text())
        except OSError:
            continue
    return found
