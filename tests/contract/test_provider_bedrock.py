"""The provider contract for Amazon Bedrock, with models of several vendors."""

from collections.abc import AsyncIterator

import pytest

from fake.converse import ConverseDialect
from given.models import NOVA, ON_BEDROCK, QWEN_ON_BEDROCK
from weft.provider.bedrock.adapter import Bedrock
from weft.testing.provider_bad_servers import IN_FRAMES
from weft.testing.provider_contract import CHECKS, SERVER_CHECKS, Check, ServerCheck
from weft.testing.provider_stand import ServerStand, open_stand

MODELS = {"claude": ON_BEDROCK, "nova": NOVA, "qwen": QWEN_ON_BEDROCK}


@pytest.fixture(params=MODELS)
async def stand(request: pytest.FixtureRequest) -> AsyncIterator[ServerStand]:
    async with open_stand(ConverseDialect(), Bedrock, MODELS[request.param]) as stand:
        yield stand


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_provider_keeps_its_promise(check: Check, stand: ServerStand) -> None:
    await check(stand)


@pytest.mark.parametrize("check", [*SERVER_CHECKS, *IN_FRAMES], ids=lambda check: check.__name__)
async def test_a_provider_stands_any_server(check: ServerCheck, stand: ServerStand) -> None:
    await check(stand)
