"""The files after each step, read from snapshots of real work."""

from pathlib import Path

from given.undo_harness import call_bash, call_edit, call_read, call_write, open_undo_harness
from weft.local.step_checkout import to_scratch_files
from weft.session.steps import list_steps
from weft.undo.step_files import read_contents, read_step_files
from weft.worktree.scratch import write_files


async def test_the_files_after_each_change_are_as_the_agent_left_them(tmp_path: Path) -> None:
    async with open_undo_harness(tmp_path / "loom") as harness:
        root = harness.root
        (root / "kept.txt").write_text("untouched\n")
        (root / "cloth.txt").write_text("grey\n")
        await harness.run_turn(
            [call_read(root / "cloth.txt")],
            [call_edit(root / "cloth.txt", "grey", "red")],
            [call_write(root / "new.txt", "one\n")],
            [call_bash("rm cloth.txt; mkdir -p deep && echo two > deep/er.txt")],
        )
        steps = list_steps(await harness.api.list_messages(harness.session))
        snapshots = harness.api.runtime.undo_context.snapshots
        files = await read_step_files(snapshots, steps)
        contents = await read_contents(
            snapshots, (each for change in files.changes for each in (change.before, change.after))
        )

    def get_files_after(place: int) -> dict[str, str | None]:
        states = files.get_after(place)
        return {
            path.decode(): contents[entry.oid].decode() if entry else None for path, entry in states.items()
        }

    grey = {"cloth.txt": "grey\n", "new.txt": None, "deep/er.txt": None}
    assert [get_files_after(place) for place in (0, *files.places)] == [
        grey,
        grey | {"cloth.txt": "red\n"},
        grey | {"cloth.txt": "red\n", "new.txt": "one\n"},
        {"cloth.txt": None, "new.txt": "one\n", "deep/er.txt": "two\n"},
    ]
    assert [files.find_last_place(step.number) for step in steps] == [0, 1, 2, 3, 3]
    assert [
        (change.step, getattr(steps[change.step - 1].find_call(change.call_id), "tool", ""))
        for change in files.changes
    ] == [
        (2, "edit"),
        (3, "write"),
        (4, "bash"),
        (4, "bash"),
    ]


async def test_a_directory_that_became_a_file_and_a_directory_again_is_written(tmp_path: Path) -> None:
    async with open_undo_harness(tmp_path / "loom") as harness:
        await harness.run_turn(
            [call_bash("mkdir -p a && echo one > a/b")],
            [call_bash("rm -r a; echo two > a")],
            [call_bash("rm a; mkdir a; echo three > a/b")],
        )
        snapshots = harness.api.runtime.undo_context.snapshots
        files = await read_step_files(snapshots, list_steps(await harness.api.list_messages(harness.session)))
        contents = await read_contents(
            snapshots, (each for change in files.changes for each in (change.before, change.after))
        )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for place, path, text in zip(files.places, ("a/b", "a", "a/b"), ("one", "two", "three"), strict=True):
        write_files(str(scratch), to_scratch_files(files.get_after(place), contents))
        assert (scratch / path).read_text() == f"{text}\n"
