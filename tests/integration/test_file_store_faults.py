"""The file store when the disk fails: nothing is half done, reads work, and writes work again without a restart."""

import json
import shutil
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from given.failing_disk import FailingDisk, limit_file_size
from weft.errors import StoreError
from weft.model.event import (
    Durable,
    MessageRemoved,
    MessageUpdated,
    PartUpdated,
    SessionCreated,
    SessionDeleted,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import SessionID
from weft.model.session import Todo
from weft.store.contract import Store
from weft.store.files.store import FileStore
from weft.testing.store_samples import PROMPT, SESSION, answer, growth, prompt, session, text

OTHER = SessionID("ses_2")


BEFORE: list[Durable] = [
    SessionCreated(info=session()),
    SessionCreated(info=session(OTHER)),
    MessageUpdated(info=prompt()),
    PartUpdated(part=text("prt_1", "one")),
    PartUpdated(part=text("prt_2", "two")),
]
BATCHES: dict[str, list[Durable]] = {
    "a new session": [SessionCreated(info=session("ses_3"))],
    "a prompt": [MessageUpdated(info=answer()), PartUpdated(part=text("prt_3", "new", of="msg_2"))],
    "replacing": [PartUpdated(part=text("prt_1", "other")), PartUpdated(part=text("prt_2", "words"))],
    "growth": [growth("prt_1", " more", 3)],
    "growth again": [growth("prt_2", " still", 8)],
    "growth beside a part": [growth("prt_1", " more", 3), PartUpdated(part=text("prt_4", "x"))],
    "replacing what grew": [PartUpdated(part=text("prt_2", "short"))],
    "taking back what grew": [PartUpdated(part=text("prt_2", "two"))],
    "a message removed": [MessageRemoved(session_id=SESSION, message_id=PROMPT)],
    "a session moved": [SessionUpdated(info=session(project="p2"))],
    "a session deleted": [SessionDeleted(info=session())],
    "two sessions": [
        SessionUpdated(info=session(title="a")),
        SessionUpdated(info=session(OTHER, title="b")),
        TodoUpdated(session_id=OTHER, todos=(Todo(content="c", status="pending", priority="low"),)),
    ],
    "out and in again": [SessionDeleted(info=session()), SessionCreated(info=session()), *BEFORE[2:4]],
}


async def read_all(store: Store) -> list[Any]:
    sessions = await store.list_sessions()
    messages = [await store.list_messages(id) for id in (SESSION, OTHER)]
    return [sessions, messages, await store.list_todos(OTHER), await store.damage()]


async def open_store(root: Path) -> FileStore:
    store = FileStore(str(root))
    await store.prepare(lambda _: None)
    return store


async def make_store(root: Path) -> Path:
    store = await open_store(root)
    await store.apply(*BEFORE)
    await store.apply(growth("prt_2", " grown", 3))
    return root


@pytest.mark.parametrize("name", BATCHES)
async def test_whichever_step_fails_nothing_is_half_done_and_the_next_write_works(
    tmp_path: Path, name: str
) -> None:
    template = await make_store(tmp_path / "template")
    before = await read_all(FileStore(str(template)))
    after_root = Path(shutil.copytree(template, tmp_path / "after"))
    await FileStore(str(after_root)).apply(*BATCHES[name])
    after = await read_all(FileStore(str(after_root)))
    for at in count(1):
        root = Path(shutil.copytree(template, tmp_path / f"fails{at}"))
        disk = FailingDisk(at)
        store = FileStore(str(root), disk=disk)
        try:
            await store.apply(*BATCHES[name])
            raised = False
        except StoreError:
            raised = True
        found = await read_all(store)
        assert found in ([before, after] if raised else [after]), f"step {at}"
        if not disk.failed:
            break
        await store.apply(*BATCHES[name])
        assert await read_all(store) == after, f"step {at}, again"
        assert await read_all(await open_store(root)) == after, f"step {at}, opened again"
        assert list_leftovers(root) == [], f"step {at}"


@pytest.mark.parametrize("name", BATCHES)
async def test_a_disk_that_fails_for_good_leaves_a_tree_that_another_process_can_open(
    tmp_path: Path, name: str
) -> None:
    template = await make_store(tmp_path / "template")
    before = await read_all(FileStore(str(template)))
    after_root = Path(shutil.copytree(template, tmp_path / "after"))
    await FileStore(str(after_root)).apply(*BATCHES[name])
    after = await read_all(FileStore(str(after_root)))
    for at in count(1):
        root = Path(shutil.copytree(template, tmp_path / f"fails{at}"))
        disk = FailingDisk(at, forever=True)
        store = FileStore(str(root), disk=disk)
        try:
            await store.apply(*BATCHES[name])
        except StoreError:
            await read_all(store)  # reading does not raise
        assert await read_all(await open_store(root)) in (before, after), f"step {at}"
        assert list_leftovers(root) == [], f"step {at}"
        if not disk.failed:
            break


def list_leftovers(root: Path) -> list[str]:
    own = root / ".weft"
    return [path.name for place in ("redo", "temp") for path in (own / place).glob("*")]


# --- the machine itself says no ---


async def test_a_truncated_write_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    store = await open_store(await make_store(tmp_path / "storage"))
    before = await read_all(store)
    with limit_file_size(50_000):
        for batch in (
            [PartUpdated(part=text("prt_1", "x" * 100_000))],
            [PartUpdated(part=text("prt_1", "y")), PartUpdated(part=text("prt_9", "x" * 100_000))],
            [growth("prt_1", "x" * 100_000, 3)],
        ):
            with pytest.raises(StoreError, match="File too large"):
                await store.apply(*batch)
            assert await read_all(store) == before
        await store.apply(growth("prt_1", " small", 3))
    assert list_leftovers(tmp_path / "storage") == []
    await store.apply(growth("prt_1", "x" * 100_000, 9))
    [message] = await store.list_messages(SESSION)
    assert message.parts[0] == text("prt_1", "one small" + "x" * 100_000)


READ_ONLY = Path(__file__).parents[1] / "given" / "read_only_store.py"


def read_without_permission(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(READ_ONLY), url], capture_output=True, text=True, check=False)


def set_modes(place: Path, *, directories: int, files: int) -> None:
    for path in (place, *place.rglob("*")):
        path.chmod(directories if path.is_dir() else files)


@pytest.mark.parametrize("format", ["2", "1"])
async def test_a_directory_that_cannot_be_written_can_be_read(format: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = await make_store(Path(place) / "storage")
        (root / "migration").write_text(format)
        set_modes(Path(place), directories=0o555, files=0o444)
        ended = read_without_permission(f"file:{root}")
        set_modes(Path(place), directories=0o755, files=0o644)
    assert ended.stderr == ""
    assert json.loads(ended.stdout) == {
        "sessions": 2,
        "texts": ["one", "two grown"],
        "damage": [] if format == "2" else ["not upgraded: Permission denied"],
        "refused": [
            "StoreError: reading may still work; to write, change the permissions or point --store at another place"
        ]
        * 2,
    }
