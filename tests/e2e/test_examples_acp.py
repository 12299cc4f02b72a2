"""The editor example does what its first lines say."""

import os
import subprocess
import sys
from pathlib import Path

from weft.cli.demo import GREETING, make_repository

CLIENT = Path(__file__).parents[2] / "examples" / "acp-client" / "client.py"


def edit(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OPENCODE_CONFIG_CONTENT": '{"model": "scripted/demo", "permission": {"edit": "ask"}}',
    }
    command = [sys.executable, str(CLIENT), str(project), "let it greet a name", *options]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_the_example_answers_a_permission_shows_the_answer_and_ends(tmp_path: Path) -> None:
    make_repository(tmp_path / "project")
    ran = edit(tmp_path / "project", "--yes")
    assert ran.returncode == 0, ran.stderr
    for said in (
        "? Edit greet.py: Allow once",
        "[completed] Edit greet.py",
        "6 lines before, 10 after",
        "ended: end_turn",
    ):
        assert said in ran.stdout
    assert (tmp_path / "project" / "greet.py").read_text() != GREETING
