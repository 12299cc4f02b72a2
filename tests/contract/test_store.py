"""The store contract, for every store."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from given.postgres import make_url
from weft.errors import ClosedError
from weft.store.contract import Store
from weft.store.url import open_store
from weft.testing.store_contract import CHECKS
from weft.testing.store_search import SEARCH

# Each check waits for commits of a real server: together they take longer than all other tests of `make test-fast`.
SERVERS = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("postgres", "pgbouncer")]
STORES = ["memory", "file", "sqlite", *SERVERS]


def make_store_url(kind: str, tmp_path: Path) -> str:
    match kind:
        case "memory":
            return "memory:"
        case "file":
            return f"file:{tmp_path}/storage"
        case "sqlite":
            return f"sqlite:{tmp_path}/sessions.db"
        case _:
            return make_url(pgbouncer=kind == "pgbouncer")


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(make_store_url(request.param, tmp_path), cache=str(tmp_path / "cache")) as opened:
        yield opened


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_store_contract_holds(check: Callable[[Store], Awaitable[None]], store: Store) -> None:
    await check(store)


@pytest.mark.parametrize("check", SEARCH, ids=lambda check: check.__name__)
async def test_a_file_store_can_be_searched_without_a_cache(
    check: Callable[[Store], Awaitable[None]], tmp_path: Path
) -> None:
    async with open_store(f"file:{tmp_path}/storage") as store:
        await check(store)


@pytest.mark.parametrize("kind", [kind for kind in STORES if kind != "memory"])
async def test_a_store_that_was_closed_says_so(kind: str, tmp_path: Path) -> None:
    async with open_store(make_store_url(kind, tmp_path)) as store:
        pass
    with pytest.raises(ClosedError, match="is closed"):
        await store.list_projects()
    with pytest.raises(ClosedError, match="is closed"):
        await store.put_value(("key",), 1)
