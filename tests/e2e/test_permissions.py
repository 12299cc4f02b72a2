"""Permission requests of the installed command: with nobody to answer, answered in another terminal, and in a killed process."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WEFT = str(Path(sys.executable).with_name("weft"))
RULES = json.dumps({"read": "ask", "edit": "ask"})
PATIENCE = 60


class Shell:
    def __init__(self, root: Path) -> None:
        self.repository = root / "repository"
        self.repository.mkdir()
        (self.repository / "greet.py").write_text(
            'def main():\n    print("Hello, world!")\n\n\nif __name__ == "__main__":\n    main()\n'
        )
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
            subprocess.run(["git", *command], cwd=self.repository, check=True)
        self.env = {**os.environ, "OPENCODE_PERMISSION": RULES, "USER": "ada", "NO_COLOR": "1"}

    def weft(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [WEFT, *arguments], cwd=self.repository, env=self.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def list_requests(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.weft("permission", "list", "--format", "json").stdout)
        return found


class Terminal:
    """A run in its own terminal."""

    def __init__(self, shell: Shell, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [WEFT, *arguments],
            cwd=shell.repository,
            env=shell.env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.shown = ""

    def wait_for(self, words: str) -> None:
        while words not in self.shown:
            ready, _, _ = select.select([self._ours], [], [], PATIENCE)
            assert ready, f"waited for {words!r} in vain:\n{self.shown}"
            try:
                self.shown += os.read(self._ours, 65_536).decode(errors="replace")
            except OSError:
                assert words in self.shown, self.shown

    def type(self, line: str) -> None:
        self.shown = ""
        os.write(self._ours, f"{line}\n".encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_without_a_terminal_a_request_is_refused_reported_and_can_be_allowed_later(shell: Shell) -> None:
    ran = shell.weft("run", "-m", "scripted/demo", "let it greet a name")
    assert ran.returncode == 3, ran.stderr
    [asked] = shell.list_requests()
    assert (asked["permission"], asked["state"]) == ("read", "over")
    assert f"refused: nobody was there to allow read {asked['patterns'][0]}" in ran.stderr
    assert f"weft permission reply {asked['id']} once" in ran.stderr

    assert shell.weft("permission", "reply", asked["id"], "always").returncode == 0
    again = shell.weft("run", "-c", "-m", "scripted/demo", "go on")
    assert again.returncode in (0, 3), again.stderr
    assert "allow read" not in again.stderr
    checked = shell.weft("permission", "log", "--verify")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_request_is_answered_from_another_terminal_and_survives_its_run(shell: Shell) -> None:
    terminal = Terminal(shell, "run", "-m", "scripted/demo", "let it greet a name")
    try:
        terminal.wait_for("allow [o]nce")
        [asked] = shell.list_requests()
        assert (asked["permission"], asked["state"]) == ("read", "waits")
        assert shell.weft("permission", "reply", asked["id"], "once").returncode == 0
        terminal.wait_for("Allow edit?")
        [open_] = shell.list_requests()
    finally:
        terminal.close()
    [left] = shell.list_requests()
    assert (left["id"], left["permission"], left["state"]) == (open_["id"], "edit", "over")


def test_a_person_at_the_terminal_is_asked(shell: Shell) -> None:
    terminal = Terminal(shell, "run", "-m", "scripted/demo", "let it greet a name")
    try:
        terminal.wait_for("allow [o]nce")
        terminal.type("t")
        terminal.wait_for("Allow edit?")
        terminal.type("r leave it alone")
        terminal.wait_for("feedback: leave it alone")
        terminal.process.wait(PATIENCE)
    finally:
        terminal.close()
    log = shell.weft("permission", "log", "--format", "json").stdout.splitlines()
    answers = [entry for line in log if (entry := json.loads(line))["what"] == "answered"]
    assert [(entry["reply"], entry["by"]) for entry in answers] == [("always", "ada"), ("reject", "ada")]
