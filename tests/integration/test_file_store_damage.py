"""The file store with an unreadable file: it names the file, leaves it in place, and reads the rest."""

import os
from pathlib import Path

import pytest

from given.file_store import list_documents, make_old, open_file_store
from weft.model.event import (
    MessageUpdated,
    PartUpdated,
    SessionCreated,
    SessionDeleted,
)
from weft.model.ids import SessionID
from weft.store.files.store import FileStore
from weft.testing.store_values import (
    ANSWER,
    NOW,
    PROMPT,
    SESSION,
    answer,
    prompt,
    session,
    text,
    whole,
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


async def full(store: FileStore) -> None:
    await store.apply(SessionCreated(info=session()), SessionCreated(info=session(OTHER, created=NOW + 1)))
    await store.apply(MessageUpdated(info=prompt()), MessageUpdated(info=answer()))
    await store.apply(*(PartUpdated(part=text(f"prt_{each}", each)) for each in "abc"))


@pytest.mark.parametrize("how", BROKEN)
async def test_a_broken_file_is_named_and_hides_no_other(root: Path, store: FileStore, how: str) -> None:
    await full(store)
    for name in ("session/p1/ses_2.json", "message/ses_1/msg_2.json", "part/msg_1/prt_b.json"):
        (root / name).write_bytes(BROKEN[how])
        make_old(root / name)
    assert await store.list_sessions() == [session()]
    parts = text("prt_a", "a"), text("prt_c", "c")
    assert await store.list_messages(SESSION) == [whole(prompt(), *parts)]
    assert await store.find_message(SESSION, ANSWER) is None
    damaged = await store.damage()
    assert {each.where for each in damaged} == {
        str(root / "session/p1/ses_2.json"),
        str(root / "message/ses_1/msg_2.json"),
        str(root / "part/msg_1/prt_b.json"),
    }
    assert all(each.reason for each in damaged)
    assert (root / "part/msg_1/prt_b.json").read_bytes() == BROKEN[how]


async def test_what_is_broken_can_be_replaced_and_deleted(root: Path, store: FileStore) -> None:
    await full(store)
    for name in ("session/p1/ses_1.json", "message/ses_1/msg_1.json", "part/msg_1/prt_b.json"):
        (root / name).write_bytes(b"\x00")
    await store.apply(PartUpdated(part=text("prt_b", "again")), MessageUpdated(info=prompt()))
    found = await store.find_message(SESSION, PROMPT)
    assert found == whole(prompt(), text("prt_a", "a"), text("prt_b", "again"), text("prt_c", "c"))
    await store.apply(SessionDeleted(info=session()))
    assert list_documents(root) == {"migration", "session/p1/ses_2.json"}
    assert await store.damage() == []


async def test_a_file_that_is_not_a_document_is_named_and_left_alone(root: Path, store: FileStore) -> None:
    await full(store)
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


async def test_a_pipe_in_place_of_a_document_does_not_hang(root: Path, store: FileStore) -> None:
    await full(store)
    (root / "part/msg_1/prt_a.json").unlink()
    os.mkfifo(root / "part/msg_1/prt_a.json")
    [first, _] = await store.list_messages(SESSION)
    assert [part.id for part in first.parts] == ["prt_b", "prt_c"]
