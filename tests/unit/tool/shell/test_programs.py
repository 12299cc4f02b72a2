"""Examine what programs are given: sed and awk scripts, code, paths; and shell text that cannot be trusted."""

from pathlib import Path

import pytest

from given.shell import make_shell_tree
from weft.tool.shell.arguments import Field, FileListing
from weft.tool.shell.grammar import parse
from weft.tool.shell.paths import (
    ResolvedPath,
    expand_glob,
    find_sensitive,
    is_secret,
    list_deep_glob,
    list_files,
    locate_command,
)
from weft.tool.shell.program.interpreters import examine_code, examine_interpreter
from weft.tool.shell.program.stream import SedAction, examine_awk_program, parse_sed_script
from weft.tool.shell.program.table import PROGRAMS
from weft.tool.shell.program.wrappers import DETACHING_PROGRAMS, unwrap_command
from weft.tool.shell.state import ShellState
from weft.tool.shell.walk import split_steps


def test_no_line_of_the_table_is_hidden_by_what_examines_a_program_before_it(tmp_path: Path) -> None:
    state = ShellState(make_shell_tree(tmp_path).locate())
    assert [
        name
        for name in PROGRAMS
        if name in DETACHING_PROGRAMS
        or unwrap_command((Field(name),), state, None) is not None
        or examine_interpreter(name, (), state, None) is not None
    ] == ["jobs"], (
        "jobs -x runs a command; remove any other name from the table, or from where it is found first"
    )


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("s/a/b/g", []),
        ("1,20p", []),
        ("/a/,/b/d", []),
        ("$!N;s/\\n/ /", []),
        ("s|a|b|w out", [("write", "out")]),
        ("w out", [("write", "out")]),
        ("/x/r in", [("read", "in")]),
        ("1e ls", [("run", "ls")]),
        ("s/a/ls/e", [("run", "")]),
        ("s/[/]/x/", None),
        ("y/abc/xyz/", []),
        ("a\\\nwords w out", []),
        (":a;ba", []),
        ("{p;w out\n}", [("write", "out")]),
        ("s/a/b", None),
        ("k", None),
        ("", []),
    ],
)
def test_the_effects_of_sed_scripts_are_found(script: str, expected: list[SedAction] | None) -> None:
    assert parse_sed_script(script) == expected


def state_of(tmp_path: Path) -> ShellState:
    return ShellState(make_shell_tree(tmp_path).locate())


@pytest.mark.parametrize(
    ("code", "permissions"),
    [
        ("print(1 + 1)", []),
        ("import json; print(json.dumps([1]))", []),
        ("print(open('README.md').read())", ["read"]),
        ("open('x', 'w').write('y')", ["edit"]),
        ("import os", ["external_directory", "read", "edit", "bash"]),
        ("getattr(x, 'sys' + 'tem')", ["external_directory", "read", "edit", "bash"]),
        ("x = 'src/main.py'", ["read"]),
        ("x = '/etc/hosts'", ["external_directory", "read"]),
    ],
)
def test_the_effects_of_python_code_are_found(tmp_path: Path, code: str, permissions: list[str]) -> None:
    state = state_of(tmp_path)
    examine_code(code, state)
    assert [part.permission for part in state.actions.values()] == permissions


@pytest.mark.parametrize(
    ("program", "quiet"),
    [
        ("{ print $1 }", True),
        ("$1 > 3", True),
        ("/a|b/ { print }", True),
        ('{ print "a | b" }', True),
        ('{ print > "x" }', False),
        ('{ print | "sort" }', False),
        ('BEGIN { system("ls") }', False),
        ("{ getline x }", False),
    ],
)
def test_awk_programs_that_only_print_are_recognised(tmp_path: Path, program: str, quiet: bool) -> None:
    assert examine_awk_program(program, state_of(tmp_path)) is quiet


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("if then", "it is not shell syntax that we can read"),
        ("ls )", "it is not shell syntax that we can read"),
        ("l\\\ns", "a line is broken in the middle of a word"),
        ("ls \x07", "there are control characters in it"),
        ("echo `echo \\`ls\\``", "there are backslashes within backticks"),
        ("a" * 300_000, "it is too long to be judged"),
        ("a|" * 4000 + "a", "it is too long to be judged"),
        ("( " * 130 + "ls" + " )" * 130, "it is nested too deeply to be judged"),
    ],
)
def test_ambiguous_commands_are_not_parsed(text: str, why: str) -> None:
    assert parse(text) == why


@pytest.mark.parametrize(
    ("text", "operators"),
    [
        ("a; b", [""]),
        ("a && b || c", ["", "&&", "||"]),
        ("a | b && c", ["", "&&"]),
        ("a <<X && b\nX\n", ["", "&&"]),
        ("a > x && b", ["", "&&"]),
    ],
)
def test_a_statement_is_split_in_order(text: str, operators: list[str]) -> None:
    root = parse(text)
    assert not isinstance(root, str)
    assert [step.operator for step in split_steps(root.named_children[0])] == operators


def test_a_pattern_stands_for_matching_files_or_for_itself(tmp_path: Path) -> None:
    project = str(make_shell_tree(tmp_path).project)
    assert expand_glob("src/*.py", project) == ["src/main.py"]
    assert expand_glob("src/ma[a-z]n.p[[:alpha:]]", project) == ["src/main.py"]
    assert expand_glob(".[^x]nv", project) == [".env"]
    assert expand_glob("no*thing", project) == ["no*thing"]
    assert expand_glob("[*]", project) == ["*"]
    for number in range(600):
        (tmp_path / f"{number}.txt").touch()
    assert expand_glob("*.txt", str(tmp_path)) is None


def test_a_double_star_lists_every_directory_below() -> None:
    assert list_deep_glob("src/**/*.py", "/x") == FileListing(roots=("/x/src",), name="*.py", hidden=False)
    assert list_deep_glob("**/.env", "/x") == FileListing(roots=("/x/",), name=".env", hidden=True)
    assert list_deep_glob("**", "/x") == FileListing(roots=("/x/",), hidden=False)


def test_sensitive_files_of_a_listing_are_found(tmp_path: Path) -> None:
    project = make_shell_tree(tmp_path).project

    def find(*, links: bool, **more: str | bool) -> set[str]:
        listing = FileListing(roots=(str(project),), **more)  # type: ignore[arg-type]
        return {path.removeprefix(f"{project}/") for path in find_sensitive(listing, links=links)}

    assert find(links=False) == {".env", ".env.example", "config/.env.local"}
    assert find(links=False, name=".env") == {".env"}
    assert find(links=False, hidden=False) == set()
    (project / "prod.env").touch()
    assert find(links=False, hidden=False) == {"prod.env"}
    assert {"out", "link.txt", ".env"} <= find(links=True)
    assert find(links=True, name="*.txt") == {"link.txt", "link1.txt"}


def test_the_files_of_a_listing_are_named_unless_there_are_too_many(tmp_path: Path) -> None:
    project = make_shell_tree(tmp_path).project
    assert list_files(FileListing(roots=(str(project),), name="*.py")) is not None
    assert list_files(FileListing(roots=(str(project / "build"),))) == [str(project / "build/out.o")]
    assert list_files(FileListing(roots=(str(project / "nowhere-at-all"),))) == []
    for number in range(200):
        (project / "build" / f"{number}.o").touch()
    assert list_files(FileListing(roots=(str(project / "build"),))) is None


def test_paths_are_resolved(tmp_path: Path) -> None:
    tree = make_shell_tree(tmp_path)
    where, project, top = tree.locate(), str(tree.project), str(tree.top)
    assert where.resolve("src", project) == ResolvedPath(
        path=f"{project}/src", real=f"{project}/src", inside=True
    )
    assert where.resolve("out/x", project) == ResolvedPath(
        path=f"{project}/out/x", real=f"{top}/outside/x", inside=False
    )
    assert where.resolve("src/up/../x", project) == ResolvedPath(
        path=f"{top}/x", real=f"{top}/x", inside=False
    )
    assert where.resolve("/dev/null", project) is None
    assert where.resolve("/proc/self/cwd", project) is not None
    assert [where.is_in_program_directory(name) for name in ("/bin/ls", "./ls", "/usr/bin/../bin/ls")] == [
        True,
        False,
        True,
    ]


def test_without_a_checkout_only_the_directory_is_inside(tmp_path: Path) -> None:
    assert locate_command(str(tmp_path), "/", {}).roots == (str(tmp_path),)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        (".env", True),
        (".env.local", True),
        ("prod.env", True),
        (".ENV", True),
        (".envrc", False),
        ("env", False),
    ],
)
def test_secret_files_are_recognised_by_name(name: str, secret: bool) -> None:
    assert is_secret(name) is secret
