"""Titles of sessions and prompts."""

import asyncio
from collections.abc import AsyncGenerator
from decimal import Decimal

import pytest
from msgspec.structs import replace

from given.engine import MODEL, NOW, Engine, open_engine, text_prompt
from given.simulated_time import SimulatedClock, simulate
from weft.model.agent import AgentInfo
from weft.model.catalog import CachePrice, Cost
from weft.model.event import MessageUpdated
from weft.model.ids import SessionID
from weft.model.input import PromptInput, SessionInput, TextInput
from weft.model.message import AssistantMessage, UserMessage, UserSummary
from weft.model.spending import Budget
from weft.provider.chunk import AnyChunk, Started, Usage
from weft.provider.contract import ModelRequest
from weft.provider.registry import ServedModel
from weft.provider.scripted import AnyMove, End, Fail, Say, ScriptedProvider, UseTool
from weft.run.title import to_title
from weft.testing.clock import HandClock

TITLER = AgentInfo(name="title", mode="primary", hidden=True, prompt="You are a title generator.")
SMALL = replace(MODEL, id="small")


def small_model(*moves: AnyMove) -> ServedModel:
    return ServedModel(SMALL, ScriptedProvider([moves], HandClock(NOW)))


async def get_title_after(engine: Engine, *prompts: str, title: str | None = None) -> str:
    session = await engine.api.create_session(SessionInput(title=title))
    for words in prompts:
        await engine.api.prompt(session.id, text_prompt(words))
    return (await engine.api.get_session(session.id)).title


async def test_without_a_small_model_the_title_comes_from_the_prompt() -> None:
    async with open_engine([Say(text="ok")], [Say(text="ok")]) as engine:
        assert (
            await get_title_after(engine, "\n  mend the loom  \nand hurry", "what else?") == "mend the loom"
        )
        assert len(engine.provider.requests) == 2


async def test_the_small_model_makes_the_title_once() -> None:
    served = small_model(Say(text="<think>hm</think>\n\nMending the loom\nmore"))
    async with open_engine([Say(text="ok")], [Say(text="ok")], agents=(TITLER,), small=served) as engine:
        assert await get_title_after(engine, "mend the loom please", "and then?") == "Mending the loom"
        assert len(engine.provider.requests) == 2


async def test_the_cost_of_a_title_belongs_to_the_session() -> None:
    used = Usage(input=1_000, output=10)
    dear = replace(SMALL, cost=Cost(input=Decimal(3), output=Decimal(15), cache=CachePrice()))
    said = (Say(text="Mending"), End(usage=used))
    served = ServedModel(dear, ScriptedProvider([said], HandClock(NOW)))
    async with open_engine([Say(text="ok")], agents=(TITLER,), small=served) as engine:
        session = await engine.api.create_session(SessionInput())
        answer = await engine.api.prompt(session.id, text_prompt("mend the loom"))
        spent = (await engine.api.get_spending(session.id)).own

        assert isinstance(answer.info, AssistantMessage)
        assert spent.input == answer.info.tokens.input + used.input
        assert spent.cost == answer.info.cost + Decimal("0.00315")
        assert (spent.steps, spent.priced) == (1, answer.info.priced)


async def test_an_interrupted_title_has_an_unknown_cost() -> None:
    served = small_model(Say(text="Mending the"), Fail(message="gone", status=500, retryable=True))
    async with open_engine([Say(text="ok")], agents=(TITLER,), small=served) as engine:
        session = await engine.api.create_session(SessionInput())
        await engine.api.prompt(session.id, text_prompt("mend the loom"))

        assert (await engine.api.get_session(session.id)).title == "mend the loom"
        assert not (await engine.api.get_spending(session.id)).own.priced


async def test_if_the_small_model_fails_the_title_comes_from_the_prompt_and_the_run_continues() -> None:
    served = small_model(Fail(message="no", status=500, retryable=True))
    async with open_engine([Say(text="ok")], agents=(TITLER,), small=served) as engine:
        assert await get_title_after(engine, "mend the loom") == "mend the loom"


def test_a_small_model_that_hangs_delays_nobody_for_long() -> None:
    class HangingProvider:
        async def stream(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
            await asyncio.Event().wait()
            yield Started()

    async def scenario() -> tuple[str, int]:
        clock = SimulatedClock(NOW)
        small = ServedModel(SMALL, HangingProvider())
        async with open_engine([Say(text="ok")], clock=clock, agents=(TITLER,), small=small) as engine:
            return await get_title_after(engine, "mend the loom"), clock.now() - NOW

    title, waited = simulate(scenario())
    assert title == "mend the loom"
    assert waited <= 1_000


async def test_an_exception_in_the_adapter_of_the_small_model_does_not_end_the_run() -> None:
    class FailingProvider:
        async def stream(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
            yield Started()
            raise KeyError("a bug")

    async with open_engine(
        [Say(text="ok")], agents=(TITLER,), small=ServedModel(SMALL, FailingProvider())
    ) as engine:
        assert await get_title_after(engine, "mend the loom") == "mend the loom"
        assert len(engine.provider.requests) == 1


async def test_a_title_given_by_a_person_is_not_replaced() -> None:
    async with open_engine(
        [Say(text="ok")], agents=(TITLER,), small=small_model(Say(text="Another"))
    ) as engine:
        assert await get_title_after(engine, "mend the loom", title="Mine") == "Mine"


# --- titles of prompts ---


async def titles_of(engine: Engine, session: SessionID) -> list[str | None]:
    prompts = [each.info for each in await engine.api.list_messages(session)]
    return [
        info.summary.title if info.summary is not None else None
        for info in prompts
        if isinstance(info, UserMessage)
    ]


async def test_every_prompt_gets_a_title_with_one_call_of_the_small_model() -> None:
    provider = ScriptedProvider([[Say(text="Mending")], [Say(text="Weaving on\nmore")]], HandClock(NOW))
    served = ServedModel(SMALL, provider)
    script = ([UseTool(tool="echo", input={"text": "x"})], [Say(text="ok")]) * 2
    async with open_engine(*script, agents=(TITLER,), small=served) as engine:
        listening = engine.api.events()
        session = (await engine.api.create_session(SessionInput())).id
        await engine.api.prompt(session, text_prompt("mend the loom please"))
        await engine.api.prompt(session, text_prompt("and weave on"))

        assert await titles_of(engine, session) == ["Mending", "Weaving on"]
        assert (await engine.api.get_session(session)).title == "Mending"
        assert len(provider.requests) == 2
        collected = [(await anext(listening)).event for _ in range(12)]
        assert any(
            isinstance(event, MessageUpdated)
            and isinstance(event.info, UserMessage)
            and event.info.summary == UserSummary(title="Mending")
            for event in collected
        )


async def test_without_a_small_model_the_first_words_of_a_prompt_are_its_title() -> None:
    async with open_engine([Say(text="ok")], [Say(text="ok")], agents=(TITLER,)) as engine:
        session = (await engine.api.create_session(SessionInput(title="Mine"))).id
        await engine.api.prompt(session, text_prompt("\n mend it \nsoon"))
        await engine.api.prompt(session, text_prompt("x" * 100))
        assert await titles_of(engine, session) == ["mend it", "x" * 57 + "..."]
        assert len(engine.provider.requests) == 2


async def test_the_cost_of_the_title_of_a_prompt_is_counted() -> None:
    dear = replace(SMALL, cost=Cost(input=Decimal(3), output=Decimal(15), cache=CachePrice()))
    said = (Say(text="Mending"), End(usage=Usage(input=1_000, output=10)))
    served = ServedModel(dear, ScriptedProvider([said], HandClock(NOW)))
    async with open_engine([Say(text="ok")], agents=(TITLER,), small=served) as engine:
        session = (await engine.api.create_session(SessionInput(title="Mine"))).id
        answer = await engine.api.prompt(session, text_prompt("mend the loom"))
        spent = (await engine.api.get_spending(session)).own

        assert isinstance(answer.info, AssistantMessage)
        assert await titles_of(engine, session) == ["Mending"]
        assert spent.cost == answer.info.cost + Decimal("0.00315")


async def test_a_title_that_the_budget_does_not_cover_is_not_requested() -> None:
    provider = ScriptedProvider([[Say(text="Mending")]], HandClock(NOW))
    async with open_engine([Say(text="ok")], agents=(TITLER,), small=ServedModel(SMALL, provider)) as engine:
        session = (await engine.api.create_session(SessionInput(title="Mine"))).id
        await engine.api.prompt(session, text_prompt("mend the loom", budget=Budget(tokens=100_000)))
        assert await titles_of(engine, session) == ["mend the loom"]
        assert provider.requests == []


def test_a_run_does_not_wait_for_the_title_of_a_prompt() -> None:
    class HangingProvider:
        async def stream(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
            await asyncio.Event().wait()
            yield Started()

    async def scenario() -> tuple[list[str | None], int]:
        clock, small = SimulatedClock(NOW), ServedModel(SMALL, HangingProvider())
        async with open_engine([Say(text="ok")], clock=clock, agents=(TITLER,), small=small) as engine:
            session = (await engine.api.create_session(SessionInput(title="Mine"))).id
            await engine.api.prompt(session, text_prompt("mend the loom"))
            return await titles_of(engine, session), clock.now() - NOW

    assert simulate(scenario()) == (["mend the loom"], 0)


async def test_a_failing_small_model_affects_only_the_title_of_the_prompt() -> None:
    served = small_model(Fail(message="no", status=500, retryable=True))
    async with open_engine([Say(text="ok")], agents=(TITLER,), small=served) as engine:
        session = (await engine.api.create_session(SessionInput(title="Mine"))).id
        answer = await engine.api.prompt(session, text_prompt("mend the loom"))
        assert isinstance(answer.info, AssistantMessage)
        assert (answer.info.error, await titles_of(engine, session)) == (None, ["mend the loom"])


async def test_synthetic_and_unanswered_prompts_have_no_title() -> None:
    async with open_engine([Say(text="ok")], agents=(TITLER,)) as engine:
        session = (await engine.api.create_session(SessionInput(title="Mine"))).id
        await engine.api.prompt(session, text_prompt("a note", no_reply=True))
        assert await titles_of(engine, session) == [None]
        ours = PromptInput(parts=(TextInput(text="by a program", synthetic=True),))
        await engine.api.prompt(session, ours)
        # The note is answered together with the next prompt.
        assert await titles_of(engine, session) == ["a note", None]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("", ""),
        ("  \n\n ", ""),
        ("<think>a\nb</think>\n  Title  ", "Title"),
        ("<think>a</think> <think>b</think>One</think> <think>two", "One</think> <think>two"),
        ("x" * 100, "x" * 100),
        ("x" * 101, "x" * 97 + "..."),
    ],
)
def test_a_title_is_one_line_of_at_most_a_hundred_characters(text: str, title: str) -> None:
    assert to_title(text) == title


def test_the_title_of_a_long_prompt_is_found_in_bounded_time() -> None:
    assert to_title("<think>" * 100_000, max_length=10) == "<think>..."
