"""Globs, shell commands as patterns, and which tools are offered."""

import pytest

from weft.tool.command import Judgement, judge
from weft.tool.listing import fits
from weft.tool.registry import find_tool, offered


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
def test_globs(name: str, glob: str, expected: bool) -> None:
    assert fits(name, glob) is expected


@pytest.mark.parametrize(
    ("command", "always"),
    [
        ("ls -la", "ls *"),
        ("git status", "git status *"),
        ("git -C /elsewhere status", "git -C /elsewhere status"),
        ("npm run dev", "npm run *"),
        ("git", "git *"),
        ("ls; rm -rf x", "ls; rm -rf x"),
        ("ls > x", "ls > x"),
        ("ls $(rm x)", "ls $(rm x)"),
        ("X=1 ls", "X=1 ls"),
        ("ls\nrm x", "ls\nrm x"),
    ],
)
def test_only_a_plain_command_may_be_allowed_by_its_beginning(command: str, always: str) -> None:
    assert judge(f" {command} ") == Judgement(patterns=(command,), always=(always,))


def test_the_tools_come_in_order_and_without_those_for_us_alone() -> None:
    names = [tool.name for tool in offered()]
    assert names == ["bash", "read", "glob", "grep", "edit", "write", "todowrite", "todoread"]


def test_what_is_disabled_is_not_offered() -> None:
    assert [tool.name for tool in offered({"bash", "edit", "write", "todowrite"})] == [
        "read",
        "glob",
        "grep",
        "todoread",
    ]


def test_a_tool_is_found_by_name() -> None:
    found = find_tool("list")
    assert found is not None
    assert found.name == "list"
    assert find_tool("nothing") is None
