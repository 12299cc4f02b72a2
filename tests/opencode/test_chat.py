"""`weft attach` in a real terminal, on a server of the real OpenCode."""

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from given.tmux import open_terminal, weft
from opencode.fake_model import Answer, FakeModel, answer_call, answer_text
from opencode.sandbox import Sandbox

pytestmark = pytest.mark.opencode


@contextmanager
def serve(sandbox: Sandbox, port: str = "0") -> Iterator[str]:
    with sandbox.run_opencode("serve", "--port", port, "--hostname", "127.0.0.1") as serving:
        assert serving.stdout is not None
        for line in serving.stdout:
            found = re.search(r"http://[0-9.:]+", line)
            if found:
                yield found[0]
                return
        raise AssertionError("OpenCode did not start to serve")


@pytest.fixture(scope="module")
def url(sandbox: Sandbox) -> Iterator[str]:
    with serve(sandbox) as url:
        yield url


@pytest.fixture
def project(tmp_path: Path, sandbox: Sandbox) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "hello.txt").write_text("hello\n")
    who = ["-c", "user.name=Ada Loom", "-c", "user.email=ada@example.test"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", str(path)]):
        subprocess.run(["git", *who, *command], cwd=path, env=dict(sandbox.env), check=True)
    return path


def test_a_conversation_with_opencode_works_in_the_terminal(url: str, project: Path, tmp_path: Path) -> None:
    command = weft("attach", url, "--dir", str(project))
    with open_terminal(tmp_path, command, cwd=project) as terminal:
        terminal.wait_for("ready")
        assert "OpenCode at http://" in terminal.get_screen()
        terminal.enter("hello there")
        terminal.wait_for("1 step")
        assert "> hello there" in terminal.get_screen()
        terminal.wait_for(" ready ")
        for typed, shown in (
            ("/help", "Ctrl-D leaves"),
            ("/agent", "/agent NAME chooses one"),
            ("/diff", "no file has changed"),
            ("/cost", "on a server with OpenCode"),
            ("/tools", "todowrite"),
            ("/sessions", "/resume NUMBER continues one"),
            ("/resume 1", "> hello there"),
        ):
            terminal.press("C-l")
            terminal.enter(typed)
            terminal.wait_for(shown)
        terminal.press("C-d")
        assert f"continue: weft attach {url}" in terminal.wait_for("ended 0")


def test_a_conversation_with_opencode_works_on_the_full_screen(
    url: str, project: Path, tmp_path: Path
) -> None:
    command = weft("attach", url, "--dir", str(project), "--full")
    with open_terminal(tmp_path, command, cwd=project, size=(112, 30)) as terminal:
        terminal.wait_for("sends the prompt")
        terminal.enter("hello there")
        terminal.wait_for("1 step")
        terminal.wait_for(" ready ")
        for keys, shown in (
            (("C-x", "d"), "0 files changed"),
            (("C-x", "g"), "Timeline  1"),
            (("C-x", "l"), "Sessions  1"),
            (("C-x", "a"), "Agent"),
        ):
            terminal.press(*keys)
            terminal.wait_for(shown)
            terminal.press("Escape")
            terminal.wait_for("> ", gone=shown)
        terminal.press("C-x", "f")
        terminal.wait_for("> hello there", gone="COST")
        terminal.wait_for(" ready ")
        terminal.press("C-d")
        assert f"continue: weft attach {url}" in terminal.wait_for("ended 0")


@pytest.mark.parametrize("options", [(), ("--full",)], ids=["inline", "full"])
def test_opencode_asks_for_permission_is_interrupted_and_restarts(
    sandbox: Sandbox, model: FakeModel, project: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    (project / "opencode.json").write_text(json.dumps({"permission": {"bash": "ask"}}))
    released = threading.Event()

    def think() -> Iterator[str]:
        yield "Thinking hard.\n\nStill "
        released.wait(120)

    model.play(
        answer_call("bash", command="ls", description="List"),
        answer_text("Listed."),
        Answer(words=think()),
        answer_text("Heard again."),
        Answer(words=think()),
    )
    with ExitStack() as first, ExitStack() as second:
        second.callback(released.set)
        url = first.enter_context(serve(sandbox))
        command = weft("attach", url, "--dir", str(project), *options)
        with open_terminal(tmp_path, command, cwd=project, size=(112, 30)) as terminal:
            terminal.wait_for("ready")
            terminal.enter("list")
            assert "1 once" in terminal.wait_for("Allow bash?")
            terminal.enter("1")
            terminal.wait_for("Listed.")
            terminal.wait_for(" ready ")
            terminal.enter("think")
            terminal.wait_for("Still")
            terminal.press("Escape")
            terminal.wait_for("interrupted")
            terminal.wait_for(" ready ")
            first.close()
            terminal.wait_for("does not answer; trying again")
            terminal.type("still typing")
            terminal.wait_for("> still typing")
            second.enter_context(serve(sandbox, url.rpartition(":")[2]))
            terminal.wait_for("is back")
            terminal.press("Enter")
            terminal.wait_for("Heard again.")
            terminal.wait_for(" ready ")
            terminal.enter("think again")
            terminal.wait_until(lambda screen: screen.count("Still") >= 2, "Still")
            terminal.press("C-d")
            left = terminal.wait_for("ended 0")
    assert "the run goes on at the server" in left
    assert f"continue: weft attach {url}" in left
