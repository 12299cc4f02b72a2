"""The tool contract, for every tool."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from given.web import Answer, Web, open_web
from weft.model.agent import Skill
from weft.testing.tool_contract import TOOL_CHECKS, Check, ToolCase, ToolHarness
from weft.tool.contract import AnyTool
from weft.tool.language_servers import NoLanguageServers
from weft.tool.registry import (
    APPLY_PATCH,
    BASH,
    BATCH,
    EDIT,
    GLOB,
    GREP,
    HISTORY,
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
TOOL_CASES = (
    ToolCase(tool=INVALID, valid={"tool": "x", "error": "y"}, invalid={"tool": 1}),
    ToolCase(
        tool=QUESTION,
        valid={"questions": [{"question": "Which?", "header": "Which", "options": []}]},
        invalid={"questions": [{"question": "Which?"}]},
    ),
    ToolCase(
        tool=BASH,
        valid={"command": "yes | head -c 200000; sleep 0.05", "description": "Say yes"},
        invalid={"command": "true"},
    ),
    ToolCase(tool=READ, valid={"filePath": "long.txt"}, invalid={"filePath": 3}),
    ToolCase(tool=GLOB, valid={"pattern": "*.txt"}, invalid={}),
    ToolCase(tool=GREP, valid={"pattern": "word"}, invalid={"pattern": None}),
    ToolCase(
        tool=EDIT,
        valid={"filePath": "new.txt", "oldString": "", "newString": "b"},
        invalid={"filePath": "a", "oldString": "b"},
    ),
    ToolCase(
        tool=WRITE, valid={"filePath": "new/deep.txt", "content": "x" * 90_000}, invalid={"filePath": "a"}
    ),
    ToolCase(
        tool=TASK,
        valid={"description": "Look", "prompt": "Find it.", "subagent_type": "explore"},
        invalid={"description": "Look", "prompt": "Find it."},
    ),
    ToolCase(tool=WEBFETCH, valid={"url": "{web}/long"}, invalid={"url": "{web}", "format": "pdf"}),
    ToolCase(
        tool=TODOWRITE,
        valid={"todos": [{"content": "c", "status": "pending", "priority": "low", "id": "1"}] * 3000},
        invalid={"todos": [{"content": "c"}]},
    ),
    ToolCase(tool=TODOREAD, valid={}, invalid=None),
    ToolCase(tool=WEBSEARCH, valid={"query": "weft"}, invalid={"query": "weft", "numResults": 0}),
    ToolCase(tool=CODESEARCH, valid={"query": "weft"}, invalid={"query": "weft", "tokensNum": 10}),
    ToolCase(
        tool=make_skill_tool(SkillSource(find=lambda: (WEAVING,), read=lambda _: "Over, under.\n" * 9000)),
        valid={"name": "weaving"},
        invalid={},
    ),
    ToolCase(
        tool=APPLY_PATCH,
        valid={"patchText": "*** Begin Patch\n*** Add File: new/deep.txt\n+x\n*** End Patch"},
        invalid={"patch": "x"},
    ),
    ToolCase(
        tool=LSP,
        valid={"operation": "documentSymbol", "filePath": "long.txt", "line": 1, "character": 1},
        invalid={"operation": "documentSymbol", "filePath": "long.txt", "line": 0, "character": 1},
    ),
    ToolCase(
        tool=BATCH,
        valid={"tool_calls": [{"tool": "read", "parameters": {"filePath": "long.txt"}}] * 30},
        invalid={"tool_calls": []},
    ),
    ToolCase(tool=LIST, valid={"path": "."}, invalid={"ignore": "all"}),
    ToolCase(
        tool=MULTIEDIT,
        valid={"filePath": "new.txt", "edits": [{"oldString": "", "newString": "b"}]},
        invalid={"filePath": "new.txt", "edits": [{"oldString": ""}]},
    ),
    ToolCase(tool=RECALL, valid={"query": "word"}, invalid={"query": "word", "limit": 0}),
    ToolCase(tool=HISTORY, valid={"query": "word"}, invalid={"query": "word", "limit": 0}),
    ToolCase(tool=JOBS, valid={}, invalid={"stop": 1}),
)


@pytest.fixture
def harness(tmp_path: Path) -> ToolHarness:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "long.txt").write_text("word " * 500 + "\n" + "a word\n" * 5000)
    for number in range(150):
        (directory / f"{number}.txt").write_text("one word\n")
    made = ToolHarness(directory, outside=tmp_path, environment=os.environ)
    made.resources = replace(made.resources, language_servers=VerboseServers())
    return made


class VerboseServers(NoLanguageServers):
    """A server with a long answer to every request."""

    async def request(self, path: str, method: str, params: dict[str, Any]) -> list[Any] | None:
        del path, method, params
        return [{"name": "word", "at": number} for number in range(9000)]


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    found = b'data: {"result": {"content": [{"text": "' + b"word " * 20_000 + b'"}]}}\n\n'
    with open_web({"/long": Answer(b"<p>word" * 20_000, kind="text/html"), "/mcp": Answer(found)}) as opened:
        yield opened


def with_web_server(tool_case: ToolCase, web: Web) -> ToolCase:
    """Return the same case with a web server on this machine."""
    searching = {tool.name: tool for tool in make_search_tools(f"{web.url}/mcp")}
    valid = {
        name: value.replace("{web}", web.url) if isinstance(value, str) else value
        for name, value in tool_case.valid.items()
    }
    return replace(tool_case, tool=searching.get(tool_case.tool.name, tool_case.tool), valid=valid)


def test_every_tool_has_a_case() -> None:
    def names(tools: tuple[AnyTool, ...]) -> list[str]:
        return [tool.name for tool in tools]

    cases = names(tuple(tool_case.tool for tool_case in TOOL_CASES))
    assert cases == names(TOOLS), "add a ToolCase to TOOL_CASES for each new tool, in the order of TOOLS"


@pytest.mark.parametrize("check", TOOL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("tool_case", TOOL_CASES, ids=lambda tool_case: tool_case.tool.name)
async def test_the_tool_contract_holds(
    check: Check, tool_case: ToolCase, harness: ToolHarness, web: Web
) -> None:
    await check(with_web_server(tool_case, web), harness)
