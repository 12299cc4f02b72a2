"""The programs that are compared with other libraries work, also without these libraries."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).parents[2] / "bench" / "first_hour.py"


@pytest.mark.slow
def test_the_programs_of_the_first_hour_run_and_are_measured(tmp_path: Path) -> None:
    # A Python that has none of the others: isolated, so that it sees no package of ours either.
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    command = [sys.executable, str(DRIVER), "--peers", str(bare), "--rounds", "1", "--questions", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    left_out = re.findall(r"^(\w+) is not installed", done.stdout, re.MULTILINE)
    assert left_out == ["pydantic_ai", "openai_agents", "claude_agent_sdk"]
    assert re.search(r"^agent, lines / characters +4 / \d+", done.stdout, re.MULTILINE)
    assert re.search(r"^one question, ms +\d+\.\d+$", done.stdout, re.MULTILINE)
