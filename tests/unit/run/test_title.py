"""Naming a session."""

import asyncio
from collections.abc import AsyncGenerator
from decimal import Decimal

import pytest
from msgspec.structs import replace

from given.house import MODEL, NOW, House, open_house, say
from given.simulated import SimulatedClock, simulate
from weft.model.agent import Agent
from weft.model.catalog import CachePrice, Cost
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage
from weft.provider.chunk import AnyChunk, Started, Usage
from weft.provider.contract import ModelRequest
from weft.provider.registry import Served
from weft.provider.scripted import AnyMove, End, Fail, Say, ScriptedProvider
from weft.run.title import to_title
from weft.testing.clock import HandClock

TITLER = Agent(name="title", mode="primary", hidden=True, prompt="You are a title generator.")
SMALL = replace(MODEL, id="small")


def small(*moves: AnyMove) -> Served:
    return Served(SMALL, ScriptedProvider([moves], HandClock(NOW)))


async def titled(house: House, *prompts: str, title: str | None = None) -> str:
    session = await house.api.create_session(SessionInput(title=title))
    for words in prompts:
        await house.api.prompt(session.id, say(words))
    return (await house.api.get_session(session.id)).title


async def test_without_a_small_model_the_prompt_names_the_session() -> None:
    async with open_house([Say(text="ok")], [Say(text="ok")]) as house:
        assert await titled(house, "\n  mend the loom  \nand hurry", "what else?") == "mend the loom"
        assert len(house.provider.requests) == 2


async def test_the_small_model_names_it_once() -> None:
    served = small(Say(text="<think>hm</think>\n\nMending the loom\nmore"))
    async with open_house([Say(text="ok")], [Say(text="ok")], agents=(TITLER,), small=served) as house:
        assert await titled(house, "mend the loom please", "and then?") == "Mending the loom"
        assert len(house.provider.requests) == 2


async def test_what_a_title_takes_is_part_of_what_the_session_has_spent() -> None:
    used = Usage(input=1_000, output=10)
    dear = replace(SMALL, cost=Cost(input=Decimal(3), output=Decimal(15), cache=CachePrice()))
    said = (Say(text="Mending"), End(usage=used))
    served = Served(dear, ScriptedProvider([said], HandClock(NOW)))
    async with open_house([Say(text="ok")], agents=(TITLER,), small=served) as house:
        session = await house.api.create_session(SessionInput())
        answer = await house.api.prompt(session.id, say("mend the loom"))
        spent = (await house.api.get_spending(session.id)).own

        assert isinstance(answer.info, AssistantMessage)
        assert spent.input == answer.info.tokens.input + used.input
        assert spent.cost == answer.info.cost + Decimal("0.00315")
        assert (spent.steps, spent.priced) == (1, answer.info.priced)


async def test_a_title_that_is_cut_off_was_paid_for_and_nobody_knows_how_dear() -> None:
    served = small(Say(text="Mending the"), Fail(message="gone", status=500, retryable=True))
    async with open_house([Say(text="ok")], agents=(TITLER,), small=served) as house:
        session = await house.api.create_session(SessionInput())
        await house.api.prompt(session.id, say("mend the loom"))

        assert (await house.api.get_session(session.id)).title == "mend the loom"
        assert not (await house.api.get_spending(session.id)).own.priced


async def test_when_the_small_model_fails_the_prompt_names_it_and_the_run_goes_on() -> None:
    served = small(Fail(message="no", status=500, retryable=True))
    async with open_house([Say(text="ok")], agents=(TITLER,), small=served) as house:
        assert await titled(house, "mend the loom") == "mend the loom"


def test_a_small_model_that_hangs_keeps_nobody_waiting_for_long() -> None:
    class Hanging:
        async def stream(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
            await asyncio.Event().wait()
            yield Started()

    async def story() -> tuple[str, int]:
        clock = SimulatedClock(NOW)
        small = Served(SMALL, Hanging())
        async with open_house([Say(text="ok")], clock=clock, agents=(TITLER,), small=small) as house:
            return await titled(house, "mend the loom"), clock.now() - NOW

    title, waited = simulate(story())
    assert title == "mend the loom"
    assert waited <= 1_000


async def test_a_bug_in_the_small_models_adapter_does_not_end_the_run() -> None:
    class Broken:
        async def stream(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
            yield Started()
            raise KeyError("a bug")

    async with open_house([Say(text="ok")], agents=(TITLER,), small=Served(SMALL, Broken())) as house:
        assert await titled(house, "mend the loom") == "mend the loom"
        assert len(house.provider.requests) == 1


async def test_a_title_given_by_a_person_is_final() -> None:
    async with open_house([Say(text="ok")], agents=(TITLER,), small=small(Say(text="Another"))) as house:
        assert await titled(house, "mend the loom", title="Mine") == "Mine"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("", ""),
        ("  \n\n ", ""),
        ("<think>a\nb</think>\n  Title  ", "Title"),
        ("x" * 100, "x" * 100),
        ("x" * 101, "x" * 97 + "..."),
    ],
)
def test_a_title_is_one_line_of_at_most_a_hundred_characters(text: str, title: str) -> None:
    assert to_title(text) == title
