"""Providers through pydantic-ai: configuration, missing packages and keys, and requests."""

import sys
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from fake.openai import OpenAIChatDialect, ServerDialect
from given.model_requests import READ, request
from given.models import GPT
from weft.errors import InvalidInputError, ProviderAuthError
from weft.model.part import ModelRef
from weft.provider.catalog.models import Catalogue
from weft.provider.catalog.offers import OfferSources, ProviderOffers
from weft.provider.chunk import Finished, ReasoningEnd, ToolCall
from weft.provider.contract import (
    AssistantModelMessage,
    CallContent,
    Provider,
    ReasoningContent,
    ResultContent,
    TextContent,
    ToolModelMessage,
    UserModelMessage,
)
from weft.provider.endpoint import ModelEndpoint
from weft.provider.http_client import HttpClient
from weft.provider.pydantic_ai.adapter import PydanticAiProvider
from weft.provider.pydantic_ai.request import PydanticAiLibrary, to_messages, to_settings
from weft.provider.registry import Registry
from weft.provider.scripted import Say, Think, UseTool
from weft.testing.provider_harness import collect_answer, make_request, open_provider_harness

PICTURE = "data:image/png;base64,iVBORw0KGgo="


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def registry(said: Mapping[str, Any]) -> Registry:
    sources = OfferSources(
        catalogue=Catalogue(dict), warn=pytest.fail, configured={"tail": {"npm": "pydantic-ai", **said}}
    )
    return Registry(offers=ProviderOffers(sources))


async def ask(said: Mapping[str, Any], model: str = "m") -> None:
    models = registry({"models": {model: {}}, **said})
    served = models.get(ModelRef(provider_id="tail", model_id=model))
    try:
        async for _ in served.provider.stream(make_request(served.model)):
            pass
    finally:
        await models.aclose()


async def test_a_configured_provider_is_reached_through_pydantic_ai() -> None:
    async with open_provider_harness(OpenAIChatDialect(), PydanticAiProvider, GPT) as harness:
        harness.play([Say(text="fine")], [Say(text="fine")])
        options = {"baseURL": harness.server.url, "apiKey": "k", "model": "openai-chat:gpt-4.1"}
        await ask({"options": options})
        await ask({"options": {"baseURL": harness.server.url, "apiKey": "k"}}, "openai-chat:other")
        assert [each.body["model"] for each in harness.server.requests] == ["gpt-4.1", "other"]


async def test_the_error_for_a_missing_key_names_the_variable_to_set() -> None:
    with pytest.raises(ProviderAuthError, match="OPENAI_API_KEY"):
        await ask({"options": {"model": "openai-chat:gpt-4.1"}})


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nobody:m", "Unknown provider: nobody"),
        ("m", "Unknown provider: tail"),
        ("mistral:large", "needs another package"),
    ],
)
async def test_a_model_that_the_library_cannot_reach_is_refused_by_name(model: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        await ask({"options": {"model": model} if model != "m" else {}})
    assert caught.value.field == "provider.tail.options.model"
    assert model != "mistral:large" or "pydantic-ai-slim[mistral]" in caught.value.hint


async def test_without_the_package_the_hint_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai.direct", None)
    with pytest.raises(InvalidInputError, match="pydantic-ai is not installed") as caught:
        await ask({"options": {"model": "openai-chat:gpt-4.1"}})
    assert caught.value.hint == "in weft's checkout: pip install '.[pydantic-ai]'"


def test_settings_are_passed_on_and_the_library_does_not_retry() -> None:
    asked = request(
        GPT,
        tools=(READ,),
        max_output=5,
        temperature=0.5,
        headers={"X-A": "1"},
        options={"seed": 7, "top_a": 1},
    )
    assert to_settings(asked) == {
        "max_tokens": 5,
        "temperature": 0.5,
        "extra_headers": {"X-A": "1"},
        "tool_choice": "auto",
        "seed": 7,
        "extra_body": {"top_a": 1},
        "max_retries": 0,
    }


def test_a_conversation_is_translated_to_its_messages() -> None:
    ai = PydanticAiLibrary("tail")
    kept = {"pydantic-ai": {"signature": "sig", "provider_name": "x", "tail": " \n"}}
    files = UserModelMessage(
        content=(TextContent(text="see"), TextContent(text=" "), TextContent(text="this"))
    )
    call = CallContent(call_id="a", tool="read", input={"path": "a"})
    turns = (
        files,
        AssistantModelMessage(content=(ReasoningContent(text="hm", metadata=kept), call)),
        ToolModelMessage(content=(ResultContent(call_id="a", tool="read", output="", error=True),)),
        UserModelMessage(content=(TextContent(text="go on"),)),
    )
    made = to_messages(request(GPT, *turns), ai)
    parts = [[(part.part_kind, getattr(part, "content", None)) for part in message.parts] for message in made]
    assert parts == [
        [("system-prompt", "Be brief."), ("user-prompt", "see\n\nthis")],
        [("thinking", "hm \n"), ("tool-call", None)],
        [("tool-return", "(no output)"), ("user-prompt", "go on")],
    ]
    assert (made[1].parts[0].signature, made[2].parts[0].outcome) == ("sig", "failed")


async def test_metadata_of_a_thought_is_sent_back() -> None:
    def make(client: HttpClient, endpoint: ModelEndpoint) -> Provider:
        return PydanticAiProvider(client, replace(endpoint, options={"model": "openai-chat:m"}))

    manners = ServerDialect(message_fields=frozenset({"reasoning_content"}))
    async with open_provider_harness(OpenAIChatDialect(manners), make, GPT) as harness:
        harness.play([Think(text="hm"), UseTool(tool="read", input={"path": "a"})])
        answer = await collect_answer(harness.provider, make_request(GPT))
    [thought] = [chunk for chunk in answer.chunks if isinstance(chunk, ReasoningEnd)]
    [call] = [chunk for chunk in answer.chunks if isinstance(chunk, ToolCall)]
    finished = answer.finished()
    assert thought.metadata == {"pydantic-ai": {"id": "reasoning_content", "provider_name": "openai"}}
    assert (call.raw, isinstance(finished, Finished), finished.raw_reason) == (
        '{"path":"a"}',
        True,
        "tool_calls",
    )
