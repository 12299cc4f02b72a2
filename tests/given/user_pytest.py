"""Run pytest as a user of weft does: in a directory of its own, without our settings."""

import os
import subprocess
import sys
from pathlib import Path


def run_pytest(directory: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a directory, with the plugins that are installed and no options of the tests around it.

    LangSmith's plugin is left out, as in our own tests: it takes longer to load than all the rest.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:langsmith_plugin",
            *arguments,
        ],
        cwd=directory,
        env={**inherited, "COLUMNS": "400", **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
