"""Select files by glob."""

import pytest

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
    ],
)
def test_globs_match_paths(name: str, glob: str, expected: bool) -> None:
    assert matches_glob(name, glob) is expected
