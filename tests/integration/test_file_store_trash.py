"""The trash of the file store: everything is restored byte for byte, also if the disk fails."""

import asyncio
import json
from pathlib import Path

import pytest

from given.failing_disk import FailingDisk
from weft.errors import NotFoundError, StoreError
from weft.host.files import Disk, is_locked
from weft.model.damage import Damage
from weft.model.event import MessageUpdated, PartUpdated, SessionCreated
from weft.model.ids import SessionID
from weft.store.files.layout import Layout, session_lock
from weft.store.files.store import FileStore
from weft.testing.store_contract import AT, NAME, OTHER, make_full_session
from weft.testing.store_samples import PROMPT, SESSION, growth, prompt, session, text


def documents(root: Path) -> dict[str, bytes]:
    """Return every relevant file: those of OpenCode, and our growth and trash."""
    files = [path for path in root.rglob("*") if path.is_file()]
    found = {path.relative_to(root).as_posix(): path.read_bytes() for path in files}
    return {
        name: raw
        for name, raw in found.items()
        if not name.startswith((".weft/lock/", ".weft/temp/", ".weft/redo/"))
    }


async def make_store(root: Path) -> FileStore:
    store = FileStore(str(root))
    await store.prepare(lambda _: None)
    await store.apply(*make_full_session(SESSION, PROMPT), *make_full_session(OTHER, "msg_9"))
    await store.apply(PartUpdated(part=text("prt_7", "its message is gone", of="msg_lost")))
    await store.apply(growth("prt_1", "more", 1))
    return store


async def test_a_bundle_is_restored_byte_for_byte_with_growth_and_foreign_files(tmp_path: Path) -> None:
    store = await make_store(tmp_path)
    odd = tmp_path / "message" / SESSION / "msg_broken.json"
    odd.write_bytes(b"{half")
    before = documents(tmp_path)
    await store.discard([SESSION, OTHER], at=AT)
    assert {name.split("/")[1] for name in documents(tmp_path) if name.startswith(".weft")} == {"trash"}
    assert [name for name in documents(tmp_path) if not name.startswith(".weft/trash/")] == ["migration"]
    await store.restore(NAME)
    assert documents(tmp_path) == before


@pytest.mark.parametrize("forever", [False, True], ids=["once", "from then on"])
async def test_a_failing_disk_leaves_all_or_nothing_of_a_discard_and_a_restore(
    tmp_path: Path, forever: bool
) -> None:
    """Fail at every call of the disk in turn: after opening again, either state is complete."""
    seen = set()
    for at in range(1, 200):
        root = tmp_path / str(at)
        healthy = await make_store(root)
        there = documents(root)
        failing = FailingDisk(at, forever=forever)
        seen.add(await discard_and_restore(FileStore(str(root), disk=failing), root, there))
        if not failing.failed:
            break
        await healthy.prepare(lambda _: None)
    else:
        raise AssertionError("it never came to its end")
    assert seen == {"there", "gone", "back"} if not forever else seen >= {"there", "back"}


async def discard_and_restore(store: FileStore, root: Path, there: dict[str, bytes]) -> str:
    """Discard and restore with a failing disk, and return the result as a working store reads it."""
    done = "there"
    try:
        await store.discard([SESSION, OTHER], at=AT)
        done = "gone"
        await store.restore(NAME)
        done = "back"
    except StoreError:
        pass
    again = FileStore(str(root), disk=Disk())
    await again.prepare(lambda _: None)
    listed = {each.id for each in await again.list_sessions()}
    bundles = await again.list_trash()
    if listed:
        assert listed == {SESSION, OTHER}
        assert bundles == []
        assert documents(root) == there
    else:
        assert [each.id for each in bundles] == [NAME]
        await again.restore(NAME)
        assert documents(root) == there
    return done


async def test_one_of_several_attempts_to_restore_a_bundle_succeeds(tmp_path: Path) -> None:
    store = await make_store(tmp_path)
    await store.discard([SESSION], at=AT)
    ended = await asyncio.gather(
        *(FileStore(str(tmp_path)).restore(NAME) for _ in range(4)), return_exceptions=True
    )
    refused = [each for each in ended if isinstance(each, BaseException)]
    assert [type(each) for each in refused] == [NotFoundError] * 3
    assert len(await store.list_sessions()) == 2


async def test_existing_files_are_not_overwritten_by_a_restore(tmp_path: Path) -> None:
    store = await make_store(tmp_path)
    await store.discard([SESSION], at=AT)
    await store.apply(MessageUpdated(info=prompt("msg_new")))
    with pytest.raises(StoreError, match="in the way"):
        await store.restore(NAME)
    assert [each.id for each in await store.list_trash()] == [NAME]
    assert len(await store.list_messages(SESSION)) == 1


async def test_a_session_that_begins_with_a_history_is_stored_completely(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))
    id = SessionID("ses_long")
    infos = [prompt(f"msg_{number:03}", of=id, created=number + 1) for number in range(120)]
    parts = [text(f"prt_{info.id}", "x", of=info.id, session=id) for info in infos]
    await store.apply(
        SessionCreated(info=session(id)),
        *(MessageUpdated(info=info) for info in infos),
        *(PartUpdated(part=part) for part in parts),
    )
    assert [(each.info, each.parts) for each in await store.list_messages(id)] == [
        (info, (part,)) for info, part in zip(infos, parts, strict=True)
    ]
    assert await store.damage() == []
    assert list((tmp_path / ".weft" / "temp").iterdir()) == []


class LockWatch(Disk):
    """Notes for each lock file that is removed whether somebody held it then."""

    def __init__(self) -> None:
        self.removed: list[bool] = []

    def remove(self, path: str) -> None:
        if "/lock/session." in path:
            self.removed.append(is_locked(path))
        super().remove(path)


def list_locks(root: Path) -> list[str]:
    """Return the names of the locks of sessions."""
    return sorted(path.name for path in Path(Layout(str(root)).locks).glob("session.*"))


async def test_a_purge_removes_a_lock_only_while_it_holds_it_and_if_the_session_is_gone(
    tmp_path: Path,
) -> None:
    disk = LockWatch()
    store = FileStore(str(tmp_path), disk=disk)
    await store.prepare(lambda _: None)
    await store.apply(*make_full_session(SESSION, PROMPT), *make_full_session(OTHER, "msg_9"))
    await store.discard([SESSION, OTHER], at=AT)
    await store.apply(SessionCreated(info=session()))  # the same id again
    disk.removed.clear()
    await store.purge(NAME)
    assert disk.removed == [True]
    assert list_locks(tmp_path) == [session_lock(SESSION)]


@pytest.mark.parametrize(
    "change",
    [{"id": "another"}, {"sessions": []}, {"sessions": [{"id": "../x", "projectID": "p1"}]}],
    ids=["the id of another", "no session", "a session that is no file name"],
)
async def test_a_bundle_whose_description_does_not_fit_is_damage_and_stays(
    tmp_path: Path, change: dict[str, object]
) -> None:
    store = await make_store(tmp_path)
    await store.discard([SESSION], at=AT)
    label = tmp_path / ".weft" / "trash" / NAME / "bundle.json"
    label.write_text(json.dumps({**json.loads(label.read_text()), **change}))
    before = documents(tmp_path)
    reported: list[Damage] = []
    store = FileStore(str(tmp_path), damaged=reported.append)
    assert await store.list_trash() == []
    assert [each.where for each in reported] == [str(label)]
    with pytest.raises(NotFoundError):
        await store.restore(NAME)
    assert documents(tmp_path) == before
