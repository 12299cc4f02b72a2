"""The file store after a power failure: what was promised is there, and nothing that was refused comes back."""

import errno
from pathlib import Path
from random import Random

import pytest

from given.simulated_disk import Inode, Medium, SimulatedDisk, Trouble
from weft.errors import StoreError
from weft.maintenance.proof import check_session
from weft.model.event import MessageUpdated, PartUpdated, SessionCreated
from weft.model.transfer import SessionExport
from weft.store.files.store import FileStore
from weft.testing.store_values import NOW, SESSION, prompt, session, text


class ChosenTrouble(Trouble):
    """Lets the operations fail that a test names by their kind and a word of their path, each once."""

    def __init__(self) -> None:
        super().__init__(Random(1), lambda _: None)
        self.failing: list[tuple[str, str]] = []

    def meet(self, operation: str, path: str) -> OSError | None:
        for kind, word in self.failing:
            if kind == operation and word in path:
                self.failing.remove((kind, word))
                return OSError(errno.EIO, "I/O error", path)
        return super().meet(operation, path)


@pytest.fixture
def medium(tmp_path: Path) -> Medium:
    return Medium(str(tmp_path / "storage"))


async def open_store(medium: Medium, trouble: Trouble | None = None) -> FileStore:
    store = FileStore(medium.root, disk=SimulatedDisk(medium, trouble or ChosenTrouble()))
    await store.prepare(lambda _: None)
    return store


def read_durable(inode: Inode) -> bytes:
    return inode.durable


async def list_texts(store: FileStore) -> list[str]:
    return [part.text for message in await store.list_messages(SESSION) for part in message.parts]  # type: ignore[union-attr]


async def test_what_a_killed_process_wrote_is_promised_once_another_has_continued(medium: Medium) -> None:
    trouble = ChosenTrouble()
    killed, other = await open_store(medium, trouble), await open_store(medium)
    await killed.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    async with killed.lease(SESSION, "killed") as lease:
        await killed.apply(PartUpdated(part=text("prt_1", "one")), leases=[lease])
        trouble.dead = True
    async with other.lease(SESSION, "other") as lease:
        await other.apply(MessageUpdated(info=prompt("msg_3", created=NOW + 2)), leases=[lease])
    medium.cut(read_durable)
    assert await list_texts(await open_store(medium)) == ["one"]


async def test_what_a_process_wrote_under_its_lease_is_flushed_before_the_next_has_it(medium: Medium) -> None:
    first, other = await open_store(medium), await open_store(medium)
    await first.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    async with first.lease(SESSION, "first") as lease:
        await first.apply(PartUpdated(part=text("prt_1", "one")), leases=[lease])
    async with other.lease(SESSION, "other") as lease:
        await other.apply(MessageUpdated(info=prompt("msg_3", created=NOW + 2)), leases=[lease])
    medium.cut(read_durable)
    assert await list_texts(await open_store(medium)) == ["one"]


async def test_what_could_not_be_flushed_is_flushed_with_the_next_write(medium: Medium) -> None:
    trouble = ChosenTrouble()
    store = await open_store(medium, trouble)
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    await store.apply(PartUpdated(part=text("prt_1", "one")))
    trouble.failing = [("flush", "prt_1")]
    with pytest.raises(StoreError):
        await store.apply(MessageUpdated(info=prompt("msg_3", created=NOW + 2)))
    await store.apply(MessageUpdated(info=prompt("msg_3", created=NOW + 2)))
    medium.cut(read_durable)
    assert await list_texts(await open_store(medium)) == ["one"]


async def test_a_document_that_was_promised_outlives_one_that_replaces_it_and_is_not_flushed(
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


async def test_a_write_that_was_refused_does_not_come_back(medium: Medium) -> None:
    trouble = ChosenTrouble()
    store = await open_store(medium, trouble)
    await store.apply(SessionCreated(info=session()))
    trouble.failing = [("move", "prt_1")]
    with pytest.raises(StoreError):
        await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "one")))
    medium.cut(read_durable, lost=medium.unflushed_names)
    assert await (await open_store(medium)).list_messages(SESSION) == []


async def test_a_write_whose_note_can_be_neither_flushed_nor_removed_is_finished_whole_by_the_next(
    medium: Medium,
) -> None:
    trouble = ChosenTrouble()
    store = await open_store(medium, trouble)
    await store.apply(SessionCreated(info=session()))
    trouble.failing = [("flush", "redo"), ("remove", "redo")]
    with pytest.raises(StoreError):
        await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "one")))
    assert await list_texts(store) == ["one"]
    history = tuple(await store.list_messages(SESSION))
    export = SessionExport(info=await store.get_session(SESSION), messages=history)
    assert check_session(SESSION, await store.read_chain(SESSION), export).findings == ()
