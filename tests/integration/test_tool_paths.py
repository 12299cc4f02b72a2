"""Attempts to evade the rules for files: links out of the project, secrets found by searching, and files that execute."""

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from given.engine import PLACE, open_engine, text_prompt
from given.gate_harness import rules
from given.shell import ShellTree, make_shell_tree
from weft.config.agents import PROTECTED_FILES
from weft.errors import DeniedError
from weft.model.input import SessionInput
from weft.permission.rules import matches
from weft.provider.scripted import Say, UseTool
from weft.testing.tool_contract import AskedPermission, ToolHarness
from weft.tool.contract import AnyTool
from weft.tool.inputs import GrepInput
from weft.tool.registry import APPLY_PATCH, BASH, EDIT, GLOB, GREP, LIST, READ, WRITE


@pytest.fixture
def tree(tmp_path: Path) -> ShellTree:
    return make_shell_tree(tmp_path / "tree")


@pytest.fixture
def harness(tree: ShellTree, tmp_path: Path) -> ToolHarness:
    return ToolHarness(tree.project, outside=tmp_path, environment=os.environ)


LED_OUT: list[tuple[AnyTool, dict[str, Any], str]] = [
    (READ, {"filePath": "link.txt"}, "outside/*"),
    (READ, {"filePath": "out/deep/more.txt"}, "outside/deep/*"),
    (READ, {"filePath": "src/up/../outside/secret.txt"}, "outside/*"),
    (EDIT, {"filePath": "link.txt", "oldString": "secret", "newString": "x"}, "outside/*"),
    (WRITE, {"filePath": "link.txt", "content": "x"}, "outside/*"),
    (WRITE, {"filePath": "nowhere", "content": "x"}, "outside/*"),
    (WRITE, {"filePath": "out/new.txt", "content": "x"}, "outside/*"),
    (GLOB, {"pattern": "*", "path": "out"}, "outside/*"),
    (GREP, {"pattern": "secret", "path": "out"}, "outside/*"),
    (LIST, {"path": "out"}, "outside/*"),
    (BASH, {"command": "ls", "description": "Look", "workdir": "out"}, "outside/*"),
]


@pytest.mark.parametrize(("tool", "given", "pattern"), LED_OUT)
async def test_a_link_out_of_the_project_asks(
    harness: ToolHarness, tree: ShellTree, tool: AnyTool, given: dict[str, Any], pattern: str
) -> None:
    harness.denied = {"external_directory"}
    with pytest.raises(DeniedError):
        await harness.call(tool, **given)
    wanted = f"{tree.top}/{pattern}"
    assert harness.asked[-1] == AskedPermission(
        permission="external_directory", patterns=(wanted,), always=(wanted,)
    )
    assert (tree.top / "outside/secret.txt").read_text() == "secret"


async def test_searching_omits_files_that_may_not_be_read_without_asking(
    harness: ToolHarness, tree: ShellTree
) -> None:
    (tree.project / "README.md").write_text("KEY words")

    def is_permitted(permission: str, pattern: str) -> bool:
        return permission != "read" or not pattern.endswith((".env", ".local"))

    result = await GREP.run(GrepInput(pattern="KEY"), replace(harness.context(), permits=is_permitted))
    project = tree.project
    assert result.output == (
        f"Found 2 matches\n{project}/README.md:\n  Line 1: KEY words\n\n"
        f"{project}/.env.example:\n  Line 1: KEY=\n\n"
        f"(There are matches that may only be seen with the read tool, in: "
        f"{project}/.env, {project}/config/.env.local)"
    )
    assert [asked.permission for asked in harness.asked] == ["grep"]


async def test_searches_of_a_run_follow_its_rules(tree: ShellTree, tmp_path: Path) -> None:
    directory = str(tree.project)
    place = replace(PLACE, directory=directory, worktree=directory)
    async with open_engine(
        [UseTool(tool="grep", input={"pattern": "KEY"})],
        [Say(text="done")],
        tools=(GREP,),
        place=place,
        rules=rules("*:*:allow", "read:*.env:ask", "read:*.env.*:ask"),
        tool_output=str(tmp_path / "out"),
    ) as engine:
        session = await engine.api.create_session(SessionInput())
        await engine.api.prompt(session.id, text_prompt("find it"))
        last_turn = engine.provider.requests[-1].messages[-1]
    assert "KEY=" not in str(last_turn)
    assert "may only be seen with the read tool" in str(last_turn)


async def test_searching_in_one_file_counts_as_reading_it(harness: ToolHarness, tree: ShellTree) -> None:
    harness.denied = {"read"}
    with pytest.raises(DeniedError):
        await harness.call(GREP, pattern="KEY", path="settings")
    assert harness.asked[-1].patterns == (f"{tree.project}/settings", f"{tree.project}/.env")


ACTING = {
    ".git/hooks/pre-commit": True,
    "hooks/pre-commit": True,
    "sub/.git/hooks/pre-commit": True,
    ".git/config": True,
    ".git/modules/x/config": True,
    ".git": True,
    "opencode.json": True,
    "src/opencode.jsonc": True,
    ".opencode/plugin/x.ts": True,
    "src/.opencode/agent/x.md": True,
    ".opencode/plans/one.md": False,
    ".git/info/exclude": False,
    "src/main.py": False,
    "opencode.json.md": False,
}


def needs_permission(patterns: tuple[str, ...]) -> bool:
    """Return True if the default rules ask before a change with these patterns."""
    said = {
        pattern: [action for rule, action in PROTECTED_FILES.items() if matches(pattern, rule)]
        for pattern in patterns
    }
    return any(actions and actions[-1] == "ask" for actions in said.values())


@pytest.mark.parametrize(("path", "acts"), ACTING.items())
async def test_every_tool_that_writes_asks_before_changing_files_that_act_by_themselves(
    harness: ToolHarness, path: str, acts: bool
) -> None:
    harness.denied = {"edit"}
    calls: list[tuple[AnyTool, dict[str, Any]]] = [
        (BASH, {"command": f"echo x > {path}", "description": "Write"}),
        *([] if path == ".git" else [(WRITE, {"filePath": path, "content": "x"})]),
    ]
    for tool, given in calls:
        harness.resources = replace(harness.resources, guard=type(harness.resources.guard)(off=True))
        with pytest.raises(DeniedError):
            await harness.call(tool, **given)
        asked = harness.asked[-1]
        assert (asked.permission, needs_permission(asked.patterns)) == ("edit", acts)


async def test_a_lasting_grant_for_one_such_file_does_not_cover_all(harness: ToolHarness) -> None:
    harness.denied = {"edit"}
    for path, always in ((".opencode/x.ts", (".opencode/x.ts",)), ("new.txt", ("*",))):
        with pytest.raises(DeniedError):
            await harness.call(WRITE, filePath=path, content="x")
        assert harness.asked[-1].always == always


async def test_a_patch_asks_for_each_file(harness: ToolHarness) -> None:
    harness.denied = {"edit"}
    text = "*** Begin Patch\n*** Add File: sub/.opencode/tool/x.ts\n+x\n*** End Patch"
    with pytest.raises(DeniedError):
        await harness.call(APPLY_PATCH, patchText=text)
    patterns = ("sub/.opencode/tool/x.ts", ".opencode/tool/x.ts")
    assert harness.asked[-1] == AskedPermission(permission="edit", patterns=patterns, always=patterns)
