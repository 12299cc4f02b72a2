"""Budgets of a run, a session, a tree and a day, in a whole engine."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from given.engine import ALLOW, ECHO, MODEL, NOW, Engine, open_engine, text_prompt
from weft.errors import StoreError
from weft.host.now import day_of
from weft.host.tasks import open_tasks
from weft.model.agent import AgentInfo
from weft.model.event import (
    Durable,
    MessageUpdated,
    SessionDeleted,
    SessionFailed,
    SessionIdled,
    SessionWarned,
)
from weft.model.failure import BudgetData, BudgetFailure
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import TextPart
from weft.model.spending import Budget, Budgets
from weft.provider.chunk import Usage
from weft.provider.scripted import AnyMove, End, Say, UseTool, Wait
from weft.run.budget import MIN_ANSWER_TOKENS
from weft.run.spender import DEFAULT_OVERHEAD
from weft.store.contract import NO_LEASES
from weft.store.lease import LeaseToken
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock
from weft.tool.registry import TASK

PRICE = Decimal("0.03")  # of a call as scripted here
USED = Usage(input=9_000, output=200)


def call(words: str = "x") -> list[AnyMove]:
    return [UseTool(tool="echo", input={"words": words}), End(reason="tool-calls", usage=USED)]


def end(words: str = "Done.") -> list[AnyMove]:
    return [Say(text=words), End(usage=USED)]


def info(message: MessageWithParts) -> AssistantMessage:
    assert isinstance(message.info, AssistantMessage)
    return message.info


def failure(message: MessageWithParts) -> BudgetData:
    error = info(message).error
    assert isinstance(error, BudgetFailure)
    return error.data


async def start(engine: Engine, parent: SessionID | None = None) -> SessionID:
    return (await engine.api.create_session(SessionInput(title="T", parent_id=parent))).id


async def prompt_and_listen(
    engine: Engine, session: SessionID, words: str, **more: Any
) -> tuple[MessageWithParts, list[str]]:
    """Return the answer to a prompt, and the published warnings and failures."""
    listening = engine.api.events()
    answer = await engine.api.prompt(session, text_prompt(words, **more))
    notices: list[str] = []
    async for each in listening:
        match each.event:
            case SessionWarned(message=message):
                notices.append(message)
            case SessionFailed(error=BudgetFailure(data=data)):
                notices.append(f"failed: {data.scope} {data.measure}")
            case SessionIdled():
                break
            case _:
                pass
    return answer, notices


async def test_a_call_that_would_exceed_a_budget_is_not_made_and_the_reason_is_stored() -> None:
    budget = Budget(cost=Decimal("0.12"))
    async with open_engine(*[call(str(n)) for n in range(9)], budgets=Budgets(session=budget)) as engine:
        session = await start(engine)
        answer, notices = await prompt_and_listen(engine, session, "go")
        stored = await engine.api.list_messages(session)
        spending = await engine.api.get_spending(session)

    assert failure(answer) == BudgetData(
        message="the budget for this session does not allow another call: $0.09 of $0.12 spent, "
        "and the next call would take about $0.0426",
        scope="session",
        measure="cost",
        limit=Decimal("0.12"),
        spent=3 * PRICE,
        next=Decimal("0.0426"),
        hint="raise experimental.weft.budget.session.cost in opencode.json, then go on where it stopped: "
        "weft run --continue",
    )
    assert len(engine.provider.requests) == 3
    assert stored[-1] == answer
    assert info(answer).time.completed is not None
    assert notices == [
        "the next call brings this session to about $0.1026 of $0.12",
        "failed: session cost",
    ]
    assert (spending.own.cost, spending.own.steps) == (3 * PRICE, 3)


async def test_a_session_continues_after_its_budget_is_raised() -> None:
    store = MemoryStore()
    low, high = (Budgets(session=Budget(steps=steps)) for steps in (1, 2))
    async with open_engine(call("first"), store=store, budgets=low) as engine:
        session = await start(engine)
        stopped = await engine.api.prompt(session, text_prompt("go"))
    async with open_engine(end(), store=store, budgets=high, seed=2) as engine:
        answer = await engine.api.prompt(session, text_prompt("go on"))
        (request,) = engine.provider.requests

    assert failure(stopped).measure == "steps"
    assert info(answer).error is None
    # The model sees its call with the result, and nothing of the call that was not made.
    assert [type(message).__name__ for message in request.messages] == [
        "UserModelMessage",
        "AssistantModelMessage",
        "ToolModelMessage",
        "UserModelMessage",
    ]


async def test_a_prompt_may_have_a_budget_that_ends_with_its_run() -> None:
    script = (end(), call("a"), call("b"), end())
    async with open_engine(*script) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("before"))
        stopped, notices = await prompt_and_listen(engine, session, "go", budget=Budget(steps=2))
        after = await engine.api.prompt(session, text_prompt("and now"))

    assert (failure(stopped).scope, failure(stopped).spent) == ("run", 2)
    assert failure(stopped).hint.startswith("give it more with --max-steps")
    assert notices == ["the next call brings this run to 2 of 2 steps", "failed: run steps"]
    assert info(after).error is None


async def test_children_spend_the_budget_of_their_ancestors() -> None:
    budgets = Budgets(tree=Budget(cost=Decimal("0.10")))
    async with open_engine(*[end() for _ in range(9)], budgets=budgets) as engine:
        root = await start(engine)
        child = await start(engine, root)
        other = await start(engine, child)
        for session in (root, child, other):
            assert info(await engine.api.prompt(session, text_prompt("go"))).error is None
        stopped = [await engine.api.prompt(session, text_prompt("more")) for session in (other, child, root)]
        elsewhere = await engine.api.prompt(await start(engine), text_prompt("go"))

    assert {(failure(each).scope, failure(each).spent) for each in stopped} == {("tree", 3 * PRICE)}
    assert info(elsewhere).error is None
    assert len(engine.provider.requests) == 4


async def test_eight_concurrent_children_exceed_a_budget_by_at_most_the_error_of_estimates() -> None:
    tasks = [
        UseTool(tool="task", input={"description": f"t{n}", "prompt": "do", "subagent_type": "worker"})
        for n in range(8)
    ]
    script = ([*tasks, End(reason="tool-calls", usage=USED)], *[end() for _ in range(20)])
    limit = Decimal("0.20")
    worker = AgentInfo(name="worker", mode="subagent", permission=ALLOW)
    async with open_engine(
        *script, tools=(ECHO, TASK), agents=(worker,), budgets=Budgets(tree=Budget(cost=limit))
    ) as engine:
        root = await start(engine)
        await engine.api.prompt(root, text_prompt("go"))
        spending = await engine.api.get_spending(root)

    # Each call costs less than its estimate, so the budget is not exceeded, and some of the eight calls are not made.
    assert spending.tree.cost <= limit
    assert 2 <= len(engine.provider.requests) < 9


async def test_a_run_with_a_budget_pays_for_its_children() -> None:
    task = UseTool(tool="task", input={"description": "t", "prompt": "do", "subagent_type": "worker"})
    script = ([task, End(reason="tool-calls", usage=USED)], call(), call(), end(), end())
    worker = AgentInfo(name="worker", mode="subagent", permission=ALLOW)
    async with open_engine(*script, tools=(ECHO, TASK), agents=(worker,)) as engine:
        root = await start(engine)
        stopped = await engine.api.prompt(root, text_prompt("go", budget=Budget(steps=3)))
        (child,) = await engine.api.list_children(root)
        below = await engine.api.list_messages(child.id)

    assert failure(below[-1]).scope == "run"
    assert failure(stopped).scope == "run"
    assert len(engine.provider.requests) == 3


async def test_a_daily_budget_covers_all_sessions_and_starts_again_each_day() -> None:
    clock, store = HandClock(NOW), MemoryStore()
    budgets = Budgets(day=Budget(steps=2))
    async with open_engine(*[end()] * 9, clock=clock, store=store, budgets=budgets) as engine:
        for _ in range(2):
            assert info(await engine.api.prompt(await start(engine), text_prompt("go"))).error is None
        tired = await engine.api.prompt(await start(engine), text_prompt("go"))
    async with open_engine(*[end()] * 9, clock=clock, store=store, budgets=budgets, seed=2) as engine:
        again = await engine.api.prompt(await start(engine), text_prompt("go"))
        clock.turn(24 * 3_600_000)
        rested = await engine.api.prompt(await start(engine), text_prompt("go"))

    assert [(failure(each).scope, failure(each).spent) for each in (tired, again)] == [("day", 2), ("day", 2)]
    assert info(rested).error is None


async def test_an_uncounted_day_is_counted_from_the_messages() -> None:
    clock, store = HandClock(NOW), MemoryStore()
    async with open_engine(*[end()] * 9, clock=clock, store=store) as engine:
        for _ in range(2):
            await engine.api.prompt(await start(engine), text_prompt("go"))
    async with open_engine(
        end(), clock=clock, store=store, budgets=Budgets(day=Budget(steps=2)), seed=2
    ) as engine:
        stopped = await engine.api.prompt(await start(engine), text_prompt("go"))
    kept = await store.find_value(("budget", "day"))

    assert failure(stopped).spent == 2
    assert kept["day"] == day_of(NOW)
    assert sorted(entry["ledger"]["own"].get("steps", 0) for entry in kept["entries"].values()) == [0, 1, 1]


async def test_an_answer_under_way_when_the_day_is_first_counted_counts_when_it_has_ended() -> None:
    clock, store = HandClock(NOW), MemoryStore()
    slow: list[AnyMove] = [Wait(seconds=60), *end()]
    async with (
        asyncio.timeout(60),
        open_engine(slow, clock=clock, store=store) as unlimited,
        open_engine(
            end(), end(), clock=clock, store=store, budgets=Budgets(day=Budget(steps=9)), seed=2
        ) as one,
        open_tasks() as tasks,
    ):
        session = await start(unlimited)
        asked = tasks.create_task(unlimited.api.prompt(session, text_prompt("go")))
        await clock.somebody_sleeps(60)
        await one.api.prompt(await start(one), text_prompt("go"))
        clock.turn(60_000)
        await asked
        await one.api.prompt(session, text_prompt("on"))
    kept = await store.find_value(("budget", "day"))

    assert Decimal(str(kept["entries"][session]["ledger"]["own"]["cost"])) == 2 * PRICE


async def test_two_processes_cannot_both_spend_the_rest_of_a_day() -> None:
    clock, store = HandClock(NOW), MemoryStore()
    budgets = Budgets(day=Budget(steps=1))
    slow: list[AnyMove] = [Wait(seconds=60), *end()]
    async with (
        asyncio.timeout(60),
        open_engine(slow, clock=clock, store=store, budgets=budgets) as one,
        open_engine(slow, clock=clock, store=store, budgets=budgets, seed=2) as other,
        open_tasks() as tasks,
    ):
        first = tasks.create_task(one.api.prompt(await start(one), text_prompt("go")))
        await clock.somebody_sleeps(60)
        second = await other.api.prompt(await start(other), text_prompt("go"))
        clock.turn(60_000)

    assert failure(second).scope == "day"
    assert info(first.result()).error is None


async def test_a_budget_of_seconds_ends_a_longer_run_and_keeps_its_text() -> None:
    clock = HandClock(NOW)
    slow: list[AnyMove] = [Say(text="Half of it"), Wait(seconds=600), *end()]
    async with (
        asyncio.timeout(60),
        open_engine(slow, end(), clock=clock, budgets=Budgets(session=Budget(seconds=20))) as engine,
        open_tasks() as tasks,
    ):
        session = await start(engine)
        asked = tasks.create_task(engine.api.prompt(session, text_prompt("go")))
        for _ in range(2):
            await clock.somebody_sleeps(9)
            clock.turn(10_000)
            await asyncio.sleep(0.01)
        answer = await asked
        _, cut = await engine.api.list_messages(session)
        spent = await engine.api.get_spending(session)

    assert cut == answer
    assert spent.own.steps == 1
    assert [part.text for part in cut.parts if isinstance(part, TextPart)] == ["Half of it"]
    assert failure(answer).message == (
        "the budget for this session does not allow another call: 20 of 20 seconds spent"
    )


async def test_an_unknown_price_is_warned_of_once_and_tokens_still_count() -> None:
    budgets = Budgets(session=Budget(cost=Decimal("0.01"), tokens=40_000))
    unpriced = replace(MODEL, cost=None)
    async with open_engine(*[call(str(n)) for n in range(9)], model=unpriced, budgets=budgets) as engine:
        session = await start(engine)
        answer, notices = await prompt_and_listen(engine, session, "go")

    assert failure(answer).measure == "tokens"
    assert notices[0].startswith("the price of the model is unknown")
    assert len([each for each in notices if "unknown" in each]) == 1


async def test_the_first_call_is_estimated_before_anything_was_counted() -> None:
    async with open_engine(
        end(), budgets=Budgets(session=Budget(tokens=DEFAULT_OVERHEAD + MIN_ANSWER_TOKENS))
    ) as engine:
        answer = await engine.api.prompt(await start(engine), text_prompt("go and look"))

    assert failure(answer).next > DEFAULT_OVERHEAD + MIN_ANSWER_TOKENS
    assert engine.provider.requests == []


async def test_without_a_budget_no_daily_totals_are_stored() -> None:
    async with open_engine(end()) as engine:
        await engine.api.prompt(await start(engine), text_prompt("go"))
        assert await engine.store.find_value(("budget", "day")) is None


async def test_an_interrupted_step_is_counted_when_its_run_ends() -> None:
    clock = HandClock(NOW)
    script = (call("first"), [Wait(seconds=5), *end()])
    async with asyncio.timeout(60), open_engine(*script, clock=clock) as engine:
        session = await start(engine)
        async with open_tasks() as tasks:
            tasks.create_task(engine.api.prompt(session, text_prompt("go")))
            await clock.somebody_sleeps(5)
            await engine.api.abort(session)
        found = await engine.api.get_session(session)

    assert found.weft is not None
    assert found.weft.spent is not None
    assert (found.weft.spent.own.cost, found.weft.spent.own.steps) == (PRICE, 2)


async def test_a_session_whose_parent_is_gone_keeps_its_budget() -> None:
    store = MemoryStore()
    limits = Budgets(session=Budget(steps=1), tree=Budget(steps=5))
    async with open_engine(end(), end(), store=store, budgets=limits) as engine:
        parent = await start(engine)
        child = await start(engine, parent)
        await store.apply(SessionDeleted(info=await store.get_session(parent)))
        assert info(await engine.api.prompt(child, text_prompt("weave"))).error is None
        assert failure(await engine.api.prompt(child, text_prompt("on"))).scope == "session"


class RefusingStore(MemoryStore):
    """Refuses to store answers while it is `full`."""

    full = False

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        if self.full and any(
            isinstance(event, MessageUpdated) and isinstance(event.info, AssistantMessage) for event in events
        ):
            raise StoreError("no space left")
        await super().apply(*events, leases=leases)


async def test_a_step_that_could_not_begin_reserves_nothing_of_the_day() -> None:
    store = RefusingStore()
    async with open_engine(end(), store=store, budgets=Budgets(day=Budget(steps=1))) as engine:
        store.full = True
        with pytest.raises(StoreError):
            await engine.api.prompt(await start(engine), text_prompt("go"))
        store.full = False
        assert info(await engine.api.prompt(await start(engine), text_prompt("go"))).error is None
