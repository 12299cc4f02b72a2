"""Verify and migrate: counts and hashes are the same in every store, and a migration can be stopped anywhere."""

import asyncio
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from contract.test_store import make_store_url
from given.small_tree import CHILD, FIRST, OTHER, contents, fill, open_file_store, put_session
from weft.errors import StoreError
from weft.host.now import now
from weft.maintenance.migrate import (
    Migration,
    SessionDigest,
    digest_session,
    explain_kept,
    migrate,
    read_export,
)
from weft.maintenance.verify import VerifyResult, verify_store
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
from weft.model.part import AnyPart, TextPart
from weft.model.session import SessionInfo, Todo, TrashBundle
from weft.model.wire import decode, encode, to_plain
from weft.store.contract import NO_LEASES, Store
from weft.store.files.store import FileStore
from weft.store.lease import LeaseToken
from weft.store.maintenance import open_maintenance
from weft.store.memory import MemoryStore
from weft.store.url import open_store
from weft.testing.store_samples import HOSTILE, NOW, answer, many_parts, prompt, session, text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "storage"


def verify(root: Path) -> VerifyResult:
    return verify_store(open_maintenance(f"file:{root}"), now=now())


def outcomes(migration: Migration) -> dict[str, str]:
    return {each.session: each.outcome for each in migration.sessions}


async def hashes(store: Store) -> dict[str, str]:
    return {
        each.id: digest_session(await read_export(store, each)).hash for each in await store.list_sessions()
    }


async def fill_store(store: Store) -> Store:
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
    await store.put_value(("grant", "all"), [{"id": "gra_1"}])
    await store.append_log(("decision", "p1"), lambda _: [b"one", b"two"])
    await store.apply(
        SessionCreated(info=session("ses_trashed")),
        MessageUpdated(info=prompt("msg_trashed", of="ses_trashed")),
        PartUpdated(part=text("prt_1", "words", of="msg_trashed", session="ses_trashed")),
    )
    await store.discard([SessionID("ses_trashed")], at=NOW)
    return store


async def list_records(store: Store) -> list[object]:
    """Return everything that is not a session: values, logs and the trash."""
    keys, logs, trash = await store.list_keys(), await store.list_logs(), await store.list_trash()
    return [
        {key: await store.find_value(key) for key in keys},
        {log: await store.read_log(log) for log in logs},
        {trashed.id: await store.read_bundle(trashed.id) for trashed in trash},
    ]


def get_session_id(digest: SessionDigest) -> str:
    return digest.session


async def test_a_tree_and_a_store_have_the_same_verification(root: Path) -> None:
    store = await open_file_store(root)
    await fill_store(store)
    result = verify(root)
    assert result.faults == ()
    through_store = [digest_session(await read_export(store, each)) for each in await store.list_sessions()]
    assert sorted(result.digests, key=get_session_id) == sorted(through_store, key=get_session_id)
    [first] = [each for each in result.digests if each.session == FIRST]
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
    verdict = verify(root)
    damage, *others = verdict.faults
    assert [(each.kind, each.where, each.reason) for each in others] == [
        ("orphan", "ses_lost", "its session is gone, but its todos exist"),
        ("orphan", "msg_lost", "the message is gone, but its parts exist"),
        ("parent", CHILD, "its parent ses_gone is gone"),
        ("content", "msg_first_2", "the prompt it answers, msg_first_1, is gone"),
        ("content", OTHER, f"created at {NOW + 2} and updated at 1, which is impossible"),
    ]
    assert (damage.kind, damage.where) == ("unreadable", f"{root}/part/msg_lost/prt_1.json")


async def test_an_empty_parent_is_none(root: Path) -> None:
    store = await open_file_store(root)
    await fill(store)
    await store.edit(SessionID(CHILD), lambda it: replace(it, parent_id=SessionID("")))
    assert verify(root).faults == ()


async def test_the_hash_changes_with_any_text_and_with_nothing_else(root: Path) -> None:
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


async def test_everything_arrives_and_returns_with_the_same_hashes(root: Path) -> None:
    source = await fill_store(MemoryStore())
    target, back = await open_file_store(root), MemoryStore()
    there, again = await migrate(source, target), await migrate(target, back)
    assert there.complete
    assert again.complete
    assert await hashes(source) == await hashes(target) == await hashes(back)
    assert [each.before for each in there.sessions] == [each.after for each in there.sessions] != []
    assert (there.values, there.lines, there.bundles, there.kept) == (3, 2, 1, ())
    assert await list_records(source) == await list_records(target) == await list_records(back)
    assert await back.list_projects() == await source.list_projects()


@pytest.mark.parametrize(("old", "new"), list(permutations(["file", "sqlite", "postgres"], 2)))
async def test_everything_moves_between_all_kinds_of_stores(old: str, new: str, tmp_path: Path) -> None:
    raw = to_plain(session("ses_later")) | {"mood": {"deep": [1, 2.5, None, "two"]}}
    part = {
        "id": "prt_1",
        "sessionID": "ses_later",
        "messageID": "msg_later",
        "type": "hologram",
        "z": {"1": []},
    }
    async with (
        open_store(make_store_url(old, tmp_path)) as source,
        open_store(make_store_url(new, tmp_path)) as target,
    ):
        await fill_store(source)
        await source.apply(
            SessionCreated(info=decode(encode(raw), SessionInfo)),
            MessageUpdated(info=prompt("msg_later", of="ses_later")),
            PartUpdated(part=decode(encode(part), AnyPart)),
        )
        progress: list[tuple[int, int]] = []
        migration = await migrate(
            source, target, on_progress=lambda done, total: progress.append((done, total))
        )
        assert migration.complete
        assert progress == [(number, 5) for number in range(5)]
        assert await hashes(source) == await hashes(target)
        assert await list_records(source) == await list_records(target)
        assert await source.list_projects() == await target.list_projects()
        assert to_plain(await target.get_session(SessionID("ses_later"))) == raw
        [message] = await target.list_messages(SessionID("ses_later"))
        assert [to_plain(each) for each in message.parts] == [part]
        again = await migrate(source, target)
        assert set(outcomes(again).values()) == {"same"}
        assert (again.values, again.lines, again.bundles, again.kept) == (0, 0, 0, ())


class ForgetfulStore(MemoryStore):
    """A store that loses the parts of one session."""

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        kept = [
            each for each in events if not (isinstance(each, PartUpdated) and each.part.session_id == CHILD)
        ]
        await super().apply(*kept, leases=leases)


async def test_a_copy_that_differs_from_the_original_is_not_taken_for_one() -> None:
    source = MemoryStore()
    await fill(source)
    migration = await migrate(source, ForgetfulStore())
    assert not migration.complete
    assert outcomes(migration) == {FIRST: "copied", CHILD: "failed", OTHER: "copied"}
    [failed] = [each for each in migration.sessions if each.reason]
    assert failed.reason == "the copy that was read back differs from the original"
    assert (
        failed.before is not None and failed.before.parts,
        failed.after is not None and failed.after.parts,
    ) == (4, 0)


async def test_migrating_again_changes_nothing(root: Path) -> None:
    source, target = await fill_store(MemoryStore()), await open_file_store(root)
    await migrate(source, target)
    before = contents(root)
    assert set(outcomes(await migrate(source, target)).values()) == {"same"}
    assert contents(root) == before


async def test_a_dry_run_writes_nothing_and_reports_the_same(root: Path) -> None:
    source, target = await fill_store(MemoryStore()), await open_file_store(root)
    planned = await migrate(source, target, dry_run=True)
    assert contents(root) == {}
    assert outcomes(planned) == outcomes(await migrate(source, target))


class DyingStore(FileStore):
    """A store whose process dies at a chosen write."""

    lives = 0

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        if self.lives == 0:
            raise KeyboardInterrupt
        self.lives -= 1
        await super().apply(*events, leases=leases)

    async def discard(self, sessions: Sequence[SessionID], *, at: int) -> TrashBundle:
        if self.lives == 0:
            raise KeyboardInterrupt
        self.lives -= 1
        return await super().discard(sessions, at=at)


@pytest.mark.parametrize("lives", range(8))
async def test_a_migration_interrupted_anywhere_and_repeated_has_the_same_result(
    tmp_path: Path, lives: int
) -> None:
    source = await fill_store(await open_file_store(tmp_path / "old"))
    original = contents(tmp_path / "old")
    whole = await open_file_store(tmp_path / "whole")
    await migrate(source, whole)
    cut = DyingStore(str(tmp_path / "cut"))
    await cut.prepare(lambda _: None)
    cut.lives = lives
    try:
        await migrate(source, cut, at_once=1)
    except KeyboardInterrupt:
        assert lives < 7
    copied = await hashes(cut)
    copied.pop("ses_trashed", None)  # it lives until it is discarded
    assert copied.items() <= (await hashes(source)).items()
    finished = await migrate(source, await open_file_store(tmp_path / "cut"))
    assert finished.complete
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    assert contents(tmp_path / "old") == original


class DyingTarget:
    """Any store, whose process dies after so many writes."""

    def __init__(self, store: Store, lives: int) -> None:
        self._store = store
        self._lives = lives

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def apply(self, *events: Durable) -> None:
        self._live()
        await self._store.apply(*events)

    async def discard(self, sessions: Sequence[SessionID], *, at: int) -> TrashBundle:
        self._live()
        return await self._store.discard(sessions, at=at)

    def _live(self) -> None:
        if self._lives == 0:
            raise KeyboardInterrupt
        self._lives -= 1


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("lives", range(7))
async def test_an_interrupted_migration_into_a_database_is_continued(
    kind: str, lives: int, tmp_path: Path
) -> None:
    source, url = await fill_store(MemoryStore()), make_store_url(kind, tmp_path)
    async with open_store(url) as store:
        with pytest.raises(KeyboardInterrupt):
            await migrate(source, cast(Store, DyingTarget(store, lives)), at_once=1)
        copied = await hashes(store)
        copied.pop("ses_trashed", None)  # it lives until it is discarded
        assert copied.items() <= (await hashes(source)).items()
    async with open_store(url) as store:
        assert (await migrate(source, store)).complete
        assert await hashes(store) == await hashes(source)
        assert await list_records(store) == await list_records(source)


async def test_sessions_that_continued_are_updated_and_diverged_ones_are_left_alone() -> None:
    source, target = MemoryStore(), MemoryStore()
    await fill(source)
    await migrate(source, target)

    async def add_prompt(store: Store, id: str, message: str, words: str) -> None:
        await store.edit(
            SessionID(id), lambda it: replace(it, time=replace(it.time, updated=it.time.updated + 9))
        )
        await store.apply(
            MessageUpdated(info=prompt(message, of=id, created=NOW + 50)),
            PartUpdated(part=text(f"prt_{message}", words, of=message, session=id)),
        )

    await add_prompt(source, FIRST, "msg_later", "gone on at home")
    await add_prompt(target, CHILD, "msg_there", "gone on over there")
    await add_prompt(source, OTHER, "msg_both", "one thing")
    await add_prompt(target, OTHER, "msg_both", "another thing")
    before = await hashes(target)
    migration = await migrate(source, target)
    assert outcomes(migration) == {FIRST: "grown", CHILD: "ahead", OTHER: "differs"}
    assert not migration.complete
    after = await hashes(target)
    assert {id: after[id] for id in (CHILD, OTHER)} == {id: before[id] for id in (CHILD, OTHER)}
    assert after[FIRST] == (await hashes(source))[FIRST]


async def test_records_that_differ_in_the_target_are_kept_and_named() -> None:
    source, target = await fill_store(MemoryStore()), MemoryStore()
    await target.put_value(("alias", "p1"), {"worktree": "/other"})
    await target.append_log(("decision", "p1"), lambda _: [b"another"])
    await target.apply(SessionCreated(info=session("ses_trashed", title="alive")))
    before = await list_records(target)
    result = await migrate(source, target)
    assert result.kept == ("value alias/p1", "log decision/p1", f"bundle {NOW}-ses_trashed in the trash")
    after = await list_records(target)
    assert after[1:] == before[1:]
    assert await target.find_value(("alias", "p1")) == {"worktree": "/other"}
    assert await target.get_session(SessionID("ses_trashed")) == session("ses_trashed", title="alive")


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_bundle_of_a_session_that_was_imported_again_is_left_alone_in_a_dry_run_too(
    *, dry_run: bool
) -> None:
    source, target = await fill_store(MemoryStore()), MemoryStore()
    await source.apply(SessionCreated(info=session("ses_trashed", title="imported again")))
    result = await migrate(source, target, dry_run=dry_run)
    (kept,) = result.kept
    assert (result.bundles, kept) == (0, f"bundle {NOW}-ses_trashed in the trash")
    assert explain_kept(kept) == "one of its sessions is no longer in the trash"


async def test_a_log_that_continued_is_extended() -> None:
    source, target = await fill_store(MemoryStore()), MemoryStore()
    await migrate(source, target)
    await source.append_log(("decision", "p1"), lambda _: [b"three"])
    assert (await migrate(source, target)).lines == 1
    assert await target.read_log(("decision", "p1")) == [b"one", b"two", b"three"]


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


async def test_a_session_that_is_unreadable_in_the_target_is_not_overwritten(
    root: Path, tmp_path: Path
) -> None:
    source, target = await open_file_store(root), await open_file_store(tmp_path / "target")
    await source.apply(SessionCreated(info=session("ses_alive")), SessionCreated(info=session("ses_trashed")))
    await source.discard([SessionID("ses_trashed")], at=NOW)
    await target.apply(SessionCreated(info=session("ses_alive")), SessionCreated(info=session("ses_trashed")))
    documents = sorted((tmp_path / "target/session").rglob("*.json"))
    for document in documents:
        document.write_bytes(b"{half")
    migration = await migrate(source, target)
    assert outcomes(migration) == {"ses_alive": "failed"}
    assert [each.reason for each in migration.sessions] == [
        "the target has a session of this id that cannot be read"
    ]
    assert (migration.bundles, len(migration.kept)) == (0, 1)
    assert [document.read_bytes() for document in documents] == [b"{half", b"{half"]


class RefusingStore(MemoryStore):
    """A store that will not take one session."""

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        if any(isinstance(event, SessionCreated) and event.info.id == CHILD for event in events):
            raise StoreError("no room")
        await super().apply(*events, leases=leases)


async def test_a_session_that_cannot_be_written_does_not_block_the_others() -> None:
    source = MemoryStore()
    await fill(source)
    migration = await migrate(source, RefusingStore())
    assert outcomes(migration) == {FIRST: "copied", CHILD: "failed", OTHER: "copied"}
    assert [each.reason for each in migration.sessions if each.reason] == ["no room"]


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
def test_the_hash_of_any_session_survives_a_migration_through_files(
    tmp_path_factory: pytest.TempPathFactory, title: str, text: str, metadata: dict[str, object], seed: int
) -> None:
    async def migrate_there_and_back() -> tuple[dict[str, str], dict[str, str]]:
        source, back = MemoryStore(), MemoryStore()
        target = await open_file_store(tmp_path_factory.mktemp("migrated") / "storage")
        made: SessionInfo = await put_session(source, "ses_any", created=NOW + seed, title=title)
        part = TextPart(
            id="prt_any_1_a", session_id=made.id, message_id="msg_any_1", text=text, metadata=metadata
        )
        await source.apply(PartUpdated(part=part), SessionUpdated(info=made))
        assert (await migrate(source, target)).complete
        assert (await migrate(target, back)).complete
        return await hashes(source), await hashes(back)

    before, after = asyncio.run(migrate_there_and_back())
    assert before == after
