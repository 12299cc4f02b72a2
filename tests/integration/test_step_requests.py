"""The requests of a step over real connections: servers that refuse, limit and hang, and what the next request contains."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fake.anthropic import AnthropicDialect
from fake.openai import OpenAIChatDialect
from given.engine import ALLOW, NOW, Engine, InstantClock, open_engine, text_prompt
from given.models import CLAUDE, GPT
from weft.model.agent import AgentInfo
from weft.model.catalog import to_ref
from weft.model.event import PartUpdated
from weft.model.failure import ApiFailure
from weft.model.ids import SessionID
from weft.model.input import FileInput, PromptInput, SessionInput, TextInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import ReasoningPart, RetryPart, TextPart
from weft.provider.anthropic.adapter import AnthropicMessages
from weft.provider.endpoint import StreamDeadlines
from weft.provider.openai_chat.adapter import OpenAIChat
from weft.provider.registry import ServedModel
from weft.provider.scripted import Say, Think
from weft.store.memory import MemoryStore
from weft.testing.provider_harness import ServerProviderHarness, open_provider_harness

PNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LOOK = PromptInput(
    parts=(FileInput(mime="image/png", filename="cat.png", url=PNG), TextInput(text="what is it?"))
)


class TwoModels(Struct, frozen=True):
    """An agent with Claude first and GPT as its fallback, each on its own server."""

    engine: Engine
    store: MemoryStore
    claude: ServerProviderHarness
    gpt: ServerProviderHarness

    async def start(self) -> SessionID:
        return (await self.engine.api.create_session(SessionInput(title="t"))).id

    async def prompt(self, session: SessionID, prompt: PromptInput) -> MessageWithParts:
        return await self.engine.api.prompt(session, prompt)


@asynccontextmanager
async def open_two_models(*, claude_within: StreamDeadlines | None = None) -> AsyncIterator[TwoModels]:
    store = MemoryStore()
    agent = AgentInfo(
        name="build", mode="primary", permission=ALLOW, model=to_ref(CLAUDE), fallback=(to_ref(GPT),)
    )
    async with (
        asyncio.timeout(60),
        open_provider_harness(AnthropicDialect(), AnthropicMessages, CLAUDE) as claude,
        open_provider_harness(OpenAIChatDialect(), OpenAIChat, GPT) as gpt,
    ):
        first = claude.with_deadlines(claude_within) if claude_within else claude.provider
        served = (ServedModel(CLAUDE, first), ServedModel(GPT, gpt.provider))
        clock = InstantClock(NOW)
        async with open_engine(agents=(agent,), more_models=served, store=store, clock=clock) as engine:
            yield TwoModels(engine, store, claude, gpt)


def info(answer: MessageWithParts) -> AssistantMessage:
    assert isinstance(answer.info, AssistantMessage)
    return answer.info


def text_of(answer: MessageWithParts) -> str:
    return "".join(part.text for part in answer.parts if isinstance(part, TextPart) and not part.ignored)


def list_failed_attempts(answer: MessageWithParts) -> list[dict[str, str] | None]:
    """Return what is stored of each failed attempt, without the address, whose port changes."""
    return [
        {key: value for key, value in (part.error.data.metadata or {}).items() if key != "url"}
        if isinstance(part.error, ApiFailure)
        else None
        for part in answer.parts
        if isinstance(part, RetryPart)
    ]


def get_sent_messages(harness: ServerProviderHarness, number: int = -1) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = harness.server.requests[number].body["messages"]
    return messages


async def forge_signatures(two: TwoModels, session: SessionID) -> None:
    """Replace signatures, as if the server had another key or another release of the model wrote the history."""
    for message in await two.store.list_messages(session):
        for part in message.parts:
            if isinstance(part, ReasoningPart):
                forged = replace(part, metadata={"anthropic": {"signature": "of another time"}})
                await two.store.apply(PartUpdated(part=forged))


async def test_reasoning_refused_by_the_api_is_excluded_from_all_later_requests() -> None:
    async with open_two_models() as two:
        session = await two.start()
        two.claude.play(
            [Think(text="hm"), Say(text="one")],
            [Think(text="again"), Say(text="two")],
            [Say(text="three")],
        )
        await two.prompt(session, text_prompt("first"))
        await forge_signatures(two, session)
        mended = await two.prompt(session, text_prompt("second"))
        after = await two.prompt(session, text_prompt("third"))

        assert (text_of(mended), text_of(after)) == ("two", "three")
        assert list_failed_attempts(mended) == [
            {"kind": "signature", "providerID": "anthropic", "modelID": "claude-sonnet-4"}
        ]
        assert list_failed_attempts(after) == []
        assert (two.claude.request_count, two.gpt.request_count) == (4, 0)
        assert [item["type"] for item in get_sent_messages(two.claude)[1]["content"]] == ["text"]
        assert [item["type"] for item in get_sent_messages(two.claude)[3]["content"]] == ["thinking", "text"]


async def test_an_image_refused_by_the_api_is_left_out_and_named_for_good() -> None:
    async with open_two_models() as two:
        session = await two.start()
        two.claude.server.refuse(400, "messages.0.content.0.image.source.base64: Could not process image")
        two.claude.play([Say(text="I see no picture.")], [Say(text="Sorry.")])
        mended = await two.prompt(session, LOOK)
        after = await two.prompt(session, text_prompt("and now?"))

        assert (text_of(mended), text_of(after)) == ("I see no picture.", "Sorry.")
        assert [each["kind"] for each in list_failed_attempts(mended) if each] == ["media"]
        assert two.claude.request_count == 3
        assert "image" in str(get_sent_messages(two.claude, 0)[0])
        stub = {"type": "text", "text": "[cat.png is not shown: the model's API refused it]"}
        assert stub in get_sent_messages(two.claude, 1)[0]["content"]
        assert stub in get_sent_messages(two.claude, 2)[0]["content"]


async def test_a_request_refused_even_without_its_image_goes_to_the_next_model_with_it() -> None:
    async with open_two_models() as two:
        session = await two.start()
        for _ in range(2):
            two.claude.server.refuse(400, "messages.0.content.0.image.source.base64: Could not process image")
        two.gpt.play([Say(text="A cat.")])
        answer = await two.prompt(session, LOOK)

        assert (text_of(answer), info(answer).model_id) == ("A cat.", GPT.id)
        assert (two.claude.request_count, two.gpt.request_count) == (2, 1)
        assert PNG in str(get_sent_messages(two.gpt))


async def test_another_provider_answers_if_one_is_rate_limited_without_end() -> None:
    async with open_two_models() as two:
        session = await two.start()
        for _ in range(9):
            two.claude.server.refuse(429, "Number of requests has exceeded your rate limit", retry_after="90")
        two.gpt.play([Say(text="Here.")], [Say(text="Here again.")])
        first = await two.prompt(session, text_prompt("go"))
        second = await two.prompt(session, text_prompt("go on"))

        assert (text_of(first), text_of(second)) == ("Here.", "Here again.")
        assert (info(first).provider_id, info(second).provider_id) == ("openai", "openai")
        assert (len(list_failed_attempts(first)), len(list_failed_attempts(second))) == (1, 0)
        assert two.claude.request_count == 1


async def test_another_provider_answers_if_one_refuses_the_key() -> None:
    async with open_two_models() as two:
        two.claude.server.refuse(401, "invalid x-api-key")
        two.gpt.play([Say(text="Here.")])
        answer = await two.prompt(await two.start(), text_prompt("go"))

        assert (text_of(answer), info(answer).error) == ("Here.", None)


async def test_a_server_that_never_answers_is_given_up_and_another_answers() -> None:
    async with open_two_models(claude_within=StreamDeadlines(first_byte=0.05)) as two:
        for _ in range(3):
            two.claude.server.hang()
        two.gpt.play([Say(text="Here.")])
        answer = await two.prompt(await two.start(), text_prompt("go"))

        assert text_of(answer) == "Here."
        assert [each["kind"] for each in list_failed_attempts(answer) if each] == ["timeout"] * 3


async def test_a_server_that_falls_silent_is_retried_and_its_partial_answer_not_shown() -> None:
    async with open_two_models(claude_within=StreamDeadlines(between=0.05)) as two:
        session = await two.start()
        two.claude.server.hang(Say(text="half an answer"), pieces=4)
        two.claude.play([Say(text="whole")], [Say(text="more")])
        answer = await two.prompt(session, text_prompt("go"))
        await two.prompt(session, text_prompt("go on"))

        assert text_of(answer) == "whole"
        assert "half an" not in str(get_sent_messages(two.claude))
