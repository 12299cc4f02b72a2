"""Verify and migrate: every store has the same counts and hashes, and a migration can be interrupted anywhere."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from given.small_tree import CHILD, FIRST, OTHER, contents, fill, open_file_store, put_session
from weft.errors import StoreError
from weft.host.now import now
from weft.maintenance.migrate import Migration, digest_session, migrate, read_export
from weft.maintenance.verify import VerifyResult, open_tree, verify_store, verify_tree
from weft.model.event import (
    Durable,
    MessageRemoved,
    MessageUpdated,
    PartUpdated,
    SessionCreated,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import MessageID, SessionID
from weft.model.part import TextPart
from weft.model.session import Session, Todo
from weft.store.contract import Store
from weft.store.files.store import FileStore
from weft.store.memory import MemoryStore
from weft.testing.store_values import HOSTILE, NOW, answer, many_parts, prompt, session, text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "storage"


def verified(root: Path) -> VerifyResult:
    return verify_tree(open_tree(str(root)), now=now())


def outcomes(migration: Migration) -> dict[str, str]:
    return {each.session: each.outcome for each in migration.moved}


async def hashes(store: Store) -> dict[str, str]:
    return {
        each.id: digest_session(await read_export(store, each)).hash for each in await store.list_sessions()
    }


async def filled(store: Store) -> Store:
    await fill(store)
    await store.apply(
        SessionCreated(info=session()), MessageUpdated(info=prompt()), MessageUpdated(info=answer())
    )
    await store.apply(*(PartUpdated(part=part) for part in many_parts(MessageID("msg_1"))))
    await store.apply(
        *(PartUpdated(part=text(f"prt_h{number}", words)) for number, words in enumerate(HOSTILE))
    )
    await store.put_value(("session_share", "ses_1"), {"id": "1", "secret": "s"})
    await store.put_value(("alias", "p1"), {"worktree": "/work"})
    return store


async def test_a_tree_and_a_store_verify_alike(root: Path) -> None:
    store = await open_file_store(root)
    await filled(store)
    through_store = await verify_store(store, now=now())
    of_tree = verified(root)
    assert of_tree.problems == through_store.problems == ()
    assert {each.session: each for each in of_tree.tallies} == {
        each.session: each for each in through_store.tallies
    }
    [first] = [each for each in of_tree.tallies if each.session == FIRST]
    assert (first.messages, first.parts, first.diffs, first.todos) == (2, 4, 1, 1)


async def test_every_kind_of_fault_is_named(root: Path) -> None:
    store = await open_file_store(root)
    await fill(store)
    await store.edit(SessionID(CHILD), lambda it: replace(it, parent_id=SessionID("ses_gone")))
    await store.edit(SessionID(OTHER), lambda it: replace(it, time=replace(it.time, updated=1)))
    await store.apply(MessageRemoved(session_id=SessionID(FIRST), message_id=MessageID("msg_first_1")))
    (root / "part/msg_lost").mkdir()
    (root / "part/msg_lost/prt_1.json").write_bytes(b"{}")
    (root / "todo/ses_lost.json").write_bytes(b"[]")
    verdict = verified(root)
    said = [(each.where.removeprefix(f"{root}/"), each.reason) for each in (*verdict.lost, *verdict.faults)]
    assert said == [
        ("ses_lost", "its session is gone, but its todos exist"),
        ("msg_lost", "the message is gone, but its parts exist"),
        (CHILD, "its parent ses_gone is gone"),
        ("msg_first_2", "the prompt it answers, msg_first_1, is gone"),
        (OTHER, f"created at {NOW + 2} and updated at 1, which is impossible"),
    ]
    assert [each.where for each in verdict.damage] == [f"{root}/part/msg_lost/prt_1.json"]


async def test_the_hash_changes_with_any_word_and_with_nothing_else(root: Path) -> None:
    store = MemoryStore()
    await fill(store)
    before = await hashes(store)
    await fill(store)
    assert await hashes(store) == before
    await store.apply(
        PartUpdated(part=text("prt_first_1_a", "other words", of="msg_first_1", session=FIRST)),
        TodoUpdated(session_id=SessionID(OTHER), todos=(Todo(content="x", status="y", priority="z"),)),
    )
    after = await hashes(store)
    assert {id for id in after if after[id] != before[id]} == {FIRST, OTHER}


async def test_everything_arrives_and_comes_back_with_the_same_hashes(root: Path) -> None:
    source = await filled(MemoryStore())
    target, back = await open_file_store(root), MemoryStore()
    there, again = await migrate(source, target), await migrate(target, back)
    assert there.complete
    assert again.complete
    assert await hashes(source) == await hashes(target) == await hashes(back)
    assert all(each.before == each.after for each in there.moved)
    assert await back.find_value(("session_share", "ses_1")) == {"id": "1", "secret": "s"}
    assert await back.find_value(("alias", "p1")) == {"worktree": "/work"}
    assert await back.list_projects() == await source.list_projects()


async def test_migrating_again_changes_nothing(root: Path) -> None:
    source, target = await filled(MemoryStore()), await open_file_store(root)
    await migrate(source, target)
    before = contents(root)
    assert set(outcomes(await migrate(source, target)).values()) == {"same"}
    assert contents(root) == before


async def test_a_dry_run_writes_nothing_and_tells_the_same(root: Path) -> None:
    source, target = await filled(MemoryStore()), await open_file_store(root)
    planned = await migrate(source, target, dry_run=True)
    assert contents(root) == {}
    assert outcomes(planned) == outcomes(await migrate(source, target))


class Mortal(FileStore):
    """A store whose process dies at a given write."""

    lives = 0

    async def apply(self, *events: Durable) -> None:
        if self.lives == 0:
            raise KeyboardInterrupt
        self.lives -= 1
        await super().apply(*events)


@pytest.mark.parametrize("lives", range(6))
async def test_stopped_anywhere_and_run_again_it_ends_the_same(tmp_path: Path, lives: int) -> None:
    source = await filled(await open_file_store(tmp_path / "old"))
    original = contents(tmp_path / "old")
    whole = await open_file_store(tmp_path / "whole")
    await migrate(source, whole)
    cut = Mortal(str(tmp_path / "cut"))
    await cut.prepare(lambda _: None)
    cut.lives = lives
    try:
        await migrate(source, cut, at_once=1)
    except KeyboardInterrupt:
        assert lives < 5
    assert set((await hashes(cut)).items()) <= set((await hashes(source)).items())
    finished = await migrate(source, await open_file_store(tmp_path / "cut"))
    assert finished.complete
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    assert contents(tmp_path / "old") == original


async def test_what_went_on_since_is_added_and_what_went_apart_is_left_alone() -> None:
    source, target = MemoryStore(), MemoryStore()
    await fill(source)
    await migrate(source, target)

    async def say(store: Store, id: str, message: str, words: str) -> None:
        await store.edit(
            SessionID(id), lambda it: replace(it, time=replace(it.time, updated=it.time.updated + 9))
        )
        await store.apply(
            MessageUpdated(info=prompt(message, of=id, created=NOW + 50)),
            PartUpdated(part=text(f"prt_{message}", words, of=message, session=id)),
        )

    await say(source, FIRST, "msg_later", "gone on at home")
    await say(target, CHILD, "msg_there", "gone on over there")
    await say(source, OTHER, "msg_both", "one thing")
    await say(target, OTHER, "msg_both", "another thing")
    before = await hashes(target)
    migration = await migrate(source, target)
    assert outcomes(migration) == {FIRST: "grown", CHILD: "ahead", OTHER: "differs"}
    assert not migration.complete
    after = await hashes(target)
    assert {id: after[id] for id in (CHILD, OTHER)} == {id: before[id] for id in (CHILD, OTHER)}
    assert after[FIRST] == (await hashes(source))[FIRST]


async def test_a_bad_document_is_named_and_not_migrated(root: Path) -> None:
    source = await open_file_store(root)
    await fill(source)
    (root / "part/msg_first_1/prt_first_1_a.json").write_bytes(b"\x00")
    target = MemoryStore()
    migration = await migrate(source, target)
    assert [each.where for each in migration.damage] == [f"{root}/part/msg_first_1/prt_first_1_a.json"]
    assert not migration.complete
    assert set(outcomes(migration).values()) == {"copied"}
    assert sum(len(each.parts) for each in await target.list_messages(SessionID(FIRST))) == 3


class Refusing(MemoryStore):
    """A store that refuses one session."""

    async def apply(self, *events: Durable) -> None:
        if any(isinstance(event, SessionCreated) and event.info.id == CHILD for event in events):
            raise StoreError("no room")
        await super().apply(*events)


async def test_a_session_that_cannot_be_written_does_not_block_the_others() -> None:
    source = MemoryStore()
    await fill(source)
    migration = await migrate(source, Refusing())
    assert outcomes(migration) == {FIRST: "copied", CHILD: "failed", OTHER: "copied"}
    assert [each.reason for each in migration.moved if each.reason] == ["no room"]


words = st.text(max_size=40)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=25)
@given(title=words, text=words, metadata=st.dictionaries(words, plain, max_size=3), seed=st.integers(0, 9))
def test_whatever_a_session_says_its_hash_survives_the_way_through_files(
    tmp_path_factory: pytest.TempPathFactory, title: str, text: str, metadata: dict[str, object], seed: int
) -> None:
    async def there_and_back() -> tuple[dict[str, str], dict[str, str]]:
        source, back = MemoryStore(), MemoryStore()
        target = await open_file_store(tmp_path_factory.mktemp("migrated") / "storage")
        made: Session = await put_session(source, "ses_any", created=NOW + seed, title=title)
        part = TextPart(
            id="prt_any_1_a", session_id=made.id, message_id="msg_any_1", text=text, metadata=metadata
        )
        await source.apply(PartUpdated(part=part), SessionUpdated(info=made))
        assert (await migrate(source, target)).complete
        assert (await migrate(target, back)).complete
        return await hashes(source), await hashes(back)

    before, after = asyncio.run(there_and_back())
    assert before == after
