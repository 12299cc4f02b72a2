"""URLs of stores."""

import os
from pathlib import Path

import pytest

from weft.config.store_address import resolve_store_url
from weft.errors import InvalidInputError
from weft.host.paths import paths_from
from weft.model.event import SessionCreated
from weft.store.maintenance import open_maintenance
from weft.store.memory import MemoryStore
from weft.store.reader import open_reader
from weft.store.url import open_store, store_exists
from weft.testing.store_samples import session


async def test_a_memory_store_is_empty_each_time() -> None:
    async with open_store("memory:") as store:
        assert isinstance(store, MemoryStore)
        await store.apply(SessionCreated(info=session()))
    async with open_store("memory:") as store:
        assert await store.list_sessions() == []


@pytest.mark.parametrize(
    "form",
    ["file:{0}/a b/storage", "file://{0}/a%20b/storage", "file:///{0}/a%20b/storage", "file:~/a b/storage"],
)
async def test_a_file_store_is_at_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    given = form.format(tmp_path)
    resolved = resolve_store_url({}, paths_from(os.environ), given)
    assert resolved == f"file:{tmp_path}/a b/storage"
    async with open_store(given) as store:
        await store.apply(SessionCreated(info=session()))
    assert (tmp_path / "a b/storage/session/p1/ses_1.json").is_file()
    for url in (given, resolved):
        assert store_exists(url)
        assert open_reader(url).list_sessions() == [session()]
        assert open_maintenance(url).list_session_ids() == [session().id]


@pytest.mark.parametrize(
    "form", ["sqlite:{0}/a b/s.db", "sqlite://{0}/a%20b/s.db", "sqlite:~/a b/s.db", "sqlite:a b/s.db"]
)
async def test_a_database_is_at_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    url = form.format(tmp_path)
    assert not store_exists(url)
    async with open_store(url) as store:
        await store.apply(SessionCreated(info=session()))
    assert (tmp_path / "a b/s.db").is_file()
    assert store_exists(url)
    assert open_reader(url).list_sessions() == [session()]
    assert open_maintenance(url).list_session_ids() == [session().id]


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("sqlite:a/s.db", "sqlite:{0}/a/s.db"),
        ("sqlite:~/s.db", "sqlite:{0}/s.db"),
        ("sqlite:///a%20b/s.db", "sqlite:/a b/s.db"),
        ("sqlite:/a/../s.db", "sqlite:/s.db"),
    ],
)
def test_the_address_of_a_database_becomes_an_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, url: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for env, option in (({}, given), ({"WEFT_STORE": given}, None)):
        assert resolve_store_url(env, paths_from(os.environ), option) == url.format(tmp_path)


def test_a_database_cannot_be_a_directory(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is a directory"):
        resolve_store_url({}, paths_from(os.environ), f"sqlite:{tmp_path}")


INVALID = [
    "",
    "storage",
    "/some/path",
    "redis:x",
    "memory",
    "memory:x",
    "file",
    "file:",
    "file://",
    "sqlite",
    "sqlite:",
]


@pytest.mark.parametrize("url", [*INVALID, "sqlite://", "sqlite:a\0b"])
async def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        async with open_store(url):
            pass
    assert raised.value.hint
