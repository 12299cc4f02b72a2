"""Copying: in every way that works, and it says in which."""

import base64
from pathlib import Path

import pytest

from weft.host.terminal import run_with_input
from weft.tui.clipboard import copy_text, to_osc52
from weft.tui.full.widgets import append_history, read_history


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that keep what they are given in a file of their name."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in ("tmux", "xclip"):
        (tmp_path / name).write_text(f"#!/bin/sh\ncat > {tmp_path}/{name}.out\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


async def copy(text: str, **env: str) -> tuple[str, str]:
    written: list[str] = []
    ways = await copy_text(text, env, written.append, run_with_input)
    return ways, "".join(written)


def list_copies(programs: Path) -> list[Path]:
    return list(programs.glob("*.out"))


def take_file(name: str) -> tuple[str, int]:
    """Return the text and the mode of a file, and remove it."""
    path = Path(name)
    taken = path.read_text(), path.stat().st_mode & 0o777
    path.unlink()
    return taken


async def test_the_terminal_gets_an_escape_sequence(programs: Path) -> None:
    assert await copy("wörds", TERM="xterm") == (
        "OSC 52",
        f"\x1b]52;c;{base64.b64encode('wörds'.encode()).decode()}\x07",
    )
    assert not list_copies(programs)


async def test_tmux_and_system_programs_get_the_text(programs: Path) -> None:
    assert await copy("words", TERM="tmux", TMUX="/x,1,0", DISPLAY=":0") == ("tmux, xclip", "")
    assert [(programs / f"{name}.out").read_text() for name in ("tmux", "xclip")] == ["words", "words"]


@pytest.mark.parametrize("env", [{"TERM": "xterm", "DISPLAY": ":0"}, {"TERM": "linux"}])
async def test_half_a_surrogate_pair_is_replaced(env: dict[str, str], programs: Path) -> None:
    ways, _ = await copy("half \ud83d", **env)
    if "DISPLAY" in env:
        assert (programs / "xclip.out").read_text() == "half ?"
    else:
        assert take_file(ways.removeprefix("the file "))[0] == "half ?"


async def test_over_ssh_no_program_of_this_machine_is_used(programs: Path) -> None:
    ways, _ = await copy("words", TERM="xterm", DISPLAY=":0", SSH_CONNECTION="x")
    assert ways == "OSC 52"
    assert not list_copies(programs)


async def test_a_failing_program_does_not_count_as_copied(programs: Path) -> None:
    (programs / "xclip").write_text("#!/bin/sh\nexit 1\n")
    ways, _ = await copy("words", TERM="xterm", DISPLAY=":0")
    assert ways == "OSC 52"


@pytest.mark.parametrize(("text", "term"), [("x" * 80_000, "xterm"), ("words", "linux")])
async def test_text_that_nothing_accepts_goes_into_a_file(text: str, term: str, programs: Path) -> None:
    assert programs
    ways, written = await copy(text, TERM=term)
    assert (written, *take_file(ways.removeprefix("the file "))) == ("", text, 0o600)


def test_a_long_text_has_no_escape_sequence() -> None:
    assert to_osc52("x" * 56_000)
    assert not to_osc52("x" * 57_000)


def test_inline_mode_and_the_full_screen_share_a_prompt_history(tmp_path: Path) -> None:
    path = str(tmp_path / "prompts")
    assert read_history(path) == []
    append_history(path, "one\n+two", 1_790_000_000_000)
    append_history(path, "three", 1_790_000_001_000)
    assert read_history(path) == ["one\n+two", "three"]
    from prompt_toolkit.history import FileHistory  # noqa: PLC0415  only to compare

    history = FileHistory(path)
    assert list(history.load_history_strings()) == ["three", "one\n+two"]
    history.store_string("four")
    assert read_history(path)[-1] == "four"
