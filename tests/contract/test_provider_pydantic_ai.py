"""The provider contract for pydantic-ai, against an OpenAI-compatible server."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from fake.openai import OpenAIChatDialect, ServerDialect
from given.models import GPT
from weft.provider.contract import Provider
from weft.provider.endpoint import ModelEndpoint
from weft.provider.http_client import HttpClient
from weft.provider.pydantic_ai.adapter import PydanticAiProvider
from weft.testing.provider_bad_servers import (
    a_refusal_with_status_200_is_a_refusal,
    a_web_page_is_not_an_answer,
    expect_failure,
)
from weft.testing.provider_contract import CHECKS, SERVER_CHECKS, Check, ServerCheck
from weft.testing.provider_harness import ServerProviderHarness, open_provider_harness

# It does not see answers that are not a stream.
NOT_OURS = (a_web_page_is_not_an_answer, a_refusal_with_status_200_is_a_refusal)
# It sends reasoning back to the model that it came from.
MANNERS = ServerDialect(message_fields=frozenset({"reasoning_content"}))


def make(client: HttpClient, endpoint: ModelEndpoint) -> Provider:
    # Connecting and the first byte are one wait here, and so are the imports of the first request.
    deadlines = replace(endpoint.deadlines, connect=1)
    return PydanticAiProvider(
        client, replace(endpoint, options={"model": "openai-chat:gpt-4.1"}, deadlines=deadlines)
    )


@pytest.fixture
async def harness() -> AsyncIterator[ServerProviderHarness]:
    async with open_provider_harness(OpenAIChatDialect(MANNERS), make, GPT) as harness:
        yield harness


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_provider_contract_holds(check: Check, harness: ServerProviderHarness) -> None:
    await check(harness)


@pytest.mark.parametrize(
    "check", [check for check in SERVER_CHECKS if check not in NOT_OURS], ids=lambda check: check.__name__
)
async def test_a_provider_handles_faulty_servers(check: ServerCheck, harness: ServerProviderHarness) -> None:
    await check(harness)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"<!doctype html><title>Welcome</title>", "text/html"),
        (b'{"error": {"message": "slow down"}}', "application/json"),
    ],
)
async def test_an_answer_that_is_not_a_stream_is_a_failure(
    said: bytes, kind: str, harness: ServerProviderHarness
) -> None:
    harness.server.send(said, kind=kind)
    assert (await expect_failure(harness)).kind == "protocol"
