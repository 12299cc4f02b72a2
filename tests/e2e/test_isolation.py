"""What a run keeps apart, from outside: worktrees, sandboxed commands, keys, and that nothing outlives a killed run."""

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

from opencode.fake_model import Answer, Called, FakeModel, called, open_fake_model, said
from weft.testing.tool_contract import processes_in

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

WEFT = str(Path(sys.executable).with_name("weft"))
TRIALS = 5
# Only against a hang: what is tested is that it comes to pass at all.
GUARD_SECONDS = 60
KEYS = {
    "ANTHROPIC_API_KEY": "key-of-anthropic",
    "OPENAI_API_KEY": "key-of-openai",
    "AWS_SECRET_ACCESS_KEY": "key-of-aws",
    "OPENCODE_SERVER_PASSWORD": "password-of-the-server",
    "GITHUB_TOKEN": "token-of-github",
}


class Place:
    """A repository in a home, a model that does as the test says, and the installed command."""

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
        """The state of the one call of a run."""
        self.model.plays(called("bash", command=command, description="Try"), said("Done."))
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
def place(tmp_path: Path) -> Iterator[Place]:
    with open_fake_model() as (model, url):
        yield Place(tmp_path.resolve(), model, url)


def eventually(holds: Any) -> bool:
    until = time.monotonic() + GUARD_SECONDS
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)
    return bool(holds())


# --- nothing outlives a killed run ---


@pytest.mark.parametrize("trial", range(TRIALS))
def test_a_run_that_is_killed_leaves_no_process_behind(place: Place, trial: int) -> None:
    script = f"setsid sleep 600 & (sleep 600 &) ; touch begun{trial}; sleep 600"
    place.model.plays(called("bash", command=script, description="Wait"), said("Never said."))
    running = place.start("run", "wait")
    assert eventually((place.project / f"begun{trial}").exists)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert eventually(lambda: processes_in(place.project) == [])


def test_a_sandboxed_run_that_is_killed_leaves_none_either(place: Place) -> None:
    place.configure(sandbox="auto")
    script = "setsid sleep 600 & touch begun; sleep 600"
    place.model.plays(called("bash", command=script, description="Wait"), said("Never said."))
    running = place.start("run", "wait")
    assert eventually((place.project / "begun").exists)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert eventually(lambda: processes_in(place.project) == [])


# --- keys ---


def test_no_key_and_no_password_is_in_the_environment_of_a_command(place: Place) -> None:
    place.env |= KEYS
    said_all = place.run_bash("env")["output"]
    assert f"HOME={place.root}/home" in said_all
    assert [secret for secret in (*KEYS.values(), "key-in-the-settings") if secret in said_all] == []


# --- the sandbox ---


def test_a_command_of_a_run_stays_behind_the_wall(place: Place) -> None:
    place.configure(sandbox="required")
    secret, outside = place.root / "home" / "secret", place.root / "outside"
    secret.write_text("the person's own")
    outside.mkdir()
    state = place.run_bash(
        f"cat {secret}; touch {outside}/x; touch .git/hooks/x; cat {place.config}/opencode.json; echo in > made"
    )
    if state["status"] == "error":
        assert "require a sandbox" in state["error"]
        assert not (place.project / "made").exists()
        return
    assert "the person's own" not in state["output"]
    assert "key-in-the-settings" not in state["output"]
    assert (place.project / "made").read_text() == "in\n"
    assert os.listdir(outside) == []
    assert not (place.project / ".git" / "hooks" / "x").exists()


def test_a_project_can_ask_for_a_stricter_wall_and_not_for_a_lower_one(place: Place) -> None:
    place.configure(sandbox="required")
    theirs = {"experimental": {"weft": {"sandbox": {"mode": "off", "writable": [str(place.root)]}}}}
    (place.project / "opencode.json").write_text(json.dumps(theirs))
    place.run_bash(f"touch {place.root}/made")
    assert not (place.root / "made").exists()


def test_where_no_wall_can_be_put_up_that_is_said_once_and_by_the_doctor(place: Place) -> None:
    place.configure(sandbox="auto")
    # A home that is the project cannot be both hidden and written to.
    place.env["HOME"] = str(place.project)
    place.model.plays(
        Answer(calls=tuple(Called("bash", {"command": f"touch {n}", "description": "Try"}) for n in "ab")),
        said("Done."),
    )
    ran = place.weft("run", "try it")
    assert ran.stderr.count("the sandbox is not available, commands run without one") == 1
    assert (place.project / "b").exists()
    told = place.weft("doctor").stdout
    assert "warning  sandbox: the sandbox is not available" in told


def test_one_that_is_required_and_missing_runs_nothing(place: Place) -> None:
    place.configure(sandbox="required")
    place.env["HOME"] = str(place.project)
    state = place.run_bash("touch made")
    assert state["status"] == "error"
    assert "require a sandbox" in state["error"]
    assert not (place.project / "made").exists()
    doctor = place.weft("doctor")
    assert "problem  sandbox: the sandbox is not available" in doctor.stdout
    assert doctor.returncode == 1


# --- worktrees ---


def test_a_session_works_in_a_worktree_and_its_work_is_merged_back(place: Place) -> None:
    (place.project / "hello.txt").write_text("hello\nmine\n")
    script = "echo made > new.txt; echo changed >> sub.txt; pwd"
    place.model.plays(called("bash", command=script, description="Work"), said("Done."))
    ran = place.weft("run", "--worktree", "do the work")
    (worktree,) = place.worktrees()
    (session,) = place.sessions()

    assert ran.returncode == 0, ran.stderr
    assert "your 1 uncommitted change(s) stay in" in ran.stderr
    assert f"2 changed: weft worktree merge {worktree['name']} (or discard)" in ran.stderr
    assert session["directory"] == worktree["directory"]
    assert worktree["sessions"] == [session["id"]]
    assert sorted(os.listdir(place.project)) == [".git", "hello.txt"]

    merged = place.weft("worktree", "merge")
    assert merged.stdout == f"A new.txt\nA sub.txt\nmerged into {place.project}, not committed\n"
    assert (place.project / "new.txt").read_text() == "made\n"
    assert (place.project / "hello.txt").read_text() == "hello\nmine\n"
    assert place.weft("worktree", "discard", "--yes").stdout == f"discarded {worktree['name']}\n"
    assert place.worktrees() == []


def test_a_session_of_a_worktree_goes_on_there(place: Place) -> None:
    place.model.plays(said("Here."))
    place.weft("run", "--worktree=there", "first")
    (session,) = place.sessions()
    for words in (["--worktree=there", "-c"], ["-s", str(session["id"])]):
        place.model.plays(called("bash", command="pwd", description="Where"), said("There."))
        again = place.weft("run", "--format", "json", *words, "second")
        (worktree,) = place.worktrees()
        assert worktree["name"] == "there"
        assert f"{worktree['directory']}\\n" in again.stdout
    assert len(place.sessions()) == 1
    # The last session of a checkout is not that of another one.
    elsewhere = place.weft("run", "-c", "third")
    assert elsewhere.returncode == 2
    assert f"the last of this project is {session['id']}, in {worktree['directory']}" in elsewhere.stderr


def test_work_that_is_nowhere_else_is_not_discarded_by_the_way(place: Place) -> None:
    place.model.plays(called("bash", command="echo made > new.txt", description="Work"), said("Done."))
    place.weft("run", "--worktree", "x", "do the work")
    refused = place.weft("worktree", "discard", "--yes")
    assert refused.returncode == 2
    assert "has work that is nowhere else: 1 changed" in refused.stderr
    nobody = place.weft("worktree", "discard", "--force")
    assert "--yes" in nobody.stderr
    assert len(place.worktrees()) == 1
    forced = place.weft("worktree", "discard", "--force", "--yes")
    assert "git branch NAME" in forced.stdout
    assert place.worktrees() == []


def test_a_run_that_cannot_begin_leaves_no_worktree_behind(place: Place) -> None:
    ran = place.weft("run", "-m", "no/such", "--worktree", "do it")
    assert ran.returncode == 2
    assert place.worktrees() == []


def test_a_killed_run_leaves_its_worktree_to_be_merged(place: Place) -> None:
    script = "echo half > new.txt; touch begun; sleep 600"
    place.model.plays(called("bash", command=script, description="Work"), said("Never said."))
    running = place.start("run", "--worktree=x", "work")
    assert eventually(lambda: any((place.root / "data").glob("opencode/worktree/*/x/begun")))
    busy = place.weft("worktree", "merge", "x")
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert "is in use" in busy.stderr
    assert place.weft("worktree", "merge", "x").returncode == 0
    assert (place.project / "new.txt").read_text() == "half\n"


def test_the_start_command_runs_only_where_the_project_is_trusted(place: Place) -> None:
    place.model.plays(said("Hello."))
    place.weft("run", "hello")
    (record,) = (place.root / "data" / "opencode" / "storage" / "project").glob("*.json")
    stored = json.loads(record.read_text())
    record.write_text(json.dumps({**stored, "commands": {"start": "echo ready > ready.txt"}}))

    place.model.plays(said("Hello."))
    stranger = place.weft("run", "--worktree=one", "hello")
    assert "its start command is not run" in stranger.stderr
    assert place.weft("trust", "--yes").returncode == 0
    place.model.plays(said("Hello."))
    trusted = place.weft("run", "--worktree=two", "hello")
    assert trusted.returncode == 0, trusted.stderr
    ready = {row["name"]: (Path(row["directory"]) / "ready.txt").exists() for row in place.worktrees()}
    assert ready == {"one": False, "two": True}
