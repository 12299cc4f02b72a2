"""The tool contract, for every tool."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from given.web import Answer, Web, open_web
from weft.model.agent import Skill
from weft.testing.tool_contract import TOOL_CHECKS, Bench, Check, Trial
from weft.tool.contract import AnyTool
from weft.tool.diagnostic import NoLanguageServers
from weft.tool.registry import (
    APPLY_PATCH,
    BASH,
    BATCH,
    EDIT,
    GLOB,
    GREP,
    INVALID,
    JOBS,
    LIST,
    LSP,
    MULTIEDIT,
    QUESTION,
    READ,
    RECALL,
    TASK,
    TODOREAD,
    TODOWRITE,
    TOOLS,
    WEBFETCH,
    WRITE,
)
from weft.tool.skill import SkillSource, make_skill_tool
from weft.tool.websearch import CODESEARCH, WEBSEARCH, make_search_tools

WEAVING = Skill(name="weaving", description="For cloth.", location="/skills/weaving/SKILL.md")
TRIALS = (
    Trial(tool=INVALID, given={"tool": "x", "error": "y"}, misfit={"tool": 1}),
    Trial(
        tool=QUESTION,
        given={"questions": [{"question": "Which?", "header": "Which", "options": []}]},
        misfit={"questions": [{"question": "Which?"}]},
    ),
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
        tool=TASK,
        given={"description": "Look", "prompt": "Find it.", "subagent_type": "explore"},
        misfit={"description": "Look", "prompt": "Find it."},
    ),
    Trial(tool=WEBFETCH, given={"url": "{web}/long"}, misfit={"url": "{web}", "format": "pdf"}),
    Trial(
        tool=TODOWRITE,
        given={"todos": [{"content": "c", "status": "pending", "priority": "low", "id": "1"}] * 3000},
        misfit={"todos": [{"content": "c"}]},
    ),
    Trial(tool=TODOREAD, given={}, misfit=None),
    Trial(tool=WEBSEARCH, given={"query": "weft"}, misfit={"query": "weft", "numResults": 0}),
    Trial(tool=CODESEARCH, given={"query": "weft"}, misfit={"query": "weft", "tokensNum": 10}),
    Trial(
        tool=make_skill_tool(SkillSource(find=lambda: (WEAVING,), read=lambda _: "Over, under.\n" * 9000)),
        given={"name": "weaving"},
        misfit={},
    ),
    Trial(
        tool=APPLY_PATCH,
        given={"patchText": "*** Begin Patch\n*** Add File: new/deep.txt\n+x\n*** End Patch"},
        misfit={"patch": "x"},
    ),
    Trial(
        tool=LSP,
        given={"operation": "documentSymbol", "filePath": "long.txt", "line": 1, "character": 1},
        misfit={"operation": "documentSymbol", "filePath": "long.txt", "line": 0, "character": 1},
    ),
    Trial(
        tool=BATCH,
        given={"tool_calls": [{"tool": "read", "parameters": {"filePath": "long.txt"}}] * 30},
        misfit={"tool_calls": []},
    ),
    Trial(tool=LIST, given={"path": "."}, misfit={"ignore": "all"}),
    Trial(
        tool=MULTIEDIT,
        given={"filePath": "new.txt", "edits": [{"oldString": "", "newString": "b"}]},
        misfit={"filePath": "new.txt", "edits": [{"oldString": ""}]},
    ),
    Trial(tool=RECALL, given={"query": "word"}, misfit={"query": "word", "limit": 0}),
    Trial(tool=JOBS, given={}, misfit={"stop": 1}),
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "long.txt").write_text("word " * 500 + "\n" + "a word\n" * 5000)
    for number in range(150):
        (directory / f"{number}.txt").write_text("one word\n")
    made = Bench(directory, outside=tmp_path, environment=os.environ)
    made.desk = replace(made.desk, language_servers=Talkative())
    return made


class Talkative(NoLanguageServers):
    """A server with a long answer to every request."""

    async def request(self, path: str, method: str, params: dict[str, Any]) -> list[Any] | None:
        del path, method, params
        return [{"name": "word", "at": number} for number in range(9000)]


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    found = b'data: {"result": {"content": [{"text": "' + b"word " * 20_000 + b'"}]}}\n\n'
    with open_web({"/long": Answer(b"<p>word" * 20_000, kind="text/html"), "/mcp": Answer(found)}) as opened:
        yield opened


def at(trial: Trial, web: Web) -> Trial:
    """Return the same trial with a web server on this machine."""
    searching = {tool.name: tool for tool in make_search_tools(f"{web.url}/mcp")}
    given = {
        name: value.replace("{web}", web.url) if isinstance(value, str) else value
        for name, value in trial.given.items()
    }
    return replace(trial, tool=searching.get(trial.tool.name, trial.tool), given=given)


def test_there_is_a_trial_for_every_tool() -> None:
    def names(tools: tuple[AnyTool, ...]) -> list[str]:
        return [tool.name for tool in tools]

    assert names(tuple(trial.tool for trial in TRIALS)) == names(TOOLS)


@pytest.mark.parametrize("check", TOOL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.tool.name)
async def test_the_tool_contract_holds(check: Check, trial: Trial, bench: Bench, web: Web) -> None:
    await check(at(trial, web), bench)
