"""A session over Gemini, with a server that refuses what the real one refuses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fake.gemini import GeminiDialect
from given.engine import Engine, open_engine, text_prompt
from given.model_requests import GEMINI_2, GEMINI_3
from weft.model.catalog import Model
from weft.model.failure import ApiFailure
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage
from weft.model.part import TextPart, Tokens
from weft.provider.chunk import Usage
from weft.provider.gemini.adapter import Gemini
from weft.provider.scripted import End, Fail, Say, Think, UseTool
from weft.testing.provider_harness import ServerProviderHarness, open_provider_harness

HI = {"role": "user", "parts": [{"text": "say hi"}]}


@asynccontextmanager
async def open_session(
    model: Model = GEMINI_3, *, ids: bool = False
) -> AsyncIterator[tuple[Engine, ServerProviderHarness]]:
    async with (
        open_provider_harness(GeminiDialect(ids=ids), Gemini, model) as harness,
        open_engine(model=model, provider=harness.provider) as engine,
    ):
        yield engine, harness


def get_sent_contents(harness: ServerProviderHarness, number: int) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = harness.server.requests[number].body["contents"]
    return contents


async def test_calls_and_their_signatures_are_sent_back_unchanged() -> None:
    async with open_session(ids=True) as (engine, harness):
        harness.play(
            [
                Think(text="Let me see."),
                Say(text="One moment."),
                UseTool(tool="echo", input={"words": "hi"}),
                UseTool(tool="echo", input={"words": "ho"}),
            ],
            [Say(text="Both."), End(usage=Usage(input=7, output=3, reasoning=2, cache_read=40))],
        )
        session = await engine.api.create_session(SessionInput())
        answer = await engine.api.prompt(session.id, text_prompt("say hi"))
    [asked, model_turn, answered] = get_sent_contents(harness, 1)
    signature = model_turn["parts"][1]["thoughtSignature"]
    assert asked == HI
    assert model_turn == {
        "role": "model",
        "parts": [
            {"text": "One moment."},
            {
                "functionCall": {"id": "fc-2", "name": "echo", "args": {"words": "hi"}},
                "thoughtSignature": signature,
            },
            {"functionCall": {"id": "fc-3", "name": "echo", "args": {"words": "ho"}}},
        ],
    }
    assert answered == {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "fc-2", "name": "echo", "response": {"output": "hi"}}},
            {"functionResponse": {"id": "fc-3", "name": "echo", "response": {"output": "ho"}}},
        ],
    }
    assert isinstance(answer.info, AssistantMessage)
    assert [part.text for part in answer.parts if isinstance(part, TextPart)] == ["Both."]
    used = answer.info.tokens
    assert (used.input, used.output, used.reasoning, used.cache.read) == (7, 3, 2, 40)


async def test_without_ids_calls_are_matched_by_name_and_order() -> None:
    async with open_session(GEMINI_2) as (engine, harness):
        harness.play(
            [UseTool(tool="echo", input={"words": "hi"}), UseTool(tool="echo", input={"words": "ho"})],
            [Say(text="Both.")],
        )
        session = await engine.api.create_session(SessionInput())
        await engine.api.prompt(session.id, text_prompt("say hi"))
    assert get_sent_contents(harness, 1)[-1]["parts"] == [
        {"functionResponse": {"name": "echo", "response": {"output": "hi"}}},
        {"functionResponse": {"name": "echo", "response": {"output": "ho"}}},
    ]


async def test_a_session_continues_after_an_answer_that_broke_off() -> None:
    async with open_session() as (engine, harness):
        harness.play([Say(text="One"), Fail(message="boom")], [Say(text="Here I am.")])
        session = await engine.api.create_session(SessionInput())
        broken = await engine.api.prompt(session.id, text_prompt("say hi"))
        whole = await engine.api.prompt(session.id, text_prompt("again"))
    assert isinstance(broken.info, AssistantMessage)
    assert isinstance(broken.info.error, ApiFailure)
    assert (broken.info.error.data.message, broken.info.error.data.status_code) == ("boom", 400)
    assert isinstance(whole.info, AssistantMessage)
    assert whole.info.error is None
    assert get_sent_contents(harness, 1) == [HI, {"role": "user", "parts": [{"text": "again"}]}]


async def test_a_filtered_answer_has_its_own_finish_reason() -> None:
    async with open_session() as (engine, harness):
        harness.play([End(reason="content-filter", usage=Usage(input=1))])
        session = await engine.api.create_session(SessionInput())
        answer = await engine.api.prompt(session.id, text_prompt("say hi"))
    assert isinstance(answer.info, AssistantMessage)
    assert (answer.info.finish, answer.info.tokens) == ("content-filter", Tokens(input=1))
