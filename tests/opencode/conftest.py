"""The real OpenCode 1.1.34, installed once and kept, and a sandbox with a fake model for every module that asks."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from opencode.fake_model import FakeModel, open_fake_model
from opencode.sandbox import Sandbox, make_sandbox

VERSION = "1.1.34"
# Looked up while this file is loaded: later every test has a home of its own.
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft-tools" / f"opencode-{VERSION}"
)
PROGRAM = Path(os.environ.get("WEFT_OPENCODE") or CACHE / "node_modules" / ".bin" / "opencode")


@pytest.fixture(scope="session")
def program() -> Path:
    """The program; installed if it is missing, for a test that is skipped proves nothing."""
    if not PROGRAM.exists():
        install = ["npm", "install", "--prefix", str(CACHE), "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run([*install, f"opencode-ai@{VERSION}"], check=True)
    return PROGRAM


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FakeModel, str]]:
    with open_fake_model() as served:
        yield served


@pytest.fixture(scope="module")
def model(served: tuple[FakeModel, str]) -> FakeModel:
    return served[0]


@pytest.fixture(scope="module")
def sandbox(
    program: Path, served: tuple[FakeModel, str], tmp_path_factory: pytest.TempPathFactory
) -> Sandbox:
    return make_sandbox(tmp_path_factory.mktemp("sandbox"), program, served[1])
