"""The full screen, driven by keys: transcript, panels, lists, pages, dialogs."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from given.engine import open_engine, text_prompt
from given.http_server import make_project
from given.model_server import Scripts, open_model_server
from given.pilot import PilotTerminal, drive_screen
from weft.api import Api
from weft.local.open import OpenOptions, open_directory
from weft.model.input import SessionInput
from weft.provider.scripted import Say, Think, UseTool, Wait
from weft.tui.full.widgets import SearchField

GOLDEN = Path(__file__).parents[1] / "golden" / "terminal"
STORES_GOLDEN = bool(os.environ.get("WEFT_GOLDEN"))  # tests do not see these variables
ANSWER = "# Weaving\n\nA **bold** word.\n\n- one\n- two\n\n```python\nx = 1\n```\n"
EDIT = UseTool(tool="edit", input={"filePath": "hello.txt", "oldString": "hello", "newString": "goodbye"})
SCRIPTS: Scripts = {
    "show": [[Think(text="I think."), Say(text=ANSWER)]],
    "edit": [[UseTool(tool="read", input={"filePath": "hello.txt"})], [EDIT], [Say(text="It is changed.")]],
    "list": [[UseTool(tool="bash", input={"command": "ls && rm x", "description": "List"})], [Say(text="Listed.")]],
    "wait": [[Say(text="Begun.\n\nStill "), Wait(seconds=0), Say(text="here.")]],
    "split": [
        [UseTool(tool="task", input={"description": "Spin", "prompt": "spin", "subagent_type": "general"})],
        [Say(text="Both are done.")],
    ],
    "spin": [[Say(text="The thread is spun.")]],
}  # fmt: skip


@asynccontextmanager
async def open_api(tmp_path: Path, **config: Any) -> AsyncIterator[Api]:
    project = make_project(tmp_path / "project")
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
    own.mkdir(parents=True, exist_ok=True)
    with open_model_server(SCRIPTS) as model:
        (own / "opencode.json").write_text(json.dumps({**model.config, **config}))
        async with open_directory(OpenOptions(directory=str(project), env=os.environ, can_ask=True)) as api:
            yield api


async def check_golden(name: str, terminal: PilotTerminal) -> None:
    """Wait until the screen is the stored one. `WEFT_GOLDEN=1` replaces the stored one."""
    path = GOLDEN / f"{name}.txt"
    if STORES_GOLDEN:
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{terminal.get_stable_screen()}\n")
    screen = await terminal.wait_for_screen(path.read_text().removesuffix("\n"))
    assert f"{screen}\n" == path.read_text()


async def test_a_conversation_its_changes_and_an_undo_are_shown(tmp_path: Path) -> None:
    async def drive(terminal: PilotTerminal) -> None:
        await terminal.wait_for("sends the prompt")
        await terminal.wait_for("ready · build · mill/loom")
        await check_golden("welcome", terminal)
        await terminal.enter("edit")
        await terminal.settle("FILES CHANGED")
        await terminal.wait_for("context 10% · $0.42")
        await check_golden("conversation", terminal)
        await terminal.press("ctrl+x", "d")
        await terminal.wait_for("1 file changed")
        await check_golden("diff", terminal)
        await terminal.press("escape", "ctrl+x", "u")
        await terminal.wait_for("Undo this prompt?")
        await check_golden("undo", terminal)
        assert (tmp_path / "project" / "hello.txt").read_text() == "goodbye there\n"
        await terminal.press("enter")
        await terminal.wait_for("undone; ctrl+x r")
        assert (tmp_path / "project" / "hello.txt").read_text() == "hello there\n"
        assert terminal.app.prompt.text == "edit"
        assert "It is changed." not in terminal.get_screen()
        await terminal.press("ctrl+c", "ctrl+x", "r")
        await terminal.wait_for("It is changed.")
        assert (tmp_path / "project" / "hello.txt").read_text() == "goodbye there\n"

    async with open_api(tmp_path) as api:
        await drive_screen(api, drive, size=(110, 30))


async def test_the_transcript_is_browsed_folded_searched_and_copied(tmp_path: Path) -> None:
    async def drive(terminal: PilotTerminal) -> None:
        transcript = terminal.app.transcript
        for prompt, answer in (("show", "1 step"), ("edit", "It is changed.")):
            await terminal.enter(prompt)
            await terminal.settle(answer)
        await terminal.press("escape")
        assert transcript.cursor is not None
        await terminal.type("k" * 2)
        assert "+goodbye there" in terminal.get_screen()
        await terminal.press("enter", "enter")
        assert "✓ Edit    hello.txt · +1 -1" in await terminal.wait_for("+1 -1", gone="+goodbye")
        await terminal.type("Z")
        await terminal.type("Z")
        await terminal.wait_for("+goodbye there")
        await terminal.type("/BOLD")
        await terminal.press("enter")
        assert "▌ A bold word." in terminal.get_screen()
        await terminal.type("n")
        assert "▌ A bold word." in terminal.get_screen()  # the only place
        await terminal.type("/")
        terminal.app.query_one(SearchField).value = "velvet"
        terminal.app.press("enter")  # before Textual has reported the key
        await terminal.wait_for("'velvet' was not found")
        await terminal.type("y")
        await terminal.wait_for("copied 1 line: OSC 52")
        await terminal.type("Y")
        await terminal.wait_for("copied 10 lines: OSC 52")
        await terminal.type("}")
        assert transcript.cursor == next(
            at for at, item in enumerate(transcript.lines.items) if getattr(item, "text", "") == "edit"
        )
        await terminal.type("{")
        await terminal.type("i")
        assert terminal.app.focused is terminal.app.prompt
        await terminal.press("ctrl+x", "i")
        assert "thought for" in terminal.get_screen()
        await terminal.press("ctrl+x", "y")
        await terminal.wait_for("copied 1 line: OSC 52")

    async with open_api(tmp_path) as api:
        await drive_screen(api, drive)


async def test_a_key_cycles_through_the_models_of_the_session(tmp_path: Path) -> None:
    async def drive(terminal: PilotTerminal) -> None:
        await terminal.wait_for("sends the prompt")
        await terminal.enter("spin")
        await terminal.wait_for("The thread is spun.")
        await terminal.press("f2")
        await terminal.wait_for("this session has used no other model")
        await terminal.enter("/model mill/shuttle")
        await terminal.wait_for("the next prompt is for mill/shuttle")
        await terminal.press("f2")
        await terminal.wait_for("the next prompt is for mill/loom")
        assert terminal.app.chat.model == "mill/loom"

    async with open_api(tmp_path) as api:
        await drive_screen(api, drive)


async def test_sessions_are_listed_filtered_renamed_searched_and_removed(tmp_path: Path) -> None:
    async def drive(terminal: PilotTerminal) -> None:
        await terminal.wait_for("ready")
        await terminal.press("ctrl+x", "l")
        screen = await terminal.wait_for("Sessions  2")
        assert "Dye" in screen
        assert "Spin" not in screen  # a child session
        await terminal.press("ctrl+t")
        assert "    Spin" in await terminal.wait_for("Sessions · tree  3")
        await terminal.press("ctrl+t")
        await terminal.type("weav")
        await terminal.wait_for("Sessions  1")
        await terminal.press("ctrl+r")
        await terminal.wait_for("Enter renames")
        await terminal.type("!")
        await terminal.press("enter")
        await terminal.wait_for("Weave!")
        await terminal.press("ctrl+f")
        await terminal.wait_for("Sessions · pinned")
        await terminal.press("ctrl+f", "ctrl+f", "ctrl+f")
        await terminal.type("dye")
        await terminal.wait_for("Sessions  1")
        await terminal.press("ctrl+d")
        await terminal.wait_for("Ctrl-D again")
        await terminal.press("ctrl+d")
        await terminal.wait_for("nothing matches")
        await terminal.press("escape", "ctrl+x", "l")
        await terminal.wait_for("Sessions  1")
        await terminal.press("enter")
        await terminal.wait_for("Weave!")

    async with open_api(tmp_path) as api:
        weave = await api.create_session(SessionInput(title="Weave"))
        await api.create_session(SessionInput(title="Spin", parent_id=weave.id))
        await api.create_session(SessionInput(title="Dye"))
        await drive_screen(api, drive)


async def test_a_permission_shows_its_parts_and_is_answered_while_a_draft_waits(tmp_path: Path) -> None:
    async def drive(terminal: PilotTerminal) -> None:
        await terminal.enter("list")
        await terminal.wait_for("Allow bash?")
        await terminal.wait_for("$0.10")  # for the title
        await check_golden("permission", terminal)
        await terminal.enter("1")
        await terminal.settle("Listed.")
        await terminal.enter("wait")
        await terminal.wait_for("Still")
        await terminal.press("escape")
        await terminal.settle("interrupted")

    async with open_api(tmp_path, permission={"bash": "ask"}) as api:
        await drive_screen(api, drive, size=(80, 30))


async def test_a_child_session_has_a_pane_and_the_timeline_has_costs(tmp_path: Path) -> None:
    async def drive(terminal: PilotTerminal) -> None:
        await terminal.enter("split")
        await terminal.settle("Both are done.")
        await terminal.press("ctrl+x", "right")
        screen = await terminal.wait_for("The thread is spun.")
        assert "> spin" in screen
        await terminal.press("ctrl+x", "up")
        await terminal.wait_for("Both are done.", gone="The thread is spun.")
        await terminal.press("ctrl+x", "b", "ctrl+x", "b")
        await terminal.press("ctrl+x", "g")
        await terminal.wait_for("Timeline  1")
        assert "$0.2100" in terminal.get_screen()
        await terminal.press("enter")
        await terminal.wait_for("> split")

    async with open_api(tmp_path) as api:
        await drive_screen(api, drive)


async def test_models_agents_themes_commands_and_prompts_are_chosen(tmp_path: Path) -> None:
    async def drive(terminal: PilotTerminal) -> None:
        app = terminal.app
        await terminal.wait_for("ready")
        await terminal.press("ctrl+x", "m")
        await terminal.wait_for("mill/shuttle")
        await terminal.type("shut")
        await terminal.press("enter")
        await terminal.wait_for("the next prompt is for mill/shuttle")
        await terminal.press("tab")
        await terminal.wait_for("agent plan")
        await terminal.press("ctrl+x", "t")
        await terminal.wait_for("Theme")
        await terminal.type("nord")
        await terminal.press("enter")
        await terminal.wait_for("ready")
        assert app.palette is app.palettes["nord"]
        await terminal.enter("hello there")
        await terminal.settle("You said: hello there")
        await terminal.press("ctrl+r")
        await terminal.wait_for("Earlier prompts")
        await terminal.press("enter")
        await terminal.wait_for("ready")
        assert app.prompt.text == "hello there"
        await terminal.press("ctrl+c", "up")
        await terminal.pilot.pause(0.05)
        assert app.prompt.text == "hello there"
        await terminal.press("ctrl+c")
        await terminal.type("/perm")
        await terminal.wait_for("list grants")
        await terminal.press("tab", "enter", "enter")
        await terminal.wait_for("nothing is granted")
        await terminal.press("ctrl+p")
        await terminal.wait_for("Commands and keys")
        await terminal.type("side by side")
        await terminal.press("enter")
        await terminal.wait_for("no file has changed")
        await terminal.press("escape", "f1")
        await terminal.wait_for("in inline mode" if False else "everywhere")

    async with open_api(tmp_path) as api:
        await drive_screen(api, drive)


async def test_keys_are_those_of_the_configuration(tmp_path: Path) -> None:
    async def drive(terminal: PilotTerminal) -> None:
        await terminal.wait_for("ready")
        await terminal.type("one")
        await terminal.press("alt+j")
        await terminal.type("two")
        await terminal.press("ctrl+s")
        await terminal.settle("You said: one")
        await terminal.press("ctrl+b", "n")
        await terminal.wait_for("the next prompt begins another session")

    keybinds = {
        "leader": "ctrl+b",
        "input_submit": "ctrl+s",
        "input_newline": "alt+j",
        "session_new": "<leader>n",
    }
    async with open_api(tmp_path) as api:
        await drive_screen(api, drive, keybinds=keybinds)


@pytest.mark.parametrize("size", [(40, 24), (200, 60)])
async def test_the_screen_fits_small_and_large_terminals(tmp_path: Path, size: tuple[int, int]) -> None:
    async def drive(terminal: PilotTerminal) -> None:
        await terminal.enter("show")
        await terminal.settle("1 step")
        if size[0] > 80:
            await terminal.wait_for("10% · $0.21")
        await check_golden(f"size-{size[0]}x{size[1]}", terminal)
        await terminal.pilot.resize_terminal(60, 20)
        await terminal.pilot.pause()
        assert all(len(line) <= 60 for line in terminal.get_screen().split("\n"))
        assert "A bold word." in terminal.get_screen()

    async with open_api(tmp_path) as api:
        await drive_screen(api, drive, size=size)


async def test_older_messages_are_loaded_when_scrolling_up() -> None:
    async def drive(terminal: PilotTerminal) -> None:
        transcript = terminal.app.transcript
        await terminal.wait_for("answer 39")
        assert "prompt 20" not in [getattr(item, "text", "") for item in transcript.lines.items]
        for _ in range(60):
            await terminal.press("pageup")
        await terminal.wait_for("prompt 0")
        prompts = [item.text for item in transcript.lines.items if hasattr(item, "message")]  # type: ignore[union-attr]
        assert prompts == [f"prompt {number}" for number in range(40)]
        await terminal.press("end")
        await terminal.wait_for("answer 39")
        # Arrow keys that arrive at once are a notch of the wheel.
        top = transcript.top
        for _ in range(3):
            terminal.app.press("up")
        await terminal.pilot.pause(0.05)
        assert transcript.top == top - 3

    script = [[Say(text=f"answer {number}\n\nand more\n\nand more")] for number in range(40)]
    async with open_engine(*script) as engine:
        session = await engine.api.create_session(SessionInput(title="Long"))
        for number in range(40):
            await engine.api.prompt(session.id, text_prompt(f"prompt {number}"))
        await drive_screen(engine.api, drive, session=session, size=(60, 14))


async def test_the_prompt_has_vi_keys_if_configured(tmp_path: Path) -> None:
    async def drive(terminal: PilotTerminal) -> None:
        await terminal.wait_for("sends the prompt")
        await terminal.type("one two")
        await terminal.press("escape")
        await terminal.wait_for("vi: normal mode")
        await terminal.type("0dwA!")
        await terminal.wait_for("> two!", gone="vi: normal mode")
        await terminal.press("escape")
        await terminal.type("uu")
        await terminal.wait_for("one two")
        await terminal.type("ccthree")
        await terminal.press("escape", "enter")
        await terminal.settle("You said: three")
        await terminal.type("typed")  # a new prompt begins in insert mode
        await terminal.press("escape")
        await terminal.type("k")
        await terminal.wait_for("> three", gone="> typed")
        await terminal.type("j")
        await terminal.wait_for("> typed")

    async with open_api(tmp_path) as api:
        await drive_screen(api, drive, vi=True)


async def test_nothing_is_drawn_while_nothing_happens(tmp_path: Path) -> None:
    async def drive(terminal: PilotTerminal) -> None:
        await terminal.wait_for("sends the prompt")
        await terminal.rest()
        await terminal.press("escape", "slash")
        await terminal.rest()
        await terminal.press("escape", "ctrl+x", "l")
        await terminal.wait_for("type to filter")
        await terminal.rest()

    async with open_api(tmp_path) as api:
        await drive_screen(api, drive)


async def test_a_draft_is_restored_after_browsing_earlier_prompts(tmp_path: Path) -> None:
    async def drive(terminal: PilotTerminal) -> None:
        await terminal.wait_for("sends the prompt")
        await terminal.enter("first")
        await terminal.settle("You said: first")
        await terminal.type("half")
        await terminal.press("up", "left")  # another key ends the wait for more arrows
        await terminal.wait_for("> first", gone="> half")
        await terminal.press("down", "left")
        await terminal.wait_for("> half")

    async with open_api(tmp_path) as api:
        await drive_screen(api, drive)


async def test_a_running_session_is_left_by_one_key_and_interrupted_by_another(tmp_path: Path) -> None:
    async def drive(terminal: PilotTerminal) -> None:
        await terminal.wait_for("sends the prompt")
        await terminal.enter("wait")
        await terminal.wait_for("Still")
        await terminal.press("ctrl+c")
        await terminal.settle("interrupted")
        await terminal.enter("wait")
        await terminal.wait_for("Esc interrupts")
        await terminal.pilot.press("ctrl+d")
        assert terminal.app._exit

    async with open_api(tmp_path) as api:
        await drive_screen(api, drive)


async def test_a_small_screen_shows_everything_too(tmp_path: Path) -> None:
    async def drive(terminal: PilotTerminal) -> None:
        assert "  shell\n" in await terminal.wait_for("sends the prompt; @\n")  # it is wrapped, not cut
        await terminal.press("f1")
        assert "send; during a run, join it" in await terminal.wait_for("everywhere")
        await terminal.press("escape")
        await terminal.enter("edit")
        await terminal.settle("It is changed.")
        await terminal.press("ctrl+x", "b")
        assert "hello.txt" in await terminal.wait_for("FILES CHANGED")
        await terminal.press("escape", "ctrl+x", "l")
        assert "^D remove" in await terminal.wait_for("^S search")

    async with open_api(tmp_path) as api:
        await drive_screen(api, drive, size=(40, 24))
