"""The undo matrix at the level of snapshots: changes of an agent and of a person, and the fate of each file."""

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from given.snapshot_harness import (
    OTHER,
    SnapshotHarness,
    git,
    init_repository,
    open_snapshot_harness,
    read_tree,
    write,
)
from weft.snapshot.index import GitListing, IndexDifference

START = {
    "a.txt": b"one\ntwo\n",
    "b.bin": b"\0\1\2\xff",
    "deep/in/c.txt": b"c\n",
    "lines.txt": b"with\r\ncarriage\r\nreturns\r\n",
    "run.sh": b"#!/bin/sh\n",
    ".gitattributes": b"*.txt text=auto\n*.txt ident\n",
    ".gitignore": b"*.log\nbuild/\n",
    "kept.log": b"ignored\n",
}


@pytest.fixture(params=["git", "no git"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SnapshotHarness]:
    root = tmp_path / "loom"
    for name, content in START.items():
        write(root / name, content)
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("a.txt")
    if request.param == "git":
        init_repository(root)
    async with open_snapshot_harness(tmp_path) as found:
        yield found


# --- the agent alone: everything is as before, and the way back is exact ---

ALONE = {
    "edit": "echo agent > a.txt",
    "append": "echo agent >> lines.txt",
    "create": "echo new > new.txt",
    "create in new directories": "mkdir -p x/y/z && echo new > x/y/z/new.txt && echo n > x/n.txt",
    "delete": "rm a.txt",
    "delete a directory": "rm -r deep",
    "rename": "mv a.txt z.txt",
    "rename a directory": "mv deep shallow",
    "rename the case alone": "mv a.txt A.txt",
    "binary": "printf '\\000\\377new' > b.bin",
    "make executable": "chmod +x a.txt",
    "make not executable": "chmod -x run.sh",
    "link": "ln -s deep new-link",
    "link elsewhere": "ln -sf b.bin link",
    "link becomes a file": "rm link && echo file > link",
    "file becomes a link": "rm a.txt && ln -s b.bin a.txt",
    "a link out of the directory": "rm a.txt && ln -s /etc/passwd a.txt",
    "file becomes a directory": "rm a.txt && mkdir a.txt && echo in > a.txt/in",
    "directory becomes a file": "rm -r deep && echo file > deep",
    "directory becomes a link": "rm -r deep && ln -s . deep",
    "two swap": "mv a.txt t && mv b.bin a.txt && mv t b.bin",
    "odd names": """printf n > 'with
newline'; printf q > 'quo"te'"'"; printf t > 'tab\there'; printf s > ' space '; printf u > 'übung'""",
    "a name that looks like an option": "echo x > -- '-n'; echo y > '--stdin'; echo z > ':(glob)*'",
    "many": "for i in $(seq 400); do echo $i > many-$i.txt; done; rm a.txt b.bin",
    "nothing": "true",
}


@pytest.mark.parametrize("command", ALONE.values(), ids=ALONE)
async def test_changes_of_a_command_are_undone_and_redone_exactly(
    harness: SnapshotHarness, command: str
) -> None:
    before = read_tree(harness.root)
    await harness.run_command(command)
    changed = read_tree(harness.root)

    done = await harness.undo()

    assert read_tree(harness.root) == before
    assert set(harness.fates(done).values()) <= {"restored", "removed"}
    await harness.redo(done)
    assert read_tree(harness.root) == changed


async def test_changes_of_a_tool_are_undone_and_redone_exactly(harness: SnapshotHarness) -> None:
    before = read_tree(harness.root)
    await harness.write_file("a.txt", "agent\n")
    await harness.write_file("new/deep/b.txt", b"\r\n\0")
    await harness.write_file("kept.log", "agent\n")
    changed = read_tree(harness.root)

    done = await harness.undo()

    assert harness.fates(done) == {"a.txt": "restored", "kept.log": "restored", "new/deep/b.txt": "removed"}
    assert read_tree(harness.root) == before
    await harness.redo(done)
    assert read_tree(harness.root) == changed


async def test_file_names_that_are_not_text_are_undone_and_reported(harness: SnapshotHarness) -> None:
    before = read_tree(harness.root)
    odd = os.path.join(os.fsencode(harness.root), b"bad\xff\xfename")

    def act() -> None:
        with open(odd, "wb") as file:
            file.write(b"x")

    await harness.run_command(act)
    (patch,) = await harness.end_step()

    assert patch.files == (f"{harness.root}/bad\\xff\\xfename",)
    done = await harness.undo()
    assert [(each.file, each.fate) for each in done.fates] == [(patch.files[0], "removed")]
    assert read_tree(harness.root) == before


async def test_permissions_are_restored_with_a_deleted_file(harness: SnapshotHarness) -> None:
    (harness.root / "a.txt").chmod(0o600)
    (harness.root / "run.sh").chmod(0o700)
    await harness.run_command("true")
    await harness.end_step()
    before = read_tree(harness.root)

    await harness.run_command("rm a.txt run.sh")
    await harness.undo()

    assert read_tree(harness.root) == before


async def test_a_file_the_agent_edits_keeps_its_permissions(harness: SnapshotHarness) -> None:
    (harness.root / "a.txt").chmod(0o640)
    before = read_tree(harness.root)
    await harness.write_file("a.txt", "agent")
    (harness.root / "a.txt").chmod(0o600)

    await harness.undo()

    assert read_tree(harness.root) == before | {b"a.txt": ("0o600", START["a.txt"])}


async def test_an_ignored_file_is_watched_once_a_tool_changed_it(harness: SnapshotHarness) -> None:
    before = read_tree(harness.root)
    await harness.write_file("kept.log", "tool\n")
    await harness.run_command("echo command >> kept.log")

    done = await harness.undo()

    assert harness.fates(done) == {"kept.log": "restored"}
    assert read_tree(harness.root) == before


async def test_an_empty_directory_of_the_person_stays(harness: SnapshotHarness) -> None:
    (harness.root / "mine" / "empty").mkdir(parents=True)
    before = read_tree(harness.root)
    await harness.run_command("echo x > mine/empty/x; mkdir mine/made; echo y > mine/made/y")
    await harness.write_file("mine/empty/z", "z")

    await harness.undo()

    assert read_tree(harness.root) == before


# --- the person, too ---


async def test_later_changes_by_the_person_are_kept_and_reported(harness: SnapshotHarness) -> None:
    await harness.run_command("echo agent > a.txt; echo agent > b.bin; echo new > new.txt; rm deep/in/c.txt")
    await harness.end_step()
    write(harness.root / "a.txt", "person\n")
    write(harness.root / "new.txt", "person\n")
    write(harness.root / "deep/in/c.txt", "person\n")
    write(harness.root / "own.txt", "person\n")

    done = await harness.undo()

    assert harness.fates(done) == {
        "a.txt": "kept",
        "b.bin": "restored",
        "deep/in/c.txt": "kept",
        "new.txt": "kept",
    }
    assert harness.reason(done, "a.txt") == "you changed it since"
    for name in ("a.txt", "new.txt", "deep/in/c.txt", "own.txt"):
        assert (harness.root / name).read_text() == "person\n"
    assert (harness.root / "b.bin").read_bytes() == START["b.bin"]


async def test_earlier_changes_by_the_person_are_restored(harness: SnapshotHarness) -> None:
    await harness.run_command("echo first > b.bin")
    write(harness.root / "a.txt", "person\n")
    await harness.run_command("echo agent > a.txt")

    await harness.undo()

    assert (harness.root / "a.txt").read_text() == "person\n"
    assert (harness.root / "b.bin").read_bytes() == START["b.bin"]


@pytest.mark.parametrize("by", ["tool", "command"])
async def test_undo_stops_at_a_change_by_the_person_between_two_changes(
    harness: SnapshotHarness, by: str
) -> None:
    async def agent(text: str) -> None:
        if by == "tool":
            await harness.write_file("a.txt", text)
        else:
            await harness.run_command(lambda: write(harness.root / "a.txt", text))

    await agent("agent 1")
    write(harness.root / "a.txt", "person")
    await agent("agent 2")
    await agent("agent 3")

    done = await harness.undo()

    assert (harness.root / "a.txt").read_text() == "person"
    assert harness.fate(done, "a.txt").fate == "restored"
    assert harness.reason(done, "a.txt") == "it is as you left it between two changes of the agent"
    await harness.redo(done)
    assert (harness.root / "a.txt").read_text() == "agent 3"


async def test_changes_by_the_person_to_other_files_during_a_step_are_not_the_agents(
    harness: SnapshotHarness,
) -> None:
    await harness.write_file("a.txt", "agent")
    write(harness.root / "b.bin", "person")
    write(harness.root / "mine.txt", "person")
    await harness.run_command("echo agent > run.sh")

    done = await harness.undo()

    assert harness.fates(done) == {"a.txt": "restored", "run.sh": "restored"}
    assert (harness.root / "b.bin").read_text() == (harness.root / "mine.txt").read_text() == "person"


async def test_a_change_that_the_person_reverted_by_hand_is_unchanged(harness: SnapshotHarness) -> None:
    before = read_tree(harness.root)
    await harness.run_command("echo agent > a.txt; echo agent > new.txt")
    await harness.end_step()
    write(harness.root / "a.txt", START["a.txt"])
    (harness.root / "new.txt").unlink()

    done = await harness.undo()

    assert harness.fates(done) == {"a.txt": "unchanged", "new.txt": "unchanged"}
    assert done.undo is None
    assert read_tree(harness.root) == before


async def test_changes_by_the_person_between_undo_and_redo_are_kept(harness: SnapshotHarness) -> None:
    await harness.run_command("echo agent > a.txt; echo agent > new.txt; rm b.bin")
    done = await harness.undo()
    write(harness.root / "a.txt", "person")
    write(harness.root / "new.txt", "person")

    again = await harness.redo(done)

    assert harness.fates(again) == {"a.txt": "kept", "b.bin": "removed", "new.txt": "kept"}
    assert (harness.root / "a.txt").read_text() == (harness.root / "new.txt").read_text() == "person"


async def test_a_step_without_changes_undoes_nothing(harness: SnapshotHarness) -> None:
    await harness.run_command("cat a.txt > /dev/null")
    write(harness.root / "a.txt", "person")
    before = read_tree(harness.root)

    assert await harness.end_step() == ()
    assert harness.fates(await harness.undo()) == {}
    assert read_tree(harness.root) == before


async def test_a_file_is_not_restored_over_one_of_the_person(
    harness: SnapshotHarness,
) -> None:
    await harness.run_command("rm -r deep")
    await harness.end_step()
    write(harness.root / "deep", "person")

    done = await harness.undo()

    assert harness.fates(done) == {"deep/in/c.txt": "kept"}
    assert harness.reason(done, "deep/in/c.txt") == "something else is in its place"
    assert (harness.root / "deep").read_text() == "person"


async def test_a_directory_with_files_of_the_person_stays(harness: SnapshotHarness) -> None:
    await harness.run_command("rm a.txt && mkdir a.txt && echo in > a.txt/in")
    await harness.end_step()
    write(harness.root / "a.txt/mine", "person")

    done = await harness.undo()

    assert harness.fates(done) == {"a.txt": "kept", "a.txt/in": "removed"}
    assert (harness.root / "a.txt/mine").read_text() == "person"


async def test_a_directory_replaced_by_a_link_is_not_followed(
    harness: SnapshotHarness, tmp_path: Path
) -> None:
    outside = tmp_path / "outside" / "in"
    await harness.run_command("echo agent > deep/in/c.txt")
    await harness.end_step()
    write(outside / "c.txt", "agent\n")  # as the agent left it, but not there
    git(tmp_path, "init", "-q", "scratch")
    os.rename(harness.root / "deep", tmp_path / "scratch" / "deep")
    (harness.root / "deep").symlink_to(tmp_path / "outside")

    done = await harness.undo()

    assert harness.fates(done) == {"deep/in/c.txt": "kept"}
    assert (outside / "c.txt").read_text() == "agent\n"


# --- some files, other sessions ---


async def test_single_files_can_be_undone(harness: SnapshotHarness) -> None:
    await harness.run_command("echo agent > a.txt; echo agent > b.bin")

    done = await harness.undo("b.bin", "never.txt")

    assert harness.fates(done) == {"b.bin": "restored", "never.txt": "uncovered"}
    assert (harness.root / "a.txt").read_text() == "agent\n"


async def test_undoing_one_session_leaves_the_other_alone(harness: SnapshotHarness) -> None:
    other = harness.for_session(OTHER)

    async with harness.snapshots.watch(harness.session):
        write(harness.root / "a.txt", "command of one")
        await other.write_file("b.bin", "tool of the other")
        await other.write_file("new.txt", "made by the other")
    done = await harness.undo()

    assert harness.fates(done) == {"a.txt": "restored"}
    assert (harness.root / "b.bin").read_text() == "tool of the other"
    assert (harness.root / "new.txt").read_text() == "made by the other"
    assert harness.fates(await other.undo()) == {"b.bin": "restored", "new.txt": "removed"}


async def test_a_command_does_not_own_a_file_that_a_tool_of_another_session_is_changing(
    harness: SnapshotHarness,
) -> None:
    other = harness.for_session(OTHER)
    announced = harness.snapshots.watch(OTHER, [str(harness.root / "b.bin")])
    async with announced, harness.snapshots.watch(harness.session):
        write(harness.root / "a.txt", "command of one")
        write(harness.root / "b.bin", "tool of the other")
    assert harness.fates(await harness.undo()) == {"a.txt": "restored"}
    assert harness.fates(await other.undo()) == {"b.bin": "restored"}


async def test_a_change_that_two_sessions_may_have_made_belongs_to_neither_and_is_reported(
    harness: SnapshotHarness,
) -> None:
    other = harness.for_session(OTHER)
    async with harness.snapshots.watch(harness.session), harness.snapshots.watch(OTHER):
        write(harness.root / "a.txt", "who knows")

    for each in (harness, other):
        done = await each.undo()
        assert each.fates(done) == {"a.txt": "uncovered"}
        assert each.reason(done, "a.txt") == "another session ran a command at the same time"
    assert (harness.root / "a.txt").read_text() == "who knows"


async def test_concurrent_calls_of_one_session_are_all_undone(harness: SnapshotHarness) -> None:
    before = read_tree(harness.root)
    async with harness.snapshots.watch(harness.session):
        write(harness.root / "a.txt", "command 1")
        async with harness.snapshots.watch(harness.session):
            write(harness.root / "b.bin", "command 2")
            await harness.write_file("a.txt", "tool")
            await harness.write_file("new.txt", "tool")
        write(harness.root / "new.txt", "command 1")

    done = await harness.undo()

    assert harness.fates(done) == {"a.txt": "restored", "b.bin": "restored", "new.txt": "removed"}
    assert read_tree(harness.root) == before


async def test_a_file_written_while_another_call_is_scanned_is_undone(
    harness: SnapshotHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_tree(harness.root)
    find_differences = GitListing.find_differences
    scans: list[str] = []

    def write_after_listing(listing: GitListing, index: str, root: bytes) -> IndexDifference:
        found = find_differences(listing, index, root)
        if not scans:
            write(harness.root / "b.bin", "late")
        scans.append(index)
        time.sleep(0.02)  # the clock of files moves on before the scan ends
        return found

    async with harness.snapshots.watch(harness.session):
        async with harness.snapshots.watch(harness.session):
            monkeypatch.setattr(GitListing, "find_differences", write_after_listing)
        assert len(scans) == 1

    assert harness.fates(await harness.undo()) == {"b.bin": "restored"}
    assert read_tree(harness.root) == before


async def test_many_steps_are_undone_at_once(harness: SnapshotHarness) -> None:
    before = read_tree(harness.root)
    for number in range(5):
        await harness.run_command(f"echo {number} > a.txt; mkdir -p d{number}; echo {number} > d{number}/f")
        await harness.write_file("run.sh", f"{number}")
        await harness.end_step()
    await harness.run_command("rm -r d1 d2")

    done = await harness.undo()

    assert set(harness.fates(done).values()) == {"restored", "removed", "unchanged"}
    assert read_tree(harness.root) == before
