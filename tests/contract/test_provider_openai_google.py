"""The provider contract for OpenAI's Responses API and Google's Gemini API."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from fake.gemini import GeminiDialect
from fake.responses import ResponsesDialect
from given.model_requests import GEMINI_2, GEMINI_3, GPT_4O, GPT_5
from weft.provider.gemini.adapter import Gemini
from weft.provider.openai_responses.adapter import OpenAIResponses
from weft.testing.provider_bad_servers import SSE_CHECKS
from weft.testing.provider_contract import CHECKS, SERVER_CHECKS, Check, ServerCheck
from weft.testing.provider_harness import ServerProviderHarness, open_provider_harness


def open_harness_of(name: str) -> AbstractAsyncContextManager[ServerProviderHarness]:
    match name:
        case "responses":
            return open_provider_harness(ResponsesDialect(), OpenAIResponses, GPT_5)
        case "responses-without-reasoning":
            return open_provider_harness(ResponsesDialect(), OpenAIResponses, GPT_4O)
        case "gemini-2":
            return open_provider_harness(GeminiDialect(), Gemini, GEMINI_2)
        case _:
            return open_provider_harness(GeminiDialect(ids=True), Gemini, GEMINI_3)


@pytest.fixture(params=["responses", "responses-without-reasoning", "gemini-2", "gemini-3"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[ServerProviderHarness]:
    async with open_harness_of(request.param) as harness:
        yield harness


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_provider_contract_holds(check: Check, harness: ServerProviderHarness) -> None:
    await check(harness)


@pytest.mark.parametrize("check", [*SERVER_CHECKS, *SSE_CHECKS], ids=lambda check: check.__name__)
async def test_a_provider_handles_faulty_servers(check: ServerCheck, harness: ServerProviderHarness) -> None:
    await check(harness)
