"""Snapshot operations whose process is killed: they are completed or rolled back, and watched changes are not lost."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from given.snapshot_harness import (
    SESSION,
    init_repository,
    open_snapshot_harness,
    read_tree,
    wait_for_witnesses,
    write,
)
from weft.errors import RestoreFailedError
from weft.model.ids import SessionID
from weft.snapshot.contract import RecoveredPatch, RecoveryReport
from weft.snapshot.recovery import CHANGED_AFTER_DEATH, MAX_NAMED_FILES, format_unnamed

TESTS = Path(__file__).parents[1]
SCRIPT = TESTS / "given" / "killed_snapshot.py"


async def keep_undo(session: SessionID, note: str) -> bool:
    return True


async def drop_undo(session: SessionID, note: str) -> bool:
    return False


def run_killed(tmp_path: Path, *given: object) -> str:
    """Return the output of the script; empty if it was killed."""
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), *map(str, given)],
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stderr == ""
    return ended.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("finish", [True, False], ids=["finished", "rolled back"])
async def test_a_restore_killed_at_any_step_is_settled(tmp_path: Path, finish: bool) -> None:
    root = tmp_path / "loom"
    for name in ("a.txt", "d/b.txt", "d/c.txt", "f"):
        write(root / name, name)
    write(root / "mine.txt", "person")
    before = read_tree(root)
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command(
            "echo x > a.txt; rm -r d; echo d > d; rm f; mkdir f; echo g > f/g; echo n > n"
        )
        plan = await harness.plan()
        changed = read_tree(root)
        (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan))
        at, settled = 0, 0
        while True:
            at += 1
            if run_killed(tmp_path, "restore", at) == "done":
                break
            write(root / ".weft-0123456789abcdef", "half")  # as if it had died while it wrote
            if settled == 0:
                with pytest.raises(RestoreFailedError):
                    await harness.snapshots.restore(plan)
            recovered = await harness.snapshots.recover(keep_undo if finish else drop_undo)
            assert read_tree(root) == (before if finish else changed)
            assert len(recovered.finished if finish else recovered.rolled_back) == 1
            assert await harness.snapshots.recover(keep_undo if finish else drop_undo) == RecoveryReport()
            settled += 1
            if finish:
                [done] = recovered.finished
                await harness.redo(done)
                assert read_tree(root) == changed
    assert settled > 10
    assert read_tree(root) == before


async def test_changes_by_the_person_after_the_crash_are_not_rolled_back(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "a")
    write(root / "b.txt", "b")
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command("echo x > a.txt; echo x > b.txt")
        (tmp_path / "plan.json").write_bytes(msgspec.json.encode(await harness.plan()))
        run_killed(tmp_path, "restore", 3)  # one file is restored
        assert (root / "a.txt").read_text() == "a"
        write(root / "a.txt", "person")

        recovered = await harness.snapshots.recover(drop_undo)

    [restored] = recovered.rolled_back
    assert harness.fates(restored) == {"a.txt": "kept", "b.txt": "restored"}
    assert (root / "a.txt").read_text() == "person"
    assert (root / "b.txt").read_text() == "x\n"


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("tool", ["by-tool.txt"]),
        ("command", ["a.txt", "by-command.txt"]),
        ("both", ["a.txt", "by-command.txt", "by-tool.txt"]),
    ],
)
@pytest.mark.parametrize("kind", ["git", "no git"])
async def test_the_changes_of_a_dead_process_can_be_undone(
    tmp_path: Path, what: str, changed: list[str], kind: str
) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "a")
    if kind == "git":
        init_repository(root)
    before = read_tree(root)
    assert run_killed(tmp_path, what) == ""

    async with open_snapshot_harness(tmp_path) as harness:
        recovered = await harness.snapshots.recover(keep_undo)
        [found] = recovered.patches
        patch = found.patch
        assert (found.session, patch.files) == (SESSION, tuple(str(harness.root / name) for name in changed))
    async with open_snapshot_harness(
        tmp_path
    ) as harness:  # nothing confirmed that it was stored, so it is reported again
        assert (await harness.snapshots.recover(keep_undo)).patches == recovered.patches
        await harness.snapshots.mark_stored(SESSION)
        harness.patches = [patch]
        await harness.undo()
    async with open_snapshot_harness(tmp_path) as harness:
        assert await harness.snapshots.recover(keep_undo) == RecoveryReport()
    assert read_tree(root) == before
    assert list((tmp_path / "data").rglob("live/*")) == []


async def recover_uncovered(tmp_path: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the names of the files that undo would restore after a crash, and why it leaves others alone."""
    async with open_snapshot_harness(tmp_path) as harness:
        [found] = (await harness.snapshots.recover(keep_undo)).patches
        top = f"{harness.root}/"
        files = tuple(file.removeprefix(top) for file in found.patch.files)
        return files, {each.file.removeprefix(top): each.reason for each in found.patch.uncovered}


async def test_what_the_person_changed_after_a_tool_was_killed_is_left_alone(tmp_path: Path) -> None:
    run_killed(tmp_path, "tool")
    wait_for_witnesses(tmp_path / "data" / "snapshot")
    write(tmp_path / "loom" / "by-tool.txt", "person")

    assert await recover_uncovered(tmp_path) == ((), {"by-tool.txt": CHANGED_AFTER_DEATH})


async def test_of_many_files_that_the_person_changed_after_a_crash_the_first_are_named(
    tmp_path: Path,
) -> None:
    write(tmp_path / "loom" / "a.txt", "a")
    run_killed(tmp_path, "command")
    wait_for_witnesses(tmp_path / "data" / "snapshot")
    names = [f"{number:03}.txt" for number in range(MAX_NAMED_FILES + 2)]
    for name in names:
        write(tmp_path / "loom" / name, "person")

    files, uncovered = await recover_uncovered(tmp_path)
    assert files == ("a.txt", "by-command.txt")
    assert uncovered == {
        **dict.fromkeys(names[:MAX_NAMED_FILES], CHANGED_AFTER_DEATH),
        str((tmp_path / "loom").resolve()): format_unnamed(2),
    }


async def test_a_process_beside_a_living_one_makes_no_directory_only_to_recover(tmp_path: Path) -> None:
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.write_file("a.txt", "a")
        living = list((tmp_path / "data").rglob("live/*"))
        async with open_snapshot_harness(tmp_path) as second:
            assert await second.snapshots.recover(keep_undo) == RecoveryReport()
            assert list((tmp_path / "data").rglob("live/*")) == living


async def test_patches_that_were_taken_and_not_stored_are_reported_again(tmp_path: Path) -> None:
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.write_file("a.txt", "a")
        taken = await harness.snapshots.take(SESSION)
    async with open_snapshot_harness(tmp_path) as harness:
        recovered = await harness.snapshots.recover(keep_undo)
    assert recovered.patches == tuple(RecoveredPatch(session=SESSION, patch=patch) for patch in taken)


async def test_a_killed_first_scan_is_repeated(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    for number in range(1500):
        write(root / f"{number}.txt", f"{number}")
    for milliseconds in (1, 20, 60, 120):
        run_killed(tmp_path, "look", milliseconds)
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.snapshots.recover(keep_undo)
        await harness.run_command("rm 7.txt")
        assert harness.fates(await harness.undo()) == {"7.txt": "restored"}


async def test_a_living_process_is_not_taken_for_dead(tmp_path: Path) -> None:
    write(tmp_path / "loom" / "a.txt", "a")
    async with open_snapshot_harness(tmp_path) as one, open_snapshot_harness(tmp_path) as two:
        async with one.snapshots.watch(SESSION):
            write(one.root / "a.txt", "agent")
            assert await two.snapshots.recover(keep_undo) == RecoveryReport()
        assert one.fates(await one.undo()) == {"a.txt": "restored"}


async def test_concurrent_processes_do_not_disturb_each_other(tmp_path: Path) -> None:
    write(tmp_path / "loom" / "a.txt", "a")
    rounds = 4
    beside = [asyncio.to_thread(run_killed, tmp_path, "beside", rounds) for _ in range(3)]
    assert await asyncio.gather(*beside) == [str(rounds)] * 3
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command("echo agent > a.txt")
        assert harness.fates(await harness.undo()) == {"a.txt": "restored"}
