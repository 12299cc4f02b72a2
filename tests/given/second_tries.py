"""A run of the tests in which one passed only when it was tried again: it fails, unless `tests/flaky.toml` lists that test."""

import ast
import tomllib
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

LISTED_FOR = timedelta(days=60)


class FlakyTest(NamedTuple):
    """A test that is known to fail now and then."""

    name: str
    reason: str
    date: date


def read_flaky_tests(path: Path) -> list[FlakyTest]:
    return [FlakyTest(**entry) for entry in tomllib.loads(path.read_text()).get("test", [])]


def find_faults(listed: Sequence[FlakyTest], root: Path, today: date) -> Iterator[str]:
    """Yield what is wrong with the list: tests that do not exist below the root, missing reasons, and entries that are too old."""
    for test in listed:
        file, _, function = test.name.partition("::")
        if not (root / file).is_file() or function not in _list_functions(root / file):
            yield f"there is no test {test.name}"
        if not test.reason.strip():
            yield f"{test.name} is listed without a reason"
        if today - test.date > LISTED_FOR:
            yield f"{test.name} has been listed since {test.date}: mend it"


def _list_functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


class SecondTries:
    """A plugin of pytest that notes which tests were tried twice. It belongs in the process that receives all reports."""

    def __init__(self, listed: Sequence[FlakyTest]) -> None:
        self._listed = {test.name: test for test in listed}
        self._repeated: set[str] = set()
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # `rerun` is an outcome of pytest-rerunfailures: it failed, and is tried again.
        if report.outcome == "rerun":  # type: ignore[comparison-overlap]
            self._repeated.add(report.nodeid)
        elif report.failed:
            self._failed.add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._list_unknown() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name in sorted(self._repeated - self._failed):
            known = self._listed.get(_without_parameters(name))
            said = f"known since {known.date}: {known.reason}" if known else "not in tests/flaky.toml"
            terminalreporter.write_line(f"FLAKY {name} passed at the second try; {said}", red=known is None)

    def _list_unknown(self) -> list[str]:
        return [
            name for name in self._repeated - self._failed if _without_parameters(name) not in self._listed
        ]


def _without_parameters(name: str) -> str:
    return name.partition("[")[0]
