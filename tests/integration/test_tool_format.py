"""Formatters: which ones run on a file, when, and that a failing one has no other effect."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from weft.testing.tool_contract import ToolHarness, list_processes
from weft.tool.format import FILE_PLACEHOLDER, FORMATTERS, FileFormatter, FormatterRunner, find_commands
from weft.tool.programs import ProgramContext
from weft.tool.registry import EDIT, WRITE


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def make_context(project: Path, *, trusted: bool = False, path: Path | None = None) -> ProgramContext:
    environment = {"PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"]}
    return ProgramContext(
        directory=str(project), worktree=str(project), environment=environment, trusted=trusted
    )


def shell(
    script: str, *, name: str = "own", extensions: tuple[str, ...] = (".txt",), **environment: str
) -> FileFormatter:
    return FileFormatter(
        name=name,
        argv=("sh", "-c", script, FILE_PLACEHOLDER),
        extensions=extensions,
        environment=environment,
        safe_without_trust=True,
    )


def make_harness(project: Path, *formatters: FileFormatter) -> ToolHarness:
    harness = ToolHarness(project, outside=project.parent, environment=os.environ)
    harness.resources = replace(
        harness.resources, after_edit=FormatterRunner(formatters, make_context(project))
    )
    return harness


async def test_a_file_is_formatted_and_known_in_that_state(project: Path) -> None:
    harness = make_harness(project, shell('tr a-z A-Z < "$0" > "$0.new"; mv "$0.new" "$0"'))
    path = project / "a b.txt"
    await harness.call(WRITE, filePath="a b.txt", content="one\n")
    assert path.read_text() == "ONE\n"
    result = await harness.call(EDIT, filePath="a b.txt", oldString="ONE", newString="two")
    assert path.read_text() == "TWO\n"
    assert result.metadata["filediff"]["after"] == "TWO\n"
    await harness.call(EDIT, filePath="a b.txt", oldString="TWO", newString="three")
    assert path.read_text() == "THREE\n"


async def test_formatters_run_one_after_the_other_with_their_environment(project: Path) -> None:
    first = shell('echo "$WORD $PWD" >> "$0"', name="first", WORD="hello")
    second = shell('echo "again" >> "$0"', name="second")
    other = shell('echo "never" >> "$0"', name="other", extensions=(".md",))
    await make_harness(project, first, second, other).call(WRITE, filePath="a.TXT", content="")
    assert (project / "a.TXT").read_text() == f"hello {project}\nagain\n"


@pytest.mark.parametrize("script", ["exit 3", "kill -9 $$", "yes | head -c 100000; echo no >&2"])
async def test_a_failing_formatter_changes_nothing(project: Path, script: str) -> None:
    result = await make_harness(project, shell(script)).call(WRITE, filePath="a.txt", content="one\n")
    assert result.output == "Wrote file successfully."
    assert (project / "a.txt").read_text() == "one\n"


async def test_a_hanging_formatter_is_killed(project: Path) -> None:
    tidy = FormatterRunner((shell("sleep 999"),), make_context(project), seconds=0.1)
    (project / "a.txt").touch()
    await tidy(str(project / "a.txt"))
    assert list_processes(project) == []


async def test_a_missing_formatter_is_skipped(project: Path) -> None:
    missing = FileFormatter(
        name="none", argv=("no-such-program", FILE_PLACEHOLDER), extensions=(".txt",), safe_without_trust=True
    )
    absolute = replace(missing, argv=("/no/such/program", FILE_PLACEHOLDER))
    result = await make_harness(project, missing, absolute).call(WRITE, filePath="a.txt", content="one\n")
    assert result.output == "Wrote file successfully."


# --- which of those we know ---


def names(path: str, ground: ProgramContext) -> list[str]:
    return [formatter.name for formatter, _ in find_commands(path, FORMATTERS, ground)]


def test_a_known_formatter_is_used_if_it_is_installed(project: Path, tmp_path: Path) -> None:
    ground = make_context(project, path=tmp_path / "bin")
    assert names("/a.zig", ground) == []
    program(tmp_path / "bin/zig", "")
    assert names("/a.zig", ground) == ["zig"]
    found = list(find_commands("/a.zig", FORMATTERS, ground))
    assert found[0][1] == (str(tmp_path / "bin/zig"), "fmt", "/a.zig")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("ruff.toml", ""),
        (".ruff.toml", ""),
        ("pyproject.toml", "[tool.ruff]"),
        ("requirements.txt", "ruff==1\n"),
    ],
)
def test_a_formatter_that_needs_configuration_is_used_where_it_is_configured(
    project: Path, tmp_path: Path, file: str, text: str
) -> None:
    program(tmp_path / "bin/ruff", "")
    ground = make_context(project, path=tmp_path / "bin")
    assert names("/a.py", ground) == []
    (project / file).write_text(text)
    assert names("/a.py", ground) == ["ruff"]


def test_configuration_further_up_in_the_checkout_counts(project: Path, tmp_path: Path) -> None:
    program(tmp_path / "bin/clang-format", "")
    (project / ".clang-format").touch()
    (project / "deep").mkdir()
    ground = replace(make_context(project, path=tmp_path / "bin"), directory=str(project / "deep"))
    assert names("/a.c", ground) == ["clang-format"]


def test_a_formatter_that_runs_code_of_the_project_needs_trust(project: Path, tmp_path: Path) -> None:
    program(project / "node_modules/.bin/prettier", "")
    program(project / "node_modules/.bin/shfmt", "")
    program(tmp_path / "bin/rubocop", "")
    (project / "package.json").write_text('{"devDependencies": {"prettier": "3"}}')
    strange = make_context(project, path=tmp_path / "bin")
    trusted = make_context(project, path=tmp_path / "bin", trusted=True)
    assert [names(path, strange) for path in ("/a.ts", "/a.sh", "/a.rb")] == [[], [], []]
    assert [names(path, trusted) for path in ("/a.ts", "/a.sh", "/a.rb")] == [
        ["prettier"],
        ["shfmt"],
        ["rubocop"],
    ]
