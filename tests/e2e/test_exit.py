"""How `weft run` exits: one test for each exit code, the last JSON line, and that it always exits."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from given.web import Answer, open_web

WEFT = str(Path(sys.executable).with_name("weft"))
CHAT = "/v1/chat/completions"
DEMO = ("-m", "scripted/demo")


class Workspace:
    """A repository and its configuration."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "greet.py").write_text(
            'def main():\n    print("Hello, world!")\n\n\nif __name__ == "__main__":\n    main()\n'
        )
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)

    def configure(self, **said: Any) -> None:
        (self.root / "opencode.json").write_text(json.dumps(said))

    def configure_user(self, **said: Any) -> None:
        own = Path(os.environ["XDG_CONFIG_HOME"], "opencode")
        own.mkdir(parents=True, exist_ok=True)
        (own / "opencode.json").write_text(json.dumps(said))

    def weft(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [WEFT, *arguments],
            cwd=self.root,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def result(self, *arguments: str, **env: str) -> tuple[int, dict[str, Any]]:
        """Return the exit code and the last JSON line."""
        ran = self.weft("run", "--format", "json", *arguments, **env)
        last: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
        return ran.returncode, last

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [WEFT, "run", *arguments],
            cwd=self.root,
            stdin=more.pop("stdin", subprocess.DEVNULL),
            stdout=more.pop("stdout", subprocess.PIPE),
            stderr=more.pop("stderr", subprocess.PIPE),
            text=True,
            **more,
        )

    def last_message(self) -> dict[str, Any]:
        shown = json.loads(self.weft("session", "show", "last", "--format", "json").stdout)
        found: dict[str, Any] = shown["messages"][-1]
        return found


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


class Turns(dict[str, Answer]):
    """Answers in order; the last one repeats."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__()
        self._answers = list(answers)

    def get(self, path: str, otherwise: Any = None) -> Any:
        if path != CHAT:
            return otherwise
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def chat(delta: Mapping[str, Any], reason: str) -> Answer:
    chunks = [
        {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]},
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 100}},
    ]
    lines = [f"data: {json.dumps(each)}\n\n".encode() for each in chunks]
    return Answer(b"".join(lines) + b"data: [DONE]\n\n", kind="text/event-stream")


SAYS = chat({"role": "assistant", "content": "Well woven"}, "stop")


def calls(tool: str, **arguments: str) -> Answer:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    return chat({"role": "assistant", "tool_calls": [call]}, "tool_calls")


CALLS = calls("glob", pattern="*.py")
BUSY = Answer(b'{"error": {"message": "overloaded"}}', status=503)
WRONG = Answer(b'{"error": {"message": "no such thing"}}', status=400)


def make_config(url: str) -> str:
    model = {"limit": {"context": 100_000, "output": 1_000}, "cost": {"input": 1, "output": 10}}
    options = {"baseURL": f"{url}/v1", "apiKey": "sk-x"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": model}}
    return json.dumps({"provider": {"mill": provider}})


def run_with_answers(
    workspace: Workspace, *answers: Answer, flags: tuple[str, ...] = ()
) -> tuple[int, dict[str, Any]]:
    """Return the result of a run whose model gives these answers."""
    with open_web(Turns(*answers)) as web:
        return workspace.result("-m", "mill/m", *flags, "weave", OPENCODE_CONFIG_CONTENT=make_config(web.url))


def hear(source: int, word: bytes) -> bytes:
    """Read from a terminal or a pipe until a word arrives."""
    heard = b""
    while word not in heard:
        ready, _, _ = select.select([source], [], [], 60)
        assert ready, heard
        heard += os.read(source, 4096)
    return heard


def list_complaints(said: str) -> list[str]:
    """Return stderr without warnings about tasks that a busy machine did not close within two seconds."""
    return [
        line
        for line in said.splitlines()
        if not line.startswith("weft exited while these were still running: ")
    ]


def test_a_run_that_is_done_exits_with_0_and_its_last_line_reports_the_result(workspace: Workspace) -> None:
    code, result = run_with_answers(workspace, SAYS)
    last = workspace.last_message()

    assert code == 0, result
    assert result == {
        "type": "result",
        "timestamp": result["timestamp"],
        "sessionID": last["info"]["sessionID"],
        "messageID": last["info"]["id"],
        "status": "done",
        "exitCode": 0,
        "text": "Well woven",
        "finish": "stop",
        "model": {"providerID": "mill", "modelID": "m"},
        "agent": "build",
        "steps": 1,
        "cost": 0.002,
        "priced": True,
        "tokens": {"input": 1000, "output": 100, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        "counted": True,
    }


def test_a_run_whose_failure_a_retry_overcame_exits_with_0(workspace: Workspace) -> None:
    code, result = run_with_answers(workspace, BUSY, SAYS)

    assert (code, result["status"], result["text"]) == (0, "done", "Well woven")


def test_a_run_whose_provider_refuses_exits_with_1(workspace: Workspace) -> None:
    code, result = run_with_answers(workspace, WRONG)

    assert (code, result["status"], result["error"]["name"]) == (1, "failed", "APIError")


def test_wrong_usage_exits_with_2_and_creates_no_session(workspace: Workspace) -> None:
    for wrong in (
        ["--max-cost", "a lot"],
        ["--max-cost", "0"],
        ["--max-steps", "0"],
        ["--max-seconds", "-1"],
    ):
        ran = workspace.weft("run", *DEMO, *wrong, "go")
        assert ran.returncode == 2, wrong
        assert wrong[0] in ran.stderr
    assert workspace.weft("session", "list", "--format", "json").stdout.strip() == "[]"


def test_a_permission_request_without_a_user_exits_with_3(workspace: Workspace) -> None:
    workspace.configure(permission={"edit": "ask"})
    code, result = workspace.result(*DEMO, "go")

    assert (code, result["status"]) == (3, "refused")


def test_a_run_stopped_by_its_budget_exits_with_4_and_can_be_continued(workspace: Workspace) -> None:
    stopped = workspace.weft("run", *DEMO, "--max-steps", "2", "go")
    failure = workspace.last_message()["info"]["error"]
    again = workspace.weft("run", "--continue")

    assert stopped.returncode == 4, stopped.stderr
    assert "warning: the next call brings this run to 2 of 2 steps" in stopped.stderr
    assert "give it more with --max-steps" in stopped.stderr
    assert failure["name"] == "BudgetExceededError"
    assert {key: failure["data"][key] for key in ("scope", "measure", "limit", "spent")} == {
        "scope": "run",
        "measure": "steps",
        "limit": 2,
        "spent": 2,
    }
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("scope", ["session", "tree", "day"])
def test_a_run_exits_with_4_if_earlier_runs_used_up_a_configured_budget_until_it_is_raised(
    workspace: Workspace, scope: str
) -> None:
    def budget(steps: int) -> None:
        workspace.configure(experimental={"weft": {"budget": {scope: {"steps": steps}}}})

    budget(4)
    first, _ = workspace.result(*DEMO, "go")
    second, result = workspace.result(*DEMO, "--continue", "more")
    budget(5)
    third, raised = workspace.result(*DEMO, "--continue", "more", "--max-steps", "1")

    assert (first, second, third) == (0, 4, 4)
    assert (result["status"], result["error"]["data"]["scope"]) == ("budget", scope)
    assert raised["error"]["data"]["scope"] == "run"
    assert f"experimental.weft.budget.{scope}.steps" in result["error"]["data"]["hint"]


def test_a_run_stopped_by_a_budget_of_cost_exits_with_4(workspace: Workspace) -> None:
    code, result = run_with_answers(workspace, CALLS, SAYS, flags=("--max-cost", "0.02"))

    # The first call is estimated at 8,000 tokens, and uses 1,000. Later estimates are based on that.
    assert (code, result["cost"]) == (0, 0.004)
    assert run_with_answers(workspace, CALLS, flags=("--max-cost", "0.001"))[0] == 4


def test_an_invalid_budget_is_refused_with_its_position(workspace: Workspace) -> None:
    workspace.configure(experimental={"weft": {"budget": {"session": {"cost": "lots"}}}})
    ran = workspace.weft("run", *DEMO, "go")

    assert ran.returncode == 2
    assert "experimental.weft.budget.session.cost: expected dollars such as" in ran.stderr


def test_a_run_past_its_deadline_exits_with_5(workspace: Workspace) -> None:
    workspace.configure_user(experimental={"weft": {"deadlines": {"turn": 1}}})
    code, result = workspace.result(*DEMO, "go")

    assert (code, result["status"], result["error"]["name"]) == (5, "timeout", "DeadlineError")


def test_a_run_whose_model_repeats_itself_exits_with_6(workspace: Workspace) -> None:
    code, result = run_with_answers(workspace, CALLS)

    assert (code, result["status"]) == (6, "loop")


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_settles_the_run_and_sets_the_exit_code(
    workspace: Workspace, sent: signal.Signals, code: int
) -> None:
    running = workspace.start(*DEMO, "--format", "json", "go")
    assert running.stdout is not None
    first = running.stdout.readline()
    assert '"step_start"' in first, (first, running.communicate())
    running.send_signal(sent)
    out, err = running.communicate(timeout=60)
    result = json.loads(out.splitlines()[-1])
    last = workspace.last_message()

    assert running.returncode == code
    assert list_complaints(err) == []
    assert (result["type"], result["status"], result["exitCode"]) == ("result", "interrupted", code)
    assert last["info"]["error"]["name"] == "MessageAbortedError"
    assert last["info"]["time"]["completed"]


def test_the_second_signal_ends_the_run_and_its_command_at_once(workspace: Workspace) -> None:
    pipe = workspace.root / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    # It writes to the pipe when it has begun, and keeps it open for as long as it lives.
    command = f"trap '' INT TERM; exec 9>{pipe}; echo begun >&9; while true; do sleep 60; done"
    with open_web(Turns(calls("bash", command=command, description="Hold on"))) as web:
        config = {**os.environ, "OPENCODE_CONFIG_CONTENT": make_config(web.url)}
        running = workspace.start("-m", "mill/m", "hold on", env=config)
        begun = hear(reading, b"begun\n")
        running.send_signal(signal.SIGINT)
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=60)
        ended, _, _ = select.select([reading], [], [], 60)
        left = os.read(reading, 1) if ended else b"somebody"
    os.close(reading)

    assert (begun, left) == (b"begun\n", b"")
    assert running.returncode in (130, 143)
    assert "Traceback" not in said


def test_a_run_whose_stdout_is_closed_exits_with_141(workspace: Workspace) -> None:
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{WEFT} run -m scripted/demo --format json go | head -n 1"],
        cwd=workspace.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    last = workspace.last_message()

    assert (ran.returncode, list_complaints(ran.stderr)) == (141, [])
    assert last["info"]["time"]["completed"]


def test_a_person_at_a_terminal_is_asked_and_may_interrupt(workspace: Workspace) -> None:
    workspace.configure(permission={"edit": "ask"})
    leader, follower = pty.openpty()
    running = workspace.start(*DEMO, "go", stdin=follower, stdout=subprocess.PIPE, stderr=follower)
    os.close(follower)
    heard = hear(leader, b"[r]eject")
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    os.close(leader)

    assert b"Allow edit?" in heard
    assert b"greet.py" in heard
    assert running.returncode == 130


def test_a_run_continues_when_the_person_at_the_terminal_allows_a_call(workspace: Workspace) -> None:
    workspace.configure(permission={"edit": "ask"})
    leader, follower = pty.openpty()
    running = workspace.start(*DEMO, "go", stdin=follower, stdout=subprocess.PIPE, stderr=follower)
    os.close(follower)
    hear(leader, b"[r]eject")
    os.write(leader, b"o\n")
    said, _ = running.communicate(timeout=60)
    os.close(leader)

    assert running.returncode == 0
    assert "Done." in said


HANGS = """
import sys, threading, time
from weft.host.exit import ExitTimer
last_resort = ExitTimer()
threading.Thread(target=threading.Event().wait, name="stuck").start()
last_resort.end_within({seconds}, 7)
last_resort.disarm_if_idle()
sys.exit(0)
"""


def test_a_process_that_does_not_exit_is_ended_and_names_the_reason() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", HANGS.format(seconds=0.2)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.returncode == 7
    assert ran.stderr.startswith("weft exited while these were still running: a thread in wait")


UNREAD = """
import asyncio, os, sys
from weft.cli.follow import StopSignals
from weft.host.exit import ExitTimer

async def main():
    with StopSignals(ExitTimer(), settle_seconds=0.1).listening():
        os.write(2, b"ready\\n")
        while True:
            print("x" * 4096, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_ends_a_run_that_is_blocked_on_a_write(times: int) -> None:
    running = subprocess.Popen(
        [sys.executable, "-c", UNREAD], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert running.stderr is not None
        assert running.stderr.readline() == "ready\n"
        for _ in range(times):
            running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 143
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()
