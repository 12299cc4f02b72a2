"""URLs of stores."""

from pathlib import Path

import pytest

from weft.errors import InvalidInputError
from weft.model.event import SessionCreated
from weft.store.memory import MemoryStore
from weft.store.url import open_store
from weft.testing.store_values import session


async def test_a_store_in_memory_is_empty_each_time() -> None:
    async with open_store("memory:") as store:
        assert isinstance(store, MemoryStore)
        await store.apply(SessionCreated(info=session()))
    async with open_store("memory:") as store:
        assert await store.list_sessions() == []


@pytest.mark.parametrize("form", ["file:{0}/a b/storage", "file://{0}/a%20b/storage", "file:~/a b/storage"])
async def test_a_file_store_is_at_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    async with open_store(form.format(tmp_path)) as store:
        await store.apply(SessionCreated(info=session()))
    assert (tmp_path / "a b/storage/session/p1/ses_1.json").is_file()


@pytest.mark.parametrize(
    "url", ["", "storage", "/some/path", "redis:x", "memory", "memory:x", "file", "file:", "file://"]
)
async def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        async with open_store(url):
            pass
    assert raised.value.hint
