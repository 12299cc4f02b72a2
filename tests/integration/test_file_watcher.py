"""The file watcher: changes by other programs are sent to listeners, as flags and configuration say."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from given.http_server import ProjectServer, make_project, serve_project, stream_events
from weft.local.file_watcher import WatchScope, read_watch_scope


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project")


def environment(**flags: str) -> dict[str, str]:
    return {**os.environ, **flags}


WATCH_ALL = "OPENCODE_EXPERIMENTAL_FILEWATCHER"
WATCH_NOTHING = "OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER"


def test_flags_and_configuration_decide_what_is_watched(project: Path) -> None:
    where = os.path.realpath(project)
    nothing = WatchScope(directory=where)
    head = WatchScope(directory=where, worktree=where, git_dir=f"{where}/.git")
    assert read_watch_scope(where, environment()) == head
    assert read_watch_scope(where, environment(**{WATCH_NOTHING: "1"})) == nothing
    whole = read_watch_scope(where, environment(**{WATCH_ALL: "1"}))
    assert (whole.git_dir, whole.all_files) == (f"{where}/.git", True)
    (project / "opencode.json").write_text(json.dumps({"watcher": {"ignore": [".git", "made/**"]}}))
    ignoring = read_watch_scope(where, environment(**{WATCH_ALL: "1"}))
    assert (ignoring.git_dir, ignoring.all_files, ignoring.ignore) == ("", True, (".git", "made/**"))


def test_without_a_repository_nothing_is_watched(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    where = os.path.realpath(bare)
    assert read_watch_scope(where, environment(**{WATCH_ALL: "1"})) == WatchScope(directory=where)


def test_a_worktree_is_watched_in_its_own_git_directory(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["git", "worktree", "add", "-q", str(other)], cwd=project, check=True)
    scope = read_watch_scope(str(other), environment())
    assert scope.git_dir == os.path.realpath(project / ".git/worktrees/other")


@pytest.mark.parametrize(
    ("path", "reported"),
    [
        ("a.py", True),
        ("deep/er/a.py", True),
        ("made", False),
        ("made/a.py", False),
        ("deep/made.gen", False),
        (".git/index", False),
        ("node_modules/x/a.js", False),
        ("deep/__pycache__/a.pyc", False),
        ("a.py.swp", False),
        ("4913", False),
    ],
)
def test_build_artefacts_are_not_reported(path: str, reported: bool) -> None:
    scope = WatchScope(directory="/p", all_files=True, ignore=("made", "*.gen"))
    assert scope.wants(f"/p/{path}") is reported


def hear(events: Iterator[dict[str, Any]], *types: str) -> Iterator[dict[str, Any]]:
    return (event for event in events if event["type"] in types)


class RepeatedChange:
    """Changes a file again and again until the change is reported, because nothing says when watching has begun."""

    def __init__(self, *commands: list[str], cwd: Path) -> None:
        self._commands, self._cwd = commands, cwd
        self._heard = threading.Event()
        self._thread = threading.Thread(target=self._change_until_reported)

    def _change_until_reported(self) -> None:
        while not self._heard.is_set():
            for command in self._commands:
                subprocess.run(command, cwd=self._cwd, check=True, capture_output=True)
                if self._heard.wait(0.5):
                    return

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._heard.set()
        self._thread.join()


def test_a_changed_branch_is_reported(tmp_path: Path) -> None:
    with serve_project(tmp_path) as server, stream_events(server, "/event") as events:
        subprocess.run(["git", "branch", "other"], cwd=server.project, check=True)
        reported = hear(events, "vcs.branch.updated", "file.watcher.updated")
        with RepeatedChange(["git", "switch", "other"], ["git", "switch", "main"], cwd=server.project):
            first = next(reported)
            # A branch that is switched back before the next look is not reported.
            second = next(event for event in reported if event["type"] == "vcs.branch.updated")
    head = {"file": os.path.realpath(server.project / ".git/HEAD"), "event": "change"}
    assert (first["type"], first["properties"]) == ("file.watcher.updated", head)
    assert second["properties"]["branch"] in {"main", "other"}


def list_changed_files(server: ProjectServer, events: Iterator[dict[str, Any]]) -> dict[str, Any]:
    script = "echo x >> node_modules/b.js; echo x >> a.txt"
    (server.project / "node_modules").mkdir()
    with RepeatedChange(["sh", "-c", script], cwd=server.project):
        return next(hear(events, "file.watcher.updated"))


def test_all_files_are_reported_with_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WATCH_ALL, "1")
    with serve_project(tmp_path) as server, stream_events(server, "/event") as events:
        reported = list_changed_files(server, events)
    assert reported["properties"]["file"] == os.path.realpath(server.project / "a.txt")
    assert reported["properties"]["event"] in {"add", "change"}
