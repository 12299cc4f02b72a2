"""The batch tool: each of its calls has its own part, permission questions and limits."""

import asyncio
from typing import Any

from msgspec import Struct

from given.engine import ALLOW, ECHO, Engine, open_engine, text_prompt
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.part import CompletedState, ErrorState, ToolPart
from weft.model.permission import Rule
from weft.provider.contract import ToolModelMessage
from weft.provider.scripted import Say, UseTool
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult
from weft.tool.registry import BATCH, INVALID


class NothingInput(Struct, frozen=True):
    pass


def make_meeting_tool(count: int) -> AnyTool:
    """Return a tool that waits until `count` calls of it are running."""
    there: list[str] = []
    complete = asyncio.Event()

    async def wait_for_others(wanted: NothingInput, ctx: ToolContext) -> ToolResult:
        there.append(ctx.call_id)
        if len(there) == count:
            complete.set()
        await complete.wait()
        return ToolResult(title="met", output=f"{len(there)} met")

    return Tool(name="meet", about="Meet.", takes=NothingInput, run=wait_for_others)


def batch(*calls: tuple[str, dict[str, Any]]) -> UseTool:
    return UseTool(
        tool="batch", input={"tool_calls": [{"tool": tool, "parameters": given} for tool, given in calls]}
    )


def echo(words: str) -> tuple[str, dict[str, Any]]:
    return "echo", {"words": words}


async def start(engine: Engine) -> SessionID:
    return (await engine.api.create_session(SessionInput())).id


async def list_calls(engine: Engine, session: SessionID) -> list[ToolPart]:
    messages = await engine.api.list_messages(session)
    return [part for message in messages for part in message.parts if isinstance(part, ToolPart)]


def to_line(part: ToolPart) -> str:
    match part.state:
        case CompletedState(output=output):
            return f"{part.tool}={output}"
        case ErrorState(error=error):
            return f"{part.tool}!{error}"
        case _:
            return f"{part.tool}?"


async def test_every_call_has_its_own_part_and_result() -> None:
    script = ([batch(echo("a"), echo("b"))], [Say(text="done")])
    async with open_engine(*script, tools=(BATCH, ECHO, INVALID)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        found = await list_calls(engine, session)
        assert [to_line(part) for part in found] == [
            "batch=All 2 tools executed successfully.",
            "echo=a",
            "echo=b",
        ]
        assert isinstance(found[0].state, CompletedState)
        assert found[0].state.title == "Batch execution (2/2 successful)"
        assert found[0].state.metadata == {
            "totalCalls": 2,
            "successful": 2,
            "failed": 0,
            "tools": ["echo", "echo"],
            "details": [{"tool": "echo", "success": True}] * 2,
            "truncated": False,
        }
        results = engine.provider.requests[1].messages[-1]
        assert isinstance(results, ToolModelMessage)
        assert sorted(each.output for each in results.content) == [
            "All 2 tools executed successfully.",
            "a",
            "b",
        ]


async def test_the_calls_run_concurrently() -> None:
    script = ([batch(("meet", {}), ("meet", {}), ("meet", {}))], [Say(text="done")])
    async with (
        open_engine(*script, tools=(BATCH, make_meeting_tool(3), INVALID)) as engine,
        asyncio.timeout(60),
    ):
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        assert [to_line(part) for part in await list_calls(engine, session)][1:] == ["meet=3 met"] * 3


async def test_a_failed_call_is_reported_and_stops_no_other() -> None:
    calls = (echo("a"), ("unknown", {}), ("batch", {"tool_calls": []}), ("echo", {"word": 1}))
    async with open_engine([batch(*calls)], [Say(text="done")], tools=(BATCH, ECHO, INVALID)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        first, *rest = [to_line(part) for part in await list_calls(engine, session)]
        assert first == "batch=Executed 1/4 tools successfully. 3 failed."
        assert rest[0] == "echo=a"
        assert rest[1].startswith("invalid!there is no tool 'unknown'; there are ")
        assert rest[2] == "batch!A batch cannot be called from a batch. Put its calls into this one."
        assert rest[3].startswith("echo!The echo tool was called with invalid arguments")


async def test_calls_beyond_25_are_refused_one_by_one() -> None:
    calls = [echo(str(number)) for number in range(27)]
    async with open_engine([batch(*calls)], [Say(text="done")], tools=(BATCH, ECHO, INVALID)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        first, *rest = [to_line(part) for part in await list_calls(engine, session)]
        assert first == "batch=Executed 25/27 tools successfully. 2 failed."
        assert rest[:25] == [f"echo={number}" for number in range(25)]
        assert rest[25:] == ["echo!Maximum of 25 tools allowed in batch"] * 2


async def test_each_call_is_checked_against_the_rules() -> None:
    rules = (*ALLOW, Rule(permission="echo", pattern="b*", action="deny"))
    script = ([batch(echo("a"), echo("b"))], [Say(text="done")])
    async with open_engine(*script, tools=(BATCH, ECHO, INVALID), rules=rules) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        found = [to_line(part) for part in await list_calls(engine, session)]
        assert found[:2] == ["batch=Executed 1/2 tools successfully. 1 failed.", "echo=a"]
        assert found[2].startswith("echo!")


async def test_aborting_leaves_no_call_open() -> None:
    script = ([batch(("meet", {}), echo("a"))],)
    async with open_engine(*script, tools=(BATCH, ECHO, make_meeting_tool(2), INVALID)) as engine:
        session = await start(engine)
        prompt = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        while "echo=a" not in [to_line(part) for part in await list_calls(engine, session)]:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await engine.api.abort(session)
        await prompt
        assert [to_line(part) for part in await list_calls(engine, session)] == [
            "batch!Tool execution aborted",
            "meet!Tool execution aborted",
            "echo=a",
        ]
