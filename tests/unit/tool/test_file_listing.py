"""Select files by glob."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.tool.file_listing import matches_glob


@pytest.mark.parametrize(
    ("name", "glob", "expected"),
    [
        ("a.py", "*.py", True),
        ("src/deep/a.py", "*.py", True),
        ("src/a.py", "**/*.py", True),
        ("a.py", "**/*.py", True),
        ("src/x/a.py", "src/*.py", False),
        ("src/x/a.py", "src/**/*.py", True),
        ("src/a.py", "src/**/*.py", True),
        ("src/a.py", "src/**", True),
        ("src/a.py", "/src/a.py", True),
        ("a.ts", "*.{ts,tsx}", True),
        ("a.tsx", "*.{ts,tsx}", True),
        ("a.js", "*.{ts,tsx}", False),
        ("a1.py", "a[0-9].py", True),
        ("ab.py", "a[!0-9].py", True),
        ("a1.py", "a[!0-9].py", False),
        ("a.py", "?.py", True),
        ("{x}", "\\{x\\}", True),
        (".env", "*", True),
        ("a[.py", "a[.py", True),
        ("{" * 2000 + "}" * 2000, "{" * 2000 + "}" * 2000, True),
    ],
)
def test_globs_match_paths(name: str, glob: str, expected: bool) -> None:
    assert matches_glob(name, glob) is expected


@pytest.mark.parametrize("glob", ["*a" * 30 + "*b", "**/" * 30 + "x", "a*" * 30 + "/*b", "?*" * 30 + "b"])
def test_a_glob_that_almost_matches_is_read_in_no_time(glob: str) -> None:
    assert not matches_glob("a" * 200, glob)
    assert not matches_glob("a/" * 60 + "a" * 100, f"**/{glob}")


@given(st.text("ab.", max_size=12), st.text("ab.*?", max_size=8))
def test_stars_match_as_in_a_shell(name: str, glob: str) -> None:
    if "**" not in glob:
        assert matches_glob(name, glob) == fnmatchcase(name, glob)
