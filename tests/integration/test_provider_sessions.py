"""Sessions over Anthropic's and OpenAI's APIs, with servers that refuse what the real ones refuse."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest

from fake.anthropic import AnthropicDialect, signature_of
from fake.openai import OpenAIChatDialect
from given.engine import Engine, open_engine, text_prompt
from given.models import CLAUDE, GPT
from weft.model.catalog import to_ref
from weft.model.event import PartUpdated
from weft.model.failure import AbortedFailure, ApiFailure
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import CacheTokens, TextPart, Tokens
from weft.provider.anthropic.adapter import AnthropicMessages
from weft.provider.chunk import Usage
from weft.provider.openai_chat.adapter import OpenAIChat
from weft.provider.scripted import End, Say, Think, UseTool
from weft.store.memory import MemoryStore
from weft.testing.provider_harness import ServerProviderHarness, open_provider_harness

SPEAKING = {
    "anthropic": (AnthropicDialect, AnthropicMessages, CLAUDE),
    "openai": (OpenAIChatDialect, OpenAIChat, GPT),
}


@asynccontextmanager
async def open_session(
    wire: str, store: MemoryStore | None = None
) -> AsyncIterator[tuple[Engine, ServerProviderHarness]]:
    dialect, make, model = SPEAKING[wire]
    async with (
        open_provider_harness(dialect(), make, model) as harness,
        open_engine(model=model, provider=harness.provider, store=store) as engine,
    ):
        yield engine, harness


def info(answer: MessageWithParts) -> AssistantMessage:
    assert isinstance(answer.info, AssistantMessage)
    return answer.info


def text_of(answer: MessageWithParts) -> str:
    return "".join(part.text for part in answer.parts if isinstance(part, TextPart))


def get_sent_messages(harness: ServerProviderHarness) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = harness.server.requests[-1].body["messages"]
    return messages


@pytest.mark.parametrize("wire", SPEAKING)
async def test_a_call_runs_and_its_result_is_sent_back(wire: str) -> None:
    async with open_session(wire) as (engine, harness):
        harness.play(
            [Think(text="hm, so \n"), Say(text="I call."), UseTool(tool="echo", input={"words": "hi"})],
            [
                Say(text="It said hi."),
                End(usage=Usage(input=7, output=3, reasoning=2, cache_read=40, cache_write=5)),
            ],
        )
        session = await engine.api.create_session(SessionInput(title="t"))
        answer = await engine.api.prompt(session.id, text_prompt("go"))

        assert (text_of(answer), info(answer).finish, info(answer).cost) == (
            "It said hi.",
            "stop",
            Decimal(0),
        )
        assert info(answer).tokens == Tokens(
            input=7, output=3, reasoning=2, cache=CacheTokens(read=40, write=5)
        )
        assert "hi" in str(get_sent_messages(harness)[-1])
    if wire == "anthropic":
        thinking = {"type": "thinking", "thinking": "hm, so \n", "signature": signature_of("hm, so \n")}
        assert get_sent_messages(harness)[1]["content"][0] == thinking


async def test_another_model_continues_the_conversation() -> None:
    store = MemoryStore()
    async with open_session("anthropic", store) as (engine, harness):
        harness.play([Think(text="hm"), UseTool(tool="echo", input={"words": "hi"})], [Say(text="there")])
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        await engine.api.prompt(session, text_prompt("go"))
    async with open_session("openai", store) as (engine, harness):
        harness.play(
            [Think(text="well"), UseTool(tool="echo", input={"words": "ho"})], [Say(text="and there")]
        )
        answer = await engine.api.prompt(session, text_prompt("and you?", model=to_ref(GPT)))
        assert (text_of(answer), info(answer).error) == ("and there", None)
    async with open_session("anthropic", store) as (engine, harness):
        harness.play([Say(text="back")])
        answer = await engine.api.prompt(session, text_prompt("and now?", model=to_ref(CLAUDE)))
        assert (text_of(answer), info(answer).error) == ("back", None)
        kinds = [block["type"] for message in get_sent_messages(harness) for block in message["content"]]
        assert kinds.count("thinking") == 1


@pytest.mark.parametrize("wire", SPEAKING)
async def test_a_refusal_is_stored_and_the_session_continues(wire: str) -> None:
    async with open_session(wire) as (engine, harness):
        harness.server.refuse(400, "no, because of this")
        harness.play([Say(text="fine")])
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        failed = info(await engine.api.prompt(session, text_prompt("go"))).error
        assert isinstance(failed, ApiFailure)
        assert (failed.data.message, failed.data.status_code, failed.data.is_retryable) == (
            "no, because of this",
            400,
            False,
        )
        assert text_of(await engine.api.prompt(session, text_prompt("again"))) == "fine"


@pytest.mark.parametrize("wire", SPEAKING)
async def test_an_abort_closes_the_connection(wire: str) -> None:
    async with open_session(wire) as (engine, harness):
        harness.server.hang(Say(text="one two three"), pieces=4)
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        listening = engine.api.events()
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            prompt = tasks.create_task(engine.api.prompt(session, text_prompt("go")))
            async for published in listening:
                if isinstance(published.event, PartUpdated) and published.event.delta == "one":
                    break
            await engine.api.abort(session)
        await harness.server.wait_for_disconnect()
        assert isinstance(info(prompt.result()).error, AbortedFailure)
