"""Every tool does what every tool must do."""

import os
from pathlib import Path

import pytest

from weft.testing.tool_contract import TOOL_CHECKS, Bench, Check, Trial
from weft.tool.bash import BASH
from weft.tool.contract import AnyTool
from weft.tool.edit import EDIT
from weft.tool.glob import GLOB
from weft.tool.grep import GREP
from weft.tool.invalid import INVALID
from weft.tool.list import LIST
from weft.tool.read import READ
from weft.tool.registry import TOOLS
from weft.tool.todo import TODOREAD, TODOWRITE
from weft.tool.write import WRITE

TRIALS = (
    Trial(tool=INVALID, given={"tool": "x", "error": "y"}, misfit={"tool": 1}),
    Trial(
        tool=BASH,
        given={"command": "yes | head -c 200000; sleep 0.05", "description": "Say yes"},
        misfit={"command": "true"},
    ),
    Trial(tool=READ, given={"filePath": "long.txt"}, misfit={"filePath": 3}),
    Trial(tool=GLOB, given={"pattern": "*.txt"}, misfit={}),
    Trial(tool=GREP, given={"pattern": "word"}, misfit={"pattern": None}),
    Trial(
        tool=EDIT,
        given={"filePath": "new.txt", "oldString": "", "newString": "b"},
        misfit={"filePath": "a", "oldString": "b"},
    ),
    Trial(tool=WRITE, given={"filePath": "new/deep.txt", "content": "x" * 90_000}, misfit={"filePath": "a"}),
    Trial(
        tool=TODOWRITE,
        given={"todos": [{"content": "c", "status": "pending", "priority": "low", "id": "1"}] * 3000},
        misfit={"todos": [{"content": "c"}]},
    ),
    Trial(tool=TODOREAD, given={}, misfit=None),
    Trial(tool=LIST, given={"path": "."}, misfit={"ignore": "all"}),
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "long.txt").write_text("word " * 500 + "\n" + "a word\n" * 5000)
    for number in range(150):
        (directory / f"{number}.txt").write_text("one word\n")
    return Bench(directory, outside=tmp_path, environment=os.environ)


def test_there_is_a_trial_for_every_tool() -> None:
    def names(tools: tuple[AnyTool, ...]) -> list[str]:
        return [tool.name for tool in tools]

    assert names(tuple(trial.tool for trial in TRIALS)) == names(TOOLS)


@pytest.mark.parametrize("check", TOOL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.tool.name)
async def test_tool(check: Check, trial: Trial, bench: Bench) -> None:
    await check(trial, bench)
