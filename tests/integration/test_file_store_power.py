"""The file store after a power failure: what was promised is there, and nothing that was refused comes back."""

import errno
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from given.simulated_disk import DiskFaults, Inode, Medium, SimulatedDisk
from weft.errors import StoreError
from weft.host.files import Disk
from weft.maintenance.proof import check_session
from weft.model.event import MessageUpdated, PartUpdated, SessionCreated, SessionUpdated
from weft.model.transfer import SessionExport
from weft.store.files.layout import Layout
from weft.store.files.lock import SessionLocks
from weft.store.files.store import FileStore
from weft.testing.store_samples import NOW, PROMPT, SESSION, prompt, session, text, with_parts


class ChosenFaults(DiskFaults):
    """Makes operations fail once each. A test names them by kind and by a piece of the path; `$` is its end."""

    def __init__(self) -> None:
        super().__init__(Random(1), lambda _: None)
        self.failing: list[tuple[str, str]] = []

    def find_error(self, operation: str, path: str) -> OSError | None:
        for kind, word in self.failing:
            if kind == operation and word in f"{path}$":
                self.failing.remove((kind, word))
                return OSError(errno.EIO, "I/O error", path)
        return super().find_error(operation, path)


class NotedDisk(Disk):
    """Notes what is done to files and directories, in order. Temporary files are all called `temp`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.done: list[str] = []

    def _record(self, what: str, path: str) -> None:
        relative = str(Path(path).relative_to(self._root)).removeprefix(".weft/")
        name = "temp" if relative.startswith("temp/") else relative
        self.done.append(f"{what} {name}")

    def prepare(self, temp: str, raw: bytes, *, flush: bool = False) -> None:
        self._record("write and flush" if flush else "write", temp)
        super().prepare(temp, raw, flush=flush)

    def move(self, source: str, target: str) -> list[str]:
        self._record("move to", target)
        return super().move(source, target)

    def remove(self, path: str) -> None:
        self._record("remove", path)
        super().remove(path)

    def flush(self, path: str) -> None:
        self._record("flush", path)
        super().flush(path)

    def flush_many(self, paths: Sequence[str]) -> None:
        self._flush_each(paths)  # in their order


@pytest.fixture
def medium(tmp_path: Path) -> Medium:
    return Medium(str(tmp_path / "storage"))


async def open_store(medium: Medium, trouble: DiskFaults | None = None) -> FileStore:
    store = FileStore(medium.root, disk=SimulatedDisk(medium, trouble or ChosenFaults()))
    await store.prepare(lambda _: None)
    return store


def read_durable(inode: Inode) -> bytes:
    return inode.durable


async def list_texts(store: FileStore) -> list[str]:
    return [part.text for message in await store.list_messages(SESSION) for part in message.parts]  # type: ignore[union-attr]


async def test_writes_of_a_killed_process_are_durable_once_another_process_continued(medium: Medium) -> None:
    trouble = ChosenFaults()
    killed, other = await open_store(medium, trouble), await open_store(medium)
    await killed.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    async with killed.lease(SESSION, "killed") as lease:
        await killed.apply(PartUpdated(part=text("prt_1", "one")), leases=[lease])
        trouble.dead = True
    async with other.lease(SESSION, "other") as lease:
        await other.apply(MessageUpdated(info=prompt("msg_3", created=NOW + 2)), leases=[lease])
    medium.cut(read_durable)
    assert await list_texts(await open_store(medium)) == ["one"]


async def test_writes_under_a_lease_are_flushed_before_the_next_holder_has_it(medium: Medium) -> None:
    first, other = await open_store(medium), await open_store(medium)
    await first.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    async with first.lease(SESSION, "first") as lease:
        await first.apply(PartUpdated(part=text("prt_1", "one")), leases=[lease])
    async with other.lease(SESSION, "other") as lease:
        await other.apply(MessageUpdated(info=prompt("msg_3", created=NOW + 2)), leases=[lease])
    medium.cut(read_durable)
    assert await list_texts(await open_store(medium)) == ["one"]


async def test_the_next_holder_of_a_lease_flushes_the_writes_that_could_not_be_flushed(
    medium: Medium,
) -> None:
    trouble = ChosenFaults()
    first, other = await open_store(medium, trouble), await open_store(medium)
    await first.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    async with first.lease(SESSION, "first") as lease:
        await first.apply(PartUpdated(part=text("prt_1", "one")), leases=[lease])
        trouble.failing = [("flush", "prt_1")]
    assert trouble.failing == []
    async with other.lease(SESSION, "other") as lease:
        await other.apply(MessageUpdated(info=prompt("msg_3", created=NOW + 2)), leases=[lease])
    medium.cut(read_durable)
    assert await list_texts(await open_store(medium)) == ["one"]


async def test_writes_that_could_not_be_flushed_are_flushed_with_the_next_write(medium: Medium) -> None:
    trouble = ChosenFaults()
    store = await open_store(medium, trouble)
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    await store.apply(PartUpdated(part=text("prt_1", "one")))
    trouble.failing = [("flush", "prt_1")]
    with pytest.raises(StoreError):
        await store.apply(MessageUpdated(info=prompt("msg_3", created=NOW + 2)))
    await store.apply(MessageUpdated(info=prompt("msg_3", created=NOW + 2)))
    medium.cut(read_durable)
    assert await list_texts(await open_store(medium)) == ["one"]


async def test_a_flushed_document_survives_an_unflushed_replacement(
    medium: Medium,
) -> None:
    store = await open_store(medium)
    await store.apply(
        SessionCreated(info=session()), MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "one"))
    )
    for words in ("two", "three"):
        await store.apply(PartUpdated(part=text("prt_1", words)))
    medium.cut(read_durable)
    assert await list_texts(await open_store(medium)) == ["three"]


async def test_a_refused_write_does_not_reappear(medium: Medium) -> None:
    trouble = ChosenFaults()
    store = await open_store(medium, trouble)
    await store.apply(SessionCreated(info=session()))
    trouble.failing = [("move", "prt_1")]
    with pytest.raises(StoreError):
        await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "one")))
    medium.cut(read_durable, lost=medium.unflushed_names)
    assert await (await open_store(medium)).list_messages(SESSION) == []


@pytest.mark.parametrize("directory", ["/temp$", "/redo$"])
@pytest.mark.parametrize("lost", range(6))
async def test_a_write_whose_note_could_not_be_flushed_does_not_reappear(
    medium: Medium, directory: str, lost: int
) -> None:
    trouble = ChosenFaults()
    store = await open_store(medium, trouble)
    await store.apply(SessionCreated(info=session()))
    trouble.failing = [("flush", directory)]
    with pytest.raises(StoreError):
        await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "one")))
    medium.cut(read_durable, lost=min(lost, medium.unflushed_names))
    assert await (await open_store(medium)).list_messages(SESSION) == []


async def write_renamed(store: FileStore) -> None:
    """Write a prompt that is there already, and its session, in one batch."""
    info = replace(prompt(), agent="plan")
    await store.apply(MessageUpdated(info=info), SessionUpdated(info=session(title="Renamed")))


async def test_a_document_that_a_refused_write_had_replaced_survives(medium: Medium) -> None:
    trouble = ChosenFaults()
    store = await open_store(medium, trouble)
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    trouble.failing = [("move", "ses_1.json$")]
    with pytest.raises(StoreError):
        await write_renamed(store)
    medium.cut(read_durable)
    assert await (await open_store(medium)).list_messages(SESSION) == [with_parts(prompt())]


async def test_a_full_disk_hides_no_document_of_a_write_that_cannot_be_rolled_back(medium: Medium) -> None:
    trouble = ChosenFaults()
    store = await open_store(medium, trouble)
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    trouble.failing = [("move", "ses_1.json$"), ("prepare", ".old$")]
    with pytest.raises(StoreError):
        await write_renamed(store)
    trouble.failing = [("extend", "chain/"), ("append", "chain/")]  # the write cannot be completed either
    assert await store.find_message(SESSION, PROMPT) is not None
    trouble.failing = []
    assert (await store.get_session(SESSION)).title in ("", "Renamed")
    await store.apply(MessageUpdated(info=prompt("msg_3", created=NOW + 2)))
    assert (await store.get_session(SESSION)).title == "Renamed"


async def test_a_failed_write_whose_note_cannot_be_removed_is_finished_later(
    medium: Medium,
) -> None:
    trouble = ChosenFaults()
    store = await open_store(medium, trouble)
    await store.apply(SessionCreated(info=session()))
    trouble.failing = [("flush", "redo"), ("remove", "redo")]
    with pytest.raises(StoreError):
        await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "one")))
    assert await list_texts(store) == ["one"]
    history = tuple(await store.list_messages(SESSION))
    export = SessionExport(info=await store.get_session(SESSION), messages=history)
    assert check_session(SESSION, await store.read_chain(SESSION), export).findings == ()


async def test_what_the_next_writer_finished_is_flushed_before_a_later_write_is_acknowledged(
    medium: Medium,
) -> None:
    trouble = ChosenFaults()
    store = await open_store(medium, trouble)
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    trouble.failing = [("remove", "redo")]
    with pytest.raises(StoreError):
        await store.apply(PartUpdated(part=text("prt_1", "one")), PartUpdated(part=text("prt_2", "two")))
    assert await list_texts(store) == ["one", "two"]
    await store.apply(MessageUpdated(info=prompt("msg_3", created=NOW + 2)))
    medium.cut(read_durable)
    assert await list_texts(await open_store(medium)) == ["one", "two"]


async def test_a_batch_is_noted_on_the_disk_before_it_begins_and_until_it_is_done(tmp_path: Path) -> None:
    disk = NotedDisk(tmp_path)
    store = FileStore(str(tmp_path), disk=disk)
    await store.prepare(lambda _: None)
    disk.done.clear()
    await store.apply(SessionCreated(info=session("ses_2")), SessionCreated(info=session("ses_1")))
    assert disk.done == [
        "write temp",
        "write temp",
        "flush temp",
        "flush temp",
        "flush temp",  # the directory of both
        # The holder of any of the locks must find the note. So the pointer to it is written first and removed last.
        "write and flush redo/session.ses_2",
        "write and flush redo/session.ses_1",
        "flush redo",
        "move to session/p1/ses_2.json",
        "move to session/p1/ses_1.json",
        "remove redo/session.ses_1",
        "remove redo/session.ses_2",
        "flush chain/ses_2",
        "flush chain",
        "flush chain/ses_1",
        "flush .",
        "flush session",
        "flush session/p1",
    ]


def test_locks_are_always_taken_in_the_same_order(tmp_path: Path) -> None:
    taken: list[str] = []
    locks = SessionLocks(Layout(str(tmp_path)), Disk(), lambda lock, _before, _mark: taken.append(lock))
    for wanted in (["value.2", "session.b", "session.a"], ["session.a", "session.b", "value.2"]):
        with locks.writing(wanted) as held:
            assert (list(held), taken) == (sorted(wanted), sorted(wanted))
        taken.clear()
