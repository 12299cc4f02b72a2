"""`weft.connect` with functions as tools: the model runs on a server, the functions run in this process."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import weft
from given.canned_server import open_canned_server
from given.client_tools import open_local, open_served_engine
from given.cutting_proxy import open_cutting_proxy
from given.served_engine import always_open, open_server
from weft.agent.tools import serve_tools
from weft.client.api import connect
from weft.model.event import MessageUpdated, SessionIdled, ToolRequested
from weft.model.ids import SessionID
from weft.model.input import SessionInput, prompt
from weft.model.message import UserMessage
from weft.model.part import CompletedState, ErrorState, ToolPart
from weft.provider.scripted import Say, UseTool
from weft.testing import Script
from weft.testing.api_client_tools import WEIGH
from weft.testing.clock import HandClock

END = [Say(text="Done.")]


def use_tool(tool: str, **arguments: object) -> UseTool:
    return UseTool(tool=tool, input=arguments)


async def test_functions_run_in_this_process_and_the_model_reads_their_results() -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    threads: list[threading.Thread] = []

    async def weigh(item: str, grams: bool = True) -> dict[str, object]:
        """Weigh an item.

        Args:
            item: what is weighed
        """
        loops.append(asyncio.get_running_loop())
        return {"item": item, "grams": grams}

    def measure(item: str) -> weft.ToolAnswer:
        """Measure an item."""
        threads.append(threading.current_thread())
        return weft.ToolAnswer(output=f"{item}: 2 m", title="Measured", metadata={"metres": 2})

    calls = [[use_tool("weigh", item="tea")], [use_tool("measure", item="silk")]]
    async with (
        open_served_engine(*calls, END) as (url, engine),
        weft.connect(url, tools=[weigh, measure]) as agent,
    ):
        answer = await agent.ask("Weigh and measure.")
    assert [(call.output, call.error) for call in answer.calls] == [
        ('{"item":"tea","grams":true}', None),
        ("silk: 2 m", None),
    ]
    assert loops == [asyncio.get_running_loop()]
    assert threads != [threading.current_thread()]
    (spec,) = [tool for tool in engine.provider.requests[0].tools if tool.name == "weigh"]
    assert spec.about == "Weigh an item."
    assert spec.schema["properties"]["item"]["description"] == "what is weighed"


class Unwritable:
    pass


def fail() -> str:
    """Fail."""
    raise ValueError("no scales")


def count(number: int) -> str:
    """Count to a number."""
    return str(number)


def unwritable() -> object:
    """Return something without a JSON form."""
    return Unwritable()


def half_a_character() -> str:
    """Return text that is not Unicode."""
    return "\ud800"


def long_title() -> weft.ToolAnswer:
    """Return a title that is too long."""
    return weft.ToolAnswer(output="x", title="x" * 100_000)


FAILURES = [
    (fail, {}, "ValueError: no scales"),
    (count, {"number": "many"}, "The count tool was called with invalid arguments"),
    (count, {}, "missing required field `number`"),
    (unwritable, {}, "returned a Unwritable, which cannot be written as JSON"),
    (half_a_character, {}, "returned a result that cannot be written as JSON"),
    (long_title, {}, "title: it is longer than"),
]


@pytest.mark.parametrize(("function", "arguments", "message"), FAILURES, ids=[each[-1] for each in FAILURES])
async def test_the_model_reads_why_a_function_failed(
    function: object, arguments: dict[str, object], message: str
) -> None:
    name = function.__name__  # type: ignore[attr-defined]
    async with (
        open_served_engine([use_tool(name, **arguments)], END) as (url, _),
        weft.connect(url, tools=[function]) as agent,  # type: ignore[list-item]
    ):
        answer = await agent.ask("Do it.")
    (made,) = answer.calls
    assert message in str(made.error)
    assert answer.text == "Done."


async def test_a_function_receives_the_context_of_its_call() -> None:
    contexts: list[weft.ToolCallContext] = []

    def look(ctx: weft.ToolCallContext) -> str:
        """Look at the context."""
        contexts.append(ctx)
        return "seen"

    async with open_served_engine([use_tool("look")], END) as (url, _), weft.connect(url) as agent:
        answer = await agent.ask("Look.", tools=[look])
        paths = await agent.api.workspace.get_paths()
    (seen,) = contexts
    assert (seen.session_id, seen.agent) == (answer.session, "build")
    assert (seen.directory, seen.worktree) == (paths.directory, paths.worktree)


def test_blocking_calls_have_tools_too() -> None:
    def weigh(item: str) -> str:
        """Weigh an item."""
        return f"{item}: 3 g"

    async def serve() -> list[str]:
        def ask(url: str) -> list[str]:
            with weft.connect(url, tools=[weigh]) as agent:
                return [call.output for call in agent.ask("Weigh.").calls]

        async with open_served_engine([use_tool("weigh", item="tea")], END) as (url, _):
            return await asyncio.to_thread(ask, url)

    assert asyncio.run(serve()) == ["tea: 3 g"]


async def test_a_slow_function_stops_neither_events_nor_other_functions() -> None:
    fast_is_done = asyncio.Event()

    async def slow() -> str:
        """Wait for the other one."""
        await fast_is_done.wait()
        return "slow"

    async def fast() -> str:
        """End at once."""
        return "fast"

    async with (
        open_served_engine([use_tool("slow"), use_tool("fast")], END) as (url, _),
        weft.connect(url) as agent,
    ):
        async for event in agent.stream("Race.", tools=[slow, fast]):
            if isinstance(event, weft.CallEvent) and event.call.output == "fast":
                fast_is_done.set()
    assert isinstance(event, weft.AnswerEvent)
    assert [call.output for call in event.answer.calls] == ["slow", "fast"]


async def test_calls_are_answered_while_nobody_reads_the_stream() -> None:
    called = asyncio.Event()

    async def weigh() -> str:
        """Weigh it."""
        called.set()
        return "3 g"

    async with (
        open_served_engine([Say(text="Let me see."), use_tool("weigh")], END) as (url, _),
        weft.connect(url, tools=[weigh]) as agent,
    ):
        stream = agent.stream("Weigh.")
        await anext(stream)
        await called.wait()
        assert [call.output for call in (await stream.answer()).calls] == ["3 g"]


@asynccontextmanager
async def waiting_function(url: str) -> AsyncIterator[tuple[weft.Stream[str], weft.Api, asyncio.Event]]:
    """Ask a question whose function has started and does not end. Return the event that is set when it is cancelled."""
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    async with weft.connect(url) as agent:
        stream = agent.stream("Wait.", tools=[wait])
        await anext(stream)
        await started.wait()
        yield stream, agent.api, cancelled


async def test_an_abort_ends_a_slow_function() -> None:
    async with (
        open_served_engine([Say(text="I wait."), use_tool("wait")], END) as (url, _),
        waiting_function(url) as (stream, api, cancelled),
    ):
        (session,) = await api.list_status()
        await api.abort(session)
        with pytest.raises(weft.RunAbortedError):
            await stream.answer()
        assert cancelled.is_set()
        assert await api.list_tool_requests() == []


async def test_closing_the_stream_ends_the_run_and_its_function_and_withdraws_the_tools() -> None:
    async with (
        open_served_engine([Say(text="I wait."), use_tool("wait")], [use_tool("wait")], END) as (url, engine),
        waiting_function(url) as (stream, api, cancelled),
    ):
        (session,) = await api.list_status()
        await stream.aclose()
        assert cancelled.is_set()
        assert await api.list_status() == {}
        await api.prompt(session, prompt("Again."))
        offered = [[tool.name for tool in request.tools] for request in engine.provider.requests]
        assert [("wait" in names) for names in offered] == [True, False, False]


async def test_closing_the_agent_ends_a_stream_that_nobody_reads() -> None:
    cancelled: asyncio.Event
    async with open_served_engine([Say(text="I wait."), use_tool("wait")]) as (url, engine):
        async with waiting_function(url) as (_stream, _, cancelled):
            pass
        assert cancelled.is_set()
        assert await engine.api.list_status() == {}
        assert engine.api.runtime.session_tools == {}


async def test_a_function_is_cancelled_when_the_server_gives_up_the_call() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    async with open_served_engine([use_tool("wait")]) as (url, engine), connect(url) as api:
        session = (await api.create_session(SessionInput())).id
        async with serve_tools(api, session, (wait,), renew_seconds=0.01):
            await api.submit(session, prompt("Wait."))
            await started.wait()
            await engine.api.abort(session)
            await cancelled.wait()


async def test_a_client_that_disappears_fails_the_call_and_the_run_continues() -> None:
    clock = HandClock()
    async with open_served_engine([use_tool("weigh", item="tea")], END, clock=clock) as (url, engine):
        events = engine.api.events()
        async with connect(url) as api:
            session = (await api.create_session(SessionInput())).id
            await api.offer_tools(session, "scales", (WEIGH,))
            await api.submit(session, prompt("Weigh."))
            async for published in events:
                if isinstance(published.event, ToolRequested):
                    await api.accept_tool(published.event.request.id)
                    break
        for seconds in (10, 60):
            await clock.somebody_sleeps(seconds)
            clock.turn(seconds * 1000)
        async for published in events:
            if isinstance(published.event, SessionIdled):
                break
        (part,) = await list_calls(engine.api, session)
        assert isinstance(part.state, ErrorState)
        assert part.state.error == "The program that offers the weigh tool does not answer."


async def list_calls(api: weft.Api, session: SessionID) -> list[ToolPart]:
    messages = await api.list_messages(session)
    return [part for each in messages for part in each.parts if isinstance(part, ToolPart)]


async def test_two_clients_of_one_session_each_run_their_own_functions() -> None:
    second_has_asked = asyncio.Event()

    async def weigh() -> str:
        """Weigh it."""
        await second_has_asked.wait()
        return "first"

    async def measure() -> str:
        """Measure it."""
        return "second"

    async with (
        open_served_engine([use_tool("weigh")], [use_tool("measure")], END) as (url, engine),
        weft.connect(url) as first,
        weft.connect(url) as second,
    ):
        talk = await first.converse()
        events = engine.api.events()

        asking = asyncio.ensure_future(talk.ask("Weigh.", tools=[weigh]))
        async for published in events:
            if isinstance(published.event, ToolRequested):
                break
        (asked, _) = await talk.messages()
        joined = await second.converse(talk.session)
        joining = asyncio.ensure_future(joined.ask("Measure.", tools=[measure]))
        async for published in events:
            match published.event:
                case MessageUpdated(info=UserMessage(id=id)) if id != asked.info.id:
                    break
        second_has_asked.set()
        assert [answer.text for answer in await asyncio.gather(asking, joining)] == ["Done.", "Done."]
        outputs = [part.state for part in await list_calls(engine.api, talk.session)]
        assert [each.output for each in outputs if isinstance(each, CompletedState)] == ["first", "second"]


async def test_two_clients_with_functions_of_the_same_name_get_their_own() -> None:
    def make(name: str) -> object:
        def where() -> str:
            """Say who runs it."""
            return name

        return where

    script = [use_tool("where")], [use_tool("where")], END, END
    async with open_served_engine(*script) as (url, _), weft.connect(url) as one, weft.connect(url) as two:
        answers = await asyncio.gather(
            one.ask("Where?", tools=[make("one")]),  # type: ignore[list-item]
            two.ask("Where?", tools=[make("two")]),  # type: ignore[list-item]
        )
    assert [[call.output for call in answer.calls] for answer in answers] == [["one"], ["two"]]


async def test_a_cut_connection_loses_no_call() -> None:
    async with (
        open_served_engine([use_tool("weigh")], [use_tool("weigh")], END) as (url, _),
        open_cutting_proxy(url, cuts=0) as proxy,
    ):
        times = 0

        async def weigh() -> str:
            """Weigh it."""
            nonlocal times
            times += 1
            await proxy.close()  # everything is cut while the function runs
            return f"{times} g"

        async with weft.connect(proxy.url, tools=[weigh]) as agent:
            answer = await agent.ask("Weigh.")
    assert [call.output for call in answer.calls] == ["1 g", "2 g"]
    assert times == 2


async def test_a_client_that_missed_a_request_finds_it_after_it_reconnects() -> None:
    async with (
        open_served_engine([use_tool("weigh", item="tea")], END) as (first, engine),
        open_server(always_open(engine), name="second") as second,
        open_cutting_proxy(first, cuts=0) as proxy,
        connect(proxy.url) as api,
    ):
        events = engine.api.events()
        session = (await api.create_session(SessionInput())).id
        await api.offer_tools(session, "scales", (WEIGH,))
        await api.submit(session, prompt("Weigh."))
        async for published in events:
            if isinstance(published.event, ToolRequested):
                break
        late = api.events()
        await api.rename_session(session, "Weighing")
        await anext(late)
        await proxy.redirect(second)  # it has another name, so it does not hold the events of the first
        async for missed in late:
            if isinstance(missed.event, ToolRequested):
                break
        assert missed.event == published.event
        await engine.api.abort(session)


async def test_a_restarted_server_is_offered_the_functions_again() -> None:
    def weigh(item: str) -> str:
        """Weigh an item."""
        return f"{item}: 3 g"

    async with (
        open_served_engine() as (first, engine),
        open_cutting_proxy(first, cuts=0) as proxy,
        connect(proxy.url) as api,
    ):
        session = (await api.create_session(SessionInput())).id
        async with (
            open_local([use_tool("weigh", item="tea")], END, store=engine.store) as restarted,
            open_server(lambda _: open_lent(restarted), name="restarted") as second,
            serve_tools(api, session, (weigh,)),
        ):
            await proxy.redirect(second)
            while session not in restarted.runtime.session_tools:  # noqa: ASYNC110  an offer is no event
                await asyncio.sleep(0)
            await restarted.prompt(session, prompt("Weigh."))
            (part,) = await list_calls(restarted, session)
            assert isinstance(part.state, CompletedState)
            assert part.state.output == "tea: 3 g"


@asynccontextmanager
async def open_lent(api: weft.Api) -> AsyncIterator[weft.Api]:
    yield api


def weigh(item: str) -> str:
    """Weigh an item."""
    return item


async def test_tools_of_clients_are_refused_with_opencode() -> None:
    async with open_canned_server() as canned:
        with pytest.raises(weft.UnsupportedError, match="a tool of the client on a server with OpenCode"):
            async with weft.connect(canned.url, tools=[weigh]):
                pass
        async with weft.connect(canned.url) as agent:
            with pytest.raises(weft.UnsupportedError):
                await agent.api.offer_tools(SessionID("ses_1"), "one", (WEIGH,))
        assert not [path for path in canned.asked if path.startswith("/weft")]


async def test_a_scripted_model_works_in_process_only() -> None:
    async with open_served_engine() as (url, _):
        with pytest.raises(weft.UnsupportedError, match="a scripted model over HTTP") as opening:
            async with weft.connect(url, model=Script().says("x")):
                pass
        async with weft.connect(url) as agent:
            with pytest.raises(weft.UnsupportedError) as asking:
                await agent.ask("Hello.", model=Script().says("x"))
        hint = 'pass the script to weft.open, or name a model of the server: model="provider/model"'
        assert (opening.value.hint, asking.value.hint) == (hint, hint)


async def test_a_name_reserved_by_the_server_is_an_error() -> None:
    def recall() -> str:
        """Recall."""
        return ""

    async with open_served_engine() as (url, _), weft.connect(url) as agent:
        with pytest.raises(weft.InvalidInputError, match="'recall' cannot be the name of a tool"):
            await agent.ask("Recall.", tools=[recall])


async def test_a_question_without_tools_offers_none() -> None:
    async with open_served_engine(END, END) as (url, engine), weft.connect(url) as agent:
        talk = await agent.converse(tools=[weigh])
        await talk.ask("One.", tools=[])
        assert (await talk.ask("Two.")).text == "Done."
        offered = [[tool.name for tool in request.tools] for request in engine.provider.requests]
        assert [("weigh" in names) for names in offered] == [False, True]
