"""`weft` in a real terminal: every key and command, dialogs, interrupts, sizes, and leaving."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from given.http_server import make_project
from given.model_server import ModelServer, Scripts, open_model_server
from given.tmux import TmuxTerminal, open_terminal, weft
from weft.provider.scripted import Say, Think, UseTool, Wait

pytestmark = pytest.mark.slow

MARKDOWN = "# Weaving\n\nA **bold** word.\n\n- one\n- two\n\n```python\nx = 1\n```\n"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
EDIT = UseTool(tool="edit", input={"filePath": "hello.txt", "oldString": "hello", "newString": "goodbye"})
SCRIPTS: Scripts = {
    "show": [[Think(text="I think."), Say(text=MARKDOWN)]],
    "edit": [[UseTool(tool="read", input={"filePath": "hello.txt"})], [EDIT], [Say(text="It is changed.")]],
    "list": [[UseTool(tool="bash", input={"command": "ls && rm x", "description": "List"})], [Say(text="Listed.")]],
    "ask": [
        [
            UseTool(
                tool="question",
                input={
                    "questions": [
                        {
                            "question": "Which colour?",
                            "header": "Colour",
                            "options": [
                                {"label": "red", "description": "like fire"},
                                {"label": "blue", "description": "like water"},
                            ],
                        }
                    ]
                },
            )
        ],
        [Say(text="So be it.")],
    ],
    "wait": [[Say(text="Thinking hard.\n\nStill "), Wait(seconds=0), Say(text="here.")]],
    "todo": [
        [UseTool(tool="todowrite", input={"todos": [{"content": "spin", "status": "pending", "priority": "high", "id": "1"}]})],
        [Say(text="Noted.")],
    ],
}  # fmt: skip


def write_config(config: dict[str, Any]) -> None:
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
    own.mkdir(parents=True, exist_ok=True)
    (own / "opencode.json").write_text(json.dumps(config))


@contextmanager
def open_chat(
    tmp_path: Path,
    *arguments: str,
    scripts: Scripts = SCRIPTS,
    config: dict[str, Any] | None = None,
    size: tuple[int, int] = (90, 30),
    term: str = "tmux-256color",
    **env: str,
) -> Iterator[tuple[TmuxTerminal, ModelServer]]:
    project = tmp_path / "project"
    if not project.exists():
        make_project(project)
    with open_model_server(scripts) as model:
        write_config({**model.config, **(config or {})})
        with open_terminal(tmp_path, weft(*arguments), size=size, cwd=project, term=term, **env) as terminal:
            yield terminal, model


def settle(terminal: TmuxTerminal, words: str) -> str:
    """Wait until the words are shown and nothing is running."""
    terminal.wait_for(words)
    return terminal.wait_for(" ready ")


def test_weft_alone_opens_a_conversation_and_says_how_to_continue_it(tmp_path: Path) -> None:
    with open_chat(tmp_path) as (terminal, _):
        terminal.wait_for("ready")
        terminal.enter("show")
        settle(terminal, "1 step")
        screen = terminal.wait_for("context 10% · $0.21")
        lines = [line.rstrip() for line in screen.splitlines()]
        begin = lines.index("> show")
        assert lines[begin + 2 : begin + 15] == [
            lines[begin + 2],
            "",
            "Weaving",
            "",
            "A bold word.",
            "",
            "• one",
            "• two",
            "",
            "```python",
            "x = 1",
            "```",
            "",
        ]
        assert lines[begin + 2].startswith("thought for ")
        assert lines[begin + 2].endswith(": I think.")
        assert lines[begin + 15] == "1 step · 2.0k tokens in, 100 out · $0.2100"
        assert lines[begin + 16 : begin + 18] == [">", " ready · build · mill/loom · context 10% · $0.21"]
        terminal.enter("edit")
        screen = settle(terminal, "It is changed.")
        assert "✓ Read    hello.txt" in screen
        assert "✓ Edit    hello.txt" in screen
        assert "  -hello there" in screen
        assert "  +goodbye there" in screen
        assert "1 file" in terminal.wait_for("undo: /undo")
        terminal.press("C-d")
        left = terminal.wait_for("ended 0")
    assert "1 file changed: hello.txt" in left
    # Including the titles; a second one that is too late is dropped.
    assert "cost: $0.6300" in left or "cost: $0.5250" in left
    resume = next(line for line in left.splitlines() if line.startswith("continue: "))
    second = tmp_path / "again"
    second.mkdir()
    (second / "project").symlink_to(tmp_path / "project")
    with open_chat(second, *resume.removeprefix("continue: weft ").split()) as (terminal, _):
        assert "goodbye there" in terminal.wait_for("It is changed.")
        terminal.enter("/exit")
        terminal.wait_for("ended 0")


@pytest.mark.parametrize("command", [("chat",), ("ui",)])
def test_text_typed_before_the_prompt_appears_is_kept_and_sent_by_enter(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    with open_chat(tmp_path, *command) as (terminal, model):
        terminal.enter("show")
        terminal.enter("/permissions")
        terminal.type("half a prom")
        terminal.wait_for("nothing is granted")
        terminal.wait_for("Weaving")
        terminal.wait_for("> half a prom", gone="working")
        assert model.prompts == ["show"]
        terminal.type("pt")
        terminal.wait_for("> half a prompt")
        terminal.press("C-c", "Up", "Up")
        terminal.wait_for("> show")


def test_the_status_shows_the_agent_and_the_model_before_the_first_prompt(tmp_path: Path) -> None:
    with open_chat(tmp_path, "chat") as (terminal, _):
        terminal.wait_for(" ready · build · mill/loom")
        terminal.enter("/variant")
        terminal.wait_for("no variant; mill/loom has: high")
        terminal.enter("/exit")
        terminal.wait_for("ended 0")


def test_a_permission_is_requested_with_its_parts_and_answered_by_number(tmp_path: Path) -> None:
    with open_chat(tmp_path, "chat", config={"permission": {"bash": "ask"}}) as (terminal, _):
        terminal.wait_for("ready")
        terminal.enter("list")
        screen = terminal.wait_for("Allow bash?")
        assert "• ls" in screen
        assert "• rm x" in screen
        assert "1 once" in screen
        assert "waiting for you" in screen
        terminal.press("Enter")  # no answer at all
        terminal.wait_for("type a number or a word")
        terminal.enter("5 leave it")
        assert "  leave it\n" in settle(terminal, "refused: bash")
        terminal.enter("list")
        terminal.wait_for("Allow bash?")
        terminal.enter("1")
        assert "allowed once: bash" in settle(terminal, "Listed.")
        terminal.enter("list")
        terminal.wait_for("Allow bash?")
        terminal.enter("3")
        settle(terminal, "allowed turn")


def test_a_question_is_answered_by_number(tmp_path: Path) -> None:
    with open_chat(tmp_path, "chat", config={"permission": {"question": "allow"}}) as (terminal, _):
        terminal.wait_for("ready")
        terminal.enter("ask")
        assert "? Which colour?" in terminal.wait_for("2 blue  like water")
        terminal.enter("7")  # not in the list
        terminal.wait_for("type a number or a word of the list")
        terminal.enter("2")
        left = settle(terminal, "So be it.")
        assert "like water" not in left
        assert "Which colour? blue" in left


def test_a_run_is_interrupted_joined_and_followed_by_queued_prompts(tmp_path: Path) -> None:
    with open_chat(tmp_path, "chat") as (terminal, model):
        terminal.wait_for("ready")
        terminal.enter("wait")
        assert "Esc interrupts" in terminal.wait_for("Still")
        terminal.press("Escape")
        settle(terminal, "interrupted")
        terminal.enter("wait")
        terminal.wait_for("Esc interrupts")
        terminal.wait_until(lambda screen: screen.count("Still") >= 2, "Still")
        terminal.type("join")
        terminal.press("Enter")
        terminal.wait_for("sent: join")
        terminal.type("later")
        terminal.press("C-q")
        terminal.wait_for("queued: later")
        model.go_on.set()
        settle(terminal, "You said: later")
        assert "message: join" in terminal.get_history()
        terminal.enter("wait")
        terminal.wait_for("Esc interrupts")
        terminal.press("C-c")
        terminal.wait_until(lambda screen: screen.count("interrupted") >= 2, "interrupted")


def test_the_prompt_is_edited_with_the_keys_of_a_shell(tmp_path: Path) -> None:
    (tmp_path / "editor").write_text('#!/bin/sh\nprintf "from the editor" > "$1"\n')
    (tmp_path / "editor").chmod(0o755)
    with open_chat(tmp_path, "chat", VISUAL=str(tmp_path / "editor")) as (terminal, model):
        terminal.wait_for("ready")
        terminal.type("one")
        terminal.press("M-Enter")
        terminal.type("two")
        terminal.press("C-j")
        terminal.enter("three\\")
        terminal.enter("four")
        settle(terminal, "You said: one")
        assert model.prompts[-1] == "one\ntwo\nthree\nfour"
        terminal.type("gone")
        terminal.wait_for("> gone")
        terminal.press("C-c")
        terminal.wait_for("ready", gone="> gone")
        terminal.press("C-c")
        terminal.wait_for("nothing is running; Ctrl-D leaves")
        terminal.enter("second")
        settle(terminal, "You said: second")
        terminal.press("C-r")
        terminal.type("seco")
        terminal.wait_for("I-search")
        terminal.press("C-c")  # leaves the search
        terminal.wait_for("ready", gone="I-search")
        terminal.press("C-r")
        terminal.type("thr")
        terminal.wait_for("I-search")
        terminal.press("Enter")
        terminal.press("Enter")
        terminal.wait_until(lambda screen: screen.count("You said: one") >= 2, "one again")
        terminal.paste("\n".join(f"line {number}" for number in range(30)))
        terminal.wait_for("[paste 1: 30 lines]")
        terminal.press("Enter")
        settle(terminal, "You said: line 0")
        assert model.prompts[-1].endswith("line 29")
        terminal.press("C-x", "C-e")
        terminal.wait_for("> from the editor")
        terminal.press("Enter")
        settle(terminal, "You said: from the editor")


def test_pasted_text_is_available_on_the_full_screen_and_in_later_sessions(tmp_path: Path) -> None:
    image = tmp_path / "a shot.png"
    image.write_bytes(base64.b64decode(PIXEL))
    with open_chat(tmp_path, "chat", size=(112, 30)) as (terminal, model):
        terminal.wait_for("ready")
        terminal.paste("\n".join(f"line {number}" for number in range(30)))
        terminal.wait_for("> [paste 1: 30 lines]")
        terminal.press("C-x", "f")
        terminal.wait_for("> [paste 1: 30 lines]", gone="Ctrl-D leaves")
        terminal.press("Enter")
        settle(terminal, "You said: line 0")
        assert model.prompts[-1].endswith("line 29")
        terminal.type("see ")
        terminal.paste(str(image).replace(" ", "\\ "))
        terminal.wait_for("> see [image 1: a shot.png]")
        terminal.press("Enter")
        settle(terminal, "attached a shot.png")
        terminal.press("C-d")
        terminal.wait_for("ended 0")
    second = tmp_path / "again"
    second.mkdir()
    (second / "project").symlink_to(tmp_path / "project")
    with open_chat(second, "chat") as (terminal, model):
        terminal.wait_for("ready")
        terminal.press("Up")
        terminal.wait_for("> see @")
        terminal.press("C-c")
        terminal.press("C-r")
        terminal.type("line 12")
        terminal.wait_for("line 12")
        terminal.press("Enter")
        terminal.press("Enter")
        settle(terminal, "You said: line 0")
        assert model.prompts[-1].endswith("line 29")


def test_commands_mentions_and_arguments_are_completed(tmp_path: Path) -> None:
    with open_chat(tmp_path, "chat") as (terminal, _):
        terminal.wait_for("ready")
        terminal.type("/perm")
        terminal.wait_for("list grants")
        terminal.press("Tab")
        terminal.wait_for("> /permissions")
        terminal.press("C-c")
        terminal.type("look at @hel")
        terminal.wait_for("hello.txt")
        terminal.press("Tab")
        terminal.wait_for("@hello.txt")
        terminal.press("Enter")
        terminal.press("Enter")
        settle(terminal, "You said: look at @hello.txt")
        assert "attached hello.txt" in terminal.get_screen()
        terminal.type("see .git/HEA")
        terminal.press("Tab")
        terminal.wait_for("> see .git/HEAD")
        terminal.press("C-c")
        terminal.type("/model shu")
        terminal.wait_for("mill/shuttle")
        terminal.press("Tab", "Enter", "Enter")
        terminal.wait_for("the next prompt is for mill/shuttle")
        terminal.wait_for("ready · build · mill/shuttle ·")


COMMANDS: Sequence[tuple[str, str]] = (
    ("/help", "Ctrl-X Ctrl-E: editor"),
    ("/cost", "with child sessions"),
    ("/context", "the last request used"),
    ("/diff", "+goodbye there"),
    ("/todos", "there are no todos"),
    ("/tree", "ses_"),
    ("/tools", "todowrite"),
    ("/mcp", "server"),
    ("/permissions", "nothing is granted"),
    ("/trust", "/trust yes trusts it"),
    ("/model", "/model PROVIDER/MODEL chooses one"),
    ("/agent", "/agent NAME chooses one"),
    ("/agent plan", "the next prompt is for the agent plan"),
    ("/agent build", "the next prompt is for the agent build"),
    ("/variant", "no variant"),
    ("/agent nonsense", "there are: build, plan"),
    ("/agent general", "@general in a prompt hands it a task"),
    ("/variant nonsense", "no variant 'nonsense' (there are: high)"),
    ("/reasoning", "in full from now on"),
    ("/search changed", "/resume NUMBER continues one"),
    ("/share", "error:"),
    ("/unshare", "there is no share"),
    ("/export session.json", "exported to session.json"),
    ("/export session.json", "/export FILE names another"),
    ("/undo", "undone; the next prompt"),
    ("/redo", "everything is back"),
    ("/nonsense", "there is no command 'nonsense' (/help lists all of them)"),
    ("/fork", "a copy of the session"),
    ("/sessions", "/resume NUMBER continues one"),
    ("/resume 1", "It is changed."),
    ("/resume nonsense", "/sessions lists them"),
    ("/compact", "compacted"),
    ("/new", "begins another session"),
    ("/queue hello", "You said: hello"),
    ("!echo from the shell", "from the shell"),
)


def test_every_slash_command_works(tmp_path: Path) -> None:
    with open_chat(tmp_path, "chat", size=(110, 60)) as (terminal, _):
        terminal.wait_for("ready")
        terminal.enter("edit")
        settle(terminal, "It is changed.")
        for command, shown in COMMANDS:
            terminal.press("C-l")
            terminal.press("C-c")
            terminal.enter(command)
            screen = settle(terminal, shown)
            # What was typed is above what it printed.
            assert f"> {command}\n" in screen or not command.startswith("/") or command == "/nonsense"
        assert (tmp_path / "project" / "session.json").exists()
        terminal.enter("/exit")
        terminal.wait_for("ended 0")


LONG = "".join(f"## Part {number}\n\n{'woven cloth ' * 60}\n\n- warp\n- weft\n\n" for number in range(140))


@pytest.mark.parametrize("size", [(40, 24), (200, 60)])
def test_a_long_answer_is_printed_once_and_completely_at_every_size(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    assert len(LONG) > 100_000
    with open_chat(tmp_path, "chat", scripts={"long": [[Say(text=LONG)]]}, size=size) as (terminal, _):
        terminal.wait_for("ready")
        terminal.enter("long")
        settle(terminal, "1 step")
        history = terminal.get_history()
        parts = [line for line in history.splitlines() if line.startswith("Part ")]
        assert parts == [f"Part {number}" for number in range(140)]
        assert history.count("woven cloth") + history.count("woven\ncloth") == 140 * 60
        terminal.press("C-d")
        terminal.wait_for("ended 0")


def is_filled(columns: int, screen: str) -> bool:
    """Return True if the rows of words, but for the last, have as many of five columns each as fit."""
    rows = [row.split() for row in screen.splitlines() if row.startswith("w")]
    return {len(row) for row in rows[:-1]} == {columns // 5}


def test_no_copy_of_the_region_stays_behind_when_the_size_changes(tmp_path: Path) -> None:
    words = " ".join(f"w{number:03}" for number in range(300))
    scripts: Scripts = {"wait": [[Say(text=words), Wait(seconds=0), Say(text="\n\nEnd.")]]}
    with open_chat(tmp_path, "chat", scripts=scripts, size=(100, 30)) as (terminal, model):
        terminal.wait_for("ready")
        terminal.enter("wait")
        terminal.wait_for("w299")
        for columns, rows in ((45, 20), (100, 30)):
            terminal.resize(columns, rows)
            # tmux tells programs of a new size after a while, and until then they draw for the old one.
            terminal.wait_until(partial(is_filled, columns), "the new width")
            assert terminal.get_history().count("interrupts") == 1
        model.go_on.set()
        settle(terminal, "End.")
        history = " ".join(terminal.get_history().split())
        assert f"{words} End." in history
        assert [history.count(each) for each in ("> wait", "End.", "ready")] == [1, 1, 1]


def test_a_screen_reader_gets_plain_lines_that_are_never_redrawn(tmp_path: Path) -> None:
    config = {"permission": {"bash": "ask"}}
    with open_chat(tmp_path, "chat", "--ax", config=config) as (terminal, _):
        terminal.wait_for("Ctrl-D leaves")
        terminal.enter("list")
        assert "5 no; type a reason" in terminal.wait_for("1 once")
        terminal.enter("1")
        terminal.wait_for("Listed.")
        lines = terminal.wait_for("ready").splitlines()
        assert [line for line in lines if line in ("working", "ready")] == ["working", "ready"]
        terminal.enter("/exit")
        terminal.wait_for("ended 0")


def test_a_dumb_terminal_gets_plain_lines(tmp_path: Path) -> None:
    with open_chat(tmp_path, "chat", term="dumb") as (terminal, _):
        terminal.wait_for("Ctrl-D leaves")
        terminal.enter("show")
        terminal.wait_for("1 step")
        terminal.wait_until(lambda screen: "ready" in screen.splitlines(), "ready")
        assert "\x1b[" not in terminal.get_history(colours=True)
        terminal.enter("/screen")
        terminal.wait_for("this terminal shows plain lines only")
        terminal.enter("/exit")
        terminal.wait_for("ended 0")


def test_the_full_screen_is_refused_on_a_terminal_that_cannot_draw(tmp_path: Path) -> None:
    with open_chat(tmp_path, "ui", term="dumb") as (terminal, _):
        screen = terminal.wait_for("ended 2")
        assert "this terminal shows plain lines only" in screen
        assert "weft chat works without it" in screen


def test_vi_keys_and_colours_can_be_configured(tmp_path: Path) -> None:
    vi = {"experimental": {"weft": {"terminal": {"keys": "vi"}}}}
    with open_chat(tmp_path, "chat", config=vi, NO_COLOR="1") as (terminal, _):
        terminal.wait_for("ready")
        terminal.type("word two")
        terminal.press("Escape")
        terminal.wait_for("vi: normal mode")
        terminal.type("0x")
        terminal.wait_for("> ord two")
        terminal.press("Enter")
        settle(terminal, "You said: ord two")
        terminal.enter("sx")  # a new prompt is typed
        settle(terminal, "You said: sx")
        terminal.enter("wait")
        terminal.wait_for("Ctrl-C interrupts")
        terminal.press("C-c")
        settle(terminal, "interrupted")
        settled = terminal.get_history(colours=True).partition("1 step")[0].partition("You said")[2]
        assert "\x1b[" not in settled


def test_without_a_key_the_first_start_offers_choices_and_remembers_the_answer(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    for number, shown in ((0, "choose a number"), (1, "as you chose")):
        place = tmp_path / str(number)
        place.mkdir()
        with open_terminal(place, weft(), cwd=project) as terminal:
            screen = terminal.wait_for(shown)
            if number == 0:
                assert "1  scripted/demo  a scripted demo, offline" in screen
                assert "weft auth login stores a key" in screen
                terminal.enter("9")  # an invalid number does not end the program
                terminal.wait_for("'9' is not a number of the list")
                terminal.enter("1")
            terminal.wait_for("ready · build · scripted/demo")
            terminal.press("C-d")
            terminal.wait_for("ended 0")


def test_a_run_on_a_terminal_shows_the_same_view_and_how_to_undo_it(tmp_path: Path) -> None:
    with open_chat(tmp_path, "run", "edit") as (terminal, _):
        left = terminal.wait_for("ended 0")
        assert "✓ Read    hello.txt" in left
        assert "  +goodbye there" in left
        assert "3 steps · 1 file · 4.0k tokens in, 200 out · $0.4200\nundo: weft undo ses_" in left
    again = tmp_path / "again"
    again.mkdir()
    (again / "project").symlink_to(tmp_path / "project")
    with open_chat(again, "run", "--ax", "show") as (terminal, _):
        left = terminal.wait_for("ended 0")
        assert "Weaving\n\nA bold word." in left
        assert "\x1b" not in terminal.get_history(colours=True)


def test_without_a_terminal_weft_prints_its_help_and_chat_names_what_it_needs(tmp_path: Path) -> None:
    help_text = subprocess.run(
        weft(), cwd=tmp_path, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    assert help_text.stdout.startswith("usage: weft")
    for command in ("chat", "ui"):
        refused = subprocess.run(
            weft(command), cwd=tmp_path, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"weft {command}: it needs a terminal" in refused.stderr
        assert 'weft run "…" sends one prompt' in refused.stderr
