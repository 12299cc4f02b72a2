"""The journey on the command line: try, compare, adopt, replay, bisect; and what a killed process leaves behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from given.long_session import BREAKING_STEP, CHECK, PROMPTS, CommandRunner, bash_call, git, make_scripts
from given.model_server import ModelServer, open_model_server
from weft.provider.scripted import Say

DONE = (Say(text="Done."),)


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    scripts = {
        **make_scripts(),
        "loom: mend it": [(bash_call("sed -i 's/\\* 3/* 2/' loom.py"),), DONE],
        "shuttle: mend it": [(bash_call("sed -i 's/\\* 3/* 5/' loom.py"),), DONE],
        "shuttle: break it": [(Say(text="I would rather mend it."),)],
        "break it": [(bash_call("sed -i 's/\\* 2/* 3/' loom.py"),), DONE],
    }
    with open_model_server(scripts) as served:
        yield served


@pytest.fixture
def runner(server: ModelServer, tmp_path: Path) -> CommandRunner:
    return CommandRunner(tmp_path, server.config)


def test_a_broken_session_is_bisected_replayed_and_replaced_by_a_trial(runner: CommandRunner) -> None:
    session = runner.weave()
    bisected = runner.weft("bisect", session, "--check", CHECK, "--format", "json")
    report = json.loads(bisected.stdout)
    assert (bisected.returncode, report["verdict"], report["culprit"]["step"], report["culprit"]["tool"]) == (
        0,
        "found",
        BREAKING_STEP,
        "edit",
    )
    assert report["culprit"]["prompt"] == PROMPTS[1]

    tried = runner.weft(
        "try", "-m", "mill/loom", "-m", "mill/shuttle", "--check", CHECK, "--format", "json", "mend it"
    )
    assert tried.returncode == 0, tried.stderr
    rows = json.loads(tried.stdout)["sessions"]
    assert [(row["model"], row["outcome"], row["check"]["outcome"]) for row in rows] == [
        ("mill/loom", "finished", "passed"),
        ("mill/shuttle", "finished", "failed"),
    ]
    table = runner.weft("compare").stdout
    assert "differs from 1 at step 1 (call):" in table
    page = runner.weft("compare", "--format", "html").stdout
    assert page.startswith("<!doctype html>")
    assert "mill/shuttle" in page

    adopted = runner.weft("adopt", rows[0]["session"], "--discard")
    assert adopted.returncode == 0, adopted.stderr
    assert adopted.stdout.splitlines()[0] == "M loom.py"
    assert runner.worktrees() == []
    assert "thread * 2" in (runner.root / "loom.py").read_text()
    assert runner.weft("adopt", "--undo").returncode == 0
    assert "thread * 3" in (runner.root / "loom.py").read_text()


def test_a_replay_can_be_used_as_a_test(runner: CommandRunner) -> None:
    assert runner.weft("run", "break it").returncode == 0
    same = runner.weft("replay", "last", "--expect", "same")
    assert (same.returncode, same.stdout.splitlines()[0]) == (0, "the same: all 2 steps as recorded")
    differs = runner.weft("replay", "last", "--model", "mill/shuttle", "--expect", "same")
    assert (differs.returncode, differs.stdout.splitlines()[0]) == (1, "differs at step 1 of 2 (call)")
    assert runner.worktrees() == []


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["bisect", "last", "--check", "true"], "no session", ""),
        (["compare"], "this project has none yet", "weft try"),
        (["adopt"], "ID: it is missing", "weft compare"),
        (["adopt", "--undo"], "there is no adoption to undo", "weft adopt"),
        (["try"], "prompt: it is missing", "weft try"),
        (["try", "-m", "mill/gone", "go"], "no model mill/gone", ""),
        (["try", "--at", "msg_1", "go"], "--at", "-s"),
        (["replay", "ses_000000000000none"], "session", ""),
    ],
)
def test_a_mistake_is_reported_in_a_sentence_and_leaves_nothing_behind(
    runner: CommandRunner, words: list[str], said: str, hint: str
) -> None:
    refused = runner.weft(*words)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert hint in refused.stderr
    assert runner.worktrees() == []
    assert git(runner.root, "status", "--short") == ""


def test_the_leftovers_of_a_killed_bisection_are_listed_and_removed_by_the_next(
    runner: CommandRunner,
) -> None:
    assert runner.weft("run", "break it").returncode == 0
    ready = runner.root.parent / "ready"
    os.mkfifo(ready)
    child = subprocess.Popen(
        [sys.executable, "-m", "weft", "bisect", "last", "--check", f"echo here > {ready}; sleep 60"],
        cwd=runner.root,
        env=runner.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert ready.read_text() == "here\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert len(runner.worktrees()) == 1
    assert "weft-scratch-" in runner.weft("worktree", "list").stdout
    found = runner.weft("bisect", "last", "--check", CHECK)
    assert (found.returncode, found.stdout.splitlines()[0]) == (0, "step 1 broke it: bash Does it")
    assert runner.worktrees() == []
