"""Everything that changes while a custom tool runs is attributed to it, except what a person changes while a permission request is
open. To a tool that names its files, only those are attributed.
"""

import os
from pathlib import Path

from msgspec import Struct

from given.engine import NOW, open_engine, text_prompt
from given.snapshot_harness import write
from weft.local.permissions import PermissionSettings
from weft.local.undo import UndoSettings
from weft.model.ids import ProjectID
from weft.model.input import SessionInput
from weft.model.permission import Rule
from weft.model.project import Place, Project, ProjectTime
from weft.permission.policy import AskPolicy
from weft.provider.scripted import Say, UseTool
from weft.testing.clock import HandClock
from weft.tool.contract import Tool, ToolContext, ToolResult

ASK = (Rule(permission="*", pattern="*", action="ask"),)


class NoInput(Struct, frozen=True):
    pass


def make_place(root: Path) -> Place:
    project = Project(id=ProjectID("p"), worktree="/", time=ProjectTime(created=NOW, updated=NOW))
    return Place(project=project, directory=str(root), worktree="/")


async def test_changes_of_a_custom_tool_are_undone_and_those_of_a_person_during_its_request_are_kept(
    tmp_path: Path,
) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "one\n")
    write(root / "b.txt", "b\n")

    async def change_around_asking(wanted: NoInput, ctx: ToolContext) -> ToolResult:
        write(root / "a.txt", "before asking\n")
        await ctx.ask("meddle", "*")
        write(root / "c.txt", "after asking\n")
        return ToolResult(title="", output="done")

    tool = Tool(name="meddle", about="Change things.", takes=NoInput, run=change_around_asking)
    undoing = UndoSettings(base=str(tmp_path / "snapshots"), environ=os.environ)
    async with open_engine(
        [UseTool(tool="meddle")],
        [Say(text="Done.")],
        clock=HandClock(NOW),
        tools=(tool,),
        rules=ASK,
        place=make_place(root),
        undo=undoing,
        permissions=PermissionSettings(policy=AskPolicy(can_ask=True)),
    ) as engine:
        api = engine.api
        session = (await api.create_session(SessionInput(title="t"))).id
        asked = api.events()
        prompt = await api.submit(session, text_prompt("go"))
        async for published in asked:
            if published.event.type == "permission.asked":
                write(root / "b.txt", "me\n")
                (request,) = await api.list_permissions()
                await api.reply_permission(request.id, "once")
            if published.event.type == "session.idle":
                break

        done = await api.revert(session, prompt.info.id)

        assert {Path(each.file).name: each.fate for each in done.files} == {
            "a.txt": "restored",
            "c.txt": "removed",
        }
        assert text(root / "a.txt") == "one\n"
        assert text(root / "b.txt") == "me\n"


async def test_only_the_files_that_a_tool_names_are_undone(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "one\n")
    write(root / "b.txt", "b\n")

    async def change(wanted: NoInput, ctx: ToolContext) -> ToolResult:
        async with ctx.watch(str(root / "a.txt")):
            write(root / "a.txt", "two\n")
            write(root / "b.txt", "a person's\n")
        return ToolResult(title="", output="done")

    tool = Tool(name="change", about="Change a file.", takes=NoInput, run=change, watch_all=False)
    undoing = UndoSettings(base=str(tmp_path / "snapshots"), environ=os.environ)
    script = [UseTool(tool="change")], [Say(text="Done.")]
    async with open_engine(*script, tools=(tool,), place=make_place(root), undo=undoing) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        prompt = await engine.api.submit(session, text_prompt("go"))
        async for published in engine.api.events(after=0):
            if published.event.type == "session.idle":
                break
        done = await engine.api.revert(session, prompt.info.id)

    assert {Path(each.file).name: each.fate for each in done.files} == {"a.txt": "restored"}
    assert (text(root / "a.txt"), text(root / "b.txt")) == ("one\n", "a person's\n")


def text(path: Path) -> str:
    return path.read_text()
