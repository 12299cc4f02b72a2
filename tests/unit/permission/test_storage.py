"""Small documents in a file: written atomically, by several processes, without losing unreadable ones."""

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from weft.errors import StoreError
from weft.model.ids import GrantID
from weft.model.permission import Grant
from weft.permission.storage import ItemFile


def grant(number: int) -> Grant:
    return Grant(
        id=GrantID(f"gra_{number}"), scope="user", permission="bash", patterns=("ls",), created=number
    )


def test_what_is_kept_is_read_by_the_next_one(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "grants.json")
    assert ItemFile(path, Grant).read() == ()
    ItemFile(path, Grant).change(lambda kept: (*kept, grant(1)))
    assert ItemFile(path, Grant).read() == (grant(1),)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_concurrent_changes_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "grants.json")

    def add(number: int) -> None:
        ItemFile(path, Grant).change(lambda kept: (*kept, grant(number)))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {each.created for each in ItemFile(path, Grant).read()} == set(range(16))


def test_a_change_is_seen_by_who_has_read_before(tmp_path: Path) -> None:
    path = str(tmp_path / "grants.json")
    mine, theirs = ItemFile(path, Grant), ItemFile(path, Grant)
    mine.change(lambda kept: (*kept, grant(1)))
    assert theirs.read() == (grant(1),)
    mine.change(lambda kept: (*kept, grant(2)))
    assert theirs.read() == (grant(1), grant(2))


@pytest.mark.parametrize("broken", [b"", b"{", b"{}", b"\xff", b'[{"id": 1}]'])
def test_an_unreadable_file_grants_nothing_and_is_set_aside(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "grants.json"
    path.write_bytes(broken)
    kept = ItemFile(str(path), Grant)
    assert kept.read() == ()
    kept.change(lambda found: (*found, grant(1)))
    assert kept.read() == (grant(1),)
    assert (tmp_path / "grants.json.damaged").read_bytes() == broken


def test_an_unreadable_item_does_not_hide_the_others(tmp_path: Path) -> None:
    path = tmp_path / "grants.json"
    ItemFile(str(path), Grant).change(lambda _: (grant(1), grant(2)))
    entries = json.loads(path.read_text())
    path.write_text(json.dumps([{"scope": "galaxy"}, *entries]))
    assert ItemFile(str(path), Grant).read() == (grant(1), grant(2))


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        ItemFile(str(tmp_path / "file" / "grants.json"), Grant).change(lambda _: (grant(1),))
