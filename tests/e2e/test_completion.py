"""`weft completion` in the shells themselves: the script is loaded, and Tab completes."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from given.http_server import make_project
from given.tmux import open_terminal
from weft.local.open import OpenOptions, open_directory
from weft.model.input import SessionInput

pytestmark = pytest.mark.slow

SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        'PS1="$ "; eval "$(weft completion bash)"; echo loaded',
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        'PS1="$ "; autoload -U compinit; compinit -u -D; eval "$(weft completion zsh)"; echo loaded',
    ),
    "fish": (["fish", "--no-config", "-i"], "weft completion fish | source; echo loaded"),
}


@pytest.mark.parametrize("shell", SHELLS)
async def test_tab_completes_commands_options_and_sessions(tmp_path: Path, shell: str) -> None:
    if not shutil.which(shell):
        assert not os.environ.get("CI"), f"{shell} is missing in CI"
        pytest.skip(f"{shell} is not installed")
    project = make_project(tmp_path / "project")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "weft").write_text(f'#!/bin/sh\nexec {sys.executable} -m weft "$@"\n')
    (programs / "weft").chmod(0o755)
    async with open_directory(OpenOptions(directory=str(project))) as api:
        session = await api.create_session(SessionInput(title="Weave: a cloth"))
    command, load = SHELLS[shell]
    path = f"{programs}:{os.environ['PATH']}"
    with open_terminal(tmp_path, command, cwd=project, size=(110, 30), PATH=path) as terminal:
        terminal.enter(load)
        terminal.wait_until(lambda screen: "loaded" in screen.splitlines(), "loaded")
        terminal.type("weft stor")
        terminal.press("Tab")
        terminal.wait_for("weft storage")
        terminal.type("ver")
        terminal.press("Tab")
        terminal.wait_for("weft storage verify")
        terminal.press("C-u")
        terminal.type("weft run --max-st")
        terminal.press("Tab")
        terminal.wait_for("--max-steps")
        terminal.press("C-u")
        terminal.type(f"weft session show {session.id[:8]}")
        terminal.press("Tab")
        terminal.wait_for(f"weft session show {session.id}")
        terminal.press("C-u")
