"""`weft ui` in a real terminal: beside inline mode, at every size, on a server that restarts, and leaving."""

import os
import pty
import subprocess
import termios
from pathlib import Path

import pytest

from e2e.test_chat import SCRIPTS, open_chat, settle
from e2e.test_chat_on_server import SCRIPTS as SERVER_SCRIPTS
from e2e.test_chat_on_server import start_server, stop_server
from given.http_server import make_project
from given.model_server import open_model_server
from given.tmux import open_terminal, weft
from weft.provider.scripted import Say

pytestmark = pytest.mark.slow

LONG = "".join(f"## Part {number}\n\n{'woven cloth ' * 60}\n\n- warp\n- weft\n\n" for number in range(140))


def test_a_person_switches_between_both_modes_and_leaves_with_the_answer(tmp_path: Path) -> None:
    with open_chat(tmp_path, "chat", size=(112, 30)) as (terminal, _):
        terminal.wait_for("ready")
        terminal.enter("show")
        settle(terminal, "1 step")
        terminal.type("half a pro")
        terminal.press("C-x", "f")
        terminal.wait_for("COST")
        terminal.wait_for("> half a pro")
        terminal.wait_for("A bold word.")
        terminal.press("C-c")
        terminal.enter("edit")
        terminal.wait_for("It is changed.")
        terminal.wait_for(" ready ")
        terminal.press("C-x", "f")
        # What happened meanwhile is printed once, below what was there before.
        terminal.wait_for("> edit", gone="COST")
        settle(terminal, "It is changed.")
        history = terminal.get_history()
        assert [history.count(each) for each in ("> show", "A bold word.", "> edit", "It is changed.")] == [
            1
        ] * 4
        terminal.enter("/screen")
        terminal.wait_for("COST")
        terminal.press("C-d")
        left = terminal.wait_for("ended 0")
        assert "It is changed." in left
        assert "1 file changed: hello.txt" in left
        # Including the titles; a second one that is too late is dropped.
        assert "cost: $0.6300" in left or "cost: $0.5250" in left
        assert "continue: weft " in left


@pytest.mark.parametrize("size", [(40, 24), (200, 60)])
def test_a_long_answer_streams_and_is_scrolled_at_every_size(tmp_path: Path, size: tuple[int, int]) -> None:
    with open_chat(tmp_path, "ui", scripts={"long": [[Say(text=LONG)]]}, size=size) as (terminal, _):
        terminal.wait_for("ready")
        terminal.enter("long")
        settle(terminal, "1 step")
        terminal.resize(60, 20)
        terminal.wait_for("1 step")
        terminal.press("C-g")
        terminal.wait_for("Part 0")
        terminal.resize(*size)
        terminal.press("End")
        terminal.wait_for("1 step")
        terminal.type("/exit")
        terminal.press("Enter")
        terminal.wait_for("ended 0")
        assert "Part 139" in terminal.get_history()


def test_the_full_screen_survives_a_restart_of_its_server(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    with open_model_server(SERVER_SCRIPTS) as model:
        server, url = start_server(project, model)
        try:
            with open_terminal(tmp_path, weft("attach", url, "--full"), cwd=project) as terminal:
                terminal.wait_for("ready")
                terminal.enter("list")
                assert "1 once" in terminal.wait_for("Allow bash?")
                terminal.enter("1")
                terminal.wait_for("Listed.")
                terminal.wait_for(" ready ")
                stop_server(server)
                terminal.wait_for("does not answer; trying again")
                terminal.type("still typing")
                terminal.wait_for("> still typing")
                server, _ = start_server(project, model, int(url.rpartition(":")[2]))
                terminal.wait_for("is back")
                terminal.press("Enter")
                terminal.wait_for("You said: still typing")
                terminal.wait_for(" ready ")
                terminal.enter("wait")
                terminal.wait_for("Still")
                terminal.press("C-d")  # it leaves a run alone; Ctrl-C would interrupt it
                left = terminal.wait_for("ended 0")
        finally:
            model.go_on.set()
            stop_server(server)
    assert "the run goes on at the server" in left
    assert f"continue: weft attach {url} -s ses_" in left


def test_the_prompt_is_edited_in_an_editor_and_pasted_into(tmp_path: Path) -> None:
    (tmp_path / "editor").write_text('#!/bin/sh\nprintf "from the editor" > "$1"\n')
    (tmp_path / "editor").chmod(0o755)
    with open_chat(tmp_path, "ui", scripts=SCRIPTS, VISUAL=str(tmp_path / "editor")) as (terminal, model):
        terminal.wait_for("ready")
        terminal.press("C-x", "e")
        terminal.wait_for("> from the editor")
        terminal.press("Enter")
        settle(terminal, "You said: from the editor")
        terminal.paste("\n".join(f"line {number}" for number in range(30)))
        terminal.wait_for("[paste 1: 30 lines]")
        terminal.press("Enter")
        settle(terminal, "You said: line 0")
        assert model.prompts[-1].endswith("line 29")
        terminal.press("Escape")
        terminal.wait_for("Esc back")
        terminal.type("y")
        terminal.wait_for("copied 1 line: tmux")


@pytest.mark.parametrize("mode", ["ui", "chat"])
def test_the_full_screen_ends_when_the_terminal_disappears_without_a_signal(
    tmp_path: Path, mode: str
) -> None:
    outside, inside = pty.openpty()
    termios.tcsetwinsize(inside, (24, 80))
    # In a session of its own without a controlling terminal: nobody sends SIGHUP.
    process = subprocess.Popen(
        weft(mode, "-m", "scripted/demo"),
        cwd=make_project(tmp_path / "project"),
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
    )
    os.close(inside)
    try:
        shown = b""
        while b"ready" not in shown:
            shown += os.read(outside, 4096)
        os.close(outside)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
