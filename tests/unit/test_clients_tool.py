"""The tool that drives real clients: its errors, and how it reads the output of drivers."""

import subprocess
import sys
from pathlib import Path

from clients import FAILED, NEW, OLD, PASSED, Outcome, list_suites, to_table

TOOL = Path(__file__).parents[2] / "tools" / "clients.py"


def test_without_drivers_the_tool_says_how_to_get_them(tmp_path: Path) -> None:
    tried = subprocess.run(
        [sys.executable, str(TOOL), "--drivers", str(tmp_path), "--cache", str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert tried.returncode == 2
    assert "drive_tui.py" in tried.stderr
    assert "WEFT_DRIVERS=" in tried.stderr
    assert not (tmp_path / "cache").exists()


def test_every_client_is_run_with_both_versions(tmp_path: Path) -> None:
    names = [suite.name for suite in list_suites(tmp_path, tmp_path, "3")]
    expected = {f"{kind}-{version}" for kind in ("run", "tui") for version in (OLD, NEW)}
    expected |= {f"js-sdk-{version}-{api}" for version in (OLD, NEW) for api in ("v1", "v2")}
    assert set(names) == expected | {"python-sdk"}
    assert len(names) == len(set(names))


def test_the_output_of_drivers_is_counted_line_by_line() -> None:
    said = "# head\nPASS   one  0.1s\nFAIL   two  0.2s why\nPASS   three\nSKIP four\nno PASS here\n"
    assert (len(PASSED.findall(said)), FAILED.findall(said)) == (2, ["FAIL   two  0.2s why"])


def test_a_failing_driver_is_marked() -> None:
    good = Outcome(name="good", passed=3, failed=(), content=True, seconds=1)
    bad = Outcome(name="bad", passed=0, failed=(), content=False, seconds=1)
    lines = to_table([good, bad]).splitlines()
    assert [line.endswith("<-") for line in lines[1:]] == [False, True]
