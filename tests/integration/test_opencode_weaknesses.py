"""Weaknesses of OpenCode 1.1.34 that our runs must not have: each test has the number of its weakness."""

import asyncio
from collections.abc import AsyncGenerator
from random import Random

import pytest
from msgspec.structs import replace

from given.chaos_world import SlowStore
from given.engine import ECHO, MODEL, NOW, EchoInput, Engine, open_engine, text_prompt
from given.provider_wires import SUMMARISER
from given.simulated_time import SimulatedClock, simulate
from given.unfinished import list_unfinished
from weft.errors import ProviderError
from weft.model.agent import AgentInfo
from weft.model.event import Event, SessionFailed, SessionIdled
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import ModelRef, TextPart
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.faults import parse_error
from weft.provider.registry import ServedModel
from weft.provider.scripted import AnyMove, End, Say, ScriptedProvider, UseTool, Wait
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock
from weft.tool.contract import Tool, ToolContext, ToolResult

PATIENCE = 60
TITLER = AgentInfo(name="title", mode="primary", hidden=True, prompt="You are a title generator.")


async def start(engine: Engine, title: str | None = "t") -> SessionID:
    return (await engine.api.create_session(SessionInput(title=title))).id


def info(message: MessageWithParts) -> AssistantMessage:
    assert isinstance(message.info, AssistantMessage)
    return message.info


def text_of(message: MessageWithParts) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))


async def test_a_prompt_sent_while_an_aborted_run_ends_is_answered_and_not_aborted() -> None:
    begun, may_die = asyncio.Event(), asyncio.Event()

    async def die_slowly(_: EchoInput, __: ToolContext) -> ToolResult:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await may_die.wait()
        raise AssertionError("waited for nothing")

    tool = Tool(name="cling", about="Cling to life.", takes=EchoInput, run=die_slowly)
    script = ([UseTool(tool="cling", input={"words": ""})], [Say(text="Here.")])
    async with asyncio.timeout(PATIENCE), open_engine(*script, tools=(tool,)) as engine:
        session = await start(engine)
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(engine.api.prompt(session, text_prompt("one")))
            await begun.wait()
            aborting = tasks.create_task(engine.api.abort(session))
            second = tasks.create_task(engine.api.prompt(session, text_prompt("two")))
            aborting_again = tasks.create_task(engine.api.abort(session))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not second.done()
            may_die.set()
        stored = await engine.api.list_messages(session)

    assert (aborting.result(), aborting_again.result()) == (True, True)
    assert info(first.result()).error is not None
    assert (text_of(second.result()), info(second.result()).error) == ("Here.", None)
    assert list_unfinished(stored) == []


class CallingProvider:
    """A model that calls a tool, and then answers with text."""

    def __init__(self) -> None:
        self._asked = 0

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self._asked += 1
        calls: list[AnyMove] = [Say(text="I call."), UseTool(tool="echo", input={"words": str(self._asked)})]
        moves = calls if self._asked % 2 else [Say(text="Done.")]
        return ScriptedProvider([moves], SimulatedClock(NOW)).stream(request)


async def send_second_prompt_at(number: int) -> bool:
    """Send a second prompt after the event with this `number` of the first. Return False if there were fewer."""
    clock = SimulatedClock(NOW)
    store = SlowStore(Random(number), clock)
    sent: list[asyncio.Task[MessageWithParts]] = []
    async with (
        open_engine(clock=clock, store=store, provider=CallingProvider()) as engine,
        asyncio.TaskGroup() as tasks,
    ):
        session, count = await start(engine), 0

        def count_event(_: Event) -> None:
            nonlocal count
            count += 1
            if count == number:
                sent.append(tasks.create_task(engine.api.prompt(session, text_prompt("two"))))

        engine.api.bus.watch(count_event)
        await engine.api.prompt(session, text_prompt("one"))
        for task in sent:
            answer = await task
            history = await store.list_messages(session)
            [asked] = [each.info.id for each in history if text_of(each) == "two"]
            assert (text_of(answer), info(answer).parent_id, info(answer).error) == ("Done.", asked, None)
            assert list_unfinished(history) == []
    return bool(sent)


def test_a_prompt_sent_at_any_moment_of_a_run_is_answered() -> None:
    number = 1
    while simulate(send_second_prompt_at(number)):
        number += 1
    assert number > 15


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (500, b'{"type": "error", "error": {"type": "server_error"}}', "server"),
        (
            200,
            b'{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}',
            "overload",
        ),
        (500, b'{"error": {"message": "no_kv_space"}}', "server"),
        (429, b'{"error": {"code": null}}', "rate-limit"),
        (429, b'{"error": {"code": 7}, "code": {"odd": []}}', "rate-limit"),
        (503, b"null", "overload"),
        (503, b"[1]", "overload"),
        (502, b"<html>", "server"),
        (500, b"", "server"),
    ],
)
def test_failures_without_a_code_are_told_apart(status: int, body: bytes, kind: str) -> None:
    error = parse_error(status, {}, body)
    assert isinstance(error, ProviderError)
    assert (error.kind, error.retryable) == (kind, True)


async def test_a_title_is_requested_once_and_a_change_by_a_person_meanwhile_is_kept() -> None:
    asked: list[ModelRequest] = []

    class TitleProvider:
        def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
            asked.append(request)
            return ScriptedProvider([[Say(text="Mending the loom")]], HandClock(NOW)).stream(request)

    async def tag(wanted: EchoInput, ctx: ToolContext) -> ToolResult:
        await engine.api.tag_session(ctx.session_id, wanted.words)
        return ToolResult(title="", output="")

    tool = Tool(name="tag", about="Tag.", takes=EchoInput, run=tag)
    calls = [UseTool(tool="tag", input={"words": f"tag{number}"}) for number in range(5)]
    script = (calls, calls[:2], [Say(text="Done.")], [Say(text="Done again.")])
    small = ServedModel(replace(MODEL, id="small"), TitleProvider())
    async with (
        asyncio.timeout(PATIENCE),
        open_engine(*script, tools=(tool,), agents=(TITLER,), small=small) as engine,
    ):
        session = await start(engine, title=None)
        prompts = [
            engine.api.prompt(session, text_prompt(f"mend {number}", message_id=None)) for number in range(3)
        ]
        await asyncio.gather(*prompts)
        found = await engine.api.get_session(session)
        spending = await engine.api.get_spending(session)

    assert len(asked) <= 1
    assert found.weft is not None
    assert set(found.weft.tags) == {f"tag{number}" for number in range(5)}
    assert found.weft.spent is not None
    assert found.weft.spent.own == spending.own


async def test_a_run_continues_after_results_and_ends_with_text_whatever_the_finish_reason() -> None:
    call = UseTool(tool="echo", input={"words": "x"})
    script = (
        [call, End(reason="stop")],
        [call, End(reason="length")],
        [Say(text="so"), End(reason="unknown")],
    )
    async with open_engine(*script) as engine:
        answer = await engine.api.prompt(await start(engine), text_prompt("go"))
        assert (text_of(answer), info(answer).finish, len(engine.provider.requests)) == ("so", "unknown", 3)


async def test_a_prompt_sent_during_the_last_step_has_steps_of_its_own() -> None:
    clock = HandClock(NOW)
    script = ([Wait(seconds=1), Say(text="one")], [Say(text="two")])
    async with asyncio.timeout(PATIENCE), open_engine(*script, clock=clock, steps=1) as engine:
        session = await start(engine)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(engine.api.prompt(session, text_prompt("first")))
            await clock.somebody_sleeps(1)
            second = tasks.create_task(engine.api.prompt(session, text_prompt("second")))
            while len(await engine.api.list_messages(session)) < 3:  # noqa: ASYNC110  a turn of the loop each
                await asyncio.sleep(0)
            clock.turn(1000)
        assert text_of(second.result()) == "two"


async def test_a_model_that_is_gone_when_it_should_answer_is_a_stored_failure() -> None:
    store, gone = MemoryStore(), replace(MODEL, id="gone")
    named = ModelRef(provider_id=gone.provider_id, model_id=gone.id)
    async with open_engine(
        store=store,
        more_models=(ServedModel(gone, ScriptedProvider([], HandClock(NOW))),),
        agents=(SUMMARISER,),
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("note this", model=named, no_reply=True))
    async with open_engine(store=store, agents=(SUMMARISER,), seed=2) as engine:
        listening = engine.api.events()
        answer = await engine.api.compact(session)
        failures: list[str] = []
        async for each in listening:
            if isinstance(each.event, SessionFailed):
                failures.append(str(each.event.error))
            if isinstance(each.event, SessionIdled):
                break

    assert "scripted/gone" in str(info(answer).error)
    assert info(answer).time.completed is not None
    assert len(failures) == 1
    assert "scripted/gone" in failures[0]


async def test_an_exception_in_a_provider_ends_one_answer_and_not_the_next_prompt() -> None:
    class FailingProvider:
        def __init__(self) -> None:
            self.asked = 0

        async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
            self.asked += 1
            if self.asked == 1:
                waiting.set()
                await may_break.wait()
                raise KeyError("a bug in an adapter")
            async for chunk in ScriptedProvider([[Say(text="Here.")]], HandClock(NOW)).stream(request):
                yield chunk

    waiting, may_break = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(PATIENCE), open_engine(provider=FailingProvider(), tools=(ECHO,)) as engine:
        session = await start(engine)
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(engine.api.prompt(session, text_prompt("one")))
            await waiting.wait()
            second = tasks.create_task(engine.api.prompt(session, text_prompt("two")))
            while sum(isinstance(m.info, UserMessage) for m in await engine.api.list_messages(session)) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
            may_break.set()
        assert "a bug in an adapter" in str(info(first.result()).error)
        assert (text_of(second.result()), info(second.result()).error) == ("Here.", None)
