"""glob, grep and list, with ripgrep and without, on real trees."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from weft.errors import ToolError
from weft.testing.tool_contract import AskedPermission, ToolHarness
from weft.tool.contract import ToolResult
from weft.tool.registry import GLOB, GREP, LIST

PROGRAMS = ("sh", "git", "grep")
HINT = "(Results are truncated. Consider using a more specific path or pattern.)"


@pytest.fixture(params=["ripgrep", "git and Python"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> ToolHarness:
    programs = tmp_path / "bin"
    programs.mkdir()
    wanted = (*PROGRAMS, "rg") if request.param == "ripgrep" else PROGRAMS
    for name in wanted:
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"{name} is not installed")
        (programs / name).symlink_to(found)
    project = tmp_path / "project"
    project.mkdir()
    return ToolHarness(project, outside=tmp_path, environment={**os.environ, "PATH": str(programs)})


def write_file(path: Path, text: str, *, age: int = 0) -> str:
    """Write a file of a given age in seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))
    return str(path)


def make_repository(directory: Path) -> None:
    subprocess.run(["git", "init", "-q", str(directory)], check=True)


async def test_files_are_found_newest_first(harness: ToolHarness) -> None:
    old = write_file(harness.directory / "src/old.py", "", age=50)
    new = write_file(harness.directory / "deep/er/new.py", "", age=10)
    write_file(harness.directory / "other.txt", "")
    assert await harness.call(GLOB, pattern="**/*.py") == ToolResult(
        title=".", output=f"{new}\n{old}", metadata={"count": 2, "truncated": False}
    )
    assert harness.asked == [AskedPermission(permission="glob", patterns=("**/*.py",), always=("*",))]


async def test_finding_nothing_is_reported(harness: ToolHarness) -> None:
    assert (await harness.call(GLOB, pattern="*.none")).output == "No files found"
    assert (await harness.call(GREP, pattern="none")).output == "No files found"


async def test_the_newest_hundred_of_many_files_are_returned(harness: ToolHarness) -> None:
    paths = [write_file(harness.directory / f"{number}.txt", "", age=number) for number in range(130)]
    result = await harness.call(GLOB, pattern="*.txt")
    assert result.output == "\n".join([*paths[:100], "", HINT])
    assert result.metadata == {"count": 100, "truncated": True}


async def test_a_path_limits_the_search(harness: ToolHarness) -> None:
    write_file(harness.directory / "a/x.py", "word")
    inside = write_file(harness.directory / "b/x.py", "word")
    assert (await harness.call(GLOB, pattern="*.py", path="b")).output == inside
    assert (await harness.call(GLOB, pattern=f"{harness.directory}/b/*.py")).output == inside
    assert (
        await harness.call(GREP, pattern="word", path="b")
    ).output == f"Found 1 matches\n{inside}:\n  Line 1: word"


async def test_ignored_files_are_omitted_unless_their_path_is_given(harness: ToolHarness) -> None:
    make_repository(harness.directory)
    write_file(harness.directory / ".gitignore", "made/\n*.log\n")
    seen = write_file(harness.directory / "src/a.log.txt", "word")
    write_file(harness.directory / "src/a.log", "word")
    write_file(harness.directory / "made/b.txt", "word")
    assert (await harness.call(GLOB, pattern="*.txt")).output == seen
    assert (await harness.call(GREP, pattern="word", include="*.txt")).metadata["matches"] == 1


async def test_hidden_files_are_found_and_the_git_directory_is_not(harness: ToolHarness) -> None:
    make_repository(harness.directory)
    hidden = write_file(harness.directory / ".github/config", "word")
    assert (await harness.call(GLOB, pattern="config")).output == hidden


async def test_a_nested_repository_is_searched(harness: ToolHarness) -> None:
    make_repository(harness.directory)
    make_repository(harness.directory / "inner")
    inside = write_file(harness.directory / "inner/src/a.py", "word")
    assert (await harness.call(GLOB, pattern="*.py")).output == inside


async def test_links_out_of_the_project_are_not_followed(harness: ToolHarness, tmp_path: Path) -> None:
    write_file(tmp_path / "outside/secret.txt", "word")
    (harness.directory / "way-out").symlink_to(tmp_path / "outside")
    (harness.directory / "one.txt").symlink_to(tmp_path / "outside/secret.txt")
    assert (await harness.call(GLOB, pattern="**/*.txt")).output == "No files found"
    assert (await harness.call(GREP, pattern="word")).output == "No files found"
    await harness.call(GREP, pattern="word", path="way-out")
    assert harness.asked[-1].permission == "external_directory"


async def test_matches_are_grouped_by_file_and_line(harness: ToolHarness) -> None:
    old = write_file(harness.directory / "old name|odd.txt", "x\nfoo 1\nfoo 2\n", age=50)
    new = write_file(harness.directory / "new.txt", "foo: 3\n")
    write_file(harness.directory / "data.bin", "\0foo\n")
    result = await harness.call(GREP, pattern=r"foo:? \d")
    assert result == ToolResult(
        title=r"foo:? \d",
        output=f"Found 3 matches\n{new}:\n  Line 1: foo: 3\n\n{old}:\n  Line 2: foo 1\n  Line 3: foo 2",
        metadata={"matches": 3, "truncated": False},
    )
    assert harness.asked == [AskedPermission(permission="grep", patterns=(r"foo:? \d",), always=("*",))]


async def test_files_may_be_chosen_by_glob(harness: ToolHarness) -> None:
    chosen = write_file(harness.directory / "src/a.tsx", "word")
    write_file(harness.directory / "src/a.js", "word")
    expected = f"Found 1 matches\n{chosen}:\n  Line 1: word"
    assert (await harness.call(GREP, pattern="word", include="*.{ts,tsx}")).output == expected
    assert (await harness.call(GREP, pattern="word", include="src/*.tsx")).output == expected


async def test_one_file_may_be_searched(harness: ToolHarness) -> None:
    path = write_file(harness.directory / "a.txt", "x\nword\n")
    write_file(harness.directory / "b.txt", "word\n")
    assert (
        await harness.call(GREP, pattern="word", path="a.txt")
    ).output == f"Found 1 matches\n{path}:\n  Line 2: word"


async def test_a_hundred_of_many_matches_are_returned(harness: ToolHarness) -> None:
    write_file(harness.directory / "a.txt", "word\n" * 500)
    result = await harness.call(GREP, pattern="word")
    assert result.metadata == {"matches": 100, "truncated": True}
    assert result.output.startswith("Found 100 matches\n")
    assert result.output.endswith(f"\n  Line 100: word\n\n{HINT}")


async def test_long_lines_are_cut_and_the_total_is_bounded(harness: ToolHarness) -> None:
    write_file(harness.directory / "a.txt", ("word" + "x" * 5000 + "\n") * 100)
    result = await harness.call(GREP, pattern="word")
    assert f"  Line 1: word{'x' * 1996}...\n" in result.output
    assert len(result.output) < 52_000
    assert result.metadata["truncated"] is True


@pytest.mark.parametrize("pattern", ["a{99999999999}", "a{" + "9" * 5000 + "}", "(" * 3000 + ")" * 3000])
async def test_a_pattern_that_python_cannot_read_is_reported(harness: ToolHarness, pattern: str) -> None:
    write_file(harness.directory / "a.txt", "word")
    with pytest.raises(ToolError, match="not a regular expression"):
        await harness.call(GREP, pattern=pattern, path="a.txt")


async def test_an_invalid_pattern_is_reported(harness: ToolHarness) -> None:
    write_file(harness.directory / "a.txt", "word")
    with pytest.raises(ToolError, match=r"ripgrep failed|not a regular expression"):
        await harness.call(GREP, pattern="(word")


async def test_a_missing_path_is_reported(harness: ToolHarness) -> None:
    for tool in (GLOB, GREP):
        with pytest.raises(ToolError, match="There is no"):
            await harness.call(tool, pattern="x", path="nowhere")
    with pytest.raises(ToolError, match="There is no"):
        await harness.call(LIST, path="nowhere")


async def test_a_directory_is_listed_as_a_tree(harness: ToolHarness) -> None:
    for name in (
        "b.txt",
        "a.txt",
        "src/main.rs",
        "src/bin/x.rs",
        "node_modules/x/y.js",
        "dist/z",
        "keep/skip.me",
    ):
        write_file(harness.directory / name, "")
    assert await harness.call(LIST, ignore=["*.me"]) == ToolResult(
        title=".",
        output=f"{harness.directory}/\n  src/\n    bin/\n      x.rs\n    main.rs\n  a.txt\n  b.txt\n",
        metadata={"count": 4, "truncated": False},
    )
    assert harness.asked == [
        AskedPermission(permission="list", patterns=(str(harness.directory),), always=("*",))
    ]
