"""The file store with an unreadable file: it names the file, leaves it in place, and reads the rest."""

import asyncio
import json
import os
import shutil
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from given.damage import IN_ONE_DIRECTORY, allow_refusal, damaged_bytes, damaged_values, to_json
from given.file_store import files, list_documents, make_old, open_file_store
from given.session_exports import export, session_id
from weft.errors import NewerFormatError
from weft.host.now import day_of
from weft.model.event import (
    MessageUpdated,
    PartUpdated,
    SessionCreated,
    SessionDeleted,
    SessionUpdated,
)
from weft.model.ids import SessionID
from weft.model.message import MessageWithParts
from weft.model.session_query import SessionQuery
from weft.model.transfer import SessionExport
from weft.model.wire import encode
from weft.store.files.layout import Layout, session_lock
from weft.store.files.lock import RenameStep, WriteAheadNote, encode_note
from weft.store.files.store import FileStore
from weft.store.maintenance import open_maintenance
from weft.store.statistics import StatisticsQuery
from weft.testing.store_samples import (
    ANSWER,
    NOW,
    PROJECT,
    PROMPT,
    SESSION,
    answer,
    growth,
    prompt,
    session,
    text,
    with_parts,
)

OTHER = SessionID("ses_2")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
async def store(root: Path) -> FileStore:
    return await open_file_store(root)


BROKEN = {
    "cut short": b'{\n  "id": "ses_1", "ti',
    "empty": b"",
    "nothing but NUL": b"\x00" * 300,
    "another type": b'["not", "an", "object"]',
    "null": b"null",
    "not text": bytes(range(128, 256)),
    "too deep": b"[" * 100_000,
    "an empty object": b"{}",
}


async def fill(store: FileStore) -> None:
    await store.apply(SessionCreated(info=session()), SessionCreated(info=session(OTHER, created=NOW + 1)))
    await store.apply(MessageUpdated(info=prompt()), MessageUpdated(info=answer()))
    await store.apply(*(PartUpdated(part=text(f"prt_{each}", each)) for each in "abc"))


@pytest.mark.parametrize("how", BROKEN)
async def test_a_broken_file_is_named_and_hides_no_other(root: Path, store: FileStore, how: str) -> None:
    await fill(store)
    for name in ("session/p1/ses_2.json", "message/ses_1/msg_2.json", "part/msg_1/prt_b.json"):
        (root / name).write_bytes(BROKEN[how])
        make_old(root / name)
    assert await store.list_sessions() == [session()]
    parts = text("prt_a", "a"), text("prt_c", "c")
    assert await store.list_messages(SESSION) == [with_parts(prompt(), *parts)]
    assert await store.find_message(SESSION, ANSWER) is None
    damaged = await store.damage()
    assert {each.where for each in damaged} == {
        str(root / "session/p1/ses_2.json"),
        str(root / "message/ses_1/msg_2.json"),
        str(root / "part/msg_1/prt_b.json"),
    }
    assert all(each.reason for each in damaged)
    assert (root / "part/msg_1/prt_b.json").read_bytes() == BROKEN[how]


async def test_a_broken_document_can_be_replaced_and_deleted(root: Path, store: FileStore) -> None:
    await fill(store)
    for name in ("session/p1/ses_1.json", "message/ses_1/msg_1.json", "part/msg_1/prt_b.json"):
        (root / name).write_bytes(b"\x00")
    await store.apply(PartUpdated(part=text("prt_b", "again")), MessageUpdated(info=prompt()))
    found = await store.find_message(SESSION, PROMPT)
    assert found == with_parts(prompt(), text("prt_a", "a"), text("prt_b", "again"), text("prt_c", "c"))
    await store.apply(SessionDeleted(info=session()))
    assert list_documents(root) == {"migration", "session/p1/ses_2.json"}
    assert await store.damage() == []


async def test_a_file_that_is_not_a_document_is_named_and_left_alone(root: Path, store: FileStore) -> None:
    await fill(store)
    strangers = {
        "message/ses_1/msg_3.json.tmp": "not a document",
        "part/msg_1/notes.txt": "not a document",
        "part/msg_1/with space.json": "its name is not an id",
        "session/stray.json": "not a directory",
    }
    for name in strangers:
        (root / name).write_text("{")
    (root / "message/ses_1/msg_4.json").mkdir()
    (root / "todo").write_text("a file where a directory should be")
    expected = [(str(root / name), reason) for name, reason in strangers.items()]
    expected += [
        (str(root / "message/ses_1/msg_4.json"), "not a document"),
        (str(root / "todo"), "Not a directory"),
    ]
    assert [len(each.parts) for each in await store.list_messages(SESSION)] == [3, 0]
    assert len(await store.list_sessions()) == 2
    assert await store.list_todos(SESSION) == []
    assert sorted((each.where, each.reason) for each in await store.damage()) == sorted(expected)


@pytest.mark.parametrize("kind", ["message", "part"])
async def test_a_link_to_itself_in_place_of_a_directory_hides_no_other(
    root: Path, store: FileStore, kind: str
) -> None:
    await fill(store)
    directory = next((root / kind).iterdir())
    shutil.rmtree(directory)
    directory.symlink_to(directory)
    expected = [] if kind == "message" else [with_parts(prompt()), with_parts(answer())]
    for last in (None, 5, None):
        assert await store.list_messages(SESSION, last=last) == expected
    assert str(directory) in [each.where for each in await store.damage()]


@pytest.mark.parametrize("name", ["session/loop", "session/p1/loop.json", "message/ses_1/loop.json"])
async def test_a_link_to_itself_among_documents_hides_no_other(
    root: Path, store: FileStore, name: str
) -> None:
    await fill(store)
    (root / name).symlink_to(root / name)
    assert [each.id for each in await store.list_sessions()] == [SESSION, OTHER]
    assert await store.list_sessions(PROJECT) == await store.list_sessions()
    assert [each.info.id for each in await store.list_messages(SESSION)] == [PROMPT, ANSWER]
    await store.damage()


async def test_a_pipe_in_place_of_a_document_does_not_hang(root: Path, store: FileStore) -> None:
    await fill(store)
    (root / "part/msg_1/prt_a.json").unlink()
    os.mkfifo(root / "part/msg_1/prt_a.json")
    [first, _] = await store.list_messages(SESSION)
    assert [part.id for part in first.parts] == ["prt_b", "prt_c"]


TWO = (export(1, turns=2), export(2, turns=2))


async def write_sessions(root: Path, *sessions: SessionExport) -> None:
    store = await open_file_store(root)
    with closing(store):
        await apply_sessions(store, *sessions)


async def apply_sessions(store: FileStore, *sessions: SessionExport) -> None:
    for each in sessions:
        await store.apply(SessionCreated(info=each.info))
        for message in each.messages:
            parts = (PartUpdated(part=part) for part in message.parts)
            await store.apply(MessageUpdated(info=message.info), *parts)
        await store.put_value(("note", each.info.id), {"a": [1]})


def damage_files(root: Path, names: list[str], data: st.DataObject) -> set[str]:
    """Damage some files: with odd values if they are JSON, else their bytes."""
    damaged = set(data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)))
    for name in sorted(damaged):
        raw = (root / name).read_bytes()
        if name.endswith(".json") and data.draw(st.booleans()):
            raw = to_json(data.draw(damaged_values(json.loads(raw))))
        else:
            raw = data.draw(damaged_bytes(raw))
        (root / name).write_bytes(raw)
        make_old(root / name)
    return damaged


async def read_everything(store: FileStore) -> dict[SessionID, list[MessageWithParts]]:
    found = {each.id: await store.list_messages(each.id) for each in await store.list_sessions()}
    for id in found:
        await store.get_session(id)
        await store.list_todos(id)
        await store.list_diff(id)
        await store.read_chain(id)
        encode(await store.find_value(("note", id)))
    await store.query_sessions(SessionQuery(limit=10))
    await store.search("prompt", limit=10)
    await store.figures(StatisticsQuery(day_of=day_of))
    return found


def check_undamaged(
    found: dict[SessionID, list[MessageWithParts]], damaged: set[str], *sessions: SessionExport
) -> None:
    """Check that whatever these sessions have in files that are not damaged was read."""
    for each in sessions:
        if f"session/there/{each.info.id}.json" in damaged:
            continue
        messages = {message.info.id: message for message in found[each.info.id]}
        for message in each.messages:
            if f"message/{each.info.id}/{message.info.id}.json" not in damaged:
                parts = {part.id: part for part in messages[message.info.id].parts}
                assert messages[message.info.id].info == message.info
                whole_parts = [
                    part for part in message.parts if f"part/{message.info.id}/{part.id}.json" not in damaged
                ]
                assert [parts[part.id] for part in whole_parts] == whole_parts


def check_maintenance(root: Path, cache: Path) -> None:
    stored = open_maintenance(f"file:{root}", cache=str(cache))
    stored.check_format()
    for fault in [*stored.find_damage(), *stored.find_orphans()]:
        assert fault.where
    for id in stored.list_session_ids():
        stored.find_misplaced(id)
        stored.read_chain(id)
    stored.find_large()
    stored.find_in_parts("prompt")


@given(data=st.data())
@IN_ONE_DIRECTORY
def test_whatever_the_files_contain_the_others_are_read_and_can_be_written(
    tmp_path: Path, data: st.DataObject
) -> None:
    good, root = tmp_path / "good", tmp_path / "storage"
    if not good.exists():
        asyncio.run(write_sessions(good, *TWO))
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(good, root)
    damaged = damage_files(root, sorted(list_documents(root)), data)

    async def use() -> None:
        store = await open_file_store(root)
        with closing(store):
            await check(store)

    async def check(store: FileStore) -> None:
        check_undamaged(await read_everything(store), damaged, *TWO)
        check_maintenance(root, tmp_path / "cache")
        new = text("prt_new", "new", of=TWO[0].messages[0].info.id, session=session_id(1))
        await store.apply(PartUpdated(part=new))
        await store.apply(SessionCreated(info=session("ses_3")), MessageUpdated(info=prompt(of="ses_3")))
        assert await store.list_messages(SessionID("ses_3")) == [with_parts(prompt(of="ses_3"))]

    with allow_refusal(NewerFormatError):  # the damaged file may be the one with the number of the format
        asyncio.run(use())


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"session"', b'"ession"'), (b'"part/msg_1/prt_c"', b'"part/.."'), (b"0000", b"1" * 5000)],
)
async def test_a_damaged_chain_stops_no_reader_and_no_writer(
    root: Path, store: FileStore, old: bytes, new: bytes
) -> None:
    await fill(store)
    await store.apply(PartUpdated(part=text("prt_c", "c")))
    for id in (SESSION, OTHER):
        path = root / ".weft" / "chain" / id
        path.write_bytes(path.read_bytes().replace(old, new))
    fresh = await open_file_store(root)
    (root / ".weft" / "temp").mkdir(exist_ok=True)
    (root / ".weft" / "temp" / "session.ses_1~left").write_bytes(encode(text("prt_c", "c")))
    assert (await fresh.read_chain(SESSION)).lines
    await fresh.read_chain(OTHER)
    await fresh.apply(SessionUpdated(info=session(OTHER)), PartUpdated(part=text("prt_d", "d")))
    [first, _] = await fresh.list_messages(SESSION)
    assert [part.id for part in first.parts] == ["prt_a", "prt_b", "prt_c", "prt_d"]


SOME = [SessionID(f"ses_some_{number}") for number in range(3)]


async def write_own_files(root: Path) -> None:
    """Write a store with a file of every kind that only weft writes."""
    store = await open_file_store(root)
    with closing(store):
        await apply_sessions(store, TWO[0])
        await store.apply(*(SessionCreated(info=session(id)) for id in SOME))
        await store.apply(SessionCreated(info=session(SESSION)), MessageUpdated(info=prompt()))
        await store.apply(PartUpdated(part=text("prt_a", "a")))
        await store.apply(growth("prt_a", "b", 1))
        await store.apply(growth("prt_a", "c", 2))
        await store.discard([SOME[0]], at=NOW)
        await store.append_log(("audit",), lambda _: [b'{"a": 1}', b'{"b": 2}'])
        await store.put_value(("permission", "p1"), {"a": 1})
    write_leftovers(Layout(str(root)))


def write_leftovers(layout: Layout) -> None:
    """Write what dead processes leave, and the order of a project, which only large ones have."""
    project, lock = session().project_id, session_lock(SOME[2])
    temp, todo = layout.temp(lock, "prepared"), layout.todo(SOME[2])
    note = WriteAheadNote((lock,), (RenameStep("in", layout.relative(temp), layout.relative(todo)),))
    leftovers = {
        layout.lease(SOME[1]): b"123",
        f"{layout.lease(SOME[1])}.owner": b"node 1",
        temp: b"[]",
        layout.note(lock): encode_note(note),
        f"{layout.order(project)}/order.json": b'[[-%d,"ses_some_1",null]]' % NOW,
        f"{layout.order(project)}/changes": b"ses_some_2\n",
    }
    for path, raw in leftovers.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).write_bytes(raw)


def damage_own_files(root: Path, names: list[str], data: st.DataObject) -> None:
    """Damage some files. The checksum of a write-ahead note is made to fit again."""
    for name in sorted(set(data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)))):
        raw = (root / name).read_bytes()
        if "/redo/" in name and data.draw(st.booleans()):
            raw = to_json(data.draw(damaged_values(json.loads(raw.partition(b" ")[2]))))
            raw = b"%08x %s" % (zlib.crc32(raw), raw)
        elif name.endswith(".json") and data.draw(st.booleans()):
            raw = to_json(data.draw(damaged_values(json.loads(raw))))
        else:
            raw = data.draw(damaged_bytes(raw, [b"9" * 5000, b" ", b"0" * 64]))
        (root / name).write_bytes(raw)
        make_old(root / name)


async def use_own_files(store: FileStore) -> None:
    for each in await store.list_trash():
        await store.read_bundle(each.id)
        await store.restore(each.id)
    await store.list_abandoned()
    await store.find_holder(SOME[1])
    async with store.lease(SOME[1], "me"):
        pass
    await store.query_sessions(SessionQuery(order="created", limit=5))
    await store.query_sessions(SessionQuery(parent_id=SOME[2]))
    await store.append_log(("audit",), lambda last: [last or b"", b"new"])
    assert (await store.read_log(("audit",)))[-1] == b"new"
    await store.list_todos(SOME[2])
    await store.apply(growth("prt_a", "d", 3))
    await store.update_value(("permission", "p1"), lambda _: 1)
    await store.apply(SessionDeleted(info=session(SESSION)))


@given(data=st.data())
@IN_ONE_DIRECTORY
def test_whatever_its_own_files_contain_a_store_reads_its_documents_and_can_be_written(
    tmp_path: Path, data: st.DataObject
) -> None:
    good, root = tmp_path / "good", tmp_path / "storage"
    if not good.exists():
        asyncio.run(write_own_files(good))
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(good, root)
    damage_own_files(root, sorted(files(root) - list_documents(root)), data)

    async def use() -> None:
        store = await open_file_store(root)
        with closing(store):
            check_undamaged(await read_everything(store), set(), TWO[0])
            check_maintenance(root, tmp_path / "cache")
            await use_own_files(store)
            await apply_sessions(store, TWO[1])
            check_undamaged(await read_everything(store), set(), *TWO)

    asyncio.run(use())
