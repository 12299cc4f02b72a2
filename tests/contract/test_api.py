"""The API contract, in process, over every store."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from given.engine import open_engine
from weft.api import Api
from weft.host.clock import SystemClock
from weft.provider.scripted import Say
from weft.store.url import open_store
from weft.testing.api_contract import CHECKS

ANSWERS = [[Say(text="Here is a short answer.")]] * 10


@pytest.fixture(params=["memory", "files"])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Api]:
    url = "memory:" if request.param == "memory" else f"file:{tmp_path / 'storage'}"
    async with open_store(url) as store, open_engine(*ANSWERS, store=store, clock=SystemClock()) as engine:
        yield engine.api


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_api_contract_holds_in_process(check: Callable[[Api], Awaitable[None]], api: Api) -> None:
    await check(api)
