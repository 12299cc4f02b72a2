"""Custom tools in a run: names, permissions, limits; and none of them can break the run."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from given.plugins import MODEL, Project, list_calls, prompt, text_of
from weft.model.event import PartUpdated
from weft.model.input import PromptInput, SessionInput, TextInput
from weft.model.part import AnyPart, CompletedState, RunningState, ToolPart
from weft.provider.scripted import Say, UseTool


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


async def make_calls(project: Project, *calls: UseTool) -> list[tuple[str, str]]:
    async with asyncio.timeout(60), project.open(*[[call] for call in calls], [Say(text="Done.")]) as local:
        messages = await prompt(local)
    assert text_of(messages).endswith("Done.")
    return list_calls(messages)


MATH = """
    from typing import Annotated
    from weft.plugin.tools import ToolAnswer, ToolCallContext, tool

    @tool
    def execute(numbers: Annotated[list[float], "what to add up"]) -> str:
        '''Add numbers.'''
        return str(sum(numbers))

    @tool
    async def divide(a: float, ctx: ToolCallContext, b: float = 2) -> ToolAnswer:
        '''Divide one number by another.'''
        await ctx.ask("divide", f"{a}/{b}")
        await ctx.report(title="dividing", metadata={"a": a})
        return ToolAnswer(output=str(a / b), title=f"{a}/{b}", metadata={"by": ctx.agent, "in": ctx.directory})
"""


async def test_a_file_of_tools_offers_tools_to_the_model(project: Project) -> None:
    project.tool("math", MATH)
    script = (
        [UseTool(tool="math", input={"numbers": [1, 2.5]})],
        [UseTool(tool="math_divide", input={"a": 3})],
    )
    async with asyncio.timeout(60), project.open(*script, [Say(text="Done.")]) as local:
        messages = await prompt(local)
        parts = [part for each in messages for part in each.parts if isinstance(part, ToolPart)]

    added, divided = (part.state for part in parts)
    assert isinstance(added, CompletedState)
    assert isinstance(divided, CompletedState)
    assert (added.title, added.output) == ("", "3.5")
    assert (divided.title, divided.output) == ("3.0/2", "1.5")
    assert divided.metadata["by"] == "build"
    assert divided.metadata["in"] == str(project.root)
    offered = {spec.name: spec for spec in project.provider.requests[0].tools}
    assert offered["math"].about == "Add numbers."
    assert offered["math"].schema["properties"]["numbers"]["description"] == "what to add up"
    assert offered["math_divide"].schema["required"] == ["a"]
    assert project.warnings == []


async def test_arguments_are_validated_and_exceptions_become_results(project: Project) -> None:
    project.tool("math", MATH)
    project.plugin(
        "odd",
        """
        import sys
        from weft.plugin.tools import tool

        @tool
        def leaves() -> str:
            "Leave."
            sys.exit(4)

        @tool
        async def gives_a_number() -> str:
            "Count."
            return 3

        @tool
        def talks() -> str:
            "Talk."
            return "word " * 100_000
        """,
    )
    wrong, zero, left, number, talk = await make_calls(
        project,
        UseTool(tool="math", input={"numbers": ["one"]}),
        UseTool(tool="math_divide", input={"a": 1, "b": 0}),
        UseTool(tool="leaves"),
        UseTool(tool="gives_a_number"),
        UseTool(tool="talks"),
    )
    assert wrong[1].startswith("The math tool was called with invalid arguments: Expected `float`, got `str`")
    assert zero[1] == "ZeroDivisionError: float division by zero"
    assert left[1] == "SystemExit: 4"
    assert number[1] == "The gives_a_number tool returned a int; it must return text or a ToolAnswer."
    assert len(talk[1]) < 60_000
    assert "truncated" in talk[1]
    assert project.warnings == []


async def test_a_tool_that_cannot_await_an_answer_is_not_treated_as_allowed(project: Project) -> None:
    project.tool(
        "deploy",
        """
        from weft.plugin.tools import ToolCallContext, tool

        @tool
        def deploy(ctx: ToolCallContext) -> str:
            "Deploy."
            ctx.ask("deploy_to", "live")
            return f"deployed in {ctx.directory}"
        """,
    )
    ((_, said),) = await make_calls(project, UseTool(tool="deploy"))
    assert said == "ask needs an async tool: write async def, and await it"


async def test_a_permission_without_patterns_is_requested_as_a_whole(project: Project) -> None:
    project.tool(
        "deploy",
        """
        from weft.plugin.tools import ToolCallContext, tool

        @tool
        async def deploy(ctx: ToolCallContext) -> str:
            "Deploy."
            await ctx.ask("deploy_to")
            return "deployed"
        """,
    )
    project.configure(permission={"deploy_to": "deny"})
    ((_, said),) = await make_calls(project, UseTool(tool="deploy"))
    assert "A rule forbids this call (deploy_to '*'" in said


async def test_a_wrapped_async_function_is_awaited(project: Project) -> None:
    project.tool(
        "deploy",
        """
        from functools import wraps
        from weft.plugin.tools import ToolCallContext, tool

        def loudly(function):
            @wraps(function)
            def called(**given):
                return function(**given)
            return called

        @tool
        @loudly
        async def deploy(service: str, ctx: ToolCallContext) -> str:
            "Deploy."
            await ctx.ask("deploy_to", service)
            return f"{service} by {ctx.agent}"
        """,
    )
    assert await make_calls(project, UseTool(tool="deploy", input={"service": "loom"})) == [
        ("deploy", "loom by build")
    ]


async def test_the_permission_of_a_custom_tool_is_its_name(project: Project) -> None:
    project.tool("math", MATH)
    project.configure(permission={"math": "deny", "divide": {"9*": "deny"}})
    denied, asked = await make_calls(
        project,
        UseTool(tool="math", input={"numbers": []}),
        UseTool(tool="math_divide", input={"a": 9}),
    )
    assert "the tool 'math' is not available" in denied[1]
    assert "A rule forbids this call (divide '9.0/2'" in asked[1]


async def test_a_custom_tool_replaces_the_built_in_one_of_its_name_with_its_permission(
    project: Project,
) -> None:
    project.tool(
        "write",
        "from weft.plugin.tools import tool\n@tool\ndef write(x: str) -> str:\n    'Mine.'\n    return x\n",
    )
    assert await make_calls(project, UseTool(tool="write", input={"x": "mine"})) == [("write", "mine")]

    project.configure(permission={"edit": "deny"})
    ((_, said),) = await make_calls(project, UseTool(tool="write", input={"x": "mine"}))
    assert said != "mine"


async def test_invalid_tool_names_are_reported_with_file_line_and_function(project: Project) -> None:
    head = "from weft.plugin.tools import tool\n"
    one = "@tool\ndef {name}() -> str:\n    'Do it.'\n    return '{name}'\n"
    project.tool("invalid", head + one.format(name="execute"))
    project.tool("two words", head + one.format(name="execute"))
    project.tool("twice", head + one.format(name="default") + one.format(name="execute"))
    project.plugin("other", head + one.format(name="twice"))

    assert await make_calls(project, UseTool(tool="twice")) == [("twice", "default")]
    where = ".opencode/tool"
    assert project.list_warnings() == [
        f"{where}/invalid.py:2: function 'execute': the name 'invalid' is reserved by weft",
        f"{where}/twice.py: tool 'twice' replaces the one in {project.root}/.opencode/plugin/other.py".replace(
            f"{project.root}/", ""
        ),
        f"{where}/twice.py:6: function 'execute': this file already has a tool 'twice'",
        f"{where}/two words.py:2: function 'execute': 'two words' is not a valid tool name",
    ]


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "release"
    yield path
    path.touch()


async def test_an_abort_does_not_wait_for_a_hanging_custom_tool(project: Project, release: Path) -> None:
    project.tool(
        "hang",
        f"""
        import os, time
        from weft.plugin.tools import tool

        @tool
        def hang() -> str:
            "Hang."
            while not os.path.exists({str(release)!r}):
                time.sleep(0.01)
            return "released"
        """,
    )
    async with asyncio.timeout(60), project.open([UseTool(tool="hang")]) as local:
        session = (await local.create_session(SessionInput(title="x"))).id
        asked = PromptInput(model=MODEL, parts=(TextInput(text="go"),))
        events = local.events()
        running = asyncio.ensure_future(local.prompt(session, asked))
        async for published in events:
            if isinstance(published.event, PartUpdated) and is_running(published.event.part):
                break
        assert await local.abort(session)
        await running
        ((tool, said),) = list_calls(await local.list_messages(session))

    assert (tool, "abort" in said.lower()) == ("hang", True)


def is_running(part: AnyPart) -> bool:
    return isinstance(part, ToolPart) and isinstance(part.state, RunningState)
