"""The file store on a real directory: its layout, changes by other programs, and its guarantees."""

import asyncio
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from given.file_store import files, list_documents, make_old, open_file_store
from weft.errors import InvalidIdError, NewerFormatError
from weft.host.files import Disk, hold_lock
from weft.model.damage import Damage
from weft.model.diff import FileDiff
from weft.model.event import (
    MessageRemoved,
    MessageUpdated,
    PartUpdated,
    ProjectUpdated,
    SessionCreated,
    SessionDeleted,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import AssistantTime
from weft.model.project import Project, ProjectTime
from weft.model.session import Todo
from weft.store.files.layout import VALUE_LOCKS
from weft.store.files.store import FileStore
from weft.store.files.tree import Tree
from weft.testing.store_samples import (
    ANSWER,
    NOW,
    PROJECT,
    SESSION,
    answer,
    find_text,
    growth,
    prompt,
    session,
    text,
)

OTHER = SessionID("ses_2")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
async def store(root: Path) -> FileStore:
    return await open_file_store(root)


def modes(root: Path) -> set[tuple[bool, int]]:
    return {(path.is_file(), stat.S_IMODE(path.stat().st_mode)) for path in (root, *root.rglob("*"))}


# --- where things lie ---


async def test_documents_are_where_opencode_expects_them(root: Path, store: FileStore) -> None:
    await store.apply(
        ProjectUpdated(info=Project(id=PROJECT, worktree="/w", time=ProjectTime(created=1))),
        SessionCreated(info=session()),
        MessageUpdated(info=prompt()),
        PartUpdated(part=text("prt_1", "a")),
        SessionDiffed(session_id=SESSION, diff=()),
        TodoUpdated(session_id=SESSION, todos=()),
    )
    await store.apply(growth("prt_1", "b", 1))
    await store.put_value(("session_share", SESSION), {"secret": "s"})
    await store.put_value(("permission", PROJECT), [])
    await store.put_value(("lease", SESSION), 1)
    assert list_documents(root) == {
        "migration",
        "project/p1.json",
        "session/p1/ses_1.json",
        "message/ses_1/msg_1.json",
        "part/msg_1/prt_1.json",
        "session_diff/ses_1.json",
        "todo/ses_1.json",
        "session_share/ses_1.json",
        "permission/p1.json",
    }
    assert ".weft/kept/lease/ses_1.json" in files(root)


async def test_documents_are_formatted_like_those_of_opencode(root: Path, store: FileStore) -> None:
    await store.apply(PartUpdated(part=text("prt_1", "a")))
    assert (root / "part/msg_1/prt_1.json").read_bytes() == (
        b'{\n  "type": "text",\n  "id": "prt_1",\n  "sessionID": "ses_1",\n  "messageID": "msg_1",\n  "text": "a"\n}'
    )
    assert (root / "migration").read_bytes() == b"2"


async def test_stored_files_are_private_to_their_owner(root: Path, store: FileStore) -> None:
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    await store.apply(PartUpdated(part=text("prt_1", "")))
    await store.apply(growth("prt_1", "b", 0))
    assert modes(root) == {(True, 0o600), (False, 0o700)}


async def test_a_deleted_session_leaves_no_file(root: Path, store: FileStore) -> None:
    await store.apply(
        SessionCreated(info=session()),
        MessageUpdated(info=prompt()),
        PartUpdated(part=text("prt_1", "a")),
        PartUpdated(part=text("prt_2", "never had a message", of="msg_lost")),
        SessionDiffed(session_id=SESSION, diff=(FileDiff(file="f", additions=1, deletions=1),)),
        TodoUpdated(session_id=SESSION, todos=(Todo(content="x", status="pending", priority="low"),)),
    )
    await store.apply(growth("prt_1", "b", 1))
    await store.apply(SessionDeleted(info=session()))
    assert files(root) == {"migration", ".weft/lock/upgrade"}
    assert [path for path in (root / "part", root / "message", root / "session/p1") if path.exists()] == []


async def test_values_leave_a_bounded_number_of_lock_files(root: Path, store: FileStore) -> None:
    for number in range(100):
        await store.put_value(("share", f"s{number}"), number)
        assert await store.update_value(("a", f"{number}"), lambda _: 1) == 1
    assert len([name for name in files(root) if name.startswith(".weft/lock/value.")]) <= VALUE_LOCKS


async def test_parts_left_behind_by_opencode_are_removed_with_their_session(
    root: Path, store: FileStore
) -> None:
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    await store.apply(PartUpdated(part=text("prt_1", "a")))
    await store.apply(MessageUpdated(info=prompt("msg_9", of=OTHER)))
    await store.apply(PartUpdated(part=text("prt_9", "other", of="msg_9", session=OTHER)))
    (root / "message/ses_1/msg_1.json").unlink()
    await store.apply(SessionDeleted(info=session()))
    assert list_documents(root) == {"migration", "message/ses_2/msg_9.json", "part/msg_9/prt_9.json"}


async def test_ids_that_are_paths_are_refused_and_nothing_is_written(root: Path, store: FileStore) -> None:
    before = files(root.parent)
    evil = "../../../evil"
    for event in (
        SessionCreated(info=session(evil)),
        SessionCreated(info=session(project=evil)),
        SessionDeleted(info=session(evil)),
        MessageUpdated(info=prompt(evil)),
        PartUpdated(part=text(evil, "x")),
        PartUpdated(part=text("prt_1", "x", of=evil)),
        growth(evil, "x", 0),
        MessageRemoved(session_id=SESSION, message_id=MessageID(evil)),
        ProjectUpdated(info=Project(id=ProjectID(evil), worktree="/", time=ProjectTime(created=1))),
    ):
        with pytest.raises(InvalidIdError):
            await store.apply(SessionCreated(info=session("ses_good")), event)
    with pytest.raises(InvalidIdError):
        await store.put_value(("lease", evil), 1)
    with pytest.raises(InvalidIdError):
        await store.update_value(("lease", evil), lambda _: 1)
    with pytest.raises(InvalidIdError):
        await store.get_session(SessionID(evil))
    with pytest.raises(InvalidIdError):
        await store.find_message(SESSION, MessageID(evil))
    assert {name for name in files(root.parent) - before if "/lock/" not in name} == set()


# --- documents that others wrote ---


async def test_a_session_without_a_project_belongs_to_that_of_its_directory(
    root: Path, store: FileStore
) -> None:
    await store.apply(SessionCreated(info=session()))
    path = root / "session/p1/ses_1.json"
    document = json.loads(path.read_bytes())
    del document["projectID"]
    path.write_text(json.dumps(document))
    assert await store.get_session(SESSION) == session()
    assert await store.list_sessions(PROJECT) == [session()]


async def test_a_move_interrupted_by_opencode_is_one_session_and_is_repaired(
    root: Path, store: FileStore
) -> None:
    await store.apply(SessionCreated(info=session()))
    twin = root / "session/global/ses_1.json"
    twin.parent.mkdir()
    twin.write_bytes((root / "session/p1/ses_1.json").read_bytes())
    newer = replace(session(title="newer"), time=replace(session().time, updated=NOW + 1))
    (root / "session/p1/ses_1.json").write_bytes(json.dumps(plain_session(newer)).encode())
    assert await store.list_sessions() == [newer]
    assert await store.get_session(SESSION) == newer
    await store.edit(SESSION, lambda known: replace(known, title="healed"))
    assert await store.list_sessions() == [replace(newer, title="healed")]
    assert not twin.exists()


def plain_session(info: Any) -> Any:
    return {
        "id": info.id,
        "slug": info.slug,
        "version": info.version,
        "projectID": info.project_id,
        "directory": info.directory,
        "title": info.title,
        "time": {"created": info.time.created, "updated": info.time.updated},
        "summary": {"additions": 1, "deletions": 2, "files": 3},
    }


async def test_documents_rewritten_by_opencode_are_seen_by_the_next_read(
    root: Path, store: FileStore
) -> None:
    await store.apply(SessionCreated(info=session(title="0000")))
    path = root / "session/p1/ses_1.json"
    for number in range(200):
        path.write_bytes(path.read_bytes().replace(b"%04d" % number, b"%04d" % (number + 1)))
        assert (await store.get_session(SESSION)).title == f"{number + 1:04}"


async def test_a_cached_document_is_read_again_after_a_change(root: Path, store: FileStore) -> None:
    await store.apply(SessionCreated(info=session(title="one")))
    path = root / "session/p1/ses_1.json"
    make_old(path)
    first = await store.get_session(SESSION)
    assert await store.get_session(SESSION) is first
    await (await open_file_store(root)).apply(SessionUpdated(info=session(title="two")))
    assert await store.get_session(SESSION) == session(title="two")
    path.unlink()
    assert await store.list_sessions() == []


# --- growth ---


async def test_growth_does_not_rewrite_the_part(root: Path, store: FileStore) -> None:
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "")))
    before = (root / "part/msg_1/prt_1.json").stat()
    for number in range(500):
        await store.apply(growth("prt_1", "0123456789", number * 10))
    after = (root / "part/msg_1/prt_1.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert (root / ".weft/growth/msg_1/prt_1").stat().st_size < 500 * 60
    assert await find_text(store) == "0123456789" * 500
    await store.apply(PartUpdated(part=text("prt_1", "done")))
    assert not (root / ".weft/growth/msg_1").exists()


async def test_growth_of_a_part_that_opencode_replaced_is_ignored(root: Path, store: FileStore) -> None:
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "old")))
    await store.apply(growth("prt_1", " grown", 3))
    path = root / "part/msg_1/prt_1.json"
    path.write_bytes(path.read_bytes().replace(b'"old"', b'"new"'))
    assert await find_text(store) == "new"
    await store.apply(growth("prt_1", "er", 3))
    assert await find_text(store) == "newer"


async def test_truncated_growth_counts_up_to_the_cut(root: Path, store: FileStore) -> None:
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "a")))
    await store.apply(growth("prt_1", "b", 1))
    path = root / ".weft/growth/msg_1/prt_1"
    whole_lines = path.read_bytes()
    await store.apply(growth("prt_1", "c" * 100, 2))
    path.write_bytes(path.read_bytes()[:-50])
    assert await find_text(store) == "ab"
    await store.apply(growth("prt_1", "d", 2))
    assert await find_text(store) == "abd"
    assert path.read_bytes().startswith(whole_lines)
    for broken in (b"", b"\x00" * 50, whole_lines[:5], whole_lines + b"nonsense\n"):
        path.write_bytes(broken)
        assert await find_text(store) in ("a", "ab")
    assert await store.damage() == []


# --- flushing ---


class WatchedDisk(Disk):
    """Records which files were flushed."""

    def __init__(self) -> None:
        self.flushed: set[str] = set()

    def move(self, source: str, target: str) -> list[str]:
        if source in self.flushed:
            self.flushed.add(target)
        return super().move(source, target)

    def flush(self, path: str) -> None:
        self.flushed.add(path)
        super().flush(path)


async def test_a_prompt_is_flushed_with_its_parts_and_directories(root: Path) -> None:
    disk = WatchedDisk()
    store = await open_file_store(root, disk)
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "a")))
    wanted = [
        "message/ses_1/msg_1.json",
        "message/ses_1",
        "message",
        "part/msg_1/prt_1.json",
        "part/msg_1",
        "part",
    ]
    assert {str(root / name) for name in wanted} <= disk.flushed


async def test_a_completed_message_is_flushed_with_its_parts(root: Path) -> None:
    disk = WatchedDisk()
    store = await open_file_store(root, disk)
    disk.flushed.clear()
    await store.apply(MessageUpdated(info=answer()), PartUpdated(part=text("prt_1", "", of=ANSWER)))
    await store.apply(growth("prt_1", "a", 0, of=ANSWER))
    await store.apply(PartUpdated(part=text("prt_2", "b", of=ANSWER)))
    await store.apply(PartUpdated(part=text("prt_9", "of another session", of="msg_9", session=OTHER)))
    assert disk.flushed == set()
    done = replace(answer(), time=AssistantTime(created=NOW + 1, completed=NOW + 2))
    await store.apply(MessageUpdated(info=done))
    wanted = [
        "message/ses_1/msg_2.json",
        "part/msg_2/prt_1.json",
        "part/msg_2/prt_2.json",
        ".weft/growth/msg_2/prt_1",
    ]
    assert {str(root / name) for name in wanted} <= disk.flushed
    assert not any("msg_9" in path for path in disk.flushed)


# --- among processes ---


async def test_writes_to_different_sessions_do_not_wait_for_each_other(root: Path, store: FileStore) -> None:
    await store.apply(SessionCreated(info=session()), SessionCreated(info=session(OTHER)))
    with hold_lock(f"{root}/.weft/lock/session.ses_1"):
        async with asyncio.timeout(60):
            await store.apply(SessionUpdated(info=session(OTHER, title="free")))
            await open_file_store(root)
            assert (await store.get_session(OTHER)).title == "free"
        waiting = asyncio.ensure_future(store.apply(SessionUpdated(info=session(title="waits"))))
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
    await waiting
    assert (await store.get_session(SESSION)).title == "waits"


async def test_a_tree_of_a_newer_format_is_refused(root: Path, store: FileStore) -> None:
    (root / "migration").write_text("3")
    with pytest.raises(NewerFormatError):
        await open_file_store(root)


# --- without an event loop ---


async def test_the_tree_lists_sessions_and_reports_what_it_skipped(root: Path, store: FileStore) -> None:
    await store.apply(SessionCreated(info=session()), SessionCreated(info=session(OTHER, created=NOW + 1)))
    (root / "session/p1/ses_3.json").write_bytes(b"\x00")
    tree = Tree(str(root))
    assert tree.list_sessions() == [session(), session(OTHER, created=NOW + 1)]
    assert tree.list_sessions(ProjectID("p2")) == []
    assert tree.find_session(SESSION) == session()
    assert tree.find_session(SessionID("ses_none")) is None
    [problem] = tree.problems()
    assert isinstance(problem, Damage)
    assert problem.where == str(root / "session/p1/ses_3.json")


def test_listing_the_tree_imports_only_what_it_needs() -> None:
    heavy = ["asyncio", "weft.model.event", "weft.model.message", "subprocess", "pathlib", "shutil"]
    code = f"import sys, weft.store.files.tree; print([name for name in {heavy} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
