"""`weft completion` in the shells themselves: the script is loaded, and Tab completes."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

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
    (project / "its own.txt").touch()
    async with open_directory(OpenOptions(directory=str(project))) as api:
        session = await api.create_session(SessionInput(title="Weave: a cloth\nin two lines"))
    options = {"baseURL": "http://127.0.0.1:9/v1", "apiKey": "sk-x"}
    models: dict[str, Any] = {"loom:8b": {}, "loom:70b": {}, "it's two words": {}}
    mill = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}
    config = {"enabled_providers": ["mill"], "provider": {"mill": mill}}
    command, load = SHELLS[shell]
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "OPENCODE_CONFIG_CONTENT": json.dumps(config)}
    with open_terminal(tmp_path, command, cwd=project, size=(110, 30), **env) as terminal:
        terminal.enter(load)
        terminal.wait_until(lambda screen: "loaded" in screen.splitlines(), "loaded")

        def expect(typed: str, completed: str) -> None:
            terminal.type(typed)
            terminal.press("Tab")
            terminal.wait_for(completed)

        expect("weft stor", "weft storage")
        expect("ver", "weft storage verify")
        for typed, completed in [
            ("weft run --max-st", "weft run --max-steps"),
            (f"weft session show {session.id[:8]}", f"weft session show {session.id}"),
            ("weft run -m mill/lo", "weft run -m mill/loom:"),
            ("weft run -m mill/loom:7", "weft run -m mill/loom:70b"),
            ('weft run "it\'s" -m "mill/loom:7', 'weft run "it\'s" -m "mill/loom:70b"'),
            ("weft run --model=mill/loom:7", "weft run --model=mill/loom:70b"),
            ("weft run -m mill/it", r"weft run -m mill/it\'s\ two\ words"),
            (r"weft run -m mill/it\'s\ t", r"weft run -m mill/it\'s\ two\ words"),
            ('weft run -m "mill/it', 'weft run -m "mill/it\'s two words"'),
            ("weft run -f its", r"weft run -f its\ own.txt"),
            ("weft session list --format j", "weft session list --format json"),
        ]:
            terminal.press("C-u")
            expect(typed, completed)
