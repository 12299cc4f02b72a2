"""One prompt from start to end, in memory."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from decimal import Decimal

import pytest
from msgspec.structs import replace

from given.engine import ALLOW, ECHO, MODEL, NOW, EchoInput, Engine, open_engine, text_prompt
from weft.errors import InvalidIdError, ModelNotFoundError, NotFoundError
from weft.local.permissions import PermissionSettings
from weft.model.event import PartGrew, PartUpdated, PermissionAsked, PublishedEvent, StatusChanged
from weft.model.failure import AbortedFailure, ApiFailure, unknown_failure
from weft.model.ids import Mint, SessionID
from weft.model.input import PromptInput, SessionInput, ShellInput, SubtaskInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import (
    CompletedState,
    ErrorState,
    ModelRef,
    ReasoningPart,
    RunningState,
    TextPart,
    ToolPart,
)
from weft.model.permission import Rule
from weft.model.session import Retry
from weft.model.transcript import Transcript
from weft.permission.policy import AskPolicy
from weft.provider.chunk import AnyChunk, Finished, Started, TextDelta, ToolCall, ToolInputStart, Usage
from weft.provider.contract import (
    AssistantModelMessage,
    ModelRequest,
    ResultContent,
    TextContent,
    ToolModelMessage,
    UserModelMessage,
)
from weft.provider.scripted import End, Fail, Say, Think, UseTool, Wait
from weft.run.runtime import RunDeadlines
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult
from weft.tool.registry import APPLY_PATCH, BATCH, INVALID, TASK

WRAP = 1_786_706_395_136  # 2026-08-14T11:19:55.136Z


async def start(engine: Engine) -> SessionID:
    return (await engine.api.create_session(SessionInput())).id


async def summarise(engine: Engine, session: SessionID) -> list[tuple[str, str]]:
    """Return the role and the parts of each message, in short."""
    messages = await engine.api.list_messages(session)
    return [(type(m.info).__name__[:1], " ".join(summarise_part(part) for part in m.parts)) for m in messages]


def summarise_part(part: object) -> str:
    match part:
        case TextPart(text=text):
            return repr(text)
        case ReasoningPart(text=text):
            return f"({text})"
        case ToolPart(tool=tool, state=CompletedState(output=output)):
            return f"{tool}={output}"
        case ToolPart(tool=tool, state=ErrorState(error=error)):
            return f"{tool}!{error}"
        case _:
            return type(part).__name__.removesuffix("Part")


def info(message: MessageWithParts) -> AssistantMessage:
    assert isinstance(message.info, AssistantMessage)
    return message.info


async def test_a_prompt_is_answered_with_reasoning_a_call_and_text() -> None:
    script = (
        [Think(text="let me see"), Say(text="I call."), UseTool(tool="echo", input={"words": "hello"})],
        [Say(text="It said hello.")],
    )
    async with open_engine(*script) as engine:
        session = await start(engine)
        answer = await engine.api.prompt(session, text_prompt("go"))

        assert await summarise(engine, session) == [
            ("U", "'go'"),
            ("A", "StepStart (let me see) 'I call.' echo=hello StepFinish"),
            ("A", "StepStart 'It said hello.' StepFinish"),
        ]
        assert info(answer).finish == "stop"
        assert info(answer).parent_id == (await engine.api.list_messages(session))[0].info.id
        assert len(engine.provider.requests) == 2
        assert engine.provider.requests[1].messages[0] == UserModelMessage(content=(TextContent(text="go"),))
        assert engine.provider.requests[1].messages[-1] == ToolModelMessage(
            content=(ResultContent(call_id="call_1.2", tool="echo", output="hello"),)
        )


async def test_exact_cost_and_tokens_are_stored_on_the_message() -> None:
    async with open_engine([Say(text="x"), End(usage=Usage(input=1000, output=10, reasoning=5))]) as engine:
        answer = info(await engine.api.prompt(await start(engine), text_prompt("go")))

        assert (answer.cost, answer.tokens.input, answer.tokens.reasoning) == (Decimal("0.003225"), 1000, 5)


async def test_an_unknown_price_is_stored_as_unknown() -> None:
    async with open_engine([Say(text="x")], model=replace(MODEL, cost=None)) as engine:
        answer = info(await engine.api.prompt(await start(engine), text_prompt("go")))

        assert (answer.cost, answer.priced) == (Decimal(0), False)


async def test_the_published_events_fold_to_the_stored_messages() -> None:
    script = (
        [Think(text="a b c"), Say(text="d e f"), UseTool(tool="echo", input={"words": "g"})],
        [Say(text="h i")],
    )
    async with open_engine(*script) as engine:
        session = await start(engine)
        listening = engine.api.events()
        await engine.api.prompt(session, text_prompt("go"))
        received: list[PublishedEvent] = []
        async for each in listening:
            received.append(each)
            if each.event.type == "session.idle":
                break

        heard = Transcript()
        heard.feed(*(each.event for each in received))
        assert heard.messages() == await engine.store.list_messages(session)
        assert [each.cursor for each in received] == sorted(each.cursor for each in received)


async def test_a_part_is_published_before_it_grows() -> None:
    async with open_engine([Say(text="one two three")]) as engine:
        listening = engine.api.events()
        await engine.api.prompt(await start(engine), text_prompt("go"))
        known: set[str] = set()
        grown: list[bool] = []
        async for published in listening:
            match published.event:
                case PartUpdated(part=part):
                    known.add(part.id)
                case PartGrew(part_id=part_id):
                    grown.append(part_id in known)
                case _:
                    pass
            if published.event.type == "session.idle":
                break
        assert set(grown) == {True}


async def test_calls_of_one_answer_run_concurrently() -> None:
    both_are_here = asyncio.Barrier(2)

    async def wait_for_both(wanted: EchoInput, _: ToolContext) -> ToolResult:
        await both_are_here.wait()
        return ToolResult(title="", output=f"met {wanted.words}")

    tool = Tool(name="meet", about="Wait for the other.", takes=EchoInput, run=wait_for_both)
    calls = [UseTool(tool="meet", input={"words": "a"}), UseTool(tool="meet", input={"words": "b"})]
    async with asyncio.timeout(60), open_engine(calls, [Say(text="done")], tools=(tool,)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))

        assert (await summarise(engine, session))[1] == ("A", "StepStart meet=met a meet=met b StepFinish")


async def test_an_invalid_call_tells_the_model_why() -> None:
    bad = [
        UseTool(tool="nosuch", input={}),
        UseTool(tool="echo", raw="{not json"),
        UseTool(tool="echo", raw='{"words":' * 5000 + "1" + "}" * 5000),
        UseTool(tool="echo", raw="[1]"),
        UseTool(tool="echo", input={"words": 7}),
        UseTool(tool="ECHO", input={"words": "loud"}),
    ]
    async with open_engine(bad, [Say(text="sorry")], tools=(INVALID, ECHO, APPLY_PATCH)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        _, (_, received), (_, last) = await summarise(engine, session)

        assert "there is no tool 'nosuch'; there are echo" in received
        assert "apply_patch" not in received, "it is not offered to this model"
        assert "the arguments are not JSON" in received
        assert "the arguments are nested too deeply" in received
        assert "the arguments are not a JSON object" in received
        assert "echo!The echo tool was called with invalid arguments: Expected `str`, got `int`" in received
        assert "echo=loud" in received
        assert last == "StepStart 'sorry' StepFinish"
        assert [tool.name for tool in engine.provider.requests[0].tools] == ["echo"]


async def test_a_tool_that_raises_fails_its_call_and_not_the_run() -> None:
    async def burst(_: EchoInput, __: ToolContext) -> ToolResult:
        raise ZeroDivisionError("a bug in a tool")

    tool = Tool(name="burst", about="Break.", takes=EchoInput, run=burst)
    script = ([UseTool(tool="burst", input={"words": ""})], [Say(text="oh")])
    async with open_engine(*script, tools=(tool,)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))

        assert (await summarise(engine, session))[1:] == [
            ("A", "StepStart burst!ZeroDivisionError: a bug in a tool StepFinish"),
            ("A", "StepStart 'oh' StepFinish"),
        ]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (("call_0", "call_0"), ["call_0", "call_0_2"]),
        (("call_3", "call", "call"), ["call_3", "call", "call_4"]),
    ],
)
@pytest.mark.parametrize("announced", [False, True])
async def test_calls_with_the_same_id_are_told_apart(
    given: Sequence[str], stored: list[str], announced: bool
) -> None:
    class EqualIdProvider:
        """A server that gives several calls of an answer the same id."""

        async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
            yield Started()
            if len(request.messages) == 1:
                for number, id in enumerate(given):
                    if announced:
                        yield ToolInputStart(call_id=id, tool="echo")
                    yield ToolCall(call_id=id, tool="echo", raw=f'{{"words":"{number}"}}')
            yield Finished(reason="stop", usage=Usage())

    async with open_engine(provider=EqualIdProvider()) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        parts = (await engine.api.list_messages(session))[1].parts
        calls = [part for part in parts if isinstance(part, ToolPart)]

        assert [part.call_id for part in calls] == stored
        assert [part.state.input for part in calls] == [
            {"words": str(number)} for number in range(len(given))
        ]
        assert all(isinstance(part.state, CompletedState) for part in calls)
        assert len(await engine.api.list_messages(session)) == 3


async def test_a_failed_answer_is_kept_with_the_reason_and_the_session_continues() -> None:
    script = ([Say(text="half"), Fail(message="no such thing", status=400)], [Say(text="again")])
    async with open_engine(*script) as engine:
        session = await start(engine)
        failed = info(await engine.api.prompt(session, text_prompt("go")))
        worked = info(await engine.api.prompt(session, text_prompt("again?")))

        assert isinstance(failed.error, ApiFailure)
        assert (failed.error.data.message, failed.error.data.status_code) == ("no such thing", 400)
        assert failed.time.completed is not None
        assert worked.error is None
        assert (await summarise(engine, session))[1] == ("A", "StepStart 'half'")


async def test_a_transient_error_is_retried_and_the_partial_answer_is_not_shown_to_the_model() -> None:
    clock = HandClock(NOW)
    busy = [Think(text="hm"), Say(text="half an ans"), Fail(message="overloaded", status=529, retryable=True)]
    script = (busy, [Say(text="whole")], [Say(text="more")])
    async with asyncio.timeout(60), open_engine(*script, clock=clock) as engine:
        session = await start(engine)
        listening = engine.api.events()
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        retry = await wait_for_retry(listening)
        await clock.somebody_sleeps(2)
        clock.turn(60_000)
        answer = info(await asking)
        await engine.api.prompt(session, text_prompt("go on"))

        assert (retry.attempt, retry.message) == (1, "overloaded")
        assert NOW + 2000 <= retry.next <= NOW + 2400
        assert answer.error is None
        assert (await summarise(engine, session))[1] == (
            "A",
            "StepStart (hm) 'half an ans' Retry 'whole' StepFinish",
        )
        assert len(engine.provider.requests) == 3
        assert engine.provider.requests[2].messages[1] == AssistantModelMessage(
            content=(TextContent(text="whole"),)
        )


async def test_a_provider_that_never_recovers_is_given_up_after_five_retries() -> None:
    clock = HandClock(NOW)
    script = [[Fail(message="overloaded", status=529, retryable=True)]] * 9
    async with asyncio.timeout(60), open_engine(*script, clock=clock) as engine:
        session = await start(engine)
        listening = engine.api.events()
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        attempts = []
        for _ in range(5):
            attempts.append((await wait_for_retry(listening)).attempt)
            await clock.somebody_sleeps(2)
            clock.turn(60_000)
        answer = info(await asking)

        assert attempts == [1, 2, 3, 4, 5]
        assert isinstance(answer.error, ApiFailure)
        assert len(engine.provider.requests) == 6


async def test_a_wait_for_a_retry_can_be_aborted() -> None:
    script = [[Fail(message="slow down", status=429, retryable=True)]] * 2
    async with asyncio.timeout(60), open_engine(*script) as engine:
        session = await start(engine)
        listening = engine.api.events()
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        await wait_for_retry(listening)
        await engine.api.abort(session)

        assert isinstance(info(await asking).error, AbortedFailure)
        assert len(engine.provider.requests) == 1


HOUR = 3_600_000
LIMITED = Fail(message="slow down", status=429, retryable=True, wait_ms=HOUR)


async def test_a_wait_of_an_hour_is_reported_and_can_be_aborted() -> None:
    async with asyncio.timeout(60), open_engine([LIMITED], [Say(text="never")]) as engine:
        session = await start(engine)
        listening = engine.api.events()
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        await wait_for_retry(listening)

        assert await engine.api.get_status(session) == Retry(attempt=1, message="slow down", next=NOW + HOUR)
        await engine.api.abort(session)
        assert isinstance(info(await asking).error, AbortedFailure)


@pytest.mark.parametrize(
    ("turn", "texts"), [(None, "after an hour"), (2 * HOUR / 1000, "after an hour"), (HOUR / 1000, "")]
)
async def test_a_wait_that_would_exceed_the_deadline_is_not_started(turn: float | None, texts: str) -> None:
    clock, deadlines = HandClock(NOW), RunDeadlines(turn=turn)
    script = [LIMITED], [Say(text="after an hour")]
    async with asyncio.timeout(60), open_engine(*script, clock=clock, deadlines=deadlines) as engine:
        session = await start(engine)
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        if texts:
            await clock.somebody_sleeps(HOUR / 1000)
            clock.turn(HOUR)
        answer = await asking

        assert "".join(part.text for part in answer.parts if isinstance(part, TextPart)) == texts
        assert isinstance(info(answer).error, ApiFailure) == (not texts)


async def test_an_answer_that_broke_off_after_its_calls_is_not_requested_again() -> None:
    broken = [UseTool(tool="echo", input={"words": "done once"}), Fail(message="reset", retryable=True)]
    async with asyncio.timeout(60), open_engine(broken, [Say(text="I saw it.")]) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))

        assert await summarise(engine, session) == [
            ("U", "'go'"),
            ("A", "StepStart echo=done once StepFinish"),
            ("A", "StepStart 'I saw it.' StepFinish"),
        ]


async def test_a_stream_without_an_end_is_retried() -> None:
    class TruncatingProvider:
        async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
            yield Started()
            yield TextDelta(id="1", text=f"half of {len(request.messages)}")

    clock = HandClock(NOW)
    async with asyncio.timeout(60), open_engine(provider=TruncatingProvider(), clock=clock) as engine:
        session = await start(engine)
        listening = engine.api.events()
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        for _ in range(5):
            await wait_for_retry(listening)
            await clock.somebody_sleeps(2)
            clock.turn(60_000)

        assert isinstance(info(await asking).error, ApiFailure)


async def test_an_exception_in_a_provider_ends_the_run_and_leaves_nothing_open() -> None:
    reached = asyncio.Event()

    async def signal_and_hang(wanted: EchoInput, ctx: ToolContext) -> ToolResult:
        reached.set()
        return await hang(wanted, ctx)

    class FailingProvider:
        async def stream(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
            yield Started()
            yield ToolCall(call_id="c", tool="hang", raw='{"words":""}')
            await reached.wait()
            raise KeyError("a bug in an adapter")

    tool = Tool(name="hang", about="Never return.", takes=EchoInput, run=signal_and_hang)
    async with asyncio.timeout(60), open_engine(provider=FailingProvider(), tools=(tool,)) as engine:
        session = await start(engine)
        broke = info(await engine.api.prompt(session, text_prompt("go")))

        assert broke.error == unknown_failure("'a bug in an adapter'")
        assert await summarise(engine, session) == [
            ("U", "'go'"),
            ("A", "StepStart hang!Tool execution aborted"),
        ]


async def test_abort_settles_open_parts_and_the_next_prompt_is_answered() -> None:
    clock = HandClock(NOW)
    script = (
        [Say(text="I begin."), UseTool(tool="hang", input={"words": ""}), Wait(seconds=99)],
        [Say(text="fresh")],
    )
    async with asyncio.timeout(60), open_engine(*script, clock=clock, tools=(HANG,)) as engine:
        session = await start(engine)
        listening = engine.api.events()
        prompt = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        await wait_until_running(listening)
        assert await engine.api.abort(session) is True
        stopped = info(await prompt)

        assert isinstance(stopped.error, AbortedFailure)
        assert await summarise(engine, session) == [
            ("U", "'go'"),
            ("A", "StepStart 'I begin.' hang!Tool execution aborted"),
        ]
        assert info(await engine.api.prompt(session, text_prompt("again"))).finish == "stop"
        assert await engine.api.abort(session) is False


async def test_abort_before_the_run_has_begun_ends_it() -> None:
    async with asyncio.timeout(60), open_engine([Say(text="never")], tools=(HANG,)) as engine:
        session = await start(engine)
        prompt = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        listening = engine.api.events()
        async for published in listening:
            if published.event.type == "session.updated":
                break  # the prompt is stored, and its run is about to begin
        while not prompt.done():
            await engine.api.abort(session)
            await asyncio.sleep(0)

        assert [role for role, _ in await summarise(engine, session)][:1] == ["U"]
        assert all("Pending" not in parts for _, parts in await summarise(engine, session))


async def test_a_prompt_sent_during_a_run_is_answered_by_it() -> None:
    script = ([UseTool(tool="gate", input={"words": ""})], [Say(text="both")], [Say(text="never asked for")])
    opened, reached = asyncio.Event(), asyncio.Event()

    async def wait(_: EchoInput, __: ToolContext) -> ToolResult:
        reached.set()
        await opened.wait()
        return ToolResult(title="", output="open")

    tool = Tool(name="gate", about="Wait.", takes=EchoInput, run=wait)
    async with asyncio.timeout(60), open_engine(*script, tools=(tool,)) as engine:
        session = await start(engine)
        first = asyncio.ensure_future(engine.api.prompt(session, text_prompt("one")))
        await reached.wait()
        listening = engine.api.events()
        second = asyncio.ensure_future(engine.api.prompt(session, text_prompt("two")))
        async for published in listening:
            if isinstance(published.event, PartUpdated) and summarise_part(published.event.part) == "'two'":
                break
        opened.set()
        one, two = await asyncio.gather(first, second)

        assert one == two  # the answer to the second prompt is that of the first, too
        assert await summarise(engine, session) == [
            ("U", "'one'"),
            ("A", "StepStart gate=open StepFinish"),
            ("U", "'two'"),
            ("A", "StepStart 'both' StepFinish"),
        ]
        assert len(engine.provider.requests) == 2


async def test_a_message_id_sent_ten_times_at_once_is_one_prompt_and_one_run() -> None:
    async with open_engine([Say(text="once")], [Say(text="twice")]) as engine:
        session = await start(engine)
        id = Mint(lambda: NOW, bytes).message()
        answers = await asyncio.gather(
            *(engine.api.prompt(session, text_prompt("go", message_id=id)) for _ in range(10))
        )

        assert await summarise(engine, session) == [("U", "'go'"), ("A", "StepStart 'once' StepFinish")]
        assert {answer.info.id for answer in answers} == {answers[0].info.id}
        assert len(engine.provider.requests) == 1


async def test_a_prompt_that_wants_no_reply_is_stored_and_starts_no_run() -> None:
    async with open_engine() as engine:
        session = await start(engine)
        kept = await engine.api.prompt(session, text_prompt("note", no_reply=True))

        assert await engine.api.list_messages(session) == [kept]
        assert engine.provider.requests == []


async def test_an_invalid_prompt_stores_nothing() -> None:
    async with open_engine() as engine:
        session = await start(engine)
        with pytest.raises(NotFoundError, match="there is no agent 'nobody'"):
            await engine.api.prompt(session, text_prompt("go", agent="nobody"))
        with pytest.raises(ModelNotFoundError) as caught:
            await engine.api.prompt(
                session, text_prompt("go", model=ModelRef(provider_id="scripted", model_id="tset"))
            )
        with pytest.raises(InvalidIdError):
            await engine.api.prompt(session, text_prompt("go", message_id="msg_../../etc"))
        with pytest.raises(NotFoundError):
            await engine.api.prompt(SessionID("ses_00000000000000000000000000"), text_prompt("go"))

        assert caught.value.near == ("scripted/test",)
        assert await engine.api.list_messages(session) == []


async def test_a_call_that_nobody_can_approve_is_refused_and_ends_the_run() -> None:
    rules = (Rule(permission="echo", pattern="*", action="ask"),)
    async with open_engine(
        [UseTool(tool="echo", input={"words": "x"})], [Say(text="never")], rules=rules
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))

        assert (await summarise(engine, session))[1] == (
            "A",
            "StepStart echo!This needs the user's permission, and nobody is there to give it: echo x StepFinish",
        )
        assert len(engine.provider.requests) == 1


async def test_a_denied_call_is_reported_to_the_model_which_continues() -> None:
    rules = (Rule(permission="echo", pattern="*", action="deny"),)
    async with open_engine(
        [UseTool(tool="echo", input={"words": "x"})], [Say(text="ok then")], rules=rules
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))

        assert (await summarise(engine, session))[2] == ("A", "StepStart 'ok then' StepFinish")


async def test_a_tool_denied_by_the_session_is_not_offered() -> None:
    deny = (Rule(permission="echo", pattern="*", action="deny"),)
    async with open_engine([Say(text="ok")]) as engine:
        session = await engine.api.create_session(SessionInput(permission=deny))
        await engine.api.prompt(session.id, text_prompt("go"))

        assert engine.provider.requests[0].tools == ()


async def test_an_agent_stops_at_its_step_limit_and_its_last_step_has_no_tools() -> None:
    script = [[UseTool(tool="echo", input={"words": "x"})]] * 9
    async with open_engine(*script, steps=3) as engine:
        await engine.api.prompt(await start(engine), text_prompt("go"))

        assert [len(request.tools) for request in engine.provider.requests] == [1, 1, 0]


def unavailable(tool: str, offered: str = "none") -> str:
    return (
        "invalid=The arguments provided to the tool are invalid: "
        f"the tool {tool!r} is not available in this step; there are {offered}"
    )


async def test_a_tool_disabled_by_the_prompt_is_not_run() -> None:
    script = [UseTool(tool="echo", input={"words": "x"})], [Say(text="ok")]
    async with open_engine(*script, tools=(ECHO, INVALID)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go", tools={"echo": False}))

        assert await summarise(engine, session) == [
            ("U", "'go'"),
            ("A", f"StepStart {unavailable('echo')} StepFinish"),
            ("A", "StepStart 'ok' StepFinish"),
        ]
        assert (await engine.api.get_session(session)).permission == (
            Rule(permission="echo", pattern="*", action="deny"),
        )


async def test_a_call_on_the_last_step_is_not_run() -> None:
    script = [[UseTool(tool="echo", input={"words": "x"})]] * 2
    async with open_engine(*script, tools=(ECHO, INVALID), steps=2) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))

        assert [parts for _, parts in (await summarise(engine, session))[1:]] == [
            "StepStart echo=x StepFinish",
            f"StepStart {unavailable('echo')} StepFinish",
        ]


async def test_a_tool_denied_by_the_session_is_not_run() -> None:
    deny = (Rule(permission="echo", pattern="*", action="deny"),)
    script = [UseTool(tool="echo", input={"words": "x"})], [Say(text="ok")]
    async with open_engine(*script, tools=(ECHO, INVALID)) as engine:
        session = (await engine.api.create_session(SessionInput(permission=deny))).id
        await engine.api.prompt(session, text_prompt("go"))

        assert (await summarise(engine, session))[1] == ("A", f"StepStart {unavailable('echo')} StepFinish")


async def test_a_call_within_a_batch_runs_only_if_its_tool_is_offered() -> None:
    calls = [{"tool": "echo", "parameters": {"words": "x"}}]
    script = [UseTool(tool="batch", input={"tool_calls": calls})], [Say(text="ok")]
    async with open_engine(*script, tools=(ECHO, BATCH, INVALID)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go", tools={"echo": False}))

        assert (await summarise(engine, session))[1] == (
            "A",
            (
                "StepStart batch=Executed 0/1 tools successfully. 1 failed. "
                "invalid!the tool 'echo' is not available in this step; there are batch StepFinish"
            ),
        )


async def test_tools_switched_by_a_prompt_stay_switched_in_the_session() -> None:
    echo = UseTool(tool="echo", input={"words": "x"})
    script = [[Say(text="one")], [echo], [Say(text="two")], [echo], [Say(text="three")]]
    kept = Rule(permission="bash", pattern="rm *", action="deny")
    async with open_engine(*script, tools=(ECHO, INVALID)) as engine:
        session = (await engine.api.create_session(SessionInput(permission=(kept,)))).id
        await engine.api.prompt(session, text_prompt("first", tools={"echo": False}))
        await engine.api.prompt(session, text_prompt("second"))
        await engine.api.prompt(session, text_prompt("third", tools={"echo": True}))

        assert [parts for role, parts in await summarise(engine, session) if role == "A"] == [
            "StepStart 'one' StepFinish",
            f"StepStart {unavailable('echo')} StepFinish",
            "StepStart 'two' StepFinish",
            "StepStart echo=x StepFinish",
            "StepStart 'three' StepFinish",
        ]
        assert (await engine.api.get_session(session)).permission == (
            kept,
            Rule(permission="echo", pattern="*", action="allow"),
        )


async def test_tools_switched_by_a_prompt_without_reply_become_rules() -> None:
    async with open_engine() as engine:
        session = await start(engine)
        await engine.api.prompt(
            session, text_prompt("note", tools={"write": False, "echo": True}, no_reply=True)
        )

        assert (await engine.api.get_session(session)).permission == (
            Rule(permission="write", pattern="*", action="deny"),
            Rule(permission="echo", pattern="*", action="allow"),
        )


async def test_tools_switched_by_a_prompt_during_a_run_apply_in_that_run() -> None:
    clock = HandClock(NOW)
    script = (
        [Wait(seconds=1), Say(text="one")],
        [UseTool(tool="echo", input={"words": "x"})],
        [Say(text="two")],
    )
    rules = (Rule(permission="echo", pattern="*", action="ask"),)
    async with asyncio.timeout(60), open_engine(*script, clock=clock, rules=rules) as engine:
        session = await start(engine)
        first = asyncio.ensure_future(engine.api.prompt(session, text_prompt("first")))
        await clock.somebody_sleeps(1)
        await engine.api.submit(session, text_prompt("second", tools={"echo": True}))
        clock.turn(1000)
        await first

        assert [parts for role, parts in await summarise(engine, session) if role == "A"] == [
            "StepStart 'one' StepFinish",
            "StepStart echo=x StepFinish",
            "StepStart 'two' StepFinish",
        ]


async def test_a_model_that_repeats_itself_is_warned_and_then_stopped() -> None:
    script = [[UseTool(tool="echo", input={"words": "again"})]] * 9
    rules = (*ALLOW, Rule(permission="doom_loop", pattern="*", action="ask"))
    async with open_engine(*script, rules=rules) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        received = [parts for _, parts in (await summarise(engine, session))[1:]]

        assert [parts.split(" ", 1)[1].removesuffix(" StepFinish")[:40] for parts in received] == [
            "echo=again",
            "echo=again",
            "echo!This call was not carried out: you ",
            "echo!This call was not carried out: you ",
        ]


DOOM = (*ALLOW, Rule(permission="doom_loop", pattern="*", action="ask"))
SIX = [UseTool(tool="echo", input={"words": "again"})] * 6


def list_calls(messages: list[MessageWithParts]) -> list[str]:
    return [
        summarise_part(part)[:34] for each in messages for part in each.parts if isinstance(part, ToolPart)
    ]


async def test_identical_calls_of_one_answer_are_reported_before_they_run() -> None:
    async with open_engine(SIX, [Say(text="enough")], rules=DOOM) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))

        assert list_calls(await engine.api.list_messages(session)) == [
            *["echo=again"] * 2,
            *["echo!This call was not carried out"] * 4,
        ]
        assert (await summarise(engine, session))[-1] == ("A", "StepStart 'enough' StepFinish")


@pytest.mark.parametrize("continue_on_deny", [False, True])
async def test_a_person_who_rejects_a_repetition_ends_the_run(continue_on_deny: bool) -> None:
    permitting = PermissionSettings(policy=AskPolicy(can_ask=True))
    async with (
        asyncio.timeout(60),
        open_engine(
            SIX, [Say(text="never")], rules=DOOM, permissions=permitting, continue_on_deny=continue_on_deny
        ) as engine,
    ):
        session = await start(engine)
        listening = engine.api.events()
        running = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        asked = await anext(
            published.event.request
            async for published in listening
            if isinstance(published.event, PermissionAsked)
        )
        await engine.api.reply_permission(asked.id, "reject")
        await running

        assert (asked.permission, asked.patterns) == ("doom_loop", ("echo",))
        assert asked.metadata["why"] == ["the same call was made again and again"]
        assert "echo=again" not in list_calls(await engine.api.list_messages(session))[2:]
        assert len(engine.provider.requests) == 1


@pytest.mark.parametrize(("continue_on_deny", "steps"), [(False, 1), (True, 2)])
async def test_a_run_continues_after_a_rejection_only_if_configured(
    continue_on_deny: bool, steps: int
) -> None:
    rules = (Rule(permission="echo", pattern="*", action="ask"),)
    script = [UseTool(tool="echo", input={"words": "x"})], [Say(text="another way")]
    permitting = PermissionSettings(policy=AskPolicy(can_ask=True))
    async with (
        asyncio.timeout(60),
        open_engine(
            *script, rules=rules, permissions=permitting, continue_on_deny=continue_on_deny
        ) as engine,
    ):
        session = await start(engine)
        listening = engine.api.events()
        running = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        asked = await anext(
            published.event.request
            async for published in listening
            if isinstance(published.event, PermissionAsked)
        )
        await engine.api.reply_permission(asked.id, "reject")
        await running

        assert list_calls(await engine.api.list_messages(session)) == ["echo!The user rejected permission "]
        assert len(engine.provider.requests) == steps


async def test_a_model_may_repeat_itself_if_allowed() -> None:
    script = [*[[UseTool(tool="echo", input={"words": "again"})]] * 5, [Say(text="enough")]]
    async with open_engine(*script) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))

        assert (await summarise(engine, session))[-1] == ("A", "StepStart 'enough' StepFinish")


@pytest.mark.parametrize("wrap", [WRAP, WRAP + (1 << 36)], ids=["2026", "2028"])
async def test_a_session_from_before_the_wrap_of_ids_continues_after_it(wrap: int) -> None:
    clock, store = HandClock(wrap - 60_000), MemoryStore()
    async with open_engine([Say(text="before")], clock=clock, store=store) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("one"))
    clock.set(wrap + 60_000)
    async with open_engine([Say(text="after")], clock=clock, store=store, seed=2) as engine:
        younger = await start(engine)
        await engine.api.prompt(session, text_prompt("two"))

        assert [parts for _, parts in await summarise(engine, session)] == [
            "'one'",
            "StepStart 'before' StepFinish",
            "'two'",
            "StepStart 'after' StepFinish",
        ]
        assert len(engine.provider.requests) == 1
        assert [each.id for each in await engine.api.list_sessions()] == [younger, session]


async def test_a_clock_that_steps_back_does_not_put_new_messages_before_old_ones() -> None:
    clock = HandClock(NOW)
    async with open_engine([Say(text="one")], [Say(text="two")], clock=clock) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("first"))
        clock.set(NOW - 3_600_000)
        await engine.api.prompt(session, text_prompt("second"))

        assert [parts for role, parts in await summarise(engine, session) if role == "U"] == [
            "'first'",
            "'second'",
        ]
        assert len(engine.provider.requests) == 2


async def test_nothing_ends_before_it_began_when_the_clock_steps_back() -> None:
    clock = HandClock(NOW)
    subtask = SubtaskInput(agent="build", description="Weave", prompt="weave")
    script = [Say(text="one")], [Say(text="child")], [Say(text="two")]
    async with open_engine(*script, clock=clock, tools=(TASK,)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("first"))
        clock.set(NOW - 3_600_000)
        await engine.api.shell(session, ShellInput(command="true"))
        await engine.api.prompt(session, PromptInput(parts=(subtask,)))

        infos = [message.info for message in await engine.api.list_messages(session)]
        answers = [each for each in infos if isinstance(each, AssistantMessage)]
        assert len(answers) == 4
        assert all((each.time.completed or 0) >= each.time.created for each in answers)


async def test_ids_of_a_client_with_a_wrong_clock_do_not_confuse_the_run() -> None:
    async with open_engine([Say(text="one")], [Say(text="two")]) as engine:
        session = await start(engine)
        for skew in (600_000, -600_000):
            id = Mint(lambda skew=skew: NOW + skew, bytes).message()
            await engine.api.prompt(session, text_prompt("go", message_id=id))

        assert len(engine.provider.requests) == 2
        assert [role for role, _ in await summarise(engine, session)] == ["U", "A", "U", "A"]


async def hang(_: EchoInput, __: ToolContext) -> ToolResult:
    await asyncio.Event().wait()
    return ToolResult(title="", output="")


HANG: AnyTool = Tool(name="hang", about="Never return.", takes=EchoInput, run=hang)


async def wait_for_retry(listening: AsyncIterator[PublishedEvent]) -> Retry:
    async for published in listening:
        if isinstance(published.event, StatusChanged) and isinstance(published.event.status, Retry):
            return published.event.status
    raise AssertionError("the stream of events does not end")


async def wait_until_running(listening: AsyncIterator[PublishedEvent]) -> None:
    async for published in listening:
        match published.event:
            case PartUpdated(part=ToolPart(state=RunningState())):
                return
            case _:
                pass
