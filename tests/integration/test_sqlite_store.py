"""What only a store in a SQLite database has: its file, group commit, growth rows, leases of dead processes, and bad places."""

import asyncio
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from given.failing_disk import limit_file_size
from given.small_vfs import SmallVfs
from weft.errors import (
    ClosedError,
    DamagedStoreError,
    InvalidIdError,
    LeaseLostError,
    NewerFormatError,
    StoreError,
)
from weft.model.event import (
    MessageUpdated,
    PartRemoved,
    PartUpdated,
    SessionCreated,
    SessionDeleted,
    SessionUpdated,
)
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.session import SessionInfo
from weft.model.session_query import SessionQuery
from weft.model.wire import encode
from weft.store.lease import LeaseToken
from weft.store.reader import open_reader
from weft.store.rows import build_session_query
from weft.store.sqlite.connection import JOURNAL_BYTES, BusyWait, SqliteOptions, make_store_error
from weft.store.sqlite.database import APPLICATION_ID, DatabaseFile, SqliteMigration, list_migrations
from weft.store.sqlite.reader import DIALECT, SqliteReader
from weft.store.sqlite.store import SqliteStore, open_sqlite_store
from weft.store.sqlite.transcripts import list_cached_messages
from weft.store.sqlite.writer import MAX_LOG_PAGES
from weft.store.transcript_cache import TranscriptCache
from weft.testing.store_samples import PROMPT, SESSION, find_text, growth, prompt, session, text, with_parts

READ_ONLY = Path(__file__).parents[1] / "given" / "read_only_store.py"
PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    async with open_sqlite_store(str(path)) as opened:
        yield opened


def select(path: Path, sql: str) -> list[Any]:
    """Read the database with another connection."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def read_files(directory: Path) -> dict[str, bytes]:
    """Return the content of all files but that of the shared memory, which is rebuilt at will."""
    return {
        each.name: each.read_bytes()
        for each in directory.iterdir()
        if each.is_file() and not each.name.endswith("-shm")
    }


def put_file(path: Path, content: bytes = b"") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def get_size(path: Path) -> int:
    return path.stat().st_size


def list_holders(path: Path) -> list[str]:
    return [each.name for each in Path(f"{path}-locks").glob("*.holder")]


def remove_holders(path: Path) -> None:
    for each in Path(f"{path}-locks").glob("*.holder"):
        each.unlink()


class HeldWriter:
    """Keeps the writer busy, so that what is written meanwhile waits and shares the next commit."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._go_on = threading.Event()

    async def __aenter__(self) -> None:
        begun = threading.Event()

        def wait(_: apsw.Connection) -> None:
            begun.set()
            self._go_on.wait()

        self._waiting = asyncio.ensure_future(self._store.writer.run(wait))
        await asyncio.to_thread(begun.wait)

    async def __aexit__(self, *_: object) -> None:
        self._go_on.set()
        await self._waiting


# --- the file ---


async def test_a_new_database_is_private_and_can_shrink(path: Path) -> None:
    async with open_sqlite_store(str(path)) as store:
        await store.apply(SessionCreated(info=session()))
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert modes == {
        "sessions.db": 0o600,
        "sessions.db-wal": 0o600,
        "sessions.db-shm": 0o600,
        "sessions.db-locks": 0o700,
    }
    assert [
        select(path, f"PRAGMA {name}")[0][0]
        for name in ("journal_mode", "auto_vacuum", "application_id", "user_version")
    ] == ["wal", 2, APPLICATION_ID, list_migrations()[-1].number]
    assert sorted(each.name for each in path.parent.iterdir()) == ["sessions.db", "sessions.db-locks"]


async def test_an_empty_file_becomes_a_database(path: Path) -> None:
    put_file(path)
    async with open_sqlite_store(str(path)) as store:
        await store.apply(SessionCreated(info=session()))
    assert select(path, "SELECT id FROM session") == [(SESSION,)]


async def test_two_names_of_one_file_are_one_store(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    async with open_sqlite_store(str(path)) as store:
        link.symlink_to(path)
        async with open_sqlite_store(str(link)) as other, store.lease(SESSION, "the first"):
            assert await other.find_holder(SESSION) == "the first"


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
async def test_a_database_of_another_program_is_refused_and_unchanged(path: Path, journal: str) -> None:
    foreign = sqlite3.connect(path)
    foreign.execute(f"PRAGMA journal_mode = {journal}")
    foreign.execute("CREATE TABLE session (id TEXT PRIMARY KEY)")
    foreign.commit()
    before = read_files(path.parent)
    with pytest.raises(StoreError, match="is a database of another program") as raised:
        async with open_sqlite_store(str(path)):
            pass
    assert "--store" in raised.value.hint
    with pytest.raises(StoreError, match="is a database of another program"):
        open_reader(f"sqlite:{path}").list_sessions()
    assert read_files(path.parent) == before
    foreign.close()


async def test_a_database_of_a_later_version_is_refused(path: Path) -> None:
    async with open_sqlite_store(str(path)):
        pass
    select(path, "PRAGMA user_version = 99")
    before = read_files(path.parent)
    with pytest.raises(NewerFormatError) as raised:
        async with open_sqlite_store(str(path)):
            pass
    assert (raised.value.found, raised.value.known) == (99, list_migrations()[-1].number)
    assert read_files(path.parent) == before


async def test_a_library_that_can_corrupt_databases_is_refused(path: Path) -> None:
    with pytest.raises(StoreError, match=r"SQLite 3\.51\.2 can corrupt") as raised:
        async with open_sqlite_store(str(path), options=SqliteOptions(library="3.51.2")):
            pass
    assert "pip install 'apsw>=3.51.3'" in raised.value.hint
    assert read_files(path.parent) == {}
    async with open_sqlite_store(str(path), options=SqliteOptions(library="3.51.3")):
        pass


async def test_a_file_that_was_never_a_store_is_refused_and_no_repair_is_offered(path: Path) -> None:
    put_file(path, b"notes of a person, longer than the header of a database" * 100)
    before = read_files(path.parent)
    with pytest.raises(StoreError, match="is not a SQLite database") as raised:
        async with open_sqlite_store(str(path)):
            pass
    assert not isinstance(raised.value, DamagedStoreError)
    assert raised.value.hint == "choose another file for --store; one that does not exist is created"
    assert read_files(path.parent) == before


async def test_a_damaged_file_is_refused_and_unchanged(path: Path) -> None:
    async with open_sqlite_store(str(path)):
        pass
    put_file(path, b"not a database, but longer than the header of one" * 100)
    before = read_files(path.parent)
    with pytest.raises(DamagedStoreError, match="it is not a SQLite database") as raised:
        async with open_sqlite_store(str(path)):
            pass
    assert "weft doctor --fix" in raised.value.hint
    assert read_files(path.parent) == before


async def test_a_database_is_not_created_beside_the_log_of_another(path: Path) -> None:
    log = Path(f"{path}-wal")
    put_file(log, b"changes of a database that somebody removed")
    with pytest.raises(StoreError, match="is gone, but the log of its last changes is still there"):
        async with open_sqlite_store(str(path)):
            pass
    assert read_files(path.parent) == {log.name: b"changes of a database that somebody removed"}


async def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Is a directory"):
        async with open_sqlite_store(str(tmp_path)):
            pass


async def test_an_upgrade_resumes_where_it_stopped_and_reports_progress(path: Path) -> None:
    first = list_migrations()
    last = first[-1].number
    async with open_sqlite_store(str(path)) as store:
        await store.apply(SessionCreated(info=session()))
    steps = [
        *first,
        SqliteMigration(last + 1, "CREATE TABLE note (id TEXT PRIMARY KEY)"),
        SqliteMigration(last + 2, "CREATE TABLE other (id TEXT); INSERT INTO nowhere VALUES (1)"),
    ]
    progress: list[tuple[int, int]] = []
    with pytest.raises(StoreError, match="no such table: nowhere"):
        DatabaseFile(str(path), migrations=steps).prepare(lambda done, total: progress.append((done, total)))
    tables = "SELECT name FROM sqlite_master WHERE name IN ('note', 'other')"
    assert (select(path, "PRAGMA user_version"), select(path, tables)) == ([(last + 1,)], [("note",)])
    steps[-1] = SqliteMigration(last + 2, "CREATE TABLE other (id TEXT)")
    DatabaseFile(str(path), migrations=steps).prepare(lambda done, total: progress.append((done, total)))
    assert (select(path, "PRAGMA user_version"), select(path, tables)) == (
        [(last + 2,)],
        [("note",), ("other",)],
    )
    total = len(steps)
    assert progress == [*((n, total) for n in range(1, total)), *((n, total) for n in range(1, total + 1))]
    assert select(path, "SELECT id FROM session") == [(SESSION,)]


# --- bad places ---


def test_a_directory_that_cannot_be_written_can_be_read() -> None:
    # The directories of pytest are private, and the reader is somebody else.
    place = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    try:
        path = place / "sessions.db"
        asyncio.run(fill(path))
        for each in place.rglob("*"):
            each.chmod(0o555 if each.is_dir() else 0o444)
        place.chmod(0o555)
        ended = subprocess.run(
            [sys.executable, str(READ_ONLY), f"sqlite:{path}"], capture_output=True, text=True, check=False
        )
    finally:
        place.chmod(0o755)
        subprocess.run(["rm", "-rf", str(place)], check=True)
    assert ended.stderr == ""
    refused = (
        "StoreError: reading still works; to write, change the permissions or point --store at another place"
    )
    assert json.loads(ended.stdout) == {
        "sessions": 1,
        "texts": ["one and more"],
        "damage": [],
        "refused": [refused, refused],
    }


async def test_a_database_can_be_read_where_no_file_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    await fill(path)
    with limit_file_size(0):
        assert [each.id for each in open_reader(f"sqlite:{path}").list_sessions()] == [SESSION]


async def fill(path: Path) -> None:
    async with open_sqlite_store(str(path)) as store:
        await store.apply(
            SessionCreated(info=session()),
            MessageUpdated(info=prompt()),
            PartUpdated(part=text("prt_1", "one")),
        )
        await store.apply(growth("prt_1", " and more", 3))


@pytest.fixture
def small_disk() -> Iterator[SmallVfs]:
    vfs = SmallVfs("weft-small")
    yield vfs
    vfs.unregister()


async def test_a_full_disk_refuses_writes_completely_and_accepts_them_later_without_a_restart(
    path: Path, small_disk: SmallVfs
) -> None:
    async with open_sqlite_store(str(path), options=SqliteOptions(vfs="weft-small")) as store:
        await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
        small_disk.full = True
        large = PartUpdated(part=text("prt_1", "x" * 500_000))
        with pytest.raises(StoreError, match="the disk is full") as raised:
            await store.apply(SessionUpdated(info=session(title="half")), large)
        assert raised.value.hint == "free some space and try again; nothing needs a restart"
        assert await store.get_session(SESSION) == session()
        assert await store.list_messages(SESSION) == [with_parts(prompt())]
        small_disk.full = False
        await store.apply(SessionUpdated(info=session(title="whole")), large)
        assert await store.list_messages(SESSION) == [with_parts(prompt(), large.part)]


async def test_a_write_is_flushed_before_it_is_acknowledged_and_growth_is_not(
    path: Path, small_disk: SmallVfs
) -> None:
    async with open_sqlite_store(str(path), options=SqliteOptions(vfs="weft-small")) as store:
        await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
        before = small_disk.syncs
        await store.apply(PartUpdated(part=text("prt_1", "one")))
        durable = small_disk.syncs
        await store.apply(growth("prt_1", " and more", 3))
        assert (durable - before, small_disk.syncs - durable) == (1, 0)


@pytest.mark.parametrize("exempt", ["", "-wal"], ids=["at once", "when the log is moved into the database"])
async def test_a_full_disk_creates_no_partial_database(path: Path, small_disk: SmallVfs, exempt: str) -> None:
    small_disk.full, small_disk.exempt = True, exempt
    with pytest.raises(StoreError, match="the disk is full"):
        async with open_sqlite_store(str(path), options=SqliteOptions(vfs="weft-small")):
            pass
    assert [each.name for each in path.parent.iterdir() if each.is_file()] == []
    small_disk.full = False
    async with open_sqlite_store(str(path)) as store:
        assert await store.list_sessions() == []


def test_an_error_that_hides_a_full_disk_is_explained() -> None:
    # In /proc nothing is free. SQLite says the same of a disk that is too full for its shared memory.
    error = make_store_error(apsw.IOError("disk I/O error"), "/proc/sessions.db")
    assert str(error) == "the database /proc/sessions.db cannot be used: No space left on device"
    assert error.hint == "free some space and try again; nothing needs a restart"


async def test_a_network_file_system_is_refused_and_files_are_offered(path: Path, tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"36 35 0:32 / {tmp_path} rw,relatime shared:1 - nfs4 server:/home rw\n")
    options = SqliteOptions(mounts=str(mounts))
    for _ in range(2):  # before there is a database, and when somebody has copied one to this place
        with pytest.raises(StoreError, match=r"is on a network file system \(nfs4\)") as refused:
            async with open_sqlite_store(str(path), options=options):
                pass
        assert refused.value.hint.endswith("or use a file store: --store file:<path>")
        await fill(path)
    assert [each.id for each in open_reader(f"sqlite:{path}").list_sessions()] == [SESSION]


async def test_a_place_without_shared_memory_is_refused_and_nothing_is_left_there(path: Path) -> None:
    with pytest.raises(StoreError, match="this place allows no write-ahead log") as refused:
        async with open_sqlite_store(str(path), options=SqliteOptions(vfs="unix-none")):
            pass
    assert refused.value.hint == "put the database on a local disk, or use a file store"
    assert read_files(path.parent) == {}


async def test_a_writer_that_never_ends_is_named_after_a_deadline(path: Path) -> None:
    async with open_sqlite_store(str(path), options=SqliteOptions(busy_seconds=0.05)) as store:
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process has been writing for too long"):
            await store.apply(SessionCreated(info=session()))
        assert await store.list_sessions() == []
        other.execute("ROLLBACK")
        other.close()
        await store.apply(SessionCreated(info=session()))


def test_time_in_which_the_whole_machine_stood_still_does_not_count_as_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter([0.0, 60.0, 60.0, 60.04])
    monkeypatch.setattr("weft.store.sqlite.connection.monotonic", lambda: next(times))
    wait = BusyWait(0.12)
    assert [wait(attempts) for attempts in range(3)] == [True, True, False]


def test_every_error_of_sqlite_has_a_hint() -> None:
    errors = (apsw.BusyError, apsw.FullError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.CorruptError)
    assert all(make_store_error(kind("reason"), "/a.db").hint for kind in errors)


# --- group commit ---


async def test_concurrent_writes_share_a_commit(store: SqliteStore) -> None:
    sessions = [session(f"ses_{number}", created=number) for number in range(50)]
    async with HeldWriter(store):
        before = store.writer.commits
        writes = [asyncio.ensure_future(store.apply(SessionCreated(info=each))) for each in sessions]
        await asyncio.sleep(0)
    await asyncio.gather(*writes)
    assert store.writer.commits - before == 2  # that of the held writer, and one for all
    assert await store.list_sessions() == sessions


async def test_a_write_that_fails_does_not_affect_those_of_the_same_commit(store: SqliteStore) -> None:
    def refuse(_: SessionInfo) -> SessionInfo:
        raise ValueError("no")

    def fail_halfway(connection: apsw.Connection) -> None:
        connection.execute("DELETE FROM session")
        raise KeyError("no")

    await store.apply(SessionCreated(info=session()))
    async with HeldWriter(store):
        writes = [
            asyncio.ensure_future(work)
            for work in (
                store.apply(SessionCreated(info=session("ses_2", created=1))),
                store.edit(SESSION, refuse),
                store.writer.run(fail_halfway),
                store.apply(
                    SessionCreated(info=session("ses_3", created=2)), leases=[LeaseToken(SESSION, 7)]
                ),
                store.apply(SessionCreated(info=session("ses_4", created=3))),
            )
        ]
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(each).__name__ for each in outcomes] == [
        "NoneType",
        "ValueError",
        "KeyError",
        "LeaseLostError",
        "NoneType",
    ]
    assert [each.id for each in await store.list_sessions()] == ["ses_2", "ses_4", SESSION]


async def test_nobody_else_writes_between_what_a_write_reads_and_what_it_stores(
    store: SqliteStore, path: Path
) -> None:
    await store.put_value(("a", "b"), 1)

    def try_to_write(known: Any) -> Any:
        other = apsw.Connection(str(path))
        try:
            with pytest.raises(apsw.BusyError):
                other.execute("BEGIN IMMEDIATE")
        finally:
            other.close()
        return known + 1

    assert await store.update_value(("a", "b"), try_to_write) == 2


async def test_waiting_writes_are_stored_before_the_store_closes(path: Path) -> None:
    store = SqliteStore(str(path))
    await store.prepare()
    async with HeldWriter(store):
        writing = asyncio.ensure_future(store.apply(SessionCreated(info=session())))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
    await closing
    await writing
    with pytest.raises(ClosedError):
        await store.apply(SessionCreated(info=session("ses_2")))
    assert select(path, "SELECT id FROM session") == [(SESSION,)]


# --- rows ---


async def test_another_event_loop_may_use_the_store(store: SqliteStore) -> None:
    def create() -> None:
        asyncio.run(store.apply(SessionCreated(info=session())))

    await asyncio.to_thread(create)

    assert [each.id for each in await store.list_sessions()] == [SESSION]


async def test_closing_a_store_closes_all_its_file_descriptors(path: Path) -> None:
    await fill(path)
    before = len(os.listdir("/proc/self/fd"))
    async with open_sqlite_store(str(path)) as opened:
        await opened.apply(SessionUpdated(info=session()))

    assert len(os.listdir("/proc/self/fd")) == before


async def test_messages_of_one_moment_are_sorted_by_id(store: SqliteStore) -> None:
    ids = [MessageID(f"msg_0123456789ab{letter * 14}") for letter in "cab"]
    await store.apply(*(MessageUpdated(info=replace(prompt(), id=id)) for id in ids))

    assert [message.info.id for message in await store.list_messages(SESSION)] == sorted(ids)


async def test_messages_that_did_not_change_are_not_decoded_again_and_those_of_another_process_are_seen(
    store: SqliteStore, path: Path
) -> None:
    first, second = (prompt(f"msg_{number}", created=number) for number in (1, 2))
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=first), MessageUpdated(info=second))
    await store.apply(PartUpdated(part=text("prt_1", "a", of=second.id)))
    before = await store.list_messages(SESSION)
    async with open_sqlite_store(str(path)) as other:
        await other.list_messages(SESSION)
        await other.apply(PartUpdated(part=text("prt_1", "b", of=second.id)))
        await other.apply(growth("prt_1", "c", 1, of=second.id))
        after = await store.list_messages(SESSION)
        await other.apply(growth("prt_1", "d", 2, of=second.id))
        last = await store.list_messages(SESSION)
    assert after[0] is before[0]
    assert [each[1].parts for each in (before, after, last)] == [
        (text("prt_1", said, of=second.id),) for said in ("a", "bc", "bcd")
    ]


async def test_a_session_that_was_deleted_and_made_again_is_read_anew(store: SqliteStore) -> None:
    message = prompt("msg_1")
    for words_said in ("a", "b"):
        await store.apply(SessionCreated(info=session()), MessageUpdated(info=message))
        await store.apply(PartUpdated(part=text("prt_1", words_said, of=message.id)))
        [found] = await store.list_messages(SESSION)
        assert found.parts == (text("prt_1", words_said, of=message.id),)
        await store.apply(SessionDeleted(info=session()))
        assert await store.list_messages(SESSION) == []


async def test_a_cache_of_transcripts_forgets_what_was_read_longest_ago(
    path: Path, store: SqliteStore
) -> None:
    ids = [SessionID(f"ses_{number}") for number in range(3)]
    for id in ids:
        await store.apply(SessionCreated(info=session(id)), MessageUpdated(info=prompt(f"msg_{id}", of=id)))
    reader = SqliteReader(store.file)
    size = len(encode(prompt("msg_ses_0", of=ids[0])))
    cache = TranscriptCache(limit=2 * size)
    seen = {id: list_cached_messages(reader, cache, id)[0] for id in ids}
    assert list_cached_messages(reader, cache, ids[2])[0] is seen[ids[2]]
    assert list_cached_messages(reader, cache, ids[1])[0] is seen[ids[1]]
    assert list_cached_messages(reader, cache, ids[0])[0] is not seen[ids[0]]
    reader.close()


async def test_growth_is_stored_as_rows_until_the_part_is_complete(store: SqliteStore, path: Path) -> None:
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "")))
    for number in range(20):
        await store.apply(growth("prt_1", "word ", 5 * number))
    await store.apply(growth("prt_1", "word ", 0))  # said again
    [(document,)] = select(path, "SELECT document FROM part")
    assert b"word" not in document
    assert select(path, "SELECT start, length, CAST(delta AS TEXT) FROM growth ORDER BY number") == [
        (5 * number, 5 * number + 5, "word ") for number in range(20)
    ]
    assert await find_text(store) == "word " * 20
    await store.apply(PartUpdated(part=text("prt_1", "word " * 20)))
    assert select(path, "SELECT count(*) FROM growth") == [(0,)]
    await store.apply(growth("prt_1", "more", 100))
    await store.apply(PartRemoved(session_id=SESSION, message_id=PROMPT, part_id=PartID("prt_1")))
    assert select(path, "SELECT count(*) FROM growth") == [(0,)]


async def test_the_log_of_changes_stays_bounded(store: SqliteStore, path: Path) -> None:
    await store.apply(MessageUpdated(info=prompt()))
    log, largest = Path(f"{path}-wal"), 0
    for number in range(30):
        await store.apply(PartUpdated(part=text("prt_1", str(number) * (1 << 20))))
        largest = max(largest, get_size(log))
    written = 30 << 20
    assert largest < MAX_LOG_PAGES * PAGE + (4 << 20) < written


async def test_the_log_is_moved_into_the_database_in_a_pause(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    async with open_sqlite_store(str(path), options=SqliteOptions(idle_seconds=0.05)) as store:
        await store.apply(SessionCreated(info=session()))

        def list_moved() -> list[Any]:
            copy.write_bytes(path.read_bytes())  # without the log
            return select(copy, "SELECT id FROM session")

        async with asyncio.timeout(10):
            while list_moved() != [(SESSION,)]:  # noqa: ASYNC110  the writer tells nobody
                await asyncio.sleep(0.02)


async def test_no_transaction_stays_open_after_a_read(store: SqliteStore, path: Path) -> None:
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    reader = open_reader(f"sqlite:{path}")
    await asyncio.gather(
        store.query_sessions(SessionQuery(limit=1)),
        store.list_messages(SESSION, last=1),
        store.list_messages(SESSION),
        store.search("words", limit=1),
        store.read_log(("log",)),
        asyncio.to_thread(lambda: reader.query_sessions(SessionQuery(limit=1))),
        asyncio.to_thread(lambda: reader.list_messages(SESSION)),
        asyncio.to_thread(lambda: reader.search("words", limit=1)),
    )
    # Whoever still reads what is in the log keeps it from being emptied.
    [(busy, *_)] = select(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    assert (busy, get_size(Path(f"{path}-wal"))) == (0, 0)


async def test_the_log_shrinks_again_after_one_large_write(store: SqliteStore, path: Path) -> None:
    log = Path(f"{path}-wal")
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "x" * (24 << 20))))
    assert get_size(log) > JOURNAL_BYTES
    # The log was moved into the database after that commit, so the next one begins it anew.
    await store.apply(PartUpdated(part=text("prt_2", "small")))
    assert get_size(log) <= JOURNAL_BYTES


async def test_deleting_a_session_leaves_nothing_behind(store: SqliteStore, path: Path) -> None:
    await store.apply(
        SessionCreated(info=session()),
        MessageUpdated(info=prompt()),
        PartUpdated(part=text("prt_1", "shuttle")),
    )
    await store.apply(growth("prt_1", " more", 7))
    assert len(await store.search("shuttle", limit=5)) == 1
    await store.apply(SessionDeleted(info=session()))
    tables = [
        "session",
        "history",
        "message",
        "part",
        "growth",
        "usage",
        "call",
        "stale_message",
        "stale_title",
    ]
    assert [select(path, f"SELECT count(*) FROM {table}") for table in tables] == [[(0,)]] * len(tables)


PAGE_QUERY = SessionQuery(project_id=ProjectID("p1"), order="updated", limit=100)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (PAGE_QUERY, "session_by_project_and_updated"),
        (replace(PAGE_QUERY, order="created"), "session_by_project_and_created"),
        (replace(PAGE_QUERY, project_id=None), "session_by_updated"),
        (replace(PAGE_QUERY, project_id=None, order="created"), "session_by_created"),
        (replace(PAGE_QUERY, start=1, end=2), "session_by_project_and_updated"),
        (replace(PAGE_QUERY, search="loom"), "session_by_project_and_updated"),
        (
            replace(PAGE_QUERY, roots=True, archived=False, pinned=True, directory="/", tags=("a",)),
            "session_by_project_and_updated",
        ),
    ],
)
async def test_a_page_of_sessions_is_read_in_the_order_of_an_index(
    store: SqliteStore, query: SessionQuery, index: str
) -> None:
    built = build_session_query(query, DIALECT)

    def explain(connection: apsw.Connection) -> list[str]:
        rows = connection.execute(
            f"EXPLAIN QUERY PLAN SELECT document FROM session {built.sql}", built.values
        )
        return [row[3] for row in rows]

    # A second line would say that all rows are sorted.
    [plan] = await store.writer.run(explain)
    assert f"USING INDEX {index}" in plan


async def test_children_are_found_by_their_parent(store: SqliteStore) -> None:
    built = build_session_query(SessionQuery(parent_id=SESSION), DIALECT)

    def explain(connection: apsw.Connection) -> str:
        rows = connection.execute(
            f"EXPLAIN QUERY PLAN SELECT document FROM session {built.sql}", built.values
        )
        return next(row[3] for row in rows)

    assert "SEARCH session USING INDEX session_by_parent" in await store.writer.run(explain)


async def test_times_beyond_64_bits_are_stored_and_found(store: SqliteStore) -> None:
    huge = replace(session(created=1), time=replace(session().time, created=1 << 70, updated=-(1 << 70)))
    message = prompt(created=1 << 80)
    await store.apply(SessionCreated(info=huge), MessageUpdated(info=message))
    assert await store.query_sessions(SessionQuery(end=0)) == [huge]
    assert await store.query_sessions(SessionQuery(start=-(1 << 90), end=1 << 90)) == [huge]
    assert await store.query_sessions(SessionQuery(after=f"{1 << 90}.ses_0")) == [huge]
    assert await store.list_messages(SESSION) == [with_parts(message)]


async def test_a_parent_that_is_not_an_id_is_stored_and_found(store: SqliteStore) -> None:
    hostile = SessionID("half \ud83d and nul \x00")
    child = replace(session(), parent_id=hostile)
    await store.apply(SessionCreated(info=child))
    assert await store.query_sessions(SessionQuery(parent_id=hostile)) == [child]
    assert await store.query_sessions(SessionQuery(parent_id=SessionID("half"))) == []


async def test_an_id_that_no_store_could_use_changes_nothing(store: SqliteStore) -> None:
    with pytest.raises(InvalidIdError):
        await store.apply(SessionCreated(info=session()), SessionCreated(info=session("../escape")))
    assert await store.list_sessions() == []


async def test_a_document_that_cannot_be_read_is_skipped_and_reported_once(path: Path) -> None:
    reported: list[str] = []
    async with open_sqlite_store(str(path), damaged=lambda each: reported.append(each.where)) as store:
        await store.apply(
            SessionCreated(info=session()),
            SessionCreated(info=session("ses_2", created=1)),
            MessageUpdated(info=prompt()),
            PartUpdated(part=text("prt_1", "a")),
            PartUpdated(part=text("prt_2", "b")),
        )
        select(path, "UPDATE session SET document = CAST('{' AS BLOB) WHERE id = 'ses_2'")
        select(path, "UPDATE part SET document = CAST('[]' AS BLOB) WHERE id = 'prt_2'")
        assert await store.list_sessions() == [session()]
        assert await store.list_sessions() == [session()]
        assert await store.list_messages(SESSION) == [with_parts(prompt(), text("prt_1", "a"))]
        places = [f"{path}#session/ses_2", f"{path}#part/{SESSION}/{PROMPT}/prt_2"]
        assert reported == places
        assert [each.where for each in await store.damage()] == places


# --- leases ---


HOLD = """
import asyncio, sys
from weft.store.url import open_store
from weft.model.event import SessionCreated
from weft.testing.store_samples import SESSION, session

async def main():
    async with open_store(sys.argv[1]) as store:
        await store.apply(SessionCreated(info=session()))
        async with store.lease(SESSION, "the doomed") as token:
            print(token.generation, flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""


def hold_elsewhere(path: Path) -> subprocess.Popen[str]:
    """Start a process that takes the lease and keeps it."""
    return subprocess.Popen([sys.executable, "-c", HOLD, f"sqlite:{path}"], stdout=subprocess.PIPE, text=True)


async def test_the_lease_of_a_killed_process_is_free_at_once(store: SqliteStore, path: Path) -> None:
    holder = hold_elsewhere(path)
    assert holder.stdout is not None
    generation = int(await asyncio.to_thread(holder.stdout.readline))
    assert (await store.find_holder(SESSION), await store.list_abandoned()) == ("the doomed", [])
    assert open_reader(f"sqlite:{path}").list_running() == {SESSION}
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert (await store.find_holder(SESSION), await store.list_abandoned()) == (None, [SESSION])
    assert open_reader(f"sqlite:{path}").list_running() == set()
    async with store.lease(SESSION, "the next") as token:
        assert token.generation > generation
        assert await store.list_abandoned() == []
    assert await store.list_abandoned() == []


async def test_the_lease_of_a_dead_process_is_removed_with_its_session(
    store: SqliteStore, path: Path
) -> None:
    await store.apply(SessionCreated(info=session()))
    select(path, "INSERT INTO lease (session, owner, holder) VALUES ('ses_1', x'61', 'nobody.holder')")
    assert await store.list_abandoned() == [SESSION]
    await store.apply(SessionDeleted(info=session()))
    assert await store.list_abandoned() == []
    assert select(path, "SELECT count(*) FROM lease") == [(0,)]


async def test_a_holder_that_lost_its_lock_file_loses_the_lease(store: SqliteStore, path: Path) -> None:
    await store.apply(SessionCreated(info=session()))
    async with open_sqlite_store(str(path)) as other, store.lease(SESSION, "the first") as old:
        remove_holders(path)
        async with other.lease(SESSION, "the second"):
            with pytest.raises(LeaseLostError) as raised:
                await store.apply(SessionUpdated(info=session(title="late")), leases=[old])
            assert raised.value.owner == "the second"
    assert await store.get_session(SESSION) == session()


async def test_lock_files_of_dead_processes_are_removed(path: Path) -> None:
    for name in ("1-dead.holder", "2-young.holder"):
        put_file(Path(f"{path}-locks/{name}"))
    os.utime(f"{path}-locks/1-dead.holder", (0, 0))
    async with open_sqlite_store(str(path)):
        assert sorted(name.partition("-")[0] for name in list_holders(path)) == sorted(
            [str(os.getpid()), "2"]
        )
    assert list_holders(path) == ["2-young.holder"]


# --- reading without an event loop ---


async def test_reading_a_store_that_does_not_exist_creates_nothing(path: Path) -> None:
    reader = open_reader(f"sqlite:{path}")
    assert (reader.list_sessions(), reader.list_trash(), reader.list_running()) == ([], [], set())
    assert list(path.parent.iterdir()) == []
    async with open_sqlite_store(str(path)) as store:
        await store.apply(SessionCreated(info=session()))
        assert reader.list_sessions() == [session()]


async def test_chains_of_an_older_version_are_numbered_anew_by_the_upgrade(path: Path) -> None:
    steps = list_migrations()
    DatabaseFile(str(path), migrations=[step for step in steps if step.number <= 3]).prepare()
    with sqlite3.connect(path) as old:
        old.executescript("""INSERT INTO history (number, session, since) VALUES (7, 'ses_1', 1), (9, 'ses_2', 1);
            INSERT INTO chain (history, hash, body) VALUES (9, x'0a', x'61'), (7, x'0b', x'62'), (9, x'0c', x'63');""")
    old.close()
    async with open_sqlite_store(str(path)) as store:
        assert (await store.read_chain(SESSION)).lines == [b"0b b"]
        assert (await store.read_chain(SessionID("ses_2"))).lines == [b"0a a", b"0c c"]
        await store.apply(SessionCreated(info=session()))
        assert len((await store.read_chain(SESSION)).lines) == 2
