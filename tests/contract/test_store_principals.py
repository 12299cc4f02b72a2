"""The store of a principal, over every kind of store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from contract.test_store import STORES, make_store_url
from weft.store.contract import Store
from weft.store.memory import MemoryStore
from weft.store.ownership import OwnedStore
from weft.store.url import open_store
from weft.testing.store_principals import PRINCIPALS, OpenFor, PrincipalCheck


@pytest.fixture(params=STORES)
def open_for(request: pytest.FixtureRequest, tmp_path: Path) -> OpenFor:
    url, memory = make_store_url(request.param, tmp_path), MemoryStore()

    @asynccontextmanager
    async def open_owned(principal: str | None, max_running: int | None = None) -> AsyncIterator[Store]:
        if request.param == "memory":
            yield memory if principal is None else OwnedStore(memory, principal, max_running=max_running)
            return
        async with open_store(url, cache=str(tmp_path / "cache"), principal=principal) as store:
            yield store if principal is None else OwnedStore(store, principal, max_running=max_running)

    return open_owned


@pytest.mark.parametrize("check", PRINCIPALS, ids=lambda check: check.__name__)
async def test_the_store_contract_holds_for_a_principal(check: PrincipalCheck, open_for: OpenFor) -> None:
    await check(open_for)
