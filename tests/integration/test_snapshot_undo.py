"""The undo matrix: what an agent did to files, what a person did, and what becomes of each of them."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from given.undoing import OTHER, Desk, as_repository, files_below, git, open_desk, write

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
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    root = tmp_path / "loom"
    for name, content in START.items():
        write(root / name, content)
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("a.txt")
    if request.param == "git":
        as_repository(root)
    async with open_desk(tmp_path) as found:
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
async def test_what_a_command_did_is_undone_and_redone_exactly(desk: Desk, command: str) -> None:
    before = files_below(desk.root)
    await desk.runs(command)
    changed = files_below(desk.root)

    done = await desk.undoes()

    assert files_below(desk.root) == before
    assert set(desk.told(done).values()) <= {"restored", "removed"}
    await desk.redoes(done)
    assert files_below(desk.root) == changed


async def test_what_a_tool_wrote_is_undone_and_redone_exactly(desk: Desk) -> None:
    before = files_below(desk.root)
    await desk.writes("a.txt", "agent\n")
    await desk.writes("new/deep/b.txt", b"\r\n\0")
    await desk.writes("kept.log", "agent\n")
    changed = files_below(desk.root)

    done = await desk.undoes()

    assert desk.told(done) == {"a.txt": "restored", "kept.log": "restored", "new/deep/b.txt": "removed"}
    assert files_below(desk.root) == before
    await desk.redoes(done)
    assert files_below(desk.root) == changed


async def test_names_that_are_no_text_are_undone_and_can_be_told(desk: Desk) -> None:
    before = files_below(desk.root)
    odd = os.path.join(os.fsencode(desk.root), b"bad\xff\xfename")

    def act() -> None:
        with open(odd, "wb") as file:
            file.write(b"x")

    await desk.runs(act)
    (patch,) = await desk.ends_its_step()

    assert patch.files == (f"{desk.root}/bad\\xff\\xfename",)
    done = await desk.undoes()
    assert [(each.file, each.fate) for each in done.fates] == [(patch.files[0], "removed")]
    assert files_below(desk.root) == before


async def test_permissions_come_back_when_a_file_was_deleted(desk: Desk) -> None:
    (desk.root / "a.txt").chmod(0o600)
    (desk.root / "run.sh").chmod(0o700)
    await desk.runs("true")
    await desk.ends_its_step()
    before = files_below(desk.root)

    await desk.runs("rm a.txt run.sh")
    await desk.undoes()

    assert files_below(desk.root) == before


async def test_a_file_the_agent_edits_keeps_its_permissions(desk: Desk) -> None:
    (desk.root / "a.txt").chmod(0o640)
    before = files_below(desk.root)
    await desk.writes("a.txt", "agent")
    (desk.root / "a.txt").chmod(0o600)

    await desk.undoes()

    assert files_below(desk.root) == before | {b"a.txt": ("0o600", START["a.txt"])}


async def test_an_ignored_file_that_a_tool_touched_is_watched_from_then_on(desk: Desk) -> None:
    before = files_below(desk.root)
    await desk.writes("kept.log", "tool\n")
    await desk.runs("echo command >> kept.log")

    done = await desk.undoes()

    assert desk.told(done) == {"kept.log": "restored"}
    assert files_below(desk.root) == before


async def test_an_empty_directory_of_the_person_stays(desk: Desk) -> None:
    (desk.root / "mine" / "empty").mkdir(parents=True)
    before = files_below(desk.root)
    await desk.runs("echo x > mine/empty/x; mkdir mine/made; echo y > mine/made/y")
    await desk.writes("mine/empty/z", "z")

    await desk.undoes()

    assert files_below(desk.root) == before


# --- the person, too ---


async def test_what_the_person_changed_afterwards_is_kept_and_told(desk: Desk) -> None:
    await desk.runs("echo agent > a.txt; echo agent > b.bin; echo new > new.txt; rm deep/in/c.txt")
    await desk.ends_its_step()
    write(desk.root / "a.txt", "person\n")
    write(desk.root / "new.txt", "person\n")
    write(desk.root / "deep/in/c.txt", "person\n")
    write(desk.root / "own.txt", "person\n")

    done = await desk.undoes()

    assert desk.told(done) == {
        "a.txt": "kept",
        "b.bin": "restored",
        "deep/in/c.txt": "kept",
        "new.txt": "kept",
    }
    assert desk.reason(done, "a.txt") == "you changed it since"
    for name in ("a.txt", "new.txt", "deep/in/c.txt", "own.txt"):
        assert (desk.root / name).read_text() == "person\n"
    assert (desk.root / "b.bin").read_bytes() == START["b.bin"]


async def test_what_the_person_changed_before_is_what_comes_back(desk: Desk) -> None:
    await desk.runs("echo first > b.bin")
    write(desk.root / "a.txt", "person\n")
    await desk.runs("echo agent > a.txt")

    await desk.undoes()

    assert (desk.root / "a.txt").read_text() == "person\n"
    assert (desk.root / "b.bin").read_bytes() == START["b.bin"]


@pytest.mark.parametrize("by", ["tool", "command"])
async def test_what_the_person_changed_between_two_changes_is_where_it_ends(desk: Desk, by: str) -> None:
    async def agent(text: str) -> None:
        if by == "tool":
            await desk.writes("a.txt", text)
        else:
            await desk.runs(lambda: write(desk.root / "a.txt", text))

    await agent("agent 1")
    write(desk.root / "a.txt", "person")
    await agent("agent 2")
    await agent("agent 3")

    done = await desk.undoes()

    assert (desk.root / "a.txt").read_text() == "person"
    assert desk.fate(done, "a.txt").fate == "restored"
    assert desk.reason(done, "a.txt") == "it is as you left it between two changes of the agent"
    await desk.redoes(done)
    assert (desk.root / "a.txt").read_text() == "agent 3"


async def test_what_the_person_changed_elsewhere_during_the_step_is_not_the_agents(desk: Desk) -> None:
    await desk.writes("a.txt", "agent")
    write(desk.root / "b.bin", "person")
    write(desk.root / "mine.txt", "person")
    await desk.runs("echo agent > run.sh")

    done = await desk.undoes()

    assert desk.told(done) == {"a.txt": "restored", "run.sh": "restored"}
    assert (desk.root / "b.bin").read_text() == (desk.root / "mine.txt").read_text() == "person"


async def test_what_the_person_took_back_by_hand_is_unchanged(desk: Desk) -> None:
    before = files_below(desk.root)
    await desk.runs("echo agent > a.txt; echo agent > new.txt")
    await desk.ends_its_step()
    write(desk.root / "a.txt", START["a.txt"])
    (desk.root / "new.txt").unlink()

    done = await desk.undoes()

    assert desk.told(done) == {"a.txt": "unchanged", "new.txt": "unchanged"}
    assert done.undo is None
    assert files_below(desk.root) == before


async def test_what_the_person_changed_between_undo_and_redo_is_kept(desk: Desk) -> None:
    await desk.runs("echo agent > a.txt; echo agent > new.txt; rm b.bin")
    done = await desk.undoes()
    write(desk.root / "a.txt", "person")
    write(desk.root / "new.txt", "person")

    again = await desk.redoes(done)

    assert desk.told(again) == {"a.txt": "kept", "b.bin": "removed", "new.txt": "kept"}
    assert (desk.root / "a.txt").read_text() == (desk.root / "new.txt").read_text() == "person"


async def test_a_step_that_changed_nothing_undoes_nothing(desk: Desk) -> None:
    await desk.runs("cat a.txt > /dev/null")
    write(desk.root / "a.txt", "person")
    before = files_below(desk.root)

    assert await desk.ends_its_step() == ()
    assert desk.told(await desk.undoes()) == {}
    assert files_below(desk.root) == before


async def test_a_file_where_a_persons_file_stands_now_is_not_restored_over_it(desk: Desk) -> None:
    await desk.runs("rm -r deep")
    await desk.ends_its_step()
    write(desk.root / "deep", "person")

    done = await desk.undoes()

    assert desk.told(done) == {"deep/in/c.txt": "kept"}
    assert desk.reason(done, "deep/in/c.txt") == "something else is in its place"
    assert (desk.root / "deep").read_text() == "person"


async def test_a_directory_in_which_the_person_put_something_stays(desk: Desk) -> None:
    await desk.runs("rm a.txt && mkdir a.txt && echo in > a.txt/in")
    await desk.ends_its_step()
    write(desk.root / "a.txt/mine", "person")

    done = await desk.undoes()

    assert desk.told(done) == {"a.txt": "kept", "a.txt/in": "removed"}
    assert (desk.root / "a.txt/mine").read_text() == "person"


async def test_a_directory_that_became_a_link_out_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside" / "in"
    await desk.runs("echo agent > deep/in/c.txt")
    await desk.ends_its_step()
    write(outside / "c.txt", "agent\n")  # as the agent left it, but not there
    git(tmp_path, "init", "-q", "scratch")
    os.rename(desk.root / "deep", tmp_path / "scratch" / "deep")
    (desk.root / "deep").symlink_to(tmp_path / "outside")

    done = await desk.undoes()

    assert desk.told(done) == {"deep/in/c.txt": "kept"}
    assert (outside / "c.txt").read_text() == "agent\n"


# --- some files, other sessions ---


async def test_single_files_can_be_undone(desk: Desk) -> None:
    await desk.runs("echo agent > a.txt; echo agent > b.bin")

    done = await desk.undoes("b.bin", "never.txt")

    assert desk.told(done) == {"b.bin": "restored", "never.txt": "uncovered"}
    assert (desk.root / "a.txt").read_text() == "agent\n"


async def test_undoing_one_session_leaves_the_other_alone(desk: Desk) -> None:
    other = desk.sits(OTHER)

    async with desk.snapshots.watch(desk.session):
        write(desk.root / "a.txt", "command of one")
        await other.writes("b.bin", "tool of the other")
        await other.writes("new.txt", "made by the other")
    done = await desk.undoes()

    assert desk.told(done) == {"a.txt": "restored"}
    assert (desk.root / "b.bin").read_text() == "tool of the other"
    assert (desk.root / "new.txt").read_text() == "made by the other"
    assert desk.told(await other.undoes()) == {"b.bin": "restored", "new.txt": "removed"}


async def test_what_two_sessions_may_have_done_is_nobodys_and_told(desk: Desk) -> None:
    other = desk.sits(OTHER)
    async with desk.snapshots.watch(desk.session), desk.snapshots.watch(OTHER):
        write(desk.root / "a.txt", "who knows")

    for each in (desk, other):
        done = await each.undoes()
        assert each.told(done) == {"a.txt": "uncovered"}
        assert each.reason(done, "a.txt") == "another session ran a command at the same time"
    assert (desk.root / "a.txt").read_text() == "who knows"


async def test_calls_of_one_session_at_the_same_time_are_all_undone(desk: Desk) -> None:
    before = files_below(desk.root)
    async with desk.snapshots.watch(desk.session):
        write(desk.root / "a.txt", "command 1")
        async with desk.snapshots.watch(desk.session):
            write(desk.root / "b.bin", "command 2")
            await desk.writes("a.txt", "tool")
            await desk.writes("new.txt", "tool")
        write(desk.root / "new.txt", "command 1")

    done = await desk.undoes()

    assert desk.told(done) == {"a.txt": "restored", "b.bin": "restored", "new.txt": "removed"}
    assert files_below(desk.root) == before


async def test_many_steps_are_undone_at_once(desk: Desk) -> None:
    before = files_below(desk.root)
    for number in range(5):
        await desk.runs(f"echo {number} > a.txt; mkdir -p d{number}; echo {number} > d{number}/f")
        await desk.writes("run.sh", f"{number}")
        await desk.ends_its_step()
    await desk.runs("rm -r d1 d2")

    done = await desk.undoes()

    assert set(desk.told(done).values()) == {"restored", "removed", "unchanged"}
    assert files_below(desk.root) == before
