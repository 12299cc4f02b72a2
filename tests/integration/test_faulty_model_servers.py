"""Model servers that misbehave, for every API: the message records the failure, and the session stays usable."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from msgspec import Struct
from msgspec.structs import replace

from fake.anthropic import AnthropicDialect
from fake.converse import ConverseDialect
from fake.gemini import GeminiDialect
from fake.openai import OpenAIChatDialect
from fake.responses import ResponsesDialect
from given.engine import Engine, open_engine, text_prompt
from given.model_requests import GEMINI_3, GPT_5
from given.models import CLAUDE, GPT, ON_BEDROCK
from weft.model.catalog import Model
from weft.model.failure import ApiFailure
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage
from weft.model.part import TextPart
from weft.provider.anthropic.adapter import AnthropicMessages
from weft.provider.azure import AzureOpenAI
from weft.provider.bedrock.adapter import Bedrock
from weft.provider.contract import Provider
from weft.provider.copilot import Copilot
from weft.provider.endpoint import ModelEndpoint, StreamDeadlines
from weft.provider.gemini.adapter import Gemini
from weft.provider.http_client import HttpClient
from weft.provider.openai_chat.adapter import OpenAIChat
from weft.provider.openai_responses.adapter import OpenAIResponses
from weft.provider.pydantic_ai.adapter import PydanticAiProvider
from weft.provider.scripted import Say
from weft.testing.fake_model_api import Dialect, FakeServer
from weft.testing.provider_harness import MakeProvider, ServerProviderHarness, open_provider_harness

PATIENCE = 60
SOON = StreamDeadlines(connect=5, first_byte=2, between=2)


class Wire(Struct, frozen=True):
    dialect: Callable[[], Dialect]
    make: MakeProvider
    model: Model


def make_pydantic_ai(client: HttpClient, endpoint: ModelEndpoint) -> Provider:
    return PydanticAiProvider(client, replace(endpoint, options={"model": "openai-chat:gpt-4.1"}))


def make_azure(client: HttpClient, endpoint: ModelEndpoint) -> Provider:
    own = {"Authorization": "Bearer k"}  # which this server requires besides Azure's
    return AzureOpenAI(client, replace(endpoint, headers=own, options={"useCompletionUrls": True}))


WIRES = {
    "anthropic": Wire(AnthropicDialect, AnthropicMessages, CLAUDE),
    "azure": Wire(OpenAIChatDialect, make_azure, GPT),
    "bedrock": Wire(ConverseDialect, Bedrock, ON_BEDROCK),
    "chat": Wire(OpenAIChatDialect, OpenAIChat, GPT),
    "copilot": Wire(OpenAIChatDialect, Copilot, GPT),
    "gemini": Wire(GeminiDialect, Gemini, GEMINI_3),
    "pydantic-ai": Wire(OpenAIChatDialect, make_pydantic_ai, GPT),
    "responses": Wire(ResponsesDialect, OpenAIResponses, GPT_5),
}


@asynccontextmanager
async def open_session(name: str) -> AsyncIterator[tuple[Engine, ServerProviderHarness]]:
    wire = WIRES[name]
    async with (
        asyncio.timeout(PATIENCE),
        open_provider_harness(wire.dialect(), wire.make, wire.model) as harness,
        open_engine(model=wire.model, provider=harness.with_deadlines(SOON), skip_waits=True) as engine,
    ):
        yield engine, harness


# --- how a server may misbehave ---


def html(server: FakeServer) -> None:
    server.send(b"<!doctype html><title>Welcome</title>", kind="text/html; charset=utf-8")


def send_half_a_line(server: FakeServer) -> None:
    whole = b"".join(server.dialect.frames([Say(text="one two three")]))
    server.send(whole[: len(whole) // 2 - 1])


def wrong_json(server: FakeServer) -> None:
    first = server.dialect.frames([Say(text="a")])[0]
    server.send(first, server.dialect.wrapped(b"{nonsense}"))


def send_no_finish(server: FakeServer) -> None:
    server.send(*server.dialect.frames([Say(text="one two three")])[:4])


def send_call_without_name(server: FakeServer) -> None:
    server.send(*server.dialect.nameless_call())


def send_nothing(server: FakeServer) -> None:
    server.send()


def stay_silent(server: FakeServer) -> None:
    server.hang()


FAULTS = (html, send_half_a_line, wrong_json, send_no_finish, send_call_without_name, send_nothing)


async def fail_and_go_on(name: str, fault: Callable[[FakeServer], None]) -> str:
    """Return the failure on the message. Retries do not matter here, because each of them fails."""
    async with open_session(name) as (engine, harness):
        for _ in range(6):
            fault(harness.server)
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        failed = (await engine.api.prompt(session, text_prompt("go"))).info
        assert isinstance(failed, AssistantMessage)
        assert isinstance(failed.error, ApiFailure), failed.error
        harness.server.forget()
        harness.play([Say(text="fine")])
        answer = await engine.api.prompt(session, text_prompt("again"))
        assert [part.text for part in answer.parts if isinstance(part, TextPart)] == ["fine"]
        return failed.error.data.message


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("name", WIRES)
async def test_the_failure_is_stored_and_the_session_continues(
    name: str, fault: Callable[[FakeServer], None]
) -> None:
    assert await fail_and_go_on(name, fault)


@pytest.mark.parametrize("name", WIRES)
async def test_a_failure_names_the_address_without_its_secrets(name: str) -> None:
    async with open_session(name) as (engine, harness):
        harness.server.refuse(400, "no")
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        failed = (await engine.api.prompt(session, text_prompt("go"))).info
        assert isinstance(failed, AssistantMessage)
        assert isinstance(failed.error, ApiFailure)
        asked = harness.server.requests[-1].path.partition("?")[0]
        # Only the package knows which path it adds to the address of an API.
        known = "/v1" if name == "pydantic-ai" else asked
        assert failed.error.data.metadata == {
            "url": f"http://{harness.server.requests[-1].headers['host']}{known}"
        }


@pytest.mark.parametrize("name", ["anthropic", "azure"])
async def test_a_stored_failure_has_the_headers_of_the_answer_without_its_cookies(name: str) -> None:
    async with open_session(name) as (engine, harness):
        harness.server.refuse(400, "no", **{"set-cookie": "login=secret", "x-request-id": "r1"})
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        failed = (await engine.api.prompt(session, text_prompt("go"))).info
        assert isinstance(failed, AssistantMessage)
        assert isinstance(failed.error, ApiFailure)
        headers = failed.error.data.response_headers or {}
        assert (headers["x-request-id"], headers.get("set-cookie")) == ("r1", None)


@pytest.mark.parametrize("name", WIRES)
async def test_a_repeated_end_of_an_answer_is_ignored(name: str) -> None:
    async with open_session(name) as (engine, harness):
        frames = harness.server.dialect.frames([Say(text="one two")])
        harness.server.send(*frames, *frames)
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        answer = await engine.api.prompt(session, text_prompt("go"))
        assert isinstance(answer.info, AssistantMessage)
        assert (answer.info.error, answer.info.finish) == (None, "stop")
        assert [part.text for part in answer.parts if isinstance(part, TextPart)] == ["one two"]


@pytest.mark.parametrize("name", WIRES)
async def test_a_silent_server_is_given_up(name: str) -> None:
    wire = WIRES[name]
    deadlines = StreamDeadlines(connect=0.5, first_byte=0.05, between=0.05)
    async with (
        asyncio.timeout(PATIENCE),
        open_provider_harness(wire.dialect(), wire.make, wire.model) as harness,
        open_engine(model=wire.model, provider=harness.with_deadlines(deadlines), skip_waits=True) as engine,
    ):
        for _ in range(6):
            stay_silent(harness.server)
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        failed = (await engine.api.prompt(session, text_prompt("go"))).info
        assert isinstance(failed, AssistantMessage)
        assert isinstance(failed.error, ApiFailure)
        expected = "(experimental.weft.deadlines, or options.timeout of the provider, says how long to wait)"
        # The server took the request, so it may charge it.
        assert (failed.error.data.message.endswith(expected), failed.counted) == (True, False)


@pytest.mark.parametrize("name", WIRES)
async def test_a_refused_request_costs_nothing(name: str) -> None:
    async with open_session(name) as (engine, harness):
        for _ in range(6):
            harness.server.refuse(503, "overloaded")
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        failed = (await engine.api.prompt(session, text_prompt("go"))).info
        assert isinstance(failed, AssistantMessage)
        assert isinstance(failed.error, ApiFailure)
        assert (failed.cost, failed.priced, failed.counted) == (0, True, True)


@pytest.mark.parametrize("name", WIRES)
async def test_an_answer_that_cannot_be_read_may_have_cost_something(name: str) -> None:
    async with open_session(name) as (engine, harness):
        for _ in range(6):
            harness.server.send(harness.server.dialect.wrapped(b"{nonsense}"))
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        failed = (await engine.api.prompt(session, text_prompt("go"))).info
        assert isinstance(failed, AssistantMessage)
        assert isinstance(failed.error, ApiFailure)
        assert (failed.cost, failed.priced, failed.counted) == (0, False, False)


async def test_the_cost_of_an_attempt_that_got_no_answer_is_unknown_even_if_the_next_one_is_answered() -> (
    None
):
    async with open_session("chat") as (engine, harness):
        send_nothing(harness.server)
        harness.play([Say(text="fine")])
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        answer = (await engine.api.prompt(session, text_prompt("go"))).info
        assert isinstance(answer, AssistantMessage)
        assert (answer.error, answer.counted) == (None, False)
