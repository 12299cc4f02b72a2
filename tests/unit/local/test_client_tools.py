"""How long the calls of a client's tool wait, and what ends them. The clock is simulated."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from given.client_tools import open_local
from weft.errors import NotFoundError
from weft.local.api import LocalApi
from weft.local.permissions import PermissionSettings
from weft.model.client_tool import ClientToolAsk, ClientToolRequest, ClientToolResult
from weft.model.event import PermissionAsked, PublishedEvent, SessionIdled, ToolRequested
from weft.model.ids import SessionID
from weft.model.input import SessionInput, prompt
from weft.model.part import CompletedState, ErrorState, ToolPart
from weft.model.permission import Rule
from weft.permission.policy import AskPolicy
from weft.provider.scripted import AnyMove, Say, UseTool
from weft.run.runtime import RunDeadlines
from weft.testing.api_client_tools import WEIGH
from weft.testing.clock import HandClock

CALL = [UseTool(tool="weigh", input={"item": "tea"})]
END = [Say(text="Done.")]
SCRIPT: tuple[list[AnyMove], ...] = (CALL, END)  # type: ignore[assignment]
SILENT = "The program that offers the weigh tool does not answer."


class Run:
    """A run whose model calls `weigh`, which the client `scales` offers."""

    def __init__(self, api: LocalApi, clock: HandClock, session: SessionID) -> None:
        self.api = api
        self.session = session
        self._clock = clock
        self._events: AsyncIterator[PublishedEvent] = api.events()

    async def next_request(self) -> ClientToolRequest:
        async for published in self._events:
            if isinstance(published.event, ToolRequested):
                return published.event.request
        raise AssertionError("the events ended")

    async def pass_time(self, seconds: float) -> None:
        """Let some `seconds` pass, for which the call waits."""
        await self._clock.somebody_sleeps(seconds)
        self._clock.turn(round(seconds * 1000))

    async def list_states(self) -> list[object]:
        """Wait until the session is idle, and return the states of its calls."""
        async for published in self._events:
            if isinstance(published.event, SessionIdled):
                break
        messages = await self.api.list_messages(self.session)
        return [part.state for each in messages for part in each.parts if isinstance(part, ToolPart)]


async def start(api: LocalApi, clock: HandClock) -> Run:
    session = (await api.create_session(SessionInput())).id
    await api.offer_tools(session, "scales", (WEIGH,))
    run = Run(api, clock, session)
    await api.submit(session, prompt("Weigh the tea."))
    return run


async def test_a_call_that_nobody_accepts_within_ten_seconds_fails() -> None:
    clock = HandClock()
    async with open_local(*SCRIPT, clock=clock) as api:
        run = await start(api, clock)
        request = await run.next_request()
        await run.pass_time(9.999)
        assert await api.list_tool_requests() == [request]
        clock.turn(1)
        (state,) = await run.list_states()
        assert isinstance(state, ErrorState)
        assert state.error == SILENT
        with pytest.raises(NotFoundError):
            await api.accept_tool(request.id)
        with pytest.raises(NotFoundError):
            await api.finish_tool(request.id, ClientToolResult(output="late"))


async def test_an_accepted_call_fails_after_a_minute_without_another_acceptance() -> None:
    clock = HandClock()
    async with open_local(*SCRIPT, clock=clock) as api:
        run = await start(api, clock)
        request = await run.next_request()
        await api.accept_tool(request.id)
        await run.pass_time(10)
        await run.pass_time(60)
        (state,) = await run.list_states()
        assert isinstance(state, ErrorState)
        assert state.error == SILENT


async def test_a_call_that_is_accepted_repeatedly_may_take_long() -> None:
    clock = HandClock()
    async with open_local(*SCRIPT, clock=clock) as api:
        run = await start(api, clock)
        request = await run.next_request()
        for seconds in (10, 60, 60, 60):
            await clock.somebody_sleeps(seconds)
            await api.accept_tool(request.id)
            await run.pass_time(seconds)
        await clock.somebody_sleeps(60)
        await api.finish_tool(request.id, ClientToolResult(output="3 g"))
        (state,) = await run.list_states()
        assert isinstance(state, CompletedState)
        assert state.output == "3 g"


async def test_a_tool_that_was_withdrawn_during_the_run_is_not_requested() -> None:
    clock = HandClock()
    async with open_local(CALL, CALL, END, clock=clock) as api:
        run = await start(api, clock)
        request = await run.next_request()
        await api.offer_tools(run.session, "scales", ())
        await api.finish_tool(request.id, ClientToolResult(output="3 g"))
        first, second = await run.list_states()
        assert isinstance(first, CompletedState)
        assert isinstance(second, ErrorState)
        assert second.error == "The program that offered the weigh tool has withdrawn it."


async def test_a_person_is_asked_before_the_client() -> None:
    clock = HandClock()
    rules = (Rule(permission="weigh", pattern="*", action="ask"),)
    permissions = PermissionSettings(policy=AskPolicy(can_ask=True))
    async with open_local(*SCRIPT, clock=clock, rules=rules, permissions=permissions) as api:
        events = api.events()
        run = await start(api, clock)
        async for published in events:
            if isinstance(published.event, PermissionAsked):
                break
        assert await api.list_tool_requests() == []
        await api.reply_permission(published.event.request.id, "once")  # type: ignore[attr-defined]
        request = await run.next_request()
        await api.finish_tool(request.id, ClientToolResult(output="3 g"))
        (state,) = await run.list_states()
        assert isinstance(state, CompletedState)


async def test_closing_the_directory_ends_a_call_that_waits() -> None:
    clock = HandClock()
    async with asyncio.timeout(30), open_local(*SCRIPT, clock=clock) as api:
        run = await start(api, clock)
        request = await run.next_request()
        await api.accept_tool(request.id)
    assert await api.list_tool_requests() == []


async def test_time_spent_asking_a_person_does_not_count() -> None:
    clock = HandClock()
    rules = (
        Rule(permission="*", pattern="*", action="allow"),
        Rule(permission="scales", pattern="*", action="ask"),
    )
    permissions = PermissionSettings(policy=AskPolicy(can_ask=True))
    async with open_local(
        *SCRIPT, clock=clock, rules=rules, permissions=permissions, deadlines=RunDeadlines(tool=60)
    ) as api:
        events = api.events()
        run = await start(api, clock)
        request = await run.next_request()
        ask = ClientToolAsk(key="1", permission="scales", patterns=("kitchen",))
        asking = asyncio.ensure_future(api.ask_for_tool(request.id, ask))
        async for published in events:
            if isinstance(published.event, PermissionAsked):
                break
        for _ in range(12):  # two minutes, in the steps in which deadlines count
            await api.accept_tool(request.id)
            await run.pass_time(10)
        await api.reply_permission(published.event.request.id, "once")  # type: ignore[attr-defined]
        await asking
        await api.finish_tool(request.id, ClientToolResult(output="3 g"))
        (state,) = await run.list_states()
        assert isinstance(state, CompletedState)
