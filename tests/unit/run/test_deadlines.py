"""Deadlines for tools that never return and turns that never end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from given.engine import ECHO, NOW, EchoInput, open_engine, text_prompt
from weft.host.tasks import STEP_SECONDS
from weft.local.permissions import PermissionSettings
from weft.model.event import PartUpdated, PermissionAsked, PublishedEvent
from weft.model.failure import DeadlineData, DeadlineFailure
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import CompletedState, ErrorState, RunningState, TextPart, ToolPart
from weft.model.permission import Rule
from weft.permission.policy import AskPolicy
from weft.provider.chunk import AnyChunk, Finished, Started, ToolCall, Usage
from weft.provider.contract import ModelRequest
from weft.provider.scripted import Say, UseTool, Wait
from weft.run.runtime import RunDeadlines
from weft.testing.clock import HandClock
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult


async def hang(_: EchoInput, __: ToolContext) -> ToolResult:
    await asyncio.Event().wait()
    raise AssertionError("never")


HANG: AnyTool = Tool(name="hang", about="Never return.", takes=EchoInput, run=hang)
TOO_LONG = "the tool hang took longer than 60 seconds, and was ended"


async def pass_time(clock: HandClock, seconds: float) -> None:
    """Advance the clock in the steps in which deadlines count."""
    while seconds > 0:
        await clock.somebody_sleeps(0.001)
        clock.turn(round(STEP_SECONDS * 1000))
        seconds -= STEP_SECONDS
        await let_others_run()


async def let_others_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def wait_until_running(events: AsyncIterator[PublishedEvent], tool: str) -> None:
    async for published in events:
        match published.event:
            case PartUpdated(part=ToolPart(tool=name, state=RunningState())) if name == tool:
                return
            case _:
                pass


def states(message: MessageWithParts) -> list[str]:
    return [
        part.state.output if isinstance(part.state, CompletedState) else part.state.error
        for part in message.parts
        if isinstance(part, ToolPart) and isinstance(part.state, CompletedState | ErrorState)
    ]


def info(message: MessageWithParts) -> AssistantMessage:
    assert isinstance(message.info, AssistantMessage)
    return message.info


async def test_a_tool_that_never_returns_is_ended_and_the_model_continues() -> None:
    clock = HandClock(NOW)
    script = (
        [UseTool(tool="hang", input={"words": ""}), UseTool(tool="echo", input={"words": "fine"})],
        [Say(text="It hung.")],
    )
    async with (
        asyncio.timeout(60),
        open_engine(*script, tools=(HANG, ECHO), clock=clock, deadlines=RunDeadlines(tool=60)) as engine,
    ):
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        events = engine.api.events()
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        await wait_until_running(events, "hang")
        await pass_time(clock, 60)
        answer = await asking

        assert [part.text for part in answer.parts if isinstance(part, TextPart)] == ["It hung."]
        assert states((await engine.api.list_messages(session))[1]) == [TOO_LONG, "fine"]


async def test_a_turn_that_takes_too_long_ends_with_a_failure_and_nothing_open() -> None:
    clock = HandClock(NOW)
    script = (
        [UseTool(tool="echo", input={"words": "done"})],
        [Say(text="I begin"), UseTool(tool="hang", input={"words": ""}), Wait(seconds=10_000)],
        [Say(text="fresh")],
    )
    async with (
        asyncio.timeout(60),
        open_engine(*script, tools=(HANG, ECHO), clock=clock, deadlines=RunDeadlines(turn=60)) as engine,
    ):
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        events = engine.api.events()
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        await wait_until_running(events, "hang")
        await pass_time(clock, 60)
        answer = await asking
        said = "the turn took longer than 60 seconds, and was ended"

        assert info(answer).error == DeadlineFailure(
            data=DeadlineData(message=said, limit="turn", seconds=60)
        )
        assert info(answer).time.completed is not None
        assert states(answer) == ["Tool execution aborted"]
        # Earlier parts stay, the next prompt has the full time again, and the model sees where the turn was interrupted.
        following = await engine.api.prompt(session, text_prompt("go on"))
        assert info(following).error is None
        assert "I begin" in str(engine.provider.requests[-1].messages)


async def test_a_prompt_received_during_a_timed_out_turn_has_a_turn_of_its_own() -> None:
    clock = HandClock(NOW)
    script = ([Wait(seconds=10_000)], [Say(text="for the second")])
    async with (
        asyncio.timeout(60),
        open_engine(*script, clock=clock, deadlines=RunDeadlines(turn=60)) as engine,
    ):
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        first = asyncio.ensure_future(engine.api.prompt(session, text_prompt("one")))
        await clock.somebody_sleeps(5_000)
        events = engine.api.events()
        second = asyncio.ensure_future(engine.api.prompt(session, text_prompt("two")))
        async for published in events:
            if isinstance(published.event, PartUpdated):
                break
        await pass_time(clock, 60)
        await first
        answer = await second

        assert (info(answer).error, info(answer).finish) == (None, "stop")


async def test_the_time_a_person_takes_to_answer_does_not_count() -> None:
    clock = HandClock(NOW)
    rules = (Rule(permission="echo", pattern="*", action="ask"),)
    script = ([UseTool(tool="echo", input={"words": "hi"})], [Say(text="done")])
    async with (
        asyncio.timeout(60),
        open_engine(
            *script,
            clock=clock,
            rules=rules,
            permissions=PermissionSettings(policy=AskPolicy(can_ask=True)),
            deadlines=RunDeadlines(tool=20, turn=30),
        ) as engine,
    ):
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        events = engine.api.events()
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        async for published in events:
            if isinstance(published.event, PermissionAsked):
                request = published.event.request
                break
        await pass_time(clock, 3_600)
        await engine.api.reply_permission(request.id, "once")
        answer = await asking

        assert info(answer).error is None
        assert states((await engine.api.list_messages(session))[1]) == ["hi"]


async def test_short_steps_share_the_deadline_of_the_turn() -> None:
    class SlowProvider:
        """Takes five seconds for each answer, and always requests another step."""

        def __init__(self, clock: HandClock) -> None:
            self.clock = clock
            self.asked = 0

        async def stream(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
            self.asked += 1
            yield Started()
            await let_others_run()
            self.clock.turn(5_000)
            await let_others_run()
            yield ToolCall(call_id=f"c{self.asked}", tool="echo", raw=f'{{"words": "{self.asked}"}}')
            yield Finished(reason="tool-calls", usage=Usage())

    clock = HandClock(NOW)
    slow = SlowProvider(clock)
    async with (
        asyncio.timeout(60),
        open_engine(provider=slow, clock=clock, deadlines=RunDeadlines(turn=60)) as engine,
    ):
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        answer = await engine.api.prompt(session, text_prompt("go"))

        assert isinstance(info(answer).error, DeadlineFailure)
        assert (slow.asked, clock.now()) == (12, NOW + 60_000)
