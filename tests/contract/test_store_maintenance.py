"""The maintenance of every store keeps the contract."""

from pathlib import Path

import pytest

from weft.errors import InvalidInputError
from weft.store.maintenance import open_maintenance
from weft.store.url import open_store
from weft.testing.maintenance_contract import CHECKS, MaintenanceCheck


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_maintenance_of_files_keeps_its_promise(check: MaintenanceCheck, tmp_path: Path) -> None:
    url = f"file:{tmp_path}/storage"
    async with open_store(url) as store:
        await check(store, lambda: open_maintenance(url))


def test_a_store_in_memory_has_no_maintenance() -> None:
    with pytest.raises(InvalidInputError, match="'memory:' is not a file store"):
        open_maintenance("memory:")
