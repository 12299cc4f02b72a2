"""SECURITY.md is correct: the code and tests it names exist, every promise names a test, and no exposed package is missing."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "SECURITY.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
CODE = re.compile(r"`((?:[a-z_]+/)*[a-z_]+(?:\.py)?|Makefile)`")
# Claims about missing features that were once true.
ABSENT = re.compile(
    r"\b(?:there is|there are) no (?:server|snapshot|undo|plugins?|MCP|sharing)|do(?:es)? not exist yet",
    re.IGNORECASE,
)
# Packages that read untrusted input: from a port, a repository, a model or another program.
FACING_UNTRUSTED_INPUT = (
    "acp",
    "blame",
    "client",
    "config",
    "dataset",
    "host",
    "importers",
    "model",
    "page",
    "permission",
    "plugin",
    "run",
    "sandbox",
    "server",
    "share",
    "snapshot",
    "store",
    "tool",
    "transfer",
    "trust",
    "tui",
    "undo",
    "web",
)
# Packages that only pass on or show what the others have read.
FACING_NO_UNTRUSTED_INPUT = (
    "agent",
    "api",
    "cli",
    "cluster",
    "context",
    "integrations",
    "local",
    "maintenance",
    "project",
    "provider",
    "session",
    "telemetry",
    "testing",
    "worktree",
)


def list_promises() -> Iterator[list[str]]:
    """Yield the cells of every row below "What holds"."""
    below = PAGE.read_text().partition("\n## What is guaranteed\n")[2].partition("\n## ")[0]
    for line in below.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] != "promise":
            yield cells


def problems_of(cells: list[str]) -> list[str]:
    """Return what is untrue about one promise."""
    promise, keeper, shown = cells
    found = [] if TEST.search(shown) else [f"no test shows: {promise}"]
    found += [
        f"there is no {file}::{name}"
        for file, name in TEST.findall(shown)
        if not (ROOT / file).is_file()
        or re.search(rf"^(?:async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE) is None
    ]
    code = CODE.findall(keeper)
    found += [] if code else [f"no code keeps: {promise}"]
    found += [
        f"there is no {path}"
        for path in code
        if not any((place / path).exists() for place in (ROOT / "src" / "weft", ROOT))
    ]
    return found


@pytest.mark.parametrize("cells", list(list_promises()), ids=lambda cells: cells[0][:40])
def test_a_promise_names_code_and_tests_that_exist(cells: list[str]) -> None:
    assert problems_of(cells) == []


def test_the_page_contains_promises() -> None:
    assert len(list(list_promises())) > 20


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        (["All is well.", "`model/ids.py`", ""], "no test shows: All is well."),
        (["All is well.", "", "`tests/unit/model/test_ids.py::test_gone`"], "no code keeps: All is well."),
        (
            ["All is well.", "`model/ids.py`", "`tests/unit/model/test_ids.py::test_gone`"],
            "there is no tests/unit/model/test_ids.py::test_gone",
        ),
        (["All is well.", "`model/gone.py`", "`tests/none.py::test_gone`"], "there is no model/gone.py"),
    ],
)
def test_the_check_finds_an_untrue_promise(cells: list[str], problem: str) -> None:
    assert problem in problems_of(cells)


def test_the_page_does_not_call_existing_parts_missing() -> None:
    assert ABSENT.findall(PAGE.read_text()) == []
    assert ABSENT.findall("There is no server, so nothing listens. Plugins do not exist yet.") != []


def test_every_package_that_handles_untrusted_input_has_a_promise() -> None:
    packages = {path.parent.name for path in (ROOT / "src" / "weft").glob("*/__init__.py")}
    assert packages == {*FACING_UNTRUSTED_INPUT, *FACING_NO_UNTRUSTED_INPUT}
    keeping = {path.partition("/")[0] for _, keeper, _ in list_promises() for path in CODE.findall(keeper)}
    assert [package for package in FACING_UNTRUSTED_INPUT if package not in keeping] == []
