"""Undo when the process is killed: changes of a killed run can be undone, and an undo is done or not done."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from given.snapshot_harness import init_repository, list_witnesses, read_tree, wait_for_witnesses, write
from given.undo_harness import call_bash, open_undo_harness
from weft.cli.main import run_command
from weft.host.paths import paths_from
from weft.model.ids import MessageID, SessionID
from weft.model.message import UserMessage
from weft.snapshot.location import get_default_base
from weft.snapshot.recovery import CHANGED_AFTER_DEATH, DEATH_NOT_SEEN

TESTS = Path(__file__).parents[1]
SCRIPT = TESTS / "given" / "killed_undo.py"
MANY = 300


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "loom"
    write(root / "a.txt", "one\n")
    write(root / "b.txt", "b\n")
    return init_repository(root)


def start(root: Path, *given: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(root), *given],
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_killed(root: Path, *given: str) -> str:
    """Return what the script printed before it was killed."""
    with start(root, *given) as child:
        out, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (-signal.SIGKILL, "")
    return out.strip()


@pytest.mark.parametrize(
    ("how", "fates"),
    [
        ("command", {"a.txt": "restored", "first.txt": "removed"}),
        ("child", {"a.txt": "restored", "first.txt": "removed"}),
        ("tool", {"b.txt": "restored", "first.txt": "removed", "new.txt": "removed"}),
    ],
)
async def test_the_changes_of_a_killed_run_can_be_undone(root: Path, how: str, fates: dict[str, str]) -> None:
    before = read_tree(root)
    session = SessionID(run_killed(root, how))
    async with open_undo_harness(root) as harness:
        harness.session = session
        changed = read_tree(root)
        first = next(each.info.id for each in await harness.history() if isinstance(each.info, UserMessage))

        assert await harness.undo(first) == fates
        assert read_tree(root) == before
        await harness.redo()
        assert read_tree(root) == changed
        summary = (await harness.api.get_session(session)).summary
        assert summary is not None
        assert summary.files == len(fates)


@pytest.mark.parametrize(("how", "stands"), [("before", False), ("after", True)])
async def test_a_killed_undo_is_rolled_back_or_completed_depending_on_the_session(
    root: Path, how: str, stands: bool
) -> None:
    before = read_tree(root)
    session, prompt, changed = await run_and_undo(root)
    run_killed(root, how, session, prompt)
    assert read_tree(root) == before
    # A person works meanwhile. Neither way may touch their file.
    write(root / "mine.txt", "me\n")

    async with open_undo_harness(root) as harness:
        harness.session = session
        own_file = {b"mine.txt": ("0o644", b"me\n")}
        assert read_tree(root) == (before if stands else changed) | own_file
        assert ((await harness.api.get_session(session)).revert is not None) is stands
        if stands:
            await harness.redo()
            assert read_tree(root) == changed | own_file
        else:
            await harness.undo(prompt)
            assert read_tree(root) == before | own_file


async def run_and_undo(root: Path) -> tuple[SessionID, MessageID, dict[bytes, tuple[str, bytes]]]:
    many = f"for i in $(seq {MANY}); do echo $i > many-$i.txt; done; rm b.txt; echo two > a.txt"
    async with open_undo_harness(root) as harness:
        prompt = await harness.run_step(call_bash(many))
        return harness.session, prompt, read_tree(root)


@pytest.mark.slow
async def test_an_undo_killed_between_files_is_completed_at_the_next_opening(root: Path) -> None:
    before = read_tree(root)
    session, prompt, changed = await run_and_undo(root)
    halves = 0
    for left in (MANY - 1, MANY // 2, 3):
        with start(root, "slow", session, prompt) as child:
            while len(os.listdir(root)) > left and child.poll() is None:
                pass
            child.kill()
            child.communicate()
        halves += read_tree(root) not in (before, changed)
        async with open_undo_harness(root) as harness:
            harness.session = session
            taken = (await harness.api.get_session(session)).revert is not None
            assert read_tree(root) == (before if taken else changed)
            await harness.redo()
            assert read_tree(root) == changed
    assert halves


def test_undo_reports_changes_of_a_dead_run_that_could_not_be_stored(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    session, _, _ = asyncio.run(run_and_undo(root))
    killed = run_killed(root, "command")
    (document,) = Path(paths_from(os.environ).storage).glob(f"session/*/{killed}.json")
    document.write_text("{")

    assert run_command(["undo", session, "--yes"]) == 0

    assert (
        f"warning: the file changes of a dead run of session {killed} are not settled yet"
        in capsys.readouterr().err
    )


def kill_while_running(root: Path, command: str, *, with_witness: bool = False) -> SessionID:
    """Run a command in a process that is killed when the command has done its work. Return the session."""
    done = root.parent / "done"
    with start(root, "run", f"{command}; sleep 0.1; touch ../done; sleep 600") as child:
        assert child.stdout is not None
        session = SessionID(child.stdout.readline().strip())
        while not done.exists():
            assert child.poll() is None
            os.sched_yield()
        if with_witness:
            kill_witness(since=done)
        child.kill()
        child.communicate()
    wait_for_witnesses(snapshot_base())
    return session


def kill_witness(*, since: Path) -> None:
    """Kill the witness of the only process, as soon as that has shown that it lives."""
    [witness] = list_witnesses(snapshot_base())
    while witness.stat().st_ctime_ns <= since.stat().st_ctime_ns:
        os.sched_yield()
    for opened in Path("/proc").glob("[0-9]*/fd/1"):
        with suppress(OSError):
            if opened.readlink() == witness:
                os.kill(int(opened.parts[2]), signal.SIGKILL)


def snapshot_base() -> Path:
    return Path(get_default_base(paths_from(os.environ).data))


async def undo_all(root: Path, session: SessionID) -> dict[str, tuple[str, str]]:
    """Undo a session whose run was killed. Return what became of each file, and why."""
    async with open_undo_harness(root) as harness:
        harness.session = session
        first = next(each.info.id for each in await harness.history() if isinstance(each.info, UserMessage))
        result = await harness.api.revert(session, first)
        return {file.file.removeprefix(f"{harness.root}/"): (file.fate, file.reason) for file in result.files}


async def test_undo_after_a_crash_leaves_alone_what_the_person_changed_since(root: Path) -> None:
    for name in ("edited.txt", "mine.txt", "deleted.txt", "removed.txt", "d/changed.txt"):
        write(root / name, f"{name}\n")
    command = (
        "echo agent | tee a.txt edited.txt d/changed.txt new.txt d/new.txt; rm removed.txt; mv b.txt c.txt"
    )
    session = kill_while_running(root, command)
    # All the person's own: a file that the command changed, one that it did not touch, a new one, and a deletion.
    write(root / "edited.txt", "agent and person\n")
    write(root / "mine.txt", "person\n")
    write(root / "d" / "person.txt", "person\n")
    (root / "deleted.txt").unlink()

    fates = await undo_all(root, session)

    kept = ("uncovered", CHANGED_AFTER_DEATH)
    assert fates == {
        "a.txt": ("restored", ""),
        "b.txt": ("restored", ""),
        "c.txt": ("removed", ""),
        "d/changed.txt": ("restored", ""),
        "d/new.txt": ("removed", ""),
        "d/person.txt": kept,
        "deleted.txt": kept,
        "edited.txt": kept,
        "mine.txt": kept,
        "new.txt": ("removed", ""),
        "removed.txt": ("restored", ""),
    }
    assert {name.decode(): content.decode() for name, (_, content) in read_tree(root).items()} == {
        "a.txt": "one\n",
        "b.txt": "b\n",
        "d": "",
        "d/changed.txt": "d/changed.txt\n",
        "d/person.txt": "person\n",
        "edited.txt": "agent and person\n",
        "mine.txt": "person\n",
        "removed.txt": "removed.txt\n",
    }


async def test_a_directory_that_the_person_renamed_after_a_crash_keeps_its_files(root: Path) -> None:
    write(root / "d" / "changed.txt", "mine\n")
    write(root / "d" / "other.txt", "other\n")
    session = kill_while_running(root, "echo agent > d/changed.txt; echo agent > a.txt")
    (root / "d").rename(root / "e")

    fates = await undo_all(root, session)

    assert {name for name, (fate, _) in fates.items() if fate != "uncovered"} == {"a.txt"}
    assert (root / "e" / "changed.txt").read_text() == "agent\n"
    assert (root / "e" / "other.txt").read_text() == "other\n"


async def test_what_the_command_moved_stays_if_the_person_changed_its_old_name(root: Path) -> None:
    session = kill_while_running(root, "mv a.txt moved.txt; echo agent > b.txt")
    write(root / "a.txt", "person\n")

    fates = await undo_all(root, session)

    kept = ("uncovered", CHANGED_AFTER_DEATH)
    assert fates == {"a.txt": kept, "b.txt": ("restored", ""), "moved.txt": kept}
    assert (root / "moved.txt").read_text() == "one\n"


@pytest.mark.parametrize("new_file", [False, True])
async def test_a_process_that_is_killed_with_its_witness_lived_until_its_last_sign(
    root: Path, new_file: bool
) -> None:
    write(root / "mine.txt", "mine\n")
    session = kill_while_running(
        root, "echo agent > a.txt; echo agent > new.txt; rm b.txt", with_witness=True
    )
    write(root / "mine.txt", "person\n")
    if new_file:
        write(root / "person.txt", "person\n")

    fates = await undo_all(root, session)

    kept = ("uncovered", CHANGED_AFTER_DEATH)
    # After a new file it is not known who removed another one, nor whether a third one is the removed one under another name.
    assert fates == {
        "a.txt": ("restored", ""),
        "mine.txt": kept,
        **(
            {"b.txt": kept, "new.txt": kept, "person.txt": kept}
            if new_file
            else {"b.txt": ("restored", ""), "new.txt": ("removed", "")}
        ),
    }
    assert (root / "mine.txt").read_text() == "person\n"


async def test_undo_leaves_all_files_alone_if_nothing_says_when_weft_died(root: Path) -> None:
    session = kill_while_running(root, "echo agent > a.txt; echo agent > new.txt; rm b.txt")
    after = read_tree(root)
    for witness in list_witnesses(snapshot_base()):
        witness.unlink()  # as with a weft from before there were witnesses

    fates = await undo_all(root, session)

    kept = ("uncovered", DEATH_NOT_SEEN)
    assert fates == {"a.txt": kept, "b.txt": kept, "new.txt": kept}
    assert read_tree(root) == after
