"""The API contract over HTTP: our own server on this machine, over every store."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from given.served_engine import open_served_engine
from weft.api import Api
from weft.provider.scripted import Say
from weft.store.url import open_store
from weft.testing.api_contract import CHECKS

ANSWERS = [[Say(text="Here is a short answer.")]] * 10


@pytest.fixture(params=["memory", "files"])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Api]:
    url = "memory:" if request.param == "memory" else f"file:{tmp_path / 'storage'}"
    async with open_store(url) as store, open_served_engine(*ANSWERS, store=store) as served:
        yield served.api


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_api_contract_holds_over_http(check: Callable[[Api], Awaitable[None]], api: Api) -> None:
    await check(api)
