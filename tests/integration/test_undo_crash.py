"""Undo when the process is killed: changes of a killed run can be undone, and an undo is done or not done."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from given.snapshot_harness import init_repository, read_tree, write
from given.undo_harness import call_bash, open_undo_harness
from weft.cli.main import run_command
from weft.host.paths import paths_from
from weft.model.ids import MessageID, SessionID
from weft.model.message import UserMessage

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
        env={**os.environ, "PYTHONPATH": str(TESTS)},
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
