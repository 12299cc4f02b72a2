"""Trees of older formats are upgraded: nothing is lost, nothing is marked as done too early, and the originals are kept."""

import json
import os
import shutil
import subprocess
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from given.failing_disk import FailingDisk
from weft.errors import StoreError
from weft.model.diff import FileDiff
from weft.model.event import SessionDeleted
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.message import AssistantMessage, AssistantTime, MessagePath, MessageWithParts
from weft.model.part import TextPart
from weft.model.project import Project, ProjectTime
from weft.model.session import SessionInfo, SessionSummary, SessionTime
from weft.store.files.store import FileStore
from weft.store.url import find_root_commit, open_store

COMMIT = "a" * 40
DIFFS = [
    {"file": "a", "before": "", "after": "1\n", "additions": 1, "deletions": 0},
    {"file": "b", "before": "2\n", "after": "", "additions": 2, "deletions": 3, "mood": "odd"},
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def root(data: Path) -> Path:
    return data / "storage"


def write_document(path: Path, document: Any) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path.read_bytes()


def put_old(place: Path, session: str, worktree: str, created: int = 5) -> None:
    """Write a session with one message and one part in the layout of the first versions."""
    message, part, base = f"msg_of_{session}", f"prt_of_{session}", place / "storage/session"
    write_document(
        base / f"info/{session}.json",
        {
            "id": session,
            "title": session,
            "version": "0.1",
            "time": {"created": created, "updated": 6},
            "odd": 1,
        },
    )
    write_document(
        base / f"message/{session}/{message}.json",
        {
            "id": message,
            "sessionID": session,
            "role": "assistant",
            "time": {"created": created},
            "path": {"cwd": worktree, "root": worktree},
        },
    )
    write_document(
        base / f"part/{session}/{message}/{part}.json",
        {"id": part, "sessionID": session, "messageID": message, "type": "text", "text": session},
    )


def upgraded_session(id: str, project: str, directory: str = "", created: int = 5) -> SessionInfo:
    return SessionInfo(
        id=SessionID(id),
        title=id,
        version="0.1",
        project_id=ProjectID(project),
        directory=directory,
        time=SessionTime(created=created, updated=6),
        extra_={"odd": 1},
    )


def upgraded_message(session: str, worktree: str) -> MessageWithParts:
    ids: Any = {"session_id": SessionID(session), "message_id": MessageID(f"msg_of_{session}")}
    info = AssistantMessage(
        id=ids["message_id"],
        session_id=ids["session_id"],
        time=AssistantTime(created=5),
        path=MessagePath(cwd=worktree, root=worktree),
    )
    return MessageWithParts(info=info, parts=(TextPart(id=PartID(f"prt_of_{session}"), text=session, **ids),))


async def open_upgraded(root: Path, commits: dict[str, str] | None = None) -> FileStore:
    store = FileStore(str(root))
    await store.prepare((commits or {}).get)
    return store


def number(root: Path) -> bytes | None:
    path = root / "migration"
    return path.read_bytes() if path.exists() else None


def list_places(found: list[Any]) -> list[str]:
    return [each.where for each in found]


# --- from nothing, and from today ---


async def test_a_new_tree_has_the_newest_format(root: Path) -> None:
    store = await open_upgraded(root)
    assert (number(root), await store.list_sessions(), await store.damage()) == (b"2", [], [])


async def test_an_unreadable_format_number_counts_as_none(root: Path) -> None:
    write_document(root / "migration", "nonsense")
    await open_upgraded(root)
    assert number(root) == b"2"


# --- from 0: sessions that lie with their project ---


async def test_old_sessions_are_moved_into_the_tree_with_all_their_data(data: Path, root: Path) -> None:
    put_old(data / "project/Users-me-work", "ses_a", "/work", created=7)
    put_old(data / "project/Users-me-work", "ses_b", "/work")
    store = await open_upgraded(root, {"/work": COMMIT})
    assert await store.list_sessions() == [
        upgraded_session("ses_b", COMMIT, "/work"),
        upgraded_session("ses_a", COMMIT, "/work", created=7),
    ]
    assert await store.list_messages(SessionID("ses_b")) == [upgraded_message("ses_b", "/work")]
    assert await store.list_projects() == [
        Project(
            id=ProjectID(COMMIT),
            worktree="/work",
            vcs="git",
            time=ProjectTime(created=5, updated=5, initialized=5),
        )
    ]
    assert (number(root), await store.damage()) == (b"2", [])
    assert (data / "project/Users-me-work/storage/session/info/ses_a.json").exists()


async def test_sessions_outside_of_repositories_are_moved_too(data: Path, root: Path) -> None:
    put_old(data / "project/global", "ses_g", "/anywhere")
    put_old(data / "project/gone", "ses_d", "/deleted")
    store = await open_upgraded(root)
    assert await store.list_sessions(ProjectID("global")) == [
        upgraded_session("ses_g", "global"),
        upgraded_session("ses_d", "global", "/deleted"),
    ]
    assert await store.list_messages(SessionID("ses_g")) == [upgraded_message("ses_g", "/anywhere")]


async def test_an_old_project_may_have_any_name_and_worktree(data: Path, root: Path) -> None:
    put_old(data / os.fsdecode(b"project/caf\xe9"), "ses_a", "/work")
    put_old(data / "project/two lines", "ses_b", "/half \ud800 a pair")
    put_old(data / "project/nul", "ses_c", "/with \0 nul")
    broken = data / "project/nul/storage/session/info/ses_d.json"
    broken.write_bytes(b"{")
    store = FileStore(str(root))
    await store.prepare(find_root_commit)
    assert {session.id for session in await store.list_sessions()} == {"ses_a", "ses_b", "ses_c"}
    assert list_places(await store.damage()) == [str(broken)]
    broken.unlink()
    await store.apply(*(SessionDeleted(info=session) for session in await store.list_sessions()))
    again = FileStore(str(root))
    await again.prepare(find_root_commit)
    assert await again.list_sessions() == []
    assert number(root) == b"2"


async def test_an_existing_project_record_is_kept(data: Path, root: Path) -> None:
    put_old(data / "project/work", "ses_a", "/work")
    known = {
        "id": COMMIT,
        "worktree": "/work",
        "name": "Mine",
        "time": {"created": 1, "updated": 2},
        "sandboxes": [],
    }
    write_document(root / f"project/{COMMIT}.json", known)
    store = await open_upgraded(root, {"/work": COMMIT})
    assert [project.name for project in await store.list_projects()] == ["Mine"]


async def test_a_document_that_cannot_be_upgraded_is_reported_and_retried_and_the_rest_is_upgraded(
    data: Path, root: Path
) -> None:
    old = data / "project/old/storage/session"
    for id in ("ses_a", "ses_b", "ses_c"):
        put_old(data / "project/old", id, "/work")
    broken = [old / "info/ses_b.json", old / "part/ses_c/msg_of_ses_c/prt_of_ses_c.json"]
    sound = [path.read_bytes() for path in broken]
    for path in broken:
        path.write_bytes(b"\x00\x00")
    store = await open_upgraded(root, {"/work": COMMIT})
    assert [each.id for each in await store.list_sessions()] == ["ses_c", "ses_a"]
    assert await store.list_messages(SessionID("ses_b")) == [upgraded_message("ses_b", "/work")]
    assert list_places(await store.damage()) == [str(path) for path in broken]
    assert number(root) is None

    await store.apply(SessionDeleted(info=upgraded_session("ses_a", COMMIT)))
    for path, raw in zip(broken, sound, strict=True):
        path.write_bytes(raw)
    store = await open_upgraded(root, {"/work": COMMIT})
    assert [each.id for each in await store.list_sessions()] == ["ses_c", "ses_b"], (
        "what was deleted stays so"
    )
    assert await store.list_messages(SessionID("ses_c")) == [upgraded_message("ses_c", "/work")]
    assert (number(root), await store.damage()) == (b"2", [])


async def test_the_project_is_identified_by_git(data: Path, root: Path, tmp_path: Path) -> None:
    worktree, commit = repository(tmp_path / "work")
    put_old(data / "project/work", "ses_a", worktree)
    async with open_store(f"file:{root}") as store:
        assert await store.list_sessions() == [upgraded_session("ses_a", commit, worktree)]
    assert find_root_commit(str(tmp_path / "nowhere")) is None


def repository(path: Path) -> tuple[str, str]:
    path.mkdir()
    for args in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-C", str(path), *args], check=True)
    said = subprocess.run(
        ["git", "-C", str(path), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    )
    return str(path), said.stdout.strip()


async def test_an_upgrade_that_failed_at_any_step_is_completed_by_the_next_opening(
    data: Path, tmp_path: Path
) -> None:
    put_old(data / "project/work", "ses_a", "/work")
    put_old(data / "project/global", "ses_g", "/anywhere")
    write_document(data / "storage/migration", 0)
    put_session(data / "storage", "ses_c", {"diffs": DIFFS})
    expected = await read_all(await open_upgraded(copy_data(data, tmp_path / "whole"), {"/work": COMMIT}))
    for at in count(1):
        root, disk = copy_data(data, tmp_path / f"fails{at}"), FailingDisk(at)
        with suppress(StoreError):
            await FileStore(str(root), disk=disk).prepare({"/work": COMMIT}.get)
        if number(root) == b"2":
            assert await read_all(FileStore(str(root))) == expected, f"step {at}, marked as done"
        again = await open_upgraded(root, {"/work": COMMIT})
        assert await read_all(again) == expected, f"step {at}"
        assert number(root) == b"2"
        if not disk.failed:
            break


def copy_data(data: Path, to: Path) -> Path:
    return Path(shutil.copytree(data, to)) / "storage"


async def read_all(store: FileStore) -> list[Any]:
    sessions = await store.list_sessions()
    return [
        await store.list_projects(),
        [(each, await store.list_messages(each.id), await store.list_diff(each.id)) for each in sessions],
        await store.damage(),
    ]


# --- from 1: diffs that lie in the session ---


def put_session(root: Path, id: str, summary: Any, **more: Any) -> bytes:
    document = {"id": id, "time": {"created": 1, "updated": 2}, "odd": [1], "summary": summary, **more}
    return write_document(root / f"session/p1/{id}.json", document)


def session_with_summary(id: str, *, files: int) -> SessionInfo:
    return SessionInfo(
        id=SessionID(id),
        project_id=ProjectID("p1"),
        time=SessionTime(created=1, updated=2),
        summary=SessionSummary(additions=3, deletions=3, files=files),
        extra_={"odd": [1]},
    )


async def test_diffs_are_moved_out_of_the_session_and_the_original_is_kept(root: Path) -> None:
    write_document(root / "migration", 1)
    counted = put_session(root, "ses_a", {"diffs": DIFFS, "files": 7}, projectID="p1")
    uncounted = put_session(root, "ses_b", {"diffs": DIFFS})
    newest = put_session(root, "ses_c", {"additions": 1, "deletions": 1, "files": 1}, projectID="p1")
    store = await open_upgraded(root)
    assert await store.get_session(SessionID("ses_a")) == session_with_summary("ses_a", files=7)
    assert await store.get_session(SessionID("ses_b")) == session_with_summary("ses_b", files=2)
    expected = [
        FileDiff(file="a", before="", after="1\n", additions=1, deletions=0),
        FileDiff(file="b", before="2\n", after="", additions=2, deletions=3, extra_={"mood": "odd"}),
    ]
    assert await store.list_diff(SessionID("ses_a")) == expected
    assert json.loads((root / "session/p1/ses_b.json").read_bytes())["projectID"] == "p1"
    backup = root / ".weft/backup/1/session/p1"
    assert [(backup / f"{id}.json").read_bytes() for id in ("ses_a", "ses_b")] == [counted, uncounted]
    assert (root / "session/p1/ses_c.json").read_bytes() == newest
    assert (number(root), await store.damage()) == (b"2", [])


async def test_a_session_that_cannot_be_upgraded_keeps_the_old_format_number_and_the_rest_is_upgraded(
    root: Path,
) -> None:
    write_document(root / "migration", 1)
    put_session(root, "ses_a", {"diffs": DIFFS})
    (root / "session/p1/ses_b.json").write_bytes(b"{")
    store = await open_upgraded(root)
    assert await store.list_sessions() == [session_with_summary("ses_a", files=2)]
    assert list_places(await store.damage()) == [str(root / "session/p1/ses_b.json")]
    assert number(root) == b"1"
    put_session(root, "ses_b", {"diffs": DIFFS})
    store = await open_upgraded(root)
    assert await store.list_sessions() == [
        session_with_summary("ses_b", files=2),
        session_with_summary("ses_a", files=2),
    ]
    assert number(root) == b"2"


async def test_a_repeated_upgrade_keeps_the_first_original_and_the_newer_diff(root: Path) -> None:
    write_document(root / "migration", 1)
    first = put_session(root, "ses_a", {"diffs": DIFFS})
    await open_upgraded(root)
    write_document(root / "migration", 1)
    put_session(root, "ses_a", {"diffs": []})
    store = await open_upgraded(root)
    assert (root / ".weft/backup/1/session/p1/ses_a.json").read_bytes() == first
    assert len(await store.list_diff(SessionID("ses_a"))) == 2
