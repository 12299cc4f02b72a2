"""The maintenance of every store keeps the contract."""

from pathlib import Path

import pytest

from given.postgres import make_url
from weft.errors import InvalidInputError
from weft.store.maintenance import open_maintenance
from weft.store.url import open_store
from weft.testing.maintenance_contract import CHECKS, MaintenanceCheck


@pytest.mark.parametrize("address", ["file:{0}/storage", "sqlite:{0}/sessions.db"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_maintenance_contract_holds(check: MaintenanceCheck, address: str, tmp_path: Path) -> None:
    url = address.format(tmp_path)
    cache = str(tmp_path / "cache")
    async with open_store(url, cache=cache) as store:
        await check(store, lambda: open_maintenance(url, cache=cache))


@pytest.mark.slow
@pytest.mark.parametrize("pooled", [False, True], ids=["postgres", "pgbouncer"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_maintenance_contract_holds_for_postgres(check: MaintenanceCheck, pooled: bool) -> None:
    url = make_url(pgbouncer=pooled)
    async with open_store(url) as store:
        await check(store, lambda: open_maintenance(url))


def test_a_memory_store_has_no_maintenance() -> None:
    with pytest.raises(InvalidInputError, match="'memory:' cannot be inspected"):
        open_maintenance("memory:")
