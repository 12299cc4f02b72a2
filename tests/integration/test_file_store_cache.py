"""The cache of the file store, and that it notices every change by other writers."""

import asyncio
import gc
import json
import sys
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from given.file_store import make_old, open_file_store
from weft.host.files import hold_lock
from weft.model.event import MessageRemoved, MessageUpdated, PartUpdated, SessionCreated, SessionDeleted
from weft.model.ids import MessageID, SessionID
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import TextPart
from weft.model.session import SessionInfo
from weft.store.files.layout import session_lock
from weft.store.files.message_cache import FULL_CHECK_MS, NEWEST_CHECKED, MessageCache
from weft.store.files.messages import MessageReader
from weft.store.files.store import FileStore
from weft.store.files.tree import Tree
from weft.testing.store_samples import NOW, SESSION, growth, prompt, session, text

MANY = NEWEST_CHECKED + 10


def name(number: int) -> str:
    return f"msg_{number:03}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
async def store(root: Path) -> FileStore:
    """A store with a session whose files are all old enough for their stamps to be trusted."""
    store = await open_file_store(root)
    await store.apply(SessionCreated(info=session()))
    for number in range(MANY):
        await store.apply(
            MessageUpdated(info=prompt(name(number), created=NOW + number)),
            PartUpdated(part=text(f"prt_{number:03}", "warp", of=name(number))),
        )
    age_all(root)
    return store


def age_all(root: Path) -> None:
    for path in (*root.rglob("*.json"), *root.glob("message/*"), *root.glob("part/*")):
        make_old(path)


def list_texts(messages: list[MessageWithParts]) -> list[str]:
    return [part.text for message in messages for part in message.parts if isinstance(part, TextPart)]


def overwrite(root: Path, number: int, words: str) -> None:
    """Overwrite a file in place and without a lock, as OpenCode does."""
    path = root / "part" / name(number) / f"prt_{number:03}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "text": words}))


class Reading:
    """The cache by itself, with a manual clock."""

    def __init__(self, root: Path) -> None:
        tree = Tree(str(root))
        self.now = 1_000_000
        self._lock = tree.layout.lock(session_lock(SESSION))
        self._remembered = MessageCache(MessageReader(tree), limit=1 << 20, now=lambda: self.now)

    def __call__(self, mark: bytes | None = b"one") -> list[MessageWithParts]:
        with hold_lock(self._lock):
            return self._remembered.list_messages(SESSION, mark)


async def test_an_unchanged_message_is_the_same_object(store: FileStore) -> None:
    first, second = await store.list_messages(SESSION), await store.list_messages(SESSION)
    assert len(first) == MANY
    assert all(one is other for one, other in zip(first, second, strict=True))


async def test_a_returned_list_belongs_to_the_caller(store: FileStore) -> None:
    (await store.list_messages(SESSION)).clear()
    assert len(await store.list_messages(SESSION)) == MANY


async def test_our_own_writes_are_seen_at_any_position(store: FileStore) -> None:
    before = await store.list_messages(SESSION)
    await store.apply(
        PartUpdated(part=text("prt_003", "weft", of=name(3))),
        MessageRemoved(session_id=SESSION, message_id=MessageID(name(5))),
        MessageUpdated(info=prompt("msg_between", created=NOW + 7)),
    )
    after = await store.list_messages(SESSION)
    assert list_texts(after[3:4]) == ["weft"]
    ids = [message.info.id for message in before if message.info.id != name(5)]
    place = ids.index(MessageID(name(7))) + 1
    assert [message.info.id for message in after] == [*ids[:place], "msg_between", *ids[place:]]
    assert after[0] is before[0]


async def test_parts_that_we_wrote_are_not_read_again(store: FileStore) -> None:
    before = await store.list_messages(SESSION)
    part = text("prt_003", "weft", of=name(3))
    await store.apply(PartUpdated(part=part))
    after = await store.list_messages(SESSION)
    assert after[3].parts[0] is part
    assert [message.info.id for message in after] == [message.info.id for message in before]
    assert all(one is other for one, other in zip(after, before, strict=True) if one is not after[3])


async def test_an_old_message_of_ours_overwritten_by_opencode_is_seen_within_a_minute(
    root: Path, store: FileStore
) -> None:
    now = 0
    remembered = MessageCache(MessageReader(Tree(str(root))), limit=1 << 20, now=lambda: now)
    remembered.list_messages(SESSION, b"ours")
    with remembered.writing([PartUpdated(part=text("prt_003", "weft", of=name(3)))]):
        pass
    assert list_texts(remembered.list_messages(SESSION, b"ours")[3:4]) == ["weft"]
    now += FULL_CHECK_MS
    assert list_texts(remembered.list_messages(SESSION, b"ours")) == list_texts(
        await store.list_messages(SESSION)
    )


async def test_a_message_is_read_again_after_a_failed_write(root: Path, store: FileStore) -> None:
    remembered = MessageCache(MessageReader(Tree(str(root))), limit=1 << 20, now=lambda: 0)
    before = list_texts(remembered.list_messages(SESSION, b"ours"))
    with (
        pytest.raises(PermissionError),
        remembered.writing([PartUpdated(part=text("prt_003", "weft", of=name(3)))]),
    ):
        raise PermissionError
    assert list_texts(remembered.list_messages(SESSION, b"ours")) == before


async def test_growth_is_seen(store: FileStore) -> None:
    await store.apply(PartUpdated(part=text("prt_1", "wa", of=name(2))))
    await store.list_messages(SESSION)
    await store.apply(growth("prt_1", "rp", 2, of=name(2)))
    assert list_texts((await store.list_messages(SESSION))[2:3]) == ["warp", "warp"]


@pytest.mark.parametrize("number", [0, MANY - 1], ids=["far back", "the newest"])
async def test_writes_of_another_process_are_seen_at_once(store: FileStore, root: Path, number: int) -> None:
    other = FileStore(str(root))
    await store.list_messages(SESSION)
    await other.apply(PartUpdated(part=text(f"prt_{number:03}", "weft", of=name(number))))
    assert list_texts((await store.list_messages(SESSION))[number : number + 1]) == ["weft"]


async def test_a_write_by_another_process_is_seen_after_a_later_write_of_ours(
    store: FileStore, root: Path
) -> None:
    other = FileStore(str(root))
    await store.list_messages(SESSION)
    await other.apply(PartUpdated(part=text("prt_000", "weft", of=name(0))))
    await store.apply(PartUpdated(part=text(f"prt_{MANY - 1:03}", "ours", of=name(MANY - 1))))
    messages = list_texts(await store.list_messages(SESSION))
    assert (messages[0], messages[-1]) == ("weft", "ours")


async def test_the_newest_message_overwritten_by_opencode_is_seen_at_once(
    store: FileStore, root: Path
) -> None:
    read = Reading(root)
    read()
    overwrite(root, MANY - 1, "weft")
    assert list_texts(read())[-1] == "weft"


async def test_after_a_write_of_opencode_everything_is_checked(store: FileStore, root: Path) -> None:
    read = Reading(root)
    read()
    overwrite(root, MANY - 1, "weft")
    overwrite(root, 0, "weft")
    assert list_texts(read())[0] == "weft"
    overwrite(root, 1, "weft")  # and for a while after, because OpenCode may still be writing
    assert list_texts(read())[1] == "weft"


async def test_an_old_message_written_by_opencode_is_seen_within_a_minute(
    store: FileStore, root: Path
) -> None:
    read = Reading(root)
    read()
    overwrite(root, 0, "weft")
    read.now += FULL_CHECK_MS
    assert list_texts(read())[0] == "weft"


@pytest.mark.parametrize("mark", [None, b"two"], ids=["no mark", "somebody's mark"])
async def test_without_a_known_mark_everything_is_checked(
    store: FileStore, root: Path, mark: bytes | None
) -> None:
    read = Reading(root)
    read()
    overwrite(root, 0, "weft")
    assert list_texts(read(mark))[0] == "weft"


async def test_an_unreadable_message_is_skipped_until_it_can_be_read(store: FileStore, root: Path) -> None:
    read = Reading(root)
    path = root / "message" / SESSION / f"{name(4)}.json"
    sound = path.read_text()
    path.write_text("{")
    make_old(path)
    assert name(4) not in [message.info.id for message in read()]
    path.write_text(sound)
    assert name(4) in [message.info.id for message in read()]


async def test_the_cache_is_bounded(store: FileStore, root: Path) -> None:
    tree = Tree(str(root))
    remembered = MessageCache(MessageReader(tree), limit=100)
    first, second = (remembered.list_messages(SESSION, b"one") for _ in range(2))
    assert first == second
    assert not remembered.has(SESSION)


async def test_the_last_messages_equal_the_end_of_all_messages(store: FileStore) -> None:
    few = await store.list_messages(SESSION, last=4, before=MessageID(name(9)))
    everything = await store.list_messages(SESSION)
    assert few == everything[5:9]
    assert await store.list_messages(SESSION, last=4, before=MessageID(name(9))) == few


async def test_concurrent_reads_writes_and_evictions_do_not_conflict(
    tmp_path: Path,
) -> None:
    store = await open_file_store(tmp_path / "storage")
    names = [SessionID(f"ses_{number}") for number in range(4)]
    for id in names:
        await store.apply(
            SessionCreated(info=session(id)),
            MessageUpdated(info=replace(prompt(f"msg_{id}"), session_id=id)),
            PartUpdated(part=replace(text(f"prt_{id}", "warp", of=f"msg_{id}"), session_id=id)),
        )
    # Only one fits: a reader evicts what another thread is about to use.
    remembered = MessageCache(MessageReader(Tree(str(tmp_path / "storage"))), limit=1)
    faults: list[BaseException] = []

    def work(id: SessionID) -> None:
        try:
            for number in range(300):
                part = replace(text(f"prt_{id}", f"weft {number}", of=f"msg_{id}"), session_id=id)
                assert len(remembered.list_messages(id, b"")) == 1
                with remembered.writing([PartUpdated(part=part)]):
                    remembered.note_mark(session_lock(id), b"", b"")
        except Exception as fault:  # noqa: BLE001  told to whoever joins
            faults.append(fault)

    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(id,)) for id in (*names, *names)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    finally:
        sys.setswitchinterval(often)
    assert faults == []


async def test_waiting_for_a_lock_does_not_block_others(root: Path, store: FileStore) -> None:
    await store.apply(SessionCreated(info=session("ses_other")))
    with hold_lock(str(root / ".weft/lock" / session_lock(SESSION))):
        waiting = [asyncio.ensure_future(store.edit(SESSION, lambda it: it)) for _ in range(40)]
        await asyncio.sleep(0)
        async with asyncio.timeout(60):  # they wait for our lock: without spare threads nothing would end
            await asyncio.get_running_loop().getaddrinfo("localhost", 80)
            assert (await store.get_session(SessionID("ses_other"))).id == "ses_other"
        assert not any(each.done() for each in waiting)
    await asyncio.gather(*waiting)


def find_held(session: SessionID) -> list[object]:
    """Return the documents of a session that this process holds."""
    gc.collect()
    found = [each for each in gc.get_objects() if isinstance(each, SessionInfo | UserMessage | TextPart)]
    return [
        each for each in found if session == (each.id if isinstance(each, SessionInfo) else each.session_id)
    ]


@pytest.mark.parametrize("trashed", [False, True])
async def test_a_removed_session_leaves_no_document_in_memory(store: FileStore, *, trashed: bool) -> None:
    others = find_held(SESSION)  # of other tests in this process, whose sessions have the same id

    def count_held() -> int:
        known = {id(each) for each in others}
        return sum(id(each) not in known for each in find_held(SESSION))

    await store.get_session(SESSION)
    await store.list_messages(SESSION, last=MANY)  # reads documents one by one, into their own cache
    await store.list_messages(SESSION)
    assert count_held() > MANY
    if trashed:
        await store.discard([SESSION], at=NOW)
    else:
        await store.apply(SessionDeleted(info=await store.get_session(SESSION)))
    assert await store.list_sessions() == []
    for _ in range(100):  # a thread of the store holds its last result until it gets to run again
        if count_held() == 0:
            break
        await asyncio.sleep(0.01)
    assert count_held() == 0
