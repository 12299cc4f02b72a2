"""The real OpenCode 1.1.34, installed once, and a sandbox with a fake model for every module that uses it; and a later OpenCode."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from opencode.fake_model import FakeModel, open_fake_model
from opencode.sandbox import Sandbox, make_sandbox

VERSION = "1.1.34"
NEWER_VERSION = "1.18.33"
# Looked up while this file is loaded: later every test has a home of its own.
TOOLS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft-tools"
CACHE = TOOLS / f"opencode-{VERSION}"
NEWER_CACHE = TOOLS / f"opencode-{NEWER_VERSION}"
PROGRAM = Path(os.environ.get("WEFT_OPENCODE") or CACHE / "node_modules" / ".bin" / "opencode")

LONGEST = 900


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Give these tests a long timeout: module fixtures run both programs many times before the first test."""
    for item in items:
        if item.get_closest_marker("opencode"):
            item.add_marker(pytest.mark.timeout(LONGEST))


def install(version: str, cache: Path) -> None:
    command = ["npm", "install", "--prefix", str(cache), "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run([*command, f"opencode-ai@{version}"], check=True)


@pytest.fixture(scope="session")
def program() -> Path:
    """The program, installed if it is missing: a skipped test proves nothing."""
    if not PROGRAM.exists():
        install(VERSION, CACHE)
    return PROGRAM


@pytest.fixture(scope="session")
def newer_program() -> Path:
    """OpenCode 1.18.33: the binary itself, without the script that selects one for this machine."""
    modules = NEWER_CACHE / "node_modules"
    if not modules.exists():
        install(NEWER_VERSION, NEWER_CACHE)
    [program, *_] = sorted(modules.glob("opencode-*/bin/opencode"), key=lambda it: len(str(it)))
    return program


@pytest.fixture(autouse=True, scope="session")
def _tidy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove the four-megabyte library that OpenCode unpacks at every start."""
    yield
    for library in tmp_path_factory.getbasetemp().rglob(".*.so"):
        library.unlink()


@pytest.fixture(scope="module")
def model_server() -> Iterator[tuple[FakeModel, str]]:
    with open_fake_model() as served:
        yield served


@pytest.fixture(scope="module")
def model(model_server: tuple[FakeModel, str]) -> FakeModel:
    return model_server[0]


@pytest.fixture(scope="module")
def sandbox(
    program: Path, model_server: tuple[FakeModel, str], tmp_path_factory: pytest.TempPathFactory
) -> Sandbox:
    return make_sandbox(tmp_path_factory.mktemp("sandbox"), program, model_server[1])
