"""Garbage collection of a tree: unreachable files are removed, reachable ones stay, and doubtful ones are set aside."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from given.small_tree import (
    CHILD,
    FIRST,
    OTHER,
    contents,
    documents,
    fill,
    list_readable,
    make_old,
    open_file_store,
    put_session,
)
from weft.host.now import now
from weft.host.paths import paths_from
from weft.maintenance.space import find_outputs, measure_space, remove_leftovers
from weft.model.diff import FileDiff, is_capped
from weft.model.event import MessageUpdated, PartUpdated, SessionDiffed
from weft.model.ids import MessageID, SessionID
from weft.model.message import UserMessage, UserSummary
from weft.store.files.layout import session_lock
from weft.store.files.leftovers import BACKUP_RETENTION_MS
from weft.store.findings import GC_LABEL, Leftover, RemovedLeftovers
from weft.store.maintenance import StoreMaintenance, open_maintenance
from weft.testing.store_samples import growth, prompt, text

SOON = 60_000


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    root = tmp_path / "storage"
    await fill(await open_file_store(root))
    return root


def maintenance(root: Path) -> StoreMaintenance:
    return open_maintenance(f"file:{root}")


def find_leftovers(root: Path, *, before: int) -> list[Leftover]:
    return maintenance(root).find_leftovers(before=before)


def collect(root: Path, leftovers: list[Leftover] | None = None) -> RemovedLeftovers:
    before = now() + SOON
    leftovers = find_leftovers(root, before=before) if leftovers is None else leftovers
    return maintenance(root).make_repairer(GC_LABEL, now=now()).remove_leftovers(leftovers, before=before)


def orphan_session(root: Path, id: str) -> set[str]:
    """Remove a session's document, and return everything that becomes unreachable."""
    [path] = root.glob(f"session/*/{id}.json")
    path.unlink()
    short = id.removeprefix("ses_")
    return {path for path in documents(root) if short in path}


def test_an_intact_tree_has_no_leftovers(root: Path) -> None:
    assert find_leftovers(root, before=now() + SOON) == []


def test_files_without_a_session_are_set_aside_byte_for_byte(root: Path) -> None:
    lost = orphan_session(root, OTHER)
    before = contents(root)
    report = collect(root)
    assert {each.kind for each in report.removed} >= {"message", "part", "diff", "todo"}
    assert report.failed == ()
    assert set(contents(root)) == set(before) - lost
    backup = Path(report.backup)
    assert {path: (backup / path).read_bytes() for path in lost} == {path: before[path] for path in lost}
    assert find_leftovers(root, before=now() + SOON) == []


def test_parts_of_a_removed_message_are_removed_and_those_of_its_neighbour_stay(root: Path) -> None:
    (root / "message/ses_first/msg_first_1.json").unlink()
    report = collect(root)
    assert [(each.kind, os.path.basename(each.where)) for each in report.removed] == [("part", "msg_first_1")]
    assert (root / "part/msg_first_2").is_dir()


def test_recent_files_are_left_alone(root: Path) -> None:
    orphan_session(root, OTHER)
    make_old(
        root
    )  # the files say that they are old; that they came here just now the directory entries know better
    assert find_leftovers(root, before=now() - SOON) == []


def test_a_directory_with_a_foreign_file_is_left_alone(root: Path) -> None:
    orphan_session(root, OTHER)
    (root / "message/ses_other/notes.txt").write_text("mine")
    kept = {each.kind for each in find_leftovers(root, before=now() + SOON)}
    assert kept & {"message", "part"} == set()


def test_an_unreadable_or_half_renamed_session_still_counts_as_existing(root: Path) -> None:
    [path] = root.glob(f"session/*/{OTHER}.json")
    path.write_bytes(b"\x00")
    assert find_leftovers(root, before=now() + SOON) == []
    path.rename(path.with_suffix(".json.tmp"))
    assert find_leftovers(root, before=now() + SOON) == []


def test_a_file_restored_before_the_collection_is_not_removed(root: Path) -> None:
    [path] = root.glob(f"session/*/{OTHER}.json")
    raw = path.read_bytes()
    path.unlink()
    leftovers = find_leftovers(root, before=now() + SOON)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(raw)
    before = contents(root)
    assert collect(root, leftovers).removed == ()
    assert contents(root) == before


async def test_locks_temporary_files_notes_and_growth_of_dead_processes_are_removed(root: Path) -> None:
    store = await open_file_store(root)
    await put_session(store, "ses_1")
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "so")))
    await store.apply(growth("prt_1", " far", 2))
    own = root / ".weft"
    (own / "growth/msg_gone").mkdir(parents=True)
    (own / "growth/msg_gone/prt_gone").write_text("1 00000000\n")
    (own / "growth/msg_1/prt_2").write_text("1 00000000\n")
    (own / "lock" / session_lock(SessionID("ses_gone"))).touch()
    (own / "lock/kept.share.old").touch()
    (own / "run").mkdir(exist_ok=True)
    (own / "run/ses_gone").touch()
    (own / "temp").mkdir(exist_ok=True)
    (own / "temp/session.ses_first~12.0").write_text("{}")
    report = collect(root)
    assert sorted((each.kind, os.path.basename(each.where)) for each in report.removed) == [
        ("growth", "prt_2"),
        ("growth", "prt_gone"),
        ("lease", "ses_gone"),
        ("lock", "kept.share.old"),
        ("lock", "session.ses_gone"),
        ("temp", "session.ses_first~12.0"),
    ]
    assert (own / "growth/msg_1/prt_1").exists()
    assert find_leftovers(root, before=now() + SOON) == []


@pytest.mark.parametrize("name", ["gc-²", "gc-", "gc--1", "gc-1x", "other-1"])
def test_a_backup_with_another_name_is_left_alone(root: Path, name: str) -> None:
    (root / ".weft/backup" / name).mkdir(parents=True)
    assert find_leftovers(root, before=1 << 50) == []


def test_files_set_aside_are_removed_after_a_month(root: Path) -> None:
    orphan_session(root, OTHER)
    report = collect(root)
    assert find_leftovers(root, before=now() + BACKUP_RETENTION_MS - SOON) == []
    [old] = find_leftovers(root, before=now() + BACKUP_RETENTION_MS + SOON)
    assert (old.kind, old.where) == ("backup", report.backup)
    assert collect(root, [old]).removed == (old,)
    assert not Path(report.backup).exists()


async def test_stored_outputs_are_removed_if_old_and_unreferenced(root: Path, tmp_path: Path) -> None:
    outputs = tmp_path / "tool-output"
    outputs.mkdir()
    named, unnamed = (f"tool_{letter * 26}" for letter in "ab")
    for name in (named, unnamed, "notes.txt"):
        (outputs / name).write_text("long")
    store = await open_file_store(root)
    await store.apply(
        PartUpdated(part=text("prt_9", f"saved to: {outputs}/{named}", of="msg_first_1", session=FIRST))
    )
    store_maintenance = maintenance(root)
    paths = replace(paths_from(os.environ), data=str(tmp_path))
    assert find_outputs(store_maintenance, paths, before=now() - SOON) == []
    assert find_outputs(maintenance(tmp_path / "another"), paths, before=now() + SOON) == []
    [leftover] = find_outputs(store_maintenance, paths, before=now() + SOON)
    assert (leftover.where, leftover.bytes) == (str(outputs / unnamed), 4)
    repairer = store_maintenance.make_repairer(GC_LABEL, now=now())
    assert remove_leftovers(repairer, [], [leftover], before=now()).removed == (leftover,)
    assert sorted(path.name for path in outputs.iterdir()) == ["notes.txt", named]


async def test_large_summaries_are_shrunk_and_their_originals_kept(root: Path) -> None:
    store = await open_file_store(root)
    big = FileDiff(file="log", before="", after="line\n" * 100_000, additions=100_000, deletions=0)
    info = UserMessage(
        id=MessageID("msg_first_1"),
        session_id=SessionID(FIRST),
        time=prompt().time,
        agent="build",
        summary=UserSummary(title="Weave", diffs=(big,)),
    )
    await store.apply(MessageUpdated(info=info), SessionDiffed(session_id=SessionID(OTHER), diff=(big,)))
    before = contents(root)
    paths = [f"{root}/message/{FIRST}/msg_first_1.json", f"{root}/session_diff/{OTHER}.json"]
    assert [each.where for each in maintenance(root).find_large()] == paths
    assert contents(root) == before

    repairer = maintenance(root).make_repairer(GC_LABEL, now=now())
    assert [each.where for each in repairer.shrink_large()] == paths
    message = await store.find_message(SessionID(FIRST), MessageID("msg_first_1"))
    assert message is not None
    assert isinstance(message.info, UserMessage)
    assert message.info.summary is not None
    [small] = message.info.summary.diffs
    assert is_capped([small])
    assert (message.info.summary.title, small.additions) == ("Weave", 100_000)
    assert [each.additions for each in await store.list_diff(SessionID(OTHER))] == [100_000]
    for path in paths:
        name = Path(path).relative_to(root)
        assert (Path(repairer.backup) / name).read_bytes() == before[name.as_posix()]
    assert maintenance(root).find_large() == []


async def test_sizes_add_up_to_those_of_the_files(root: Path, tmp_path: Path) -> None:
    outputs = tmp_path / "tool-output"
    outputs.mkdir()
    (outputs / "tool_x").write_bytes(b"12345")
    (root / "stray").write_bytes(b"123")
    orphan_session(root, OTHER)
    collect(root)
    paths = replace(paths_from(os.environ), data=str(tmp_path))
    sizes = measure_space(maintenance(root), paths)
    files = [path for top in (root, outputs) for path in top.rglob("*") if path.is_file()]
    assert (sizes.total.bytes, sizes.total.files) == (sum(path.stat().st_size for path in files), len(files))
    for each in (sizes.kinds, sizes.projects, sizes.sessions):
        assert sum(weight.bytes for weight in each.values()) == sizes.total.bytes
        assert sum(weight.files for weight in each.values()) == sizes.total.files
    own = [path for path in documents(root) if "first" in path]
    assert sizes.sessions[FIRST].bytes == sum((root / path).stat().st_size for path in own)
    assert (sizes.kinds["tool-output"].bytes, sizes.kinds["other"].bytes) == (5, 3)
    assert set(sizes.sessions) == {"", FIRST, CHILD}


# --- properties: reachable files are never removed ---

PARTS = [
    f"part/msg_{each}_{n}/prt_{each}_{n}_{letter}.json"
    for each in ("first", "child", "other")
    for n in "12"
    for letter in "ab"
]
MESSAGES = [f"message/ses_{each}/msg_{each}_{n}.json" for each in ("first", "child", "other") for n in "12"]
FLAT = [
    f"{shelf}/ses_{each}.json"
    for shelf in ("session_diff", "todo", "session/p1")
    for each in ("first", "child", "other")
]
ALL = [*PARTS, *MESSAGES, *FLAT, "project/p1.json"]


def reachable(root: Path) -> dict[str, bytes]:
    """Return what is reachable, by the simplest algorithm."""
    sessions = {path.stem for path in root.glob("session/*/*.json")}
    messages = {path.stem for path in root.glob("message/*/*.json") if path.parent.name in sessions}
    return {
        path: raw
        for path, raw in contents(root).items()
        if path.startswith(("session/", "project/"))
        or (path.startswith("message/") and Path(path).parent.name in sessions)
        or (path.startswith("part/") and Path(path).parent.name in messages)
        or (path.startswith(("session_diff/", "todo/")) and Path(path).stem in sessions)
    }


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree to copy from: writing a new one for every example would take most of the time."""
    root = tmp_path_factory.mktemp("template") / "storage"

    async def make() -> None:
        await fill(await open_file_store(root))

    asyncio.run(make())
    return root


@settings(max_examples=40)
@given(gone=st.sets(st.sampled_from(ALL)), broken=st.sets(st.sampled_from(ALL)))
def test_reachable_files_are_never_removed(template: Path, gone: set[str], broken: set[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "storage"
        shutil.copytree(template, root)
        for path in broken:
            (root / path).write_bytes(b'{"half')
        for path in gone:
            (root / path).unlink()
        kept, all_before = reachable(root), contents(root)
        report = collect(root)
        left = contents(root)
        assert {path: left.get(path) for path in kept} == kept
        assert report.failed == ()
        backup = Path(report.backup) if report.backup else None
        for path in set(all_before) - set(left):
            assert backup is not None
            assert (backup / path).read_bytes() == all_before[path]
        assert collect(root).removed == ()


async def test_after_garbage_collection_everything_else_can_be_read(root: Path) -> None:
    before = await list_readable(root)
    lost = orphan_session(root, OTHER)
    collect(root)
    assert await list_readable(root) == before - lost - {f"session/p1/{OTHER}.json"}
