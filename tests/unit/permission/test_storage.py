"""Lists of items in a store: changed one at a time, by several processes, without losing unreadable entries."""

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from weft.errors import StoreError
from weft.model.ids import GrantID
from weft.model.permission import Grant
from weft.model.wire import to_plain
from weft.permission.storage import GRANTS_KEY, ItemStore, read_items
from weft.store.files.layout import Layout
from weft.store.files.store import FileStore
from weft.store.memory import MemoryStore


def grant(number: int) -> Grant:
    return Grant(
        id=GrantID(f"gra_{number}"), scope="user", permission="bash", patterns=("ls",), created=number
    )


def open_items(root: Path) -> ItemStore[Grant]:
    return ItemStore(FileStore(str(root)), GRANTS_KEY, Grant, shared=True)


def value_path(root: Path) -> Path:
    return Path(Layout(str(root)).value_path(GRANTS_KEY))


async def test_stored_values_are_private_and_read_by_the_next_process(tmp_path: Path) -> None:
    assert await open_items(tmp_path).read() == ()
    assert await open_items(tmp_path).change(lambda known: (*known, grant(1))) == (grant(1),)
    assert await open_items(tmp_path).read() == (grant(1),)
    assert stat.S_IMODE(os.stat(value_path(tmp_path)).st_mode) == 0o600


async def test_concurrent_changes_are_not_lost(tmp_path: Path) -> None:
    def add(number: int) -> Any:
        return open_items(tmp_path).change(lambda known: (*known, grant(number)))

    await asyncio.gather(*(add(number) for number in range(16)))
    assert {each.created for each in await open_items(tmp_path).read()} == set(range(16))


async def test_a_change_is_seen_by_earlier_readers(tmp_path: Path) -> None:
    mine, theirs = open_items(tmp_path), open_items(tmp_path)
    await mine.change(lambda known: (*known, grant(1)))
    assert await theirs.read() == (grant(1),)
    await mine.change(lambda known: (*known, grant(2)))
    assert await theirs.read() == (grant(1), grant(2))


@pytest.mark.parametrize("broken", [b"", b"{", b"\xff"])
async def test_an_unreadable_value_grants_nothing_and_is_moved_aside(tmp_path: Path, broken: bytes) -> None:
    path = value_path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(broken)
    items = open_items(tmp_path)
    assert await items.read() == ()
    await items.change(lambda known: (*known, grant(1)))
    assert await items.read() == (grant(1),)
    assert [each.read_bytes() for each in path.parent.glob("*.damaged")] == [broken]


@pytest.mark.parametrize("stored", [{"scope": "galaxy"}, [{"scope": "galaxy"}], "words"])
async def test_an_unreadable_entry_hides_no_other_and_survives_a_change(stored: Any) -> None:
    store = MemoryStore()
    await store.put_value(GRANTS_KEY, stored)
    items = ItemStore(store, GRANTS_KEY, Grant, shared=False)
    assert await items.change(lambda known: (*known, grant(1))) == (grant(1),)
    unreadable = stored if isinstance(stored, list) else [stored]
    assert await store.find_value(GRANTS_KEY) == [*unreadable, to_plain(grant(1))]
    assert read_items(await store.find_value(GRANTS_KEY), Grant) == (grant(1),)


async def test_a_change_without_effect_writes_nothing(tmp_path: Path) -> None:
    items = open_items(tmp_path)
    await items.change(lambda _: (grant(1),))
    before = os.stat(value_path(tmp_path)).st_ino
    assert await items.change(lambda known: known) == (grant(1),)
    assert os.stat(value_path(tmp_path)).st_ino == before


async def test_a_store_that_cannot_be_written_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        await open_items(tmp_path / "file").change(lambda _: (grant(1),))
