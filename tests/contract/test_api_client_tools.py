"""What every `Api` must do with the tools that clients offer, in process and over HTTP."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from given.client_tools import open_local, open_served_engine
from weft.api import Api
from weft.client.api import connect
from weft.local.permissions import PermissionSettings
from weft.permission.policy import AskPolicy
from weft.testing.api_client_tools import CLIENT_TOOL_CHECKS, SCRIPT

CAN_ASK = PermissionSettings(policy=AskPolicy(can_ask=True))


@pytest.fixture(params=["in process", "over HTTP"])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    if request.param == "in process":
        async with open_local(*SCRIPT, permissions=CAN_ASK) as local:
            yield local
    else:
        async with open_served_engine(*SCRIPT, permissions=CAN_ASK) as (url, _), connect(url) as remote:
            yield remote


@pytest.mark.parametrize("check", CLIENT_TOOL_CHECKS, ids=lambda check: check.__name__)
async def test_the_contract_of_client_tools_holds(check: Callable[[Api], Awaitable[None]], api: Api) -> None:
    await check(api)
