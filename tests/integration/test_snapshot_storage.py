"""Stored trees, their diffs, and garbage collection of snapshots."""

import os
import shutil
from pathlib import Path

import pytest

from given.snapshot_harness import (
    OTHER,
    SESSION,
    SnapshotHarness,
    fingerprint,
    git,
    init_repository,
    open_snapshot_harness,
    snapshot_site,
    write,
)
from weft.host.now import now
from weft.model.diff import FileDiff, Tree
from weft.model.ids import SessionID
from weft.snapshot.contract import RestorePlan, SnapshotLimits
from weft.snapshot.entry import frame, object_name
from weft.snapshot.gc import GcOptions, GcResult, collect_all, collect_garbage
from weft.snapshot.location import list_locations, locate_snapshots

LARGE = SnapshotLimits(max_file_bytes=1 << 20)


def every_session(session: SessionID) -> bool:
    return True


def no_session(session: SessionID) -> bool:
    return False


def collect(tmp_path: Path, how: GcOptions) -> GcResult:
    [place] = list_locations(snapshot_site(tmp_path).base)
    return collect_garbage(place, os.environ, how)


def gc_options(**given: object) -> GcOptions:
    return GcOptions(**{"is_alive": every_session, "now": now() + 1000, "grace_ms": 0, **given})  # type: ignore[arg-type]


# --- trees ---


async def test_a_tracked_tree_equals_the_one_of_git(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "a\n")
    write(root / "d" / "b.bin", b"\0\xff")
    write(root / ".gitignore", "*.log\n")
    write(root / "x.log", "x")
    (root / "link").symlink_to("nowhere")
    init_repository(root)
    async with open_snapshot_harness(tmp_path) as harness:
        tree = await harness.snapshots.track(SESSION)
        assert tree == git(root, "rev-parse", "HEAD^{tree}")
        assert await harness.snapshots.track(SESSION) == tree
        write(root / "new.txt", "new")
        assert await harness.snapshots.track(SESSION) not in (tree, None)
        (root / "new.txt").unlink()
        assert await harness.snapshots.track(SESSION) == tree


@pytest.mark.parametrize("kind", ["git", "no git"])
async def test_changes_between_trees_are_listed_and_can_be_undone(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "a\n")
    write(root / "b.txt", "b\n")
    if kind == "git":
        init_repository(root)
    async with open_snapshot_harness(tmp_path) as harness:
        tree = await harness.snapshots.track(SESSION)
        assert tree is not None
        write(root / "a.txt", "changed\n")
        (root / "b.txt").unlink()
        write(root / "c d\n.txt", "c\n")

        patch = await harness.snapshots.changes(tree)

        assert patch.files == tuple(str(harness.root / name) for name in ("a.txt", "b.txt", "c d\n.txt"))
        done = await harness.snapshots.restore(RestorePlan(session=SESSION, patches=(patch,)))
        assert set(harness.fates(done).values()) == {"restored", "removed"}
        assert (await harness.snapshots.changes(tree)).files == ()


async def test_a_process_continues_from_the_stored_index_of_the_last_one(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "a\n")
    async with open_snapshot_harness(tmp_path) as harness:
        first = await harness.snapshots.track(SESSION)
    write(root / "a.txt", "b\n")
    async with open_snapshot_harness(tmp_path) as harness:
        second = await harness.snapshots.track(SESSION)
        assert first is not None
        assert (await harness.snapshots.changes(first, second)).files == (str(harness.root / "a.txt"),)


async def test_two_checkouts_of_a_project_have_separate_snapshots(tmp_path: Path) -> None:
    at = snapshot_site(tmp_path)
    one, two = (locate_snapshots(at.base, at.project, str(tmp_path / name)) for name in ("one", "two"))
    assert one.directory != two.directory
    (tmp_path / "one").mkdir()
    (tmp_path / "way").symlink_to("one")
    assert locate_snapshots(at.base, at.project, str(tmp_path / "way")).directory == one.directory


# --- diffs ---


async def test_diffs_are_given_per_file_and_as_text(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "one\ntwo\n")
    write(root / "b.bin", b"\0")
    write(root / "ü.txt", "u\n")
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command(
            "printf 'one\\n2\\n3\\n' > a.txt; printf '\\000\\001' > b.bin; rm ü.txt; echo n > n.txt"
        )
        (patch,) = await harness.end_step()
        diffs = await harness.snapshots.diff(patch.before, patch.after)
        text = await harness.snapshots.diff_text(patch.before, patch.after)
        one = str(harness.root / "a.txt")
        assert await harness.snapshots.diff(patch.before, patch.after, [one]) == diffs[:1]

    assert diffs == (
        FileDiff(file="a.txt", before="one\ntwo\n", after="one\n2\n3\n", additions=2, deletions=1),
        FileDiff(file="b.bin", additions=0, deletions=0),
        FileDiff(file="n.txt", after="n\n", additions=1, deletions=0),
        FileDiff(file="ü.txt", before="u\n", additions=0, deletions=1),
    )
    assert "-two\n+2\n+3\n" in text
    assert "n.txt" in text


async def test_many_patches_are_combined_into_one(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "0\n")
    async with open_snapshot_harness(tmp_path) as harness:
        for number in range(1, 4):
            await harness.write_file("a.txt", f"{number}\n")
            await harness.write_file("passing.txt", f"{number}")
            await harness.end_step()
        await harness.run_command("rm passing.txt")
        await harness.end_step()

        folded = await harness.snapshots.fold(harness.patches)
        diffs = await harness.snapshots.diff(folded.before, folded.after)

    assert folded.files == (str(harness.root / "a.txt"),)
    assert diffs == (FileDiff(file="a.txt", before="0\n", after="3\n", additions=1, deletions=1),)


# --- garbage collection ---


async def take_snapshots(harness: SnapshotHarness, session: SessionID) -> SnapshotHarness:
    """Take snapshots of a file whose content no other session has."""
    own = harness.for_session(session)
    await own.write_file(f"{session}.bin", os.urandom(20_000))
    await own.end_step()
    await own.write_file(f"{session}.bin", b"")
    await own.end_step()
    return own


async def test_objects_needed_by_a_session_are_kept_and_others_removed(tmp_path: Path) -> None:
    write(tmp_path / "loom" / "a.txt", "a\n")
    async with open_snapshot_harness(tmp_path, LARGE) as harness:
        await harness.run_command("echo agent > a.txt")
        await harness.end_step()
        await (await take_snapshots(harness, OTHER)).snapshots.release(OTHER)
        for number in range(5):
            write(harness.root / "b.bin", os.urandom(30_000 + number))
            await harness.snapshots.track(SESSION)
    before = fingerprint(tmp_path / "data")

    planned = collect(tmp_path, gc_options(dry_run=True))
    assert fingerprint(tmp_path / "data") == before
    done = collect(tmp_path, gc_options())

    assert planned.before == done.before > 150_000
    assert abs(planned.after - done.after) < 3000
    assert done.after < 40_000
    async with open_snapshot_harness(tmp_path, LARGE) as again:
        again.patches = harness.patches
        assert again.fates(await again.undo()) == {"a.txt": "restored"}


async def test_garbage_collection_keeps_the_files_of_a_redo(tmp_path: Path) -> None:
    write(tmp_path / "loom" / "a.txt", "a\n")
    write(tmp_path / "loom" / "b.txt", "b\n")
    async with open_snapshot_harness(tmp_path, LARGE) as harness:
        for name in ("a.txt", "b.txt"):  # in two steps: the tree with both files is that of the undo alone
            await harness.write_file(name, "agent\n")
            await harness.end_step()
        done = await harness.undo()
    collect(tmp_path, gc_options())

    async with open_snapshot_harness(tmp_path, LARGE) as again:
        assert again.fates(await again.redo(done)) == {"a.txt": "restored", "b.txt": "restored"}


async def test_files_replaced_by_an_undo_are_saved_even_if_their_snapshot_was_lost(tmp_path: Path) -> None:
    write(tmp_path / "loom" / "a.txt", "a\n")
    async with open_snapshot_harness(tmp_path, LARGE) as harness:
        await harness.write_file("a.txt", "agent\n")
        await harness.end_step()
        [place] = list_locations(snapshot_site(tmp_path).base)
        name = object_name(frame(b"blob", b"agent\n"))
        os.unlink(f"{place.objects}/{name[:2]}/{name[2:]}")
        done = await harness.undo()
        assert harness.fates(await harness.redo(done)) == {"a.txt": "restored"}
        assert (harness.root / "a.txt").read_text() == "agent\n"


async def test_recent_files_are_not_removed(tmp_path: Path) -> None:
    async with open_snapshot_harness(tmp_path, LARGE) as harness:
        await harness.write_file("a.bin", os.urandom(9000))
        await harness.write_file("a.bin", b"")
        await harness.end_step()
        await harness.snapshots.release(SESSION)
    done = collect(tmp_path, GcOptions(is_alive=every_session, now=now()))
    assert done.after == done.before


async def test_removed_sessions_keep_nothing(tmp_path: Path) -> None:
    async with open_snapshot_harness(tmp_path, LARGE) as harness:
        await take_snapshots(harness, SESSION)
    done = collect(tmp_path, gc_options(is_alive=no_session))
    assert done.released == ((SESSION, "it is gone"),)
    assert done.after < 2000


async def test_over_the_limit_the_oldest_session_is_dropped_first(tmp_path: Path) -> None:
    async with open_snapshot_harness(tmp_path, LARGE) as harness:
        await take_snapshots(harness, OTHER)
        new = await take_snapshots(harness, SESSION)
        [place] = list_locations(snapshot_site(tmp_path).base)
        os.utime(f"{place.pins}/{OTHER}", ns=(0, 0))
    assert collect(tmp_path, gc_options(budget=100_000)).released == ()
    done = collect(tmp_path, gc_options(budget=25_000))
    assert done.released == ((OTHER, "the budget was exceeded"),)
    assert done.after <= 25_000
    async with open_snapshot_harness(tmp_path, LARGE) as again:
        plan = RestorePlan(session=SESSION, patches=tuple(new.patches))
        assert [each.fate for each in (await again.snapshots.preview(plan)).fates] == ["removed"]


async def test_garbage_collection_during_a_run_removes_nothing_it_needs(tmp_path: Path) -> None:
    write(tmp_path / "loom" / "a.txt", "a\n")
    write(tmp_path / "loom" / "b.txt", "b\n")
    async with open_snapshot_harness(tmp_path) as harness:
        async with (
            harness.snapshots.watch(SESSION),
            harness.snapshots.watch(SESSION, [str(harness.root / "b.txt")]),
        ):
            write(harness.root / "a.txt", "command")
            write(harness.root / "b.txt", "tool")
            assert collect(tmp_path, gc_options(is_alive=no_session)).skipped == ""
        assert harness.fates(await harness.undo()) == {"a.txt": "restored", "b.txt": "restored"}


async def test_many_files_are_packed_and_can_be_restored_after_garbage_collection(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    for number in range(1200):
        write(root / f"{number}.txt", f"{number}\n")
    async with open_snapshot_harness(tmp_path, LARGE) as harness:
        await harness.run_command("for i in *.txt; do echo x >> $i; done")
        await harness.end_step()
    collect(tmp_path, gc_options())
    objects = [path for path in (tmp_path / "data").rglob("objects/??/*") if path.is_file()]
    assert len(objects) < 10
    async with open_snapshot_harness(tmp_path, LARGE) as again:
        again.patches = harness.patches
        done = await again.undo()
    assert set(again.fates(done).values()) == {"restored"}
    assert (root / "1199.txt").read_text() == "1199\n"


async def test_a_removed_directory_keeps_only_what_its_sessions_need(tmp_path: Path) -> None:
    write(tmp_path / "loom" / "a.bin", os.urandom(50_000))
    async with open_snapshot_harness(tmp_path, LARGE) as harness:
        await harness.run_command("echo 1 > b.txt")
        await harness.end_step()
    shutil.rmtree(tmp_path / "loom")
    [done] = collect_all(snapshot_site(tmp_path).base, os.environ, gc_options())
    assert done.after < 5000 < done.before


async def test_pins_keep_trees_for_forks_and_refuse_invalid_names(tmp_path: Path) -> None:
    async with open_snapshot_harness(tmp_path, LARGE) as harness:
        own = await take_snapshots(harness, SESSION)
        trees = [tree for patch in own.patches for tree in (patch.before, patch.after)]
        await harness.snapshots.pin(OTHER, [*trees, Tree("../../../evil")])
        await harness.snapshots.pin(SessionID("../evil"), trees)
        await harness.snapshots.release(SESSION)
    size = collect(tmp_path, gc_options()).after
    assert not [name for name in fingerprint(tmp_path) if "evil" in name]
    async with open_snapshot_harness(tmp_path, LARGE) as harness:
        await harness.snapshots.unpin(OTHER, trees)
    assert collect(tmp_path, gc_options()).after <= size
