"""Run pytest as a user of weft does: in a directory of its own, without our settings."""

import os
import subprocess
import sys
from pathlib import Path


def run_pytest(directory: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a directory, with the plugins that are installed and no options of the tests around it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        env={**inherited, "COLUMNS": "400", **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
