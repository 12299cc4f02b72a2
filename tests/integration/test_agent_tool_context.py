"""What a tool function can do through its context: the same in this process and over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

import weft
from given.client_tools import open_served_engine
from given.cutting_proxy import open_cutting_proxy
from weft.local.permissions import PermissionSettings
from weft.permission.policy import AskPolicy
from weft.provider.scripted import Say, UseTool
from weft.testing import Script

OpenAgent = Callable[[Callable[..., object]], AbstractAsyncContextManager[weft.Agent[str]]]

RULES = {"scales": "ask"}
CAN_ASK = PermissionSettings(policy=AskPolicy(can_ask=True))


@pytest.fixture(params=["in process", "over HTTP"])
def open_agent(request: pytest.FixtureRequest, tmp_path: Path) -> OpenAgent:
    """Return a function that opens an agent whose model calls a function once, and then ends."""

    @asynccontextmanager
    async def open(function: Callable[..., object]) -> AsyncIterator[weft.Agent[str]]:
        name = function.__name__
        if request.param == "in process":
            script = Script().calls(name).says("Done.")
            async with weft.open(
                tmp_path, model=script, tools=[function], permissions=RULES, store="memory:"
            ) as agent:
                yield agent
        else:
            moves = [UseTool(tool=name, input={})], [Say(text="Done.")]
            async with (
                open_served_engine(*moves, permissions=CAN_ASK) as (url, _),
                weft.connect(url, tools=[function], permissions=RULES) as agent,
            ):
                yield agent

    return open


async def weigh(ctx: weft.ToolCallContext) -> str:
    """Weigh something."""
    await ctx.ask("scales", "kitchen")
    return "3 g"


async def test_a_function_asks_for_a_permission_and_continues_when_it_is_granted(
    open_agent: OpenAgent,
) -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    def permit(request: weft.PermissionRequest) -> str:
        asked.append((request.permission, request.patterns))
        return "once"

    async with open_agent(weigh) as agent:
        answer = await agent.ask("Weigh.", permissions=permit)  # type: ignore[arg-type]
    assert [call.output for call in answer.calls] == ["3 g"]
    assert asked == [("scales", ("kitchen",))]


async def test_a_permission_that_nobody_grants_ends_the_run(open_agent: OpenAgent) -> None:
    async with open_agent(weigh) as agent:
        with pytest.raises(
            weft.RunRefusedError, match="it asked for scales kitchen: pass permissions="
        ) as caught:
            await agent.ask("Weigh.")
    (made,) = caught.value.answer.calls
    assert made.error == "The user rejected permission to use this specific tool call."


async def test_a_function_may_continue_differently_if_it_is_refused(open_agent: OpenAgent) -> None:
    async def guess(ctx: weft.ToolCallContext) -> str:
        """Weigh something, or guess."""
        try:
            await ctx.ask("scales", "kitchen")
        except weft.WeftError as error:
            return type(error).__name__
        return "3 g"

    async with open_agent(guess) as agent:
        answer = await agent.ask("Weigh.", permissions={"scales": "deny"})
    assert [call.output for call in answer.calls] == ["DeniedError"]


async def test_a_permission_without_patterns_is_requested_as_a_whole(open_agent: OpenAgent) -> None:
    async def use_all(ctx: weft.ToolCallContext) -> str:
        """Use all scales."""
        await ctx.ask("scales")
        return "all"

    async with open_agent(use_all) as agent:
        with pytest.raises(weft.RunRefusedError, match=r"it asked for scales \*"):
            await agent.ask("Weigh.")


async def test_a_report_is_seen_while_the_function_runs(open_agent: OpenAgent) -> None:
    seen = asyncio.Event()

    async def work(ctx: weft.ToolCallContext) -> weft.ToolAnswer:
        """Work."""
        await ctx.report(title="half done", metadata={"half": True})
        await seen.wait()
        return weft.ToolAnswer(output="worked", title="done")

    titles: list[str] = []
    async with open_agent(work) as agent:
        async for event in agent.stream("Work."):
            if isinstance(event, weft.CallEvent):
                titles.append(event.call.title)
                if event.call.title == "half done":
                    seen.set()
    assert titles == ["", "half done", "done"]


async def report_an_object(ctx: weft.ToolCallContext) -> str:
    """Report something without a JSON form."""
    await ctx.report(metadata={"object": object()})
    return ""


def ask_without_await(ctx: weft.ToolCallContext) -> str:
    """Ask, and do not wait for the answer."""
    ctx.ask("scales", "kitchen")  # type: ignore[unused-coroutine]
    return "weighed without permission"


def report_without_await(ctx: weft.ToolCallContext) -> str:
    """Report, and do not wait."""
    ctx.report(title="half")  # type: ignore[unused-coroutine]
    return "reported"


def take_from_nothing() -> str:
    """Take the first of no items."""
    return next(iter(()))


FAULTS = [
    (take_from_nothing, "StopIteration"),
    (report_an_object, "The metadata of a report cannot be written as JSON"),
    (ask_without_await, "ask needs an async tool: write async def, and await it"),
    (report_without_await, "report needs an async tool: write async def, and await it"),
]


@pytest.mark.parametrize(("function", "message"), FAULTS, ids=[each[0].__name__ for each in FAULTS])
async def test_a_faulty_function_fails_the_call(
    function: Callable[..., object], message: str, open_agent: OpenAgent
) -> None:
    async with asyncio.timeout(20), open_agent(function) as agent:
        answer = await agent.ask("Do it.")
    (made,) = answer.calls
    assert message in str(made.error)


async def test_a_permission_request_of_a_function_survives_a_cut_connection() -> None:
    moves = [UseTool(tool="weigh", input={})], [Say(text="Done.")]
    async with (
        open_served_engine(*moves, permissions=CAN_ASK) as (url, engine),
        open_cutting_proxy(url, cuts=0) as proxy,
    ):
        times = 0

        async def permit(request: weft.PermissionRequest) -> str:
            nonlocal times
            times += 1
            await proxy.close()  # also the connection on which the function waits for the answer
            return "once"

        async with weft.connect(proxy.url, tools=[weigh], permissions=RULES) as agent:
            answer = await agent.ask("Weigh.", permissions=permit)  # type: ignore[arg-type]
        assert await engine.api.list_permissions() == []
    assert [call.output for call in answer.calls] == ["3 g"]
    assert times == 1
