"""The journey on the command line: try, compare, adopt, replay, bisect; and what a killed process leaves behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from given.long_session import BREAKING_STEP, CHECK, PROMPTS, Weaver, bash_call, git, make_scripts
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
def weaver(server: ModelServer, tmp_path: Path) -> Weaver:
    return Weaver(tmp_path, server.config)


def test_the_whole_journey_from_a_broken_session_to_an_adopted_trial(weaver: Weaver) -> None:
    session = weaver.weave()
    bisected = weaver.weft("bisect", session, "--check", CHECK, "--format", "json")
    report = json.loads(bisected.stdout)
    assert (bisected.returncode, report["verdict"], report["culprit"]["step"], report["culprit"]["tool"]) == (
        0,
        "found",
        BREAKING_STEP,
        "edit",
    )
    assert report["culprit"]["prompt"] == PROMPTS[1]

    tried = weaver.weft(
        "try", "-m", "mill/loom", "-m", "mill/shuttle", "--check", CHECK, "--format", "json", "mend it"
    )
    assert tried.returncode == 0, tried.stderr
    rows = json.loads(tried.stdout)["sessions"]
    assert [(row["model"], row["outcome"], row["check"]["outcome"]) for row in rows] == [
        ("mill/loom", "finished", "passed"),
        ("mill/shuttle", "finished", "failed"),
    ]
    table = weaver.weft("compare").stdout
    assert "differs from 1 at step 1 (call):" in table
    page = weaver.weft("compare", "--format", "html").stdout
    assert page.startswith("<!doctype html>")
    assert "mill/shuttle" in page

    adopted = weaver.weft("adopt", rows[0]["session"], "--discard")
    assert adopted.returncode == 0, adopted.stderr
    assert adopted.stdout.splitlines()[0] == "M loom.py"
    assert weaver.worktrees() == []
    assert "thread * 2" in (weaver.root / "loom.py").read_text()
    assert weaver.weft("adopt", "--undo").returncode == 0
    assert "thread * 3" in (weaver.root / "loom.py").read_text()


def test_a_replay_is_a_test(weaver: Weaver) -> None:
    assert weaver.weft("run", "break it").returncode == 0
    same = weaver.weft("replay", "last", "--expect", "same")
    assert (same.returncode, same.stdout.splitlines()[0]) == (0, "the same: all 2 steps as recorded")
    differs = weaver.weft("replay", "last", "--model", "mill/shuttle", "--expect", "same")
    assert (differs.returncode, differs.stdout.splitlines()[0]) == (1, "differs at step 1 of 2 (call)")
    assert weaver.worktrees() == []


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["bisect", "last", "--check", "true"], "no session", ""),
        (["compare"], "this project has no trials", "weft try"),
        (["adopt"], "ID: there is none", "weft compare"),
        (["adopt", "--undo"], "there is no merge", "weft adopt"),
        (["try"], "message: there is none", "weft try"),
        (["try", "-m", "mill/gone", "go"], "no model mill/gone", ""),
        (["try", "--at", "msg_1", "go"], "--at", "-s"),
        (["replay", "ses_000000000000none"], "session", ""),
    ],
)
def test_a_mistake_is_said_in_a_sentence_and_leaves_nothing_behind(
    weaver: Weaver, words: list[str], said: str, hint: str
) -> None:
    refused = weaver.weft(*words)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert hint in refused.stderr
    assert weaver.worktrees() == []
    assert git(weaver.root, "status", "--short") == ""


def test_what_a_killed_bisection_leaves_is_listed_and_removed_by_the_next(weaver: Weaver) -> None:
    assert weaver.weft("run", "break it").returncode == 0
    ready = weaver.root.parent / "ready"
    os.mkfifo(ready)
    child = subprocess.Popen(
        [sys.executable, "-m", "weft", "bisect", "last", "--check", f"echo here > {ready}; sleep 60"],
        cwd=weaver.root,
        env=weaver.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert ready.read_text() == "here\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert len(weaver.worktrees()) == 1
    assert "weft-scratch-" in weaver.weft("worktree", "list").stdout
    found = weaver.weft("bisect", "last", "--check", CHECK)
    assert (found.returncode, found.stdout.splitlines()[0]) == (0, "step 1 broke it: bash Does it")
    assert weaver.worktrees() == []
