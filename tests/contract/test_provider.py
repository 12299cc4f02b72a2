"""The provider contract, for the main adapters."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from fake.anthropic import AnthropicDialect
from fake.openai import OpenAIChatDialect, ServerDialect
from given.models import CLAUDE, GPT, LOCAL, ROUTED
from weft.provider.anthropic.adapter import AnthropicMessages
from weft.provider.openai_chat.adapter import OpenAIChat
from weft.provider.scripted import Say
from weft.testing.provider_bad_servers import SSE_CHECKS
from weft.testing.provider_contract import CHECKS, SERVER_CHECKS, Check, ServerCheck
from weft.testing.provider_harness import (
    ScriptedProviderHarness,
    ServerProviderHarness,
    collect_answer,
    make_request,
    open_provider_harness,
)

ROUTER = ServerDialect(message_fields=frozenset({"reasoning_details"}), marks=True, longest_id=1000)


def open_harness_of(name: str) -> AbstractAsyncContextManager[ServerProviderHarness]:
    match name:
        case "anthropic":
            return open_provider_harness(AnthropicDialect(), AnthropicMessages, CLAUDE)
        case "openai-chat":
            return open_provider_harness(OpenAIChatDialect(), OpenAIChat, GPT)
        case _:
            return open_provider_harness(OpenAIChatDialect(ROUTER), OpenAIChat, ROUTED)


@pytest.fixture(params=["anthropic", "openai-chat", "openai-chat-router"])
async def server_harness(request: pytest.FixtureRequest) -> AsyncIterator[ServerProviderHarness]:
    async with open_harness_of(request.param) as harness:
        yield harness


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_provider_contract_holds(check: Check, server_harness: ServerProviderHarness) -> None:
    await check(server_harness)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_provider_contract_holds_for_the_scripted_provider(check: Check) -> None:
    await check(ScriptedProviderHarness(GPT))


@pytest.mark.parametrize("check", [*SERVER_CHECKS, *SSE_CHECKS], ids=lambda check: check.__name__)
async def test_a_provider_handles_faulty_servers(
    check: ServerCheck, server_harness: ServerProviderHarness
) -> None:
    await check(server_harness)


async def test_a_request_is_repeated_without_usage_if_the_server_does_not_support_it() -> None:
    manners = ServerDialect(unknown=frozenset({"stream_options"}))
    async with open_provider_harness(OpenAIChatDialect(manners), OpenAIChat, LOCAL) as harness:
        harness.play([Say(text="one")], [Say(text="two")])
        refused = (await collect_answer(harness.provider, make_request(harness.model))).error
        assert refused is not None
        assert (refused.kind, refused.retryable, refused.wait_ms) == ("bad-request", True, 0)
        answer = await collect_answer(harness.provider, make_request(harness.model))
        assert (answer.text(), harness.request_count) == ("one", 2)
