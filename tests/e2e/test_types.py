"""Type checkers accept every example, every program of the documents and the public surface, and find mistakes in its use."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from given.documents import ROOT, list_programs
from weft.cli.demo import GREETING

Check = Callable[[Path], subprocess.CompletedProcess[str]]
TYPES = ROOT / "tests" / "given" / "types"
MYPY = re.compile(r"^(?P<file>[^:\n]+\.py):(?P<line>\d+): error: .*", re.MULTILINE)
PYRIGHT = re.compile(r"^\s*(?P<file>[^:\n]+\.py):(?P<line>\d+):\d+ - (?:error|warning): .*", re.MULTILINE)


def to_module_name(name: str) -> str:
    return re.sub(r"\W+", "_", name.removesuffix(".py")) + ".py"


def list_sources() -> dict[str, str]:
    """Return what is checked, by the name of a module: mypy accepts no two modules of one name, as examples have."""
    # Harbor needs a later Python, so its types cannot be installed beside ours.
    harbor = ROOT / "examples" / "harbor"
    files = [
        each
        for each in (ROOT / "examples").rglob("*.py")
        if each.read_text() != GREETING and harbor not in each.parents
    ]
    return {
        **{to_module_name(str(each.relative_to(ROOT))): each.read_text() for each in files},
        **{to_module_name(str(each)): each.text for each in list_programs()},
        **{each.name: each.read_text() for each in TYPES.glob("*.py")},
    }


def list_marked(sources: dict[str, str]) -> set[tuple[str, int]]:
    """Return the lines that are marked as wrong, each with its file."""
    return {
        (name, number)
        for name, text in sources.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if line.endswith("# wrong")
    }


def find_pyright() -> str:
    path = os.environ.get("WEFT_PYRIGHT", "")
    if not os.path.exists(path):
        missing = "there is no pyright: `make test` installs it if there is npm, and sets WEFT_PYRIGHT"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    return path


def check(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, "."], cwd=directory, capture_output=True, text=True, timeout=220, check=False
    )


def check_with_mypy(directory: Path) -> subprocess.CompletedProcess[str]:
    (directory / "mypy.ini").write_text("[mypy]\n")  # no settings of ours
    return check(directory, sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull)


def check_with_pyright(directory: Path) -> subprocess.CompletedProcess[str]:
    return check(directory, find_pyright(), "--pythonpath", sys.executable)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "form"), [(check_with_mypy, MYPY), (check_with_pyright, PYRIGHT)], ids=["mypy", "pyright"]
)
def test_valid_programs_are_accepted_and_mistakes_are_found(
    run: Check, form: re.Pattern[str], tmp_path: Path
) -> None:
    sources = list_sources()
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    done = run(tmp_path)
    marked = list_marked(sources)
    found = {(Path(each["file"]).name, int(each["line"])): each[0] for each in form.finditer(done.stdout)}
    assert done.returncode == 1, done.stdout + done.stderr  # 2: it could not check
    assert [message for place, message in found.items() if place not in marked] == []
    assert marked - set(found) == set()


def test_there_are_programs_to_check() -> None:
    sources = list_sources()
    assert len(list_marked(sources)) > 15
    assert {"examples_embed_agent.py", "surface.py", "mistakes.py"} <= set(sources)
    assert any(name.startswith("docs_guides_python_md_") for name in sources)
