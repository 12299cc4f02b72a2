"""The store contract, for every store."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from weft.store.contract import Store
from weft.store.url import open_store
from weft.testing.store_contract import CHECKS


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    url = {"memory": "memory:", "file": f"file:{tmp_path}/storage"}[request.param]
    async with open_store(url) as opened:
        yield opened


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_store_keeps_its_promise(check: Callable[[Store], Awaitable[None]], store: Store) -> None:
    await check(store)
