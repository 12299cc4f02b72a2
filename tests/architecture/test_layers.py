"""Imports point down: import-linter accepts the source, and rejects imports that point up or sideways."""

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lint(top: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the tree under `top`, whichever weft is installed."""
    environment = {**os.environ, "PYTHONPATH": str(top / "src"), "COLUMNS": "200", "NO_COLOR": "1"}
    run = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", run, "--no-cache"]
    return subprocess.run(command, cwd=top, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(
        ROOT / "src" / "weft", tmp_path / "src" / "weft", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


def test_imports_point_down() -> None:
    linted = lint(ROOT)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_every_kind_of_store_is_protected() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    kinds = {path.parent.name for path in (ROOT / "src" / "weft" / "store").glob("*/__init__.py")}
    protected = contracts["importlinter:contract:tree"]["protected_modules"].split()
    assert set(protected) == {f"weft.store.{kind}" for kind in kinds}


def plant(top: Path, module: str, line: str) -> None:
    path = top / "src" / "weft" / module
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else '"""Planted."""\n') + f"\n{line}\n")


def test_forbidden_imports_are_found(copy: Path) -> None:
    plant(copy, "model/session.py", "import asyncio")
    plant(copy, "model/diff.py", "from weft.store import contract")
    plant(copy, "tool/contract.py", "from weft.store import memory")
    plant(copy, "store/memory.py", "from weft.testing import clock")
    plant(copy, "maintenance/verify.py", "from weft.store.files import layout")
    linted = lint(copy)
    assert linted.returncode != 0
    broken = [line.strip() for line in linted.stdout.splitlines() if "BROKEN" in line]
    assert len(broken) >= 3, linted.stdout
    for message in (
        "weft.model is not allowed to import weft.store",
        "weft.tool is not allowed to import weft.store",
        "weft.model is not allowed to import asyncio",
        "weft.store is not allowed to import weft.testing",
        "Illegal imports of protected package weft.store.files",
    ):
        assert message in linted.stdout, linted.stdout


def test_a_package_without_a_layer_is_refused(copy: Path) -> None:
    plant(copy, "utils/__init__.py", "")
    linted = lint(copy)
    assert linted.returncode != 0
    assert "utils" in linted.stdout
