"""Child sessions that are aborted, late or still running, and what their parents do meanwhile."""

import asyncio

from given.engine import ECHO, EchoInput, text_prompt
from given.subtask_engine import (
    children_of,
    get_error,
    open_parts,
    open_subtask_engine,
    start,
    task_call,
    tasks_of,
    text_of,
)
from weft.model.event import PartUpdated, SessionIdled, StatusChanged, session_of
from weft.model.failure import AbortedFailure
from weft.model.ids import SessionID
from weft.model.message import AssistantMessage
from weft.model.part import (
    AnyPart,
    RunningState,
    ToolPart,
)
from weft.model.session import Idle
from weft.provider.scripted import Say, UseTool, Wait
from weft.run.runtime import SubtaskLimits
from weft.testing.clock import HandClock
from weft.tool.contract import Tool, ToolContext, ToolResult


async def test_aborting_a_run_aborts_and_settles_its_children_at_every_depth() -> None:
    scripts = {
        "go": [[task_call("one", "nesting"), task_call("other")]],
        "one": [[task_call("two", "nesting")]],
        "two": [[Say(text="I wait"), Wait(seconds=10_000)]],
        "other": [[Say(text="So do I"), Wait(seconds=10_000)]],
    }
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        listening = engine.api.events()
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        waiting = {"I wait", "So do I"}
        async for published in listening:
            text = getattr(getattr(published.event, "part", None), "text", "")
            waiting = {each for each in waiting if not text.startswith(each.split(maxsplit=1)[0])}
            if not waiting:
                break
        assert await engine.api.abort(session)
        answer = await asking
        kin = [session]
        for each in kin:
            kin += [child.id for child in await children_of(engine, each)]
        rested = []
        async for published in listening:
            if isinstance(published.event, SessionIdled):
                rested.append(published.event.session_id)
            if len(rested) == len(kin):
                break

        assert len(kin) == 4
        assert rested[-1] == session
        for each in kin:
            messages = await engine.api.list_messages(each)
            assert open_parts(messages) == []
            last = messages[-1].info
            assert isinstance(last, AssistantMessage)
            assert isinstance(last.error, AbortedFailure)
            assert last.time.completed is not None
        assert isinstance(answer.info, AssistantMessage)
        assert {get_error(part) for part in await tasks_of(engine, session)} == {"Tool execution aborted"}


async def test_a_child_aborted_alone_is_a_failed_call_and_its_parent_continues() -> None:
    scripts = {
        "go": [[task_call("look")], [Say(text="never mind")]],
        "look": [[Say(text="I wait"), Wait(seconds=10_000)]],
    }
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        await engine.clock.somebody_sleeps(9_000)
        (child,) = await children_of(engine, session)
        assert await engine.api.abort(child.id)
        answer = await asking

        assert text_of(answer) == "never mind"
        assert get_error((await tasks_of(engine, session))[0]).startswith("The subagent failed: ")


async def test_a_child_that_takes_too_long_is_ended_and_its_parent_continues() -> None:
    scripts = {
        "go": [[task_call("look")], [Say(text="never mind")]],
        "look": [[Say(text="I wait"), Wait(seconds=10_000)]],
    }
    async with open_subtask_engine(scripts, subtasks=SubtaskLimits(seconds=60)) as engine:
        session = await start(engine)
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        await engine.clock.somebody_sleeps(9_000)
        while not asking.done():
            engine.clock.turn(1000)
            await asyncio.sleep(0)
        answer = await asking
        (child,) = await children_of(engine, session)
        last = (await engine.api.list_messages(child.id))[-1].info

        assert text_of(answer) == "never mind"
        assert get_error((await tasks_of(engine, session))[0]) == (
            "The subagent took longer than 60 seconds, and was ended. "
            f"Go on with it by session_id {child.id}, or do without it."
        )
        assert isinstance(last, AssistantMessage)
        assert isinstance(last.error, AbortedFailure)


async def test_a_session_is_never_idle_while_a_child_is_not() -> None:
    scripts = {
        "go": [[task_call("one", "nesting"), task_call("other")], [Say(text="top")]],
        "one": [[task_call("two", "nesting")], [Say(text="middle")]],
        "two": [[Say(text="bottom")]],
        "other": [[Say(text="beside")]],
    }
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        listening = engine.api.events()
        await engine.api.prompt(session, text_prompt("go"))
        busy: set[SessionID] = set()
        async for published in listening:
            match published.event:
                case StatusChanged(session_id=id, status=Idle()):
                    busy.discard(id)
                    if id == session:
                        break
                case StatusChanged(session_id=id):
                    busy.add(id)
                case _:
                    pass

        assert busy == set()


async def test_the_progress_of_a_child_is_published_while_it_works() -> None:
    enough = asyncio.Event()

    async def linger(wanted: EchoInput, _: ToolContext) -> ToolResult:
        await enough.wait()
        return ToolResult(title="", output=wanted.words)

    tool = Tool(name="linger", about="Wait.", takes=EchoInput, run=linger)
    echo = UseTool(tool="echo", input={"words": "x"})
    scripts = {
        "go": [[task_call("look")], [Say(text="ok")]],
        "look": [[echo], [UseTool(tool="linger", input={"words": "y"})], [Say(text="found")]],
    }
    async with open_subtask_engine(scripts, tools=(ECHO, tool)) as engine:
        session = await start(engine)
        listening = engine.api.events()
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        ticking = asyncio.ensure_future(tick(engine.clock))
        seen: list[list[str]] = []
        async for published in listening:
            if session_of(published.event) == session and isinstance(published.event, PartUpdated):
                seen += summary_in(published.event.part)
            if seen and seen[-1] == ["completed", "running"]:
                break
        ticking.cancel()
        enough.set()
        await asking

        assert seen[0] == []
        assert all(len(each) <= 2 for each in seen)


async def tick(clock: HandClock) -> None:
    while True:
        clock.turn(100)
        await asyncio.sleep(0)


def summary_in(part: AnyPart) -> list[list[str]]:
    """Return the states of a child's calls, if a running call reports them."""
    state = part.state if isinstance(part, ToolPart) else None
    if not isinstance(state, RunningState) or not state.metadata:
        return []
    return [[each["state"]["status"] for each in state.metadata["summary"]]]
