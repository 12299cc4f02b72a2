"""What the installed command keeps apart: worktrees, sandboxed commands, keys; and that no process outlives a killed run."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opencode.fake_model import Answer, FakeModel, ModelCall, answer_call, answer_text, open_fake_model
from weft.testing.tool_contract import list_processes

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

WEFT = str(Path(sys.executable).with_name("weft"))
TRIALS = 5
# Only against a hang: the test is that it happens at all.
GUARD_SECONDS = 60
KEYS = {
    "ANTHROPIC_API_KEY": "key-of-anthropic",
    "OPENAI_API_KEY": "key-of-openai",
    "AWS_SECRET_ACCESS_KEY": "key-of-aws",
    "OPENCODE_SERVER_PASSWORD": "password-of-the-server",
    "GITHUB_TOKEN": "token-of-github",
}


class Workspace:
    """A repository in a home, a fake model, and the installed command."""

    def __init__(self, root: Path, model: FakeModel, url: str) -> None:
        self.root = root
        self.model = model
        self.project = root / "home" / "project"
        self.config = root / "config" / "opencode"
        for path in (self.project, self.config, root / "tmp"):
            path.mkdir(parents=True)
        self.env = {
            **os.environ,
            **{f"XDG_{kind}_HOME": str(root / kind.lower()) for kind in ("DATA", "CONFIG", "STATE", "CACHE")},
            "HOME": str(root / "home"),
            "TMPDIR": str(root / "tmp"),
        }
        self.url = url
        self.configure()
        (self.project / "hello.txt").write_text("hello\n")
        for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "A beginning")):
            subprocess.run(["git", *words], cwd=self.project, env=self.env, check=True)

    def configure(self, **own: Any) -> None:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{self.url}/v1", "apiKey": "key-in-the-settings"},
            "models": {"one": {"limit": {"context": 100_000, "output": 8_000}}},
        }
        said = {
            "model": "fake/one",
            "permission": "allow",
            "provider": {"fake": provider},
            "experimental": {"weft": own},
        }
        (self.config / "opencode.json").write_text(json.dumps(said))

    def weft(self, *words: str, at: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [WEFT, *words],
            cwd=at or self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        return subprocess.Popen(
            [WEFT, *words], cwd=self.project, env=self.env, stdin=quiet, stdout=quiet, stderr=quiet
        )

    def run_bash(self, command: str) -> dict[str, Any]:
        """Return the state of the only call of a run."""
        self.model.play(answer_call("bash", command=command, description="Try"), answer_text("Done."))
        ran = self.weft("run", "--format", "json", "try it")
        assert ran.returncode == 0, ran.stderr
        lines = [json.loads(line) for line in ran.stdout.splitlines()]
        (state,) = [line["part"]["state"] for line in lines if line["type"] == "tool_use"]
        return dict(state)

    def worktrees(self) -> list[dict[str, Any]]:
        return list(json.loads(self.weft("worktree", "list", "--format", "json").stdout))

    def sessions(self) -> list[dict[str, Any]]:
        return list(json.loads(self.weft("session", "list", "--format", "json").stdout))


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_fake_model() as (model, url):
        yield Workspace(tmp_path.resolve(), model, url)


def wait_until(holds: Any) -> bool:
    until = time.monotonic() + GUARD_SECONDS
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)
    return bool(holds())


# --- nothing outlives a killed run ---


@pytest.mark.parametrize("trial", range(TRIALS))
def test_a_killed_run_leaves_no_process_behind(workspace: Workspace, trial: int) -> None:
    script = f"setsid sleep 600 & (sleep 600 &) ; touch begun{trial}; sleep 600"
    workspace.model.play(answer_call("bash", command=script, description="Wait"), answer_text("Never said."))
    running = workspace.start("run", "wait")
    assert wait_until((workspace.project / f"begun{trial}").exists)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert wait_until(lambda: list_processes(workspace.project) == [])


def test_a_killed_run_in_a_sandbox_leaves_no_process_behind(workspace: Workspace) -> None:
    workspace.configure(sandbox="auto")
    script = "setsid sleep 600 & touch begun; sleep 600"
    workspace.model.play(answer_call("bash", command=script, description="Wait"), answer_text("Never said."))
    running = workspace.start("run", "wait")
    assert wait_until((workspace.project / "begun").exists)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert wait_until(lambda: list_processes(workspace.project) == [])


# --- keys ---


def test_the_environment_of_a_command_contains_no_key_and_no_password(workspace: Workspace) -> None:
    workspace.env |= KEYS
    said_all = workspace.run_bash("env")["output"]
    assert f"HOME={workspace.root}/home" in said_all
    assert [secret for secret in (*KEYS.values(), "key-in-the-settings") if secret in said_all] == []


# --- the sandbox ---


def test_a_command_of_a_run_stays_in_the_sandbox(workspace: Workspace) -> None:
    workspace.configure(sandbox="required")
    secret, outside = workspace.root / "home" / "secret", workspace.root / "outside"
    secret.write_text("the person's own")
    outside.mkdir()
    state = workspace.run_bash(
        f"cat {secret}; touch {outside}/x; touch .git/hooks/x; cat {workspace.config}/opencode.json; echo in > made"
    )
    if state["status"] == "error":
        assert "require a sandbox" in state["error"]
        assert not (workspace.project / "made").exists()
        return
    assert "the person's own" not in state["output"]
    assert "key-in-the-settings" not in state["output"]
    assert (workspace.project / "made").read_text() == "in\n"
    assert os.listdir(outside) == []
    assert not (workspace.project / ".git" / "hooks" / "x").exists()


def test_a_project_can_require_a_stricter_sandbox_and_not_a_weaker_one(workspace: Workspace) -> None:
    workspace.configure(sandbox="required")
    theirs = {"experimental": {"weft": {"sandbox": {"mode": "off", "writable": [str(workspace.root)]}}}}
    (workspace.project / "opencode.json").write_text(json.dumps(theirs))
    workspace.run_bash(f"touch {workspace.root}/made")
    assert not (workspace.root / "made").exists()


def test_a_missing_sandbox_is_reported_once_and_by_doctor(workspace: Workspace) -> None:
    workspace.configure(sandbox="auto")
    # A home that is the project cannot be both hidden and written to.
    workspace.env["HOME"] = str(workspace.project)
    workspace.model.play(
        Answer(calls=tuple(ModelCall("bash", {"command": f"touch {n}", "description": "Try"}) for n in "ab")),
        answer_text("Done."),
    )
    ran = workspace.weft("run", "try it")
    assert ran.stderr.count("the sandbox is not available, commands run without one") == 1
    assert (workspace.project / "b").exists()
    report = workspace.weft("doctor").stdout
    assert "warning  sandbox: the sandbox is not available" in report


def test_a_required_but_missing_sandbox_runs_nothing(workspace: Workspace) -> None:
    workspace.configure(sandbox="required")
    workspace.env["HOME"] = str(workspace.project)
    state = workspace.run_bash("touch made")
    assert state["status"] == "error"
    assert "require a sandbox" in state["error"]
    assert not (workspace.project / "made").exists()
    doctor = workspace.weft("doctor")
    assert "problem  sandbox: the sandbox is not available" in doctor.stdout
    assert doctor.returncode == 1


# --- worktrees ---


def test_a_session_works_in_a_worktree_and_its_work_is_merged_back(workspace: Workspace) -> None:
    (workspace.project / "hello.txt").write_text("hello\nmine\n")
    script = "echo made > new.txt; echo changed >> sub.txt; pwd"
    workspace.model.play(answer_call("bash", command=script, description="Work"), answer_text("Done."))
    ran = workspace.weft("run", "--worktree", "do the work")
    (worktree,) = workspace.worktrees()
    (session,) = workspace.sessions()

    assert ran.returncode == 0, ran.stderr
    assert "your 1 uncommitted change(s) stay in" in ran.stderr
    assert f"2 changed: weft worktree merge {worktree['name']} (or discard)" in ran.stderr
    assert session["directory"] == worktree["directory"]
    assert worktree["sessions"] == [session["id"]]
    assert sorted(os.listdir(workspace.project)) == [".git", "hello.txt"]

    merged = workspace.weft("worktree", "merge")
    assert merged.stdout == f"A new.txt\nA sub.txt\nmerged into {workspace.project}, not committed\n"
    assert (workspace.project / "new.txt").read_text() == "made\n"
    assert (workspace.project / "hello.txt").read_text() == "hello\nmine\n"
    assert workspace.weft("worktree", "discard", "--yes").stdout == f"discarded {worktree['name']}\n"
    assert workspace.worktrees() == []


def test_a_session_of_a_worktree_continues_there(workspace: Workspace) -> None:
    workspace.model.play(answer_text("Here."))
    workspace.weft("run", "--worktree=there", "first")
    (session,) = workspace.sessions()
    for words in (["--worktree=there", "-c"], ["-s", str(session["id"])]):
        workspace.model.play(answer_call("bash", command="pwd", description="Where"), answer_text("There."))
        again = workspace.weft("run", "--format", "json", *words, "second")
        (worktree,) = workspace.worktrees()
        assert worktree["name"] == "there"
        assert f"{worktree['directory']}\\n" in again.stdout
    assert len(workspace.sessions()) == 1
    # The last session of a checkout is not that of another one.
    elsewhere = workspace.weft("run", "-c", "third")
    assert elsewhere.returncode == 2
    assert f"the last of this project is {session['id']}, in {worktree['directory']}" in elsewhere.stderr


def test_work_that_exists_nowhere_else_is_not_discarded_without_confirmation(workspace: Workspace) -> None:
    workspace.model.play(
        answer_call("bash", command="echo made > new.txt", description="Work"), answer_text("Done.")
    )
    workspace.weft("run", "--worktree", "x", "do the work")
    refused = workspace.weft("worktree", "discard", "--yes")
    assert refused.returncode == 2
    assert "has work that is nowhere else: 1 changed" in refused.stderr
    nobody = workspace.weft("worktree", "discard", "--force")
    assert "--yes" in nobody.stderr
    assert len(workspace.worktrees()) == 1
    forced = workspace.weft("worktree", "discard", "--force", "--yes")
    assert "git branch NAME" in forced.stdout
    assert workspace.worktrees() == []


def test_a_run_that_cannot_start_leaves_no_worktree_behind(workspace: Workspace) -> None:
    ran = workspace.weft("run", "-m", "no/such", "--worktree", "do it")
    assert ran.returncode == 2
    assert workspace.worktrees() == []


def test_the_worktree_of_a_killed_run_can_be_merged(workspace: Workspace) -> None:
    script = "echo half > new.txt; touch begun; sleep 600"
    workspace.model.play(answer_call("bash", command=script, description="Work"), answer_text("Never said."))
    running = workspace.start("run", "--worktree=x", "work")
    assert wait_until(lambda: any((workspace.root / "data").glob("opencode/worktree/*/x/begun")))
    busy = workspace.weft("worktree", "merge", "x")
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert "is in use" in busy.stderr
    assert workspace.weft("worktree", "merge", "x").returncode == 0
    assert (workspace.project / "new.txt").read_text() == "half\n"


def test_a_session_whose_worktree_is_in_use_is_busy(workspace: Workspace) -> None:
    workspace.model.play(answer_call("bash", command="touch begun; sleep 600", description="Work"))
    running = workspace.start("run", "--worktree=x", "work")
    assert wait_until(lambda: any((workspace.root / "data").glob("opencode/worktree/*/x/begun")))
    (session,) = workspace.sessions()
    refused = [
        workspace.weft("run", *words, "more") for words in (["-s", session["id"]], ["--worktree=x", "-c"])
    ]
    running.send_signal(signal.SIGKILL)
    running.wait()
    for each in refused:
        assert each.returncode == 8, each.stderr
        assert f"Session {session['id']} is busy" in each.stderr
        assert f"process {running.pid} on " in each.stderr


def test_the_start_command_runs_only_if_the_project_is_trusted(workspace: Workspace) -> None:
    workspace.model.play(answer_text("Hello."))
    workspace.weft("run", "hello")
    (record,) = (workspace.root / "data" / "opencode" / "storage" / "project").glob("*.json")
    stored = json.loads(record.read_text())
    record.write_text(json.dumps({**stored, "commands": {"start": "echo ready > ready.txt"}}))

    workspace.model.play(answer_text("Hello."))
    stranger = workspace.weft("run", "--worktree=one", "hello")
    assert "its start command is not run" in stranger.stderr
    assert workspace.weft("trust", "--yes").returncode == 0
    workspace.model.play(answer_text("Hello."))
    trusted = workspace.weft("run", "--worktree=two", "hello")
    assert trusted.returncode == 0, trusted.stderr
    ready = {row["name"]: (Path(row["directory"]) / "ready.txt").exists() for row in workspace.worktrees()}
    assert ready == {"one": False, "two": True}
