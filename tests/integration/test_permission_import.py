"""Requests, grants and logs that earlier versions kept next to the default store move into it, once."""

import os
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from given.failing_disk import FailingDisk
from weft.model.ids import GrantID, ProjectID, QuestionID, SessionID
from weft.model.permission import Grant, QuestionRequest
from weft.model.wire import encode_pretty
from weft.permission.audit import AuditChain, AuditEntry, ChainBreak, find_break, read_end, read_entries
from weft.permission.requests import OpenRequest
from weft.permission.storage import GRANTS_KEY, REQUESTS_KEY, end_key, log_key, read_items
from weft.store.contract import Store
from weft.store.files.store import FileStore
from weft.store.memory import MemoryStore
from weft.store.reader import open_reader
from weft.store.url import open_store

PROJECT = ProjectID("0123456789abcdef")
SESSION = SessionID("ses_1")
DONE = "permission.moved-into-storage"


def make_grant(number: int) -> Grant:
    return Grant(
        id=GrantID(f"gra_{number}"), scope="user", permission="bash", patterns=("ls",), created=number
    )


def make_request(number: int) -> OpenRequest:
    question = QuestionRequest(id=QuestionID(f"que_{number}"), session_id=SESSION, questions=())
    return OpenRequest(question=question, project_id=PROJECT, root_id=SESSION, time=number)


def entry(number: int) -> AuditEntry:
    return AuditEntry(time=number, what="allowed", patterns=(f"echo {number}",))


async def make_chain(numbers: range, **limits: Any) -> tuple[list[bytes], dict[str, Any]]:
    """Return the lines of a chain, and its end as an earlier version recorded it."""
    store = MemoryStore()
    chain = AuditChain(store, PROJECT, **limits)
    for number in numbers:
        await chain.append([entry(number)])
    end = await store.find_value(end_key(PROJECT))
    return await store.read_log(log_key(PROJECT)), {"seq": end["seq"], "hash": end["hash"]}


async def put_files(data: Path, numbers: range = range(1, 7), **limits: Any) -> list[bytes]:
    """Write the files of an earlier version, with a log in three of them. Return the lines of the log."""
    logs = data / "permission/log"
    logs.mkdir(parents=True)
    lines, end = await make_chain(numbers, **limits)
    parts = [lines[:2], lines[2:4], lines[4:]]
    for name, part in zip((f"{PROJECT}.9", f"{PROJECT}.10", PROJECT), parts, strict=True):
        (logs / f"{name}.jsonl").write_bytes(b"".join(line + b"\n" for line in part))
    (logs / f"{PROJECT}.end").write_bytes(encode_pretty(end))
    (logs / f"{PROJECT}.jsonl.lock").touch()
    first = numbers.start
    (data / "permission/asked.json").write_bytes(
        encode_pretty([make_request(first), make_request(first + 1)])
    )
    (data / "permission/grants.json").write_bytes(encode_pretty([make_grant(first)]))
    return lines


async def read_all(store: Store, project: str = PROJECT) -> list[Any]:
    """Return requests, grants, the entries of the log, and whether its chain holds."""
    lines = await store.read_log(log_key(ProjectID(project)))
    end = read_end(await store.find_value(end_key(ProjectID(project))))
    return [
        read_items(await store.find_value(REQUESTS_KEY), OpenRequest),
        read_items(await store.find_value(GRANTS_KEY), Grant),
        [found for _, found in read_entries(lines)],
        find_break(lines, end),
    ]


async def test_files_of_an_earlier_version_move_into_the_default_store(tmp_path: Path) -> None:
    await put_files(tmp_path)
    expected = [
        (make_request(1), make_request(2)),
        (make_grant(1),),
        [entry(number) for number in range(1, 7)],
        (6, None),
    ]
    for _ in range(2):
        async with open_store(f"file:{tmp_path}/storage") as store:
            assert await read_all(store) == expected
            assert await store.damage() == []
        assert sorted(os.listdir(tmp_path)) == [DONE, "storage"]
    async with open_store(f"file:{tmp_path}/storage") as store:
        await AuditChain(store, PROJECT).append([entry(7)])
        assert (await read_all(store))[3] == (7, None)


async def test_a_command_that_only_reads_moves_the_records_too(tmp_path: Path) -> None:
    await put_files(tmp_path)
    reader = open_reader(f"file:{tmp_path}/storage")
    assert read_items(reader.find_value(GRANTS_KEY), Grant) == (make_grant(1),)
    assert reader.list_logs() == [log_key(PROJECT)]


async def test_a_log_without_its_oldest_records_is_valid_and_a_cut_is_noticed(
    tmp_path: Path,
) -> None:
    lines = await put_files(tmp_path, range(1, 60), max_records=20, kept_records=10)
    async with open_store(f"file:{tmp_path}/storage") as store:
        assert (await read_all(store))[3] == (len(lines), None)
    shutil.rmtree(tmp_path / "storage")
    (tmp_path / DONE).rename(tmp_path / "permission")
    (tmp_path / f"permission/log/{PROJECT}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines[4:-1]))
    async with open_store(f"file:{tmp_path}/storage") as store:
        broken = (await read_all(store))[3][1]
        assert isinstance(broken, ChainBreak)
        assert broken.line == len(lines)


async def test_records_written_later_by_an_earlier_version_are_added(tmp_path: Path) -> None:
    await put_files(tmp_path)
    async with open_store(f"file:{tmp_path}/storage") as store:
        await AuditChain(store, PROJECT).append([entry(7)])
    await put_files(tmp_path, range(2, 8))
    async with open_store(f"file:{tmp_path}/storage") as store:
        requests, grants, entries, chain = await read_all(store)
        assert requests == (make_request(1), make_request(2), make_request(3))
        assert grants == (make_grant(1), make_grant(2))
        assert (entries, chain) == ([entry(number) for number in range(1, 8)], (7, None))
        beside = await read_all(store, f"{PROJECT}-2")
        assert beside[2:] == [[entry(number) for number in range(2, 8)], (6, None)]
    assert sorted(os.listdir(tmp_path)) == [DONE, f"{DONE}-1", "storage"]


async def test_an_unreadable_file_hides_no_other_and_is_not_lost(tmp_path: Path) -> None:
    await put_files(tmp_path)
    (tmp_path / "permission/grants.json").write_bytes(b"{")
    async with open_store(f"file:{tmp_path}/storage") as store:
        requests, grants, _, chain = await read_all(store)
    assert (requests, grants, chain) == ((make_request(1), make_request(2)), (), (6, None))
    assert (tmp_path / DONE / "grants.json").read_bytes() == b"{"


async def test_an_import_that_failed_at_any_step_is_completed_by_the_next_opening(tmp_path: Path) -> None:
    await put_files(tmp_path / "data")
    whole = FileStore(str(shutil.copytree(tmp_path / "data", tmp_path / "whole")) + "/storage")
    await whole.prepare(lambda _: None)
    expected = await read_all(whole)
    for at in count(1):
        data, disk = shutil.copytree(tmp_path / "data", tmp_path / f"fails{at}"), FailingDisk(at)
        failing = FileStore(f"{data}/storage", disk=disk)
        try:
            await failing.prepare(lambda _: None)
        except OSError:
            pytest.fail("an opening fails because of old files")
        again = FileStore(f"{data}/storage")
        await again.prepare(lambda _: None)
        assert await read_all(again) == expected, f"step {at}"
        assert await again.list_logs() == [log_key(PROJECT)], f"step {at}"
        if not disk.failed:
            break


async def test_only_the_default_store_imports_old_permission_files(tmp_path: Path) -> None:
    await put_files(tmp_path)
    async with open_store(f"file:{tmp_path}/history") as store:
        assert await read_all(store) == [(), (), [], (0, None)]
    assert (tmp_path / "permission").is_dir()
