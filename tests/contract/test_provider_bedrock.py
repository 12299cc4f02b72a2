"""The provider contract for Amazon Bedrock, with models of several vendors."""

from collections.abc import AsyncIterator

import pytest

from fake.converse import ConverseDialect
from given.models import NOVA, ON_BEDROCK, QWEN_ON_BEDROCK
from weft.provider.bedrock.adapter import Bedrock
from weft.testing.provider_bad_servers import FRAME_CHECKS
from weft.testing.provider_contract import CHECKS, SERVER_CHECKS, Check, ServerCheck
from weft.testing.provider_harness import ServerProviderHarness, open_provider_harness

MODELS = {"claude": ON_BEDROCK, "nova": NOVA, "qwen": QWEN_ON_BEDROCK}


@pytest.fixture(params=MODELS)
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[ServerProviderHarness]:
    async with open_provider_harness(ConverseDialect(), Bedrock, MODELS[request.param]) as harness:
        yield harness


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_provider_contract_holds(check: Check, harness: ServerProviderHarness) -> None:
    await check(harness)


@pytest.mark.parametrize("check", [*SERVER_CHECKS, *FRAME_CHECKS], ids=lambda check: check.__name__)
async def test_a_provider_handles_faulty_servers(check: ServerCheck, harness: ServerProviderHarness) -> None:
    await check(harness)
