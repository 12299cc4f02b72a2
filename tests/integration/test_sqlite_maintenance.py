"""Maintenance of a store in a SQLite database: damage, leftovers, space, and repairs with a backup."""

import asyncio
import os
from pathlib import Path
from typing import Any

import apsw
import pytest

from weft.errors import NotFoundError, StoreError
from weft.host.now import now
from weft.model.event import MessageUpdated, PartUpdated, SessionCreated, SessionDiffed, TodoUpdated
from weft.model.ids import SessionID
from weft.model.session import Todo
from weft.store.findings import GC_LABEL, AbandonedLease, DocumentFault, SetAside
from weft.store.ownership import OwnedStore
from weft.store.sizes import SizeCounter
from weft.store.sqlite.maintenance import SqliteMaintenance
from weft.store.sqlite.store import open_sqlite_store
from weft.testing.store_samples import NOW, SESSION, growth, prompt, session, text, with_parts

OTHER = SessionID("ses_2")
LATER = 1 << 50


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def change(path: Path, sql: str, *values: Any) -> list[Any]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


async def fill(path: Path) -> None:
    async with open_sqlite_store(str(path)) as store:
        await store.apply(
            SessionCreated(info=session()),
            SessionCreated(info=session(OTHER, created=NOW + 1)),
            MessageUpdated(info=prompt()),
            PartUpdated(part=text("prt_1", "saved")),
            TodoUpdated(session_id=SESSION, todos=(Todo(content="x", status="pending", priority="low"),)),
            SessionDiffed(session_id=SESSION, diff=()),
        )


def read_backup(directory: str) -> dict[str, bytes]:
    top = Path(directory)
    return {str(each.relative_to(top)): each.read_bytes() for each in top.rglob("*") if each.is_file()}


async def list_ids(path: Path) -> list[str]:
    async with open_sqlite_store(str(path)) as store:
        return [each.id for each in await store.list_sessions()]


# --- damage ---


def test_a_file_that_is_no_longer_a_database_is_one_fault_and_a_repair_moves_it_aside(path: Path) -> None:
    assert asyncio.run(list_ids(path)) == []  # it was a store once
    path.write_bytes(b"rubbish" * 1000)
    look = SqliteMaintenance(str(path))
    fault = DocumentFault(kind="unreadable", where=str(path), reason="it is not a SQLite database")
    assert (look.is_outdated(), look.find_damage(), look.list_session_ids()) == (False, [fault], [])
    assert (look.find_orphans(), look.find_leftovers(before=LATER), look.find_large()) == ([], [], [])
    assert (look.list_abandoned(), look.list_broken_bundles()) == ([], [])
    aside = SetAside(place=f"{path}.damaged-7")
    assert look.make_repairer("doctor", now=7).set_aside(str(path)) == aside
    assert (path.parent / "sessions.db.damaged-7").read_bytes() == b"rubbish" * 1000
    assert asyncio.run(list_ids(path)) == []
    assert SqliteMaintenance(str(path)).find_damage() == []


async def fill_much(path: Path) -> None:
    async with open_sqlite_store(str(path)) as store:
        for number in range(300):
            await store.apply(
                SessionCreated(info=session(f"ses_{number:03}", created=number)),
                MessageUpdated(info=prompt(f"msg_{number}", of=f"ses_{number:03}")),
                PartUpdated(
                    part=text("prt_1", "word " * 200, of=f"msg_{number}", session=f"ses_{number:03}")
                ),
            )


def test_a_repair_keeps_what_can_still_be_read(path: Path) -> None:
    asyncio.run(fill_much(path))
    pages = path.stat().st_size // 4096
    with path.open("r+b") as file:  # overwrite a page in the middle of the parts
        [(page,)] = change(
            path, "SELECT max(pageno) FROM dbstat WHERE name = 'part' AND pageno < ?", pages // 2
        )
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    [fault] = SqliteMaintenance(str(path)).find_damage()
    assert (fault.kind, fault.where) == ("unreadable", str(path))
    aside = SetAside(place=f"{path}.damaged-7", salvaged=300)
    assert SqliteMaintenance(str(path)).make_repairer("doctor", now=7).set_aside(str(path)) == aside
    assert SqliteMaintenance(str(path)).find_damage() == []
    assert len(asyncio.run(list_ids(path))) == 300
    [(parts,)] = change(path, "SELECT count(*) FROM part")
    assert 200 < parts < 300
    assert (path.parent / "sessions.db.damaged-7").exists()


def test_a_repair_keeps_what_is_left_of_a_file_that_was_cut_off(path: Path) -> None:
    asyncio.run(fill_much(path))
    os.truncate(path, path.stat().st_size * 2 // 3 // 4096 * 4096)
    [fault] = SqliteMaintenance(str(path)).find_damage()
    assert (fault.kind, fault.where) == ("unreadable", str(path))
    aside = SqliteMaintenance(str(path)).make_repairer("doctor", now=7).set_aside(str(path))
    assert aside is not None
    assert SqliteMaintenance(str(path)).find_damage() == []
    assert len(asyncio.run(list_ids(path))) == aside.salvaged > 100


async def test_a_database_that_a_living_process_uses_is_not_moved_aside(path: Path) -> None:
    async with open_sqlite_store(str(path)):
        repairer = SqliteMaintenance(str(path)).make_repairer("doctor", now=7)
        with pytest.raises(StoreError, match="a running process uses"):
            repairer.set_aside(str(path))


def test_an_unreadable_document_is_backed_up_and_removed(path: Path) -> None:
    asyncio.run(fill(path))
    for table, condition in (("session", "id = 'ses_1'"), ("part", "true"), ("todo", "true")):
        change(path, f"UPDATE {table} SET document = x'7b' WHERE {condition}")
    look = SqliteMaintenance(str(path))
    faults = look.find_damage()
    places = [f"{path}#session/ses_1", f"{path}#part/ses_1/msg_1/prt_1", f"{path}#todo/ses_1"]
    assert [fault.where for fault in faults] == places
    assert look.list_session_ids() == [SESSION, OTHER]
    repairer = look.make_repairer("doctor", now=7)
    assert [repairer.set_aside(where) for where in places] == [
        SetAside(rebuilt_from=1),
        SetAside(),
        SetAside(),
    ]
    assert repairer.set_aside(places[1]) is None
    assert repairer.backup == f"{path}-backup/doctor-7"
    assert read_backup(repairer.backup) == {
        "session/ses_1.json": b"{",
        "part/ses_1/msg_1/prt_1.json": b"{",
        "todo/ses_1.json": b"{",
    }
    assert SqliteMaintenance(str(path)).find_damage() == []
    [rebuilt, _] = sorted(SqliteMaintenance(str(path)).reader.list_sessions(), key=lambda each: each.id)
    assert (rebuilt.id, rebuilt.project_id, rebuilt.title) == (SESSION, "p1", "Recovered session")


def test_an_unreadable_message_is_removed_with_its_parts(path: Path) -> None:
    asyncio.run(fill(path))
    change(path, "UPDATE message SET document = x'7b'")
    repairer = SqliteMaintenance(str(path)).make_repairer("doctor", now=7)
    assert repairer.set_aside(f"{path}#message/ses_1/msg_1") == SetAside(with_parts=True)
    assert sorted(read_backup(repairer.backup)) == ["message/ses_1/msg_1.json", "part/ses_1/msg_1/prt_1.json"]
    assert change(path, "SELECT count(*) FROM part") == [(0,)]


# --- leftovers ---


async def test_messages_without_a_session_are_leftovers_that_a_backup_keeps(path: Path) -> None:
    await fill(path)
    change(path, "DELETE FROM session WHERE id = 'ses_1'")
    async with open_sqlite_store(str(path)) as store:
        await store.apply(PartUpdated(part=text("prt_9", "x", of="msg_lost", session=OTHER)))
        look = SqliteMaintenance(str(path))
        gone, lost = "its session ses_1 is gone", "its message msg_lost is gone"
        found = look.find_leftovers(before=LATER)
        assert [(each.kind, each.where, each.reason) for each in found] == [
            ("message", f"{path}#message/ses_1", gone),
            ("part", f"{path}#part/ses_1", gone),
            ("diff", f"{path}#diff/ses_1", gone),
            ("todo", f"{path}#todo/ses_1", gone),
            ("part", f"{path}#part/ses_2/msg_lost", lost),
        ]
        assert all(each.bytes > 0 and each.keeping for each in found)
        assert [fault.where for fault in look.find_orphans()] == [SESSION, SESSION, SESSION, "msg_lost"]
        assert look.find_leftovers(before=NOW) == []
        result = look.make_repairer(GC_LABEL, now=LATER).remove_leftovers(found, before=LATER)
        assert (list(result.removed), result.failed) == (found, ())
        assert sorted(read_backup(result.backup)) == [
            "diff/ses_1.json",
            "message/ses_1/msg_1.json",
            "part/ses_1/msg_1/prt_1.json",
            "part/ses_2/msg_lost/prt_9.json",
            "todo/ses_1.json",
        ]
        assert SqliteMaintenance(str(path)).find_leftovers(before=LATER) == []
        assert change(path, "SELECT session FROM history") == []


async def test_a_leftover_whose_session_exists_again_is_left_alone(path: Path) -> None:
    await fill(path)
    change(path, "DELETE FROM session WHERE id = 'ses_1'")
    found = SqliteMaintenance(str(path)).find_leftovers(before=LATER)
    async with open_sqlite_store(str(path)) as store:
        await store.apply(SessionCreated(info=session()))
        repairer = SqliteMaintenance(str(path)).make_repairer(GC_LABEL, now=7)
        assert repairer.remove_leftovers(found, before=LATER).removed == ()
        assert await store.list_messages(SESSION) == [with_parts(prompt(), text("prt_1", "saved"))]


def test_unneeded_files_next_to_the_database_are_leftovers(path: Path) -> None:
    asyncio.run(fill(path))
    old = now() - 40 * 24 * 60 * 60 * 1000
    for name in ("sessions.db-new", "sessions.db-locks/1-dead.holder", f"sessions.db-backup/gc-{old}/a.json"):
        (path.parent / name).parent.mkdir(exist_ok=True, parents=True)
        (path.parent / name).write_bytes(b"x")
    look = SqliteMaintenance(str(path))
    found = look.find_leftovers(before=now() + 1000)
    assert [(each.kind, each.where) for each in found] == [
        ("temp", f"{path}-new"),
        ("lock", f"{path}-locks/1-dead.holder"),
        ("backup", f"{path}-backup/gc-{old}"),
    ]
    assert look.make_repairer(GC_LABEL, now=7).remove_leftovers(found, before=LATER).removed == tuple(found)
    assert SqliteMaintenance(str(path)).find_leftovers(before=LATER) == []


def test_garbage_collection_returns_space_to_the_system(path: Path) -> None:
    async def fill_and_purge() -> None:
        async with open_sqlite_store(str(path)) as store:
            await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
            await store.apply(PartUpdated(part=text("prt_1", "x" * 5_000_000)))
            bundle = await store.discard([SESSION], at=1)
            await store.purge(bundle.id)

    asyncio.run(fill_and_purge())
    before = path.stat().st_size
    SqliteMaintenance(str(path)).make_repairer(GC_LABEL, now=7).remove_leftovers([], before=LATER)
    assert path.stat().st_size < 1_000_000 < before


# --- sizes, leases, bundles ---


def test_sizes_are_those_of_the_file(path: Path) -> None:
    asyncio.run(fill(path))
    counter = SizeCounter()
    SqliteMaintenance(str(path)).measure(counter)
    sizes = counter.sizes()
    assert sizes.total.bytes == path.stat().st_size
    assert sorted(sizes.kinds) == ["diff", "housekeeping", "index", "message", "part", "session", "todo"]


async def test_abandoned_leases_are_listed_and_dropped(path: Path) -> None:
    await fill(path)
    insert = "INSERT INTO lease (session, owner, holder) VALUES (?, x'61', 'nobody.holder')"
    for id in (SESSION, "ses_gone"):
        change(path, insert, id)
    look = SqliteMaintenance(str(path))
    assert look.list_abandoned() == [
        AbandonedLease(session=SESSION, where=f"{path}#lease/ses_1", is_orphan=False),
        AbandonedLease(session=SessionID("ses_gone"), where=f"{path}#lease/ses_gone", is_orphan=True),
    ]
    repairer = look.make_repairer("doctor", now=7)
    assert [repairer.drop_lease(each.session) for each in look.list_abandoned()] == [True, True]
    assert look.list_abandoned() == []
    async with open_sqlite_store(str(path)) as store, store.lease(SESSION, "me"):
        assert look.list_abandoned() == []
        assert not repairer.drop_lease(SESSION)


async def test_a_bundle_that_cannot_be_restored_is_named(path: Path) -> None:
    await fill(path)
    async with open_sqlite_store(str(path)) as store:
        bundle = await store.discard([SESSION], at=1)
    change(path, "UPDATE trashed_session SET document = x'7b'")
    assert SqliteMaintenance(str(path)).list_broken_bundles() == [f"{path}#bundle/{bundle.id}"]


async def test_a_bundle_that_cannot_be_read_is_not_listed_and_can_be_purged(path: Path) -> None:
    await fill(path)
    async with open_sqlite_store(str(path)) as store:
        broken = await store.discard([SESSION, OTHER], at=NOW)
        await store.apply(SessionCreated(info=session("ses_3")))
        sound = await store.discard([SessionID("ses_3")], at=NOW + 1)
        change(
            path, "UPDATE trashed_session SET document = x'7b' WHERE bundle = ? AND position = 0", broken.id
        )
        assert await store.list_trash() == [sound]
        assert await OwnedStore(store, "ada").list_trash() == []
        with pytest.raises(NotFoundError):
            await store.read_bundle(broken.id)
        await store.purge(broken.id)
        assert await store.damage() == []
    assert change(path, "SELECT count(*) FROM trashed_session") == [(1,)]


async def test_growth_is_searched_with_the_parts(path: Path) -> None:
    async with open_sqlite_store(str(path)) as store:
        await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "tool_a")))
        await store.apply(growth("prt_1", " tool_b", 6))
        assert SqliteMaintenance(str(path)).find_in_parts("tool_[a-z]") == {"tool_a", "tool_b"}


def test_a_missing_store_has_no_faults(path: Path) -> None:
    look = SqliteMaintenance(str(path))
    assert (look.find_damage(), look.list_session_ids(), look.is_outdated()) == ([], [], False)
    assert list(path.parent.iterdir()) == []
