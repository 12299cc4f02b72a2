"""The example of an agent inside a program does what it says."""

import json
import subprocess
import sys
from pathlib import Path

from weft.cli.demo import GREETING

AGENT = Path(__file__).parents[2] / "examples" / "embed" / "agent.py"


def test_an_agent_inside_a_program_works_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "greet.py").write_text(GREETING)
    (tmp_path / "opencode.json").write_text(
        json.dumps({"model": "scripted/demo", "permission": {"bash": "ask"}})
    )
    ran = subprocess.run(
        [sys.executable, AGENT, tmp_path, "greet by name"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "allowed once: bash" in ran.stdout
    assert "[edit: completed]" in ran.stdout
    assert (tmp_path / "greet.py").read_text() != GREETING
