"""What snapshots never do: write to the user's repository, run a program it names, or restore unreadable content."""

import asyncio
import errno
import os
import shutil
import threading
from pathlib import Path

import pytest

from given.snapshot_harness import (
    OTHER,
    SESSION,
    SMALL_LIMITS,
    delete_objects,
    fingerprint,
    git,
    init_repository,
    open_snapshot_harness,
    read_tree,
    snapshot_site,
    write,
)
from weft.errors import SnapshotMissingError
from weft.model.diff import Patch, Tree, Uncovered
from weft.snapshot.contract import Coverage, RestorePlan, SnapshotLimits
from weft.snapshot.git import PULSE_SECONDS, open_snapshots
from weft.snapshot.location import SnapshotSite, list_locations
from weft.snapshot.noop import NoSnapshots


def hostile(root: Path, marker: Path) -> None:
    """Make a repository that would run a program at every opportunity."""
    run = f"sh -c 'echo ran >> {marker}; cat'"
    for key in ("clean", "smudge", "process"):
        git(root, "config", f"filter.lfs.{key}", run)
    git(root, "config", "filter.lfs.required", "true")
    git(root, "config", "diff.odd.textconv", run)
    git(root, "config", "diff.odd.command", run)
    git(root, "config", "diff.external", run)
    git(root, "config", "core.fsmonitor", run)
    git(root, "config", "core.autocrlf", "true")
    hooks = root / ".git" / "hooks"
    for name in ("post-index-change", "pre-commit", "post-checkout", "reference-transaction", "pre-auto-gc"):
        write(hooks / name, f"#!/bin/sh\necho ran >> {marker}\n")
        (hooks / name).chmod(0o755)


async def test_the_persons_repository_is_only_read(tmp_path: Path) -> None:
    root, marker = tmp_path / "loom", tmp_path / "marker"
    write(root / "a.txt", "a\n")
    write(root / "b.txt", "b\n")
    init_repository(root)
    write(root / "a.txt", "staged\n")
    git(root, "add", "a.txt")
    write(root / "a.txt", "staged, and changed\r\n")
    write(root / "untracked.txt", "u\n")
    write(root / ".gitattributes", "* filter=lfs text eol=crlf diff=odd ident working-tree-encoding=UTF-16\n")
    hostile(root, marker)
    before, files = fingerprint(root / ".git"), read_tree(root)

    async with open_snapshot_harness(tmp_path) as harness:
        await harness.snapshots.track(SESSION)
        async with harness.snapshots.watch(SESSION):
            write(root / "a.txt", "agent\r\n$Id$\n")
            write(root / "b.txt", "agent\n")
            (root / "untracked.txt").unlink()
        (patch,) = await harness.end_step()
        assert len(await harness.snapshots.diff(patch.before, patch.after)) == 3
        assert await harness.snapshots.diff_text(patch.before, patch.after)
        await harness.undo()

    assert read_tree(root) == files
    assert fingerprint(root / ".git") == before
    assert not marker.exists()


async def test_git_variables_of_the_environment_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = init_repository(tmp_path / "elsewhere")
    before = fingerprint(elsewhere)
    monkeypatch.setenv("GIT_DIR", str(elsewhere / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(elsewhere / ".git" / "index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(elsewhere / ".git" / "objects"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.autocrlf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")
    write(tmp_path / "loom" / "a.txt", "a\r\n")

    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command(lambda: write(harness.root / "a.txt", "agent"))
        await harness.undo()

    assert (tmp_path / "loom" / "a.txt").read_bytes() == b"a\r\n"
    assert fingerprint(elsewhere) == before


async def test_changed_files_are_restored_even_without_the_repository(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    for number in range(300):
        write(root / f"{number}.txt", f"{number}\n" * 50)
    init_repository(root)

    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command("rm *.txt; git checkout -q --orphan other; echo x > 0.txt")
        await harness.end_step()
        shutil.rmtree(root / ".git")
        done = await harness.undo()

    assert set(harness.fates(done).values()) == {"restored"}
    assert (root / "299.txt").read_text() == "299\n" * 50


async def test_objects_lost_by_the_repository_are_stored_at_the_next_opening(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "from a stash\n")
    init_repository(root)
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command("true")
    shutil.rmtree(root / ".git" / "objects")
    git(root, "init", "-q")

    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command("echo agent > a.txt")
        assert harness.fates(await harness.undo()) == {"a.txt": "restored"}
    assert (root / "a.txt").read_text() == "from a stash\n"


async def test_nested_repositories_are_not_entered_and_are_reported(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    library = init_repository(tmp_path / "library")
    write(root / "a.txt", "a")
    write(root / "nested" / "inner.txt", "inner")
    init_repository(root / "nested")
    init_repository(root)
    git(root, "submodule", "add", "-q", str(library), "module")
    write(root / "module" / "own.txt", "own")
    before = fingerprint(root / "nested" / ".git")

    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command("echo agent > nested/inner.txt; echo agent > a.txt")
        done = await harness.undo()
        assert harness.fates(done) == {"a.txt": "restored", "nested": "uncovered"}
        assert harness.reason(done, "nested") == "it is a nested repository"
        await harness.run_command("echo agent > module/own.txt")
        assert harness.fates(await harness.undo())["module"] == "uncovered"

    assert fingerprint(root / "nested" / ".git") == before
    assert (root / "nested" / "inner.txt").read_text() == "agent\n"


async def test_a_file_in_a_nested_repository_that_a_tool_names_is_covered(tmp_path: Path) -> None:
    write(tmp_path / "loom" / "nested" / "inner.txt", "inner")
    init_repository(tmp_path / "loom" / "nested")
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.write_file("nested/inner.txt", "agent")
        assert harness.fates(await harness.undo()) == {"nested/inner.txt": "restored"}
    assert (tmp_path / "loom" / "nested" / "inner.txt").read_text() == "inner"


async def test_large_files_are_reported_and_not_stored(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    write(root / "large.bin", b"x" * 5000)
    write(root / "grows.txt", "small")
    write(root / "still.bin", b"y" * 5000)

    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command(
            lambda: (write(root / "large.bin", b"z" * 5000), write(root / "grows.txt", b"g" * 2000))
        )
        await harness.write_file("new.bin", b"n" * 2000)
        await harness.run_command("rm large.bin; echo small > grows.txt")
        done = await harness.undo()

    assert harness.fates(done) == {"grows.txt": "uncovered", "large.bin": "uncovered", "new.bin": "uncovered"}
    assert harness.reason(done, "large.bin") == "it exceeds the size limit for one file"
    assert (root / "grows.txt").read_text() == "small\n"


async def test_files_outside_of_the_project_are_reported(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.write_file("../outside.txt", "agent")
        await harness.write_file(".git/config", "agent")
        plan = await harness.plan()
        done = await harness.snapshots.restore(plan)

    assert [(each.file, each.fate, each.reason) for each in done.fates] == [
        (f"{harness.root}/../outside.txt", "uncovered", "it lies outside the project"),
        (f"{harness.root}/.git/config", "uncovered", "it lies outside the project"),
    ]
    assert outside.read_text() == "agent"


async def test_a_file_written_through_a_link_is_restored_at_its_target(tmp_path: Path) -> None:
    write(tmp_path / "loom" / "real" / "a.txt", "a")
    (tmp_path / "loom" / "way").symlink_to("real")
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.write_file("way/a.txt", "agent")
        assert harness.fates(await harness.undo()) == {"real/a.txt": "restored"}
    assert (tmp_path / "loom" / "real" / "a.txt").read_text() == "a"


@pytest.mark.parametrize("lost", ["all", "one"])
async def test_a_missing_snapshot_refuses_the_undo_and_nothing_changes(tmp_path: Path, lost: str) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "a")
    write(root / "b.txt", "b")
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command("echo agent > a.txt; echo agent > b.txt; echo new > new.txt")
        plan = await harness.plan()
        before = read_tree(root)
        if lost == "all":
            delete_objects(tmp_path)
        else:
            (tmp_path / "data").rglob("2e65efe2a145dda7ee51d1741299f848e5bf752e"[2:]).__next__().unlink()

        preview = await harness.snapshots.preview(plan)
        with pytest.raises(SnapshotMissingError, match="nothing was changed"):
            await harness.snapshots.restore(plan)

    assert harness.fates(preview)["a.txt"] == "missing"
    assert read_tree(root) == before


async def test_a_damaged_object_counts_as_missing(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "a")
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command("echo agent > a.txt")
        plan = await harness.plan()
        for path in (tmp_path / "data").rglob("objects/??/*"):
            path.write_bytes(path.read_bytes()[:-3])
        with pytest.raises(SnapshotMissingError):
            await harness.snapshots.restore(plan)
    assert (root / "a.txt").read_text() == "agent\n"


async def test_one_file_can_be_restored_if_another_is_missing(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "a")
    write(root / "b.txt", "b")
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command("echo agent > a.txt; echo agent > b.txt")
        await harness.end_step()
        (tmp_path / "data").rglob("2e65efe2a145dda7ee51d1741299f848e5bf752e"[2:]).__next__().unlink()
        assert harness.fates(await harness.undo("b.txt")) == {"b.txt": "restored"}
    assert (root / "b.txt").read_text() == "b"


async def test_a_restore_that_could_not_be_stored_is_rolled_back(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "a")
    write(root / "d" / "b.txt", "b")
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command("echo agent > a.txt; rm -r d; mkdir n; echo new > n/new.txt")
        plan = await harness.plan()
        before = read_tree(root)

        async def restore_and_fail() -> None:
            async with harness.snapshots.restoring(plan):
                assert (root / "a.txt").read_text() == "a"
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await restore_and_fail()
        assert read_tree(root) == before
        assert harness.fates(await harness.undo()) == {
            "a.txt": "restored",
            "d/b.txt": "restored",
            "n/new.txt": "removed",
        }


async def test_an_undo_that_is_cancelled_while_it_restores_is_rolled_back_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "a")
    replace, began, go_on = os.replace, threading.Event(), threading.Event()

    def replace_slowly(source: str, target: str, **more: int) -> None:
        began.set()
        go_on.wait(10)
        replace(source, target, **more)

    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command("echo agent > a.txt")
        plan = await harness.plan()
        before = read_tree(root)
        monkeypatch.setattr(os, "replace", replace_slowly)
        undo = asyncio.create_task(harness.snapshots.restore(plan))
        await asyncio.to_thread(began.wait)
        undo.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait([undo])
        monkeypatch.undo()
        assert undo.cancelled()
        assert read_tree(root) == before
        assert harness.fates(await harness.undo()) == {"a.txt": "restored"}


async def test_an_undo_is_noted_on_the_disk_itself_before_it_changes_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "loom" / "a.txt", "a\n")
    done: list[str] = []
    flush, replace = os.fsync, os.replace

    def note_flush(fd: int) -> None:
        done.append("flush")
        flush(fd)

    def note_replace(source: str, target: str, **more: int) -> None:
        done.append(f"replace {os.path.basename(os.fsdecode(target))}")
        replace(source, target, **more)

    async with open_snapshot_harness(tmp_path) as harness:
        await harness.write_file("a.txt", "agent\n")
        plan = await harness.plan()
        monkeypatch.setattr(os, "fdatasync", note_flush)
        monkeypatch.setattr(os, "fsync", note_flush)
        monkeypatch.setattr(os, "replace", note_replace)
        await harness.snapshots.restore(plan)
        monkeypatch.undo()
    # Both files are flushed before they get their names, and the directory of each afterwards.
    assert done == ["flush", "replace restore.json", "flush", "flush", "replace a.txt", "flush"]


async def test_the_note_of_an_undo_stays_until_its_session_is_stored(tmp_path: Path) -> None:
    write(tmp_path / "loom" / "a.txt", "a\n")
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.write_file("a.txt", "agent\n")
        plan = await harness.plan()
        [place] = list_locations(snapshot_site(tmp_path).base)
        async with harness.snapshots.restoring(plan):
            was_noted = (tmp_path / place.intent).exists()
        assert (was_noted, (tmp_path / place.intent).exists()) == (True, False)


async def test_an_undo_waits_for_another_in_the_same_directory(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "a")
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command("echo agent > a.txt")
        plan = await harness.plan()
        async with harness.snapshots.restoring(plan):
            second = asyncio.create_task(harness.snapshots.restore(plan))
            done, _ = await asyncio.wait([second], timeout=0.1)
            assert not done
        assert {fate.fate for fate in (await second).fates} == {"unchanged"}


# --- limits, and what is not covered at all ---


async def test_the_home_directory_is_not_scanned(tmp_path: Path) -> None:
    home = tmp_path / "loom"
    write(home / "a.txt", "a")
    at = SnapshotSite(
        root=str(home),
        project=snapshot_site(tmp_path).project,
        base=str(tmp_path / "data"),
        user_home=str(home),
    )
    async with open_snapshots(at, os.environ, SMALL_LIMITS) as snapshots:
        assert snapshots.coverage().extent == "announced"
        async with snapshots.watch(SESSION):
            write(home / "a.txt", "command")
        async with snapshots.watch(SESSION, [str(home / "b.txt")]):
            write(home / "b.txt", "tool")
        (patch,) = await snapshots.take(SESSION)
        assert await snapshots.track(SESSION) is None

    assert patch.files == (str(home / "b.txt"),)
    assert [each.file for each in patch.uncovered] == [str(home)]


async def test_without_git_files_announced_by_tools_are_covered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    write(tmp_path / "loom" / "a.txt", "a")
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.write_file("a.txt", "tool")
        await harness.run_command(lambda: write(harness.root / "b.txt", "command"))
        done = await harness.undo()

    assert harness.fates(done) == {".": "uncovered", "a.txt": "restored"}
    assert "git" in harness.snapshots.coverage().reason


async def test_with_snapshots_switched_off_nothing_new_is_recorded_and_earlier_changes_can_be_undone(
    tmp_path: Path,
) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "a")
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.write_file("a.txt", "agent")
        plan = await harness.plan()
    async with open_snapshots(snapshot_site(tmp_path), os.environ, off=True) as snapshots:
        assert snapshots.coverage() == Coverage(extent="none", reason="snapshots are switched off")
        async with snapshots.watch(SESSION), snapshots.watch(SESSION, [str(root / "b.txt")]):
            write(root / "b.txt", "b")
        assert await snapshots.track(SESSION) is None
        assert await snapshots.take(SESSION) == ()
        await snapshots.restore(plan)
    assert (root / "a.txt").read_text() == "a"


async def test_without_a_directory_for_snapshots_nothing_can_be_undone() -> None:
    none = NoSnapshots()
    async with none.watch(SESSION):
        pass
    assert await none.take(SESSION) == ()
    assert await none.restore(RestorePlan(session=SESSION, patches=())) == await none.preview(
        RestorePlan(session=SESSION, patches=())
    )
    lost = Patch(before=Tree("0" * 40), after=Tree("1" * 40), files=())
    with pytest.raises(SnapshotMissingError):
        await none.restore(RestorePlan(session=SESSION, patches=(lost,)))


async def test_snapshots_are_bounded(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", os.urandom(500))
    write(root / "b.txt", os.urandom(500))
    async with open_snapshot_harness(tmp_path, SnapshotLimits(max_bytes=700, max_file_bytes=1000)) as harness:
        await harness.write_file("a.txt", "tool")
        await harness.write_file("b.txt", "tool")
        done = await harness.undo()
    assert harness.fates(done) == {"a.txt": "restored", "b.txt": "uncovered"}
    assert harness.reason(done, "b.txt") == "the space for snapshots is used up"


async def test_a_command_waits_for_a_scan_only_up_to_its_limit(tmp_path: Path) -> None:
    write(tmp_path / "loom" / "a.txt", "a")
    async with open_snapshot_harness(tmp_path, SnapshotLimits(wait_seconds=0.0)) as harness:
        await harness.run_command("echo agent > a.txt")
        (patch,) = await harness.end_step()
    assert patch.files == ()
    [uncovered] = patch.uncovered
    assert uncovered == Uncovered(file=str(harness.root), reason="the first scan of the files took too long")


async def test_a_cancelled_command_is_still_scanned(tmp_path: Path) -> None:
    write(tmp_path / "loom" / "a.txt", "a")
    async with open_snapshot_harness(tmp_path) as harness:
        began = asyncio.Event()

        async def command() -> None:
            async with harness.snapshots.watch(SESSION):
                write(harness.root / "a.txt", "agent")
                began.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(command())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert harness.fates(await harness.undo()) == {"a.txt": "restored"}


async def test_a_call_that_is_cancelled_while_it_begins_claims_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, began, go_on = os.replace, threading.Event(), threading.Event()

    def replace_slowly(source: str, target: str, **more: int) -> None:
        if str(target).endswith(f"{SESSION}.json"):
            began.set()
            go_on.wait(10)
        replace(source, target, **more)

    async with open_snapshot_harness(tmp_path) as harness:
        await harness.write_file("a.txt", "agent")
        await harness.end_step()
        monkeypatch.setattr(os, "replace", replace_slowly)
        call = asyncio.create_task(harness.write_file("a.txt", "cancelled"))
        await asyncio.to_thread(began.wait)
        call.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait([call])
        monkeypatch.undo()
        assert call.cancelled()
        other = harness.for_session(OTHER)
        await other.run_command("echo other > a.txt")
        assert other.fates(await other.undo()) == {"a.txt": "restored"}
    # Nothing is left that the next opening would take for the change of a dead process.
    assert list((tmp_path / "data").rglob("live/*")) == []


async def test_a_call_that_outlasts_the_failure_of_another_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def fail_for_ledgers(source: str, target: str, **more: int) -> None:
        if str(target).endswith(".json"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target, **more)

    async with open_snapshot_harness(tmp_path) as harness:
        async with harness.snapshots.watch(SESSION, [str(harness.root / "a.txt")]):
            async with harness.snapshots.watch(SESSION, [str(harness.root / "b.txt")]):
                write(harness.root / "b.txt", "agent")
                monkeypatch.setattr(os, "replace", fail_for_ledgers)
            await asyncio.sleep(PULSE_SECONDS * 1.5)
        assert harness.snapshots.coverage().extent == "none"


async def test_leaving_ends_a_first_scan_in_progress(tmp_path: Path) -> None:
    for number in range(2000):
        write(tmp_path / "loom" / f"{number % 50}" / f"{number}.txt", str(number))
    async with open_snapshot_harness(tmp_path) as harness:
        harness.snapshots.begin()
    assert list((tmp_path / "data").rglob("live/*")) == []


async def test_unreadable_files_do_not_prevent_the_undo_of_others(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    write(root / "a.txt", "a")
    write(root / "secret.txt", "s")
    os.mkfifo(root / "pipe")
    (root / "secret.txt").chmod(0)
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command("echo agent > a.txt")
        assert harness.fates(await harness.undo()) == {"a.txt": "restored"}


async def test_our_own_data_inside_the_directory_is_not_scanned(tmp_path: Path) -> None:
    root = tmp_path / "loom"
    data = root / "odd [data]* dir"
    write(root / "a.txt", "a")
    at = SnapshotSite(
        root=str(root),
        project=snapshot_site(tmp_path).project,
        base=str(data / "snapshot"),
        avoid=(str(data),),
    )
    async with open_snapshots(at, os.environ, SMALL_LIMITS) as snapshots:
        async with snapshots.watch(SESSION):
            write(root / "b.txt", "agent")
            write(data / "storage" / "session.json", "ours")
        async with snapshots.watch(SESSION, [str(data / "storage" / "session.json")]):
            write(data / "storage" / "session.json", "ours again")
        (patch,) = await snapshots.take(SESSION)
    assert patch.files == (str(root / "b.txt"),)
    assert [each.reason for each in patch.uncovered] == ["it lies outside the project"]


async def test_a_worktree_inside_our_own_data_is_scanned(tmp_path: Path) -> None:
    data = tmp_path / "data"
    root = data / "worktree" / "x"
    write(root / "a.txt", "a")
    at = SnapshotSite(
        root=str(root),
        project=snapshot_site(tmp_path).project,
        base=str(data / "snapshot"),
        avoid=(str(data),),
    )
    async with open_snapshots(at, os.environ, SMALL_LIMITS) as snapshots:
        async with snapshots.watch(SESSION, [str(root / "a.txt")]):
            write(root / "a.txt", "agent")
        (patch,) = await snapshots.take(SESSION)
    assert (patch.files, patch.uncovered) == ((str(root / "a.txt"),), ())


async def test_the_global_gitignore_of_the_person_is_respected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = init_repository(tmp_path / "loom")
    write(root / ".git" / "info" / "exclude", "private.txt\n")
    write(tmp_path / "ignored", "*.swp\n")
    write(tmp_path / "gitconfig", f"[core]\n\texcludesFile = {tmp_path / 'ignored'}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    async with open_snapshot_harness(tmp_path) as harness:
        await harness.run_command("echo 1 > private.txt; echo 2 > a.swp; echo 3 > b.txt")
        (patch,) = await harness.end_step()
    assert patch.files == (str(root.resolve() / "b.txt"),)


async def test_many_calls_that_begin_and_end_at_once_are_all_recorded(tmp_path: Path) -> None:
    async with open_snapshot_harness(tmp_path) as harness:
        for number in range(20):
            await asyncio.gather(*(harness.write_file(f"{name}.txt", f"{number}\n") for name in "abcdefgh"))
        assert harness.snapshots.coverage() == Coverage(extent="all")
        patches = await harness.snapshots.take(SESSION)
        assert {Path(file).stem for patch in patches for file in patch.files} == set("abcdefgh")
