"""Property test: after any changes by an agent and a person, undo keeps all of the person's and none of the agent's.

Every text names its author and is written once, so that the author of every byte is known afterwards.
"""

import asyncio
import shutil
import tempfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from given.snapshot_harness import SESSION, SnapshotHarness, open_snapshot_harness, read_tree, write

NAMES = ("a", "b", "d/a", "d/b", "d/e/f", "ignored.log", "ü\n")
IGNORED = b"ignored.log"

Found = tuple[str, bytes]
State = dict[bytes, Found]


class FileChange(Struct, frozen=True):
    """Who does what to which file. A tool announces the file, a command does not; a step may end afterwards."""

    who: Literal["tool", "command", "person"]
    what: Literal["write", "delete", "rename", "mode", "link"]
    name: str
    to: str
    ends: bool


acts = st.builds(
    FileChange,
    st.sampled_from(("tool", "command", "person")),
    st.sampled_from(("write", "write", "delete", "rename", "mode", "link")),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    st.booleans(),
)


def do(root: Path, act: FileChange, number: int) -> None:
    path, to = root / act.name, root / act.to
    with suppress(OSError):  # a directory is in its place, or nothing is: then nothing was changed
        match act.what:
            case "write":
                path.unlink(missing_ok=True)
                write(path, f"{act.who} {number}")
            case "delete":
                path.unlink()
            case "rename":
                to.parent.mkdir(parents=True, exist_ok=True)
                path.rename(to)
            case "mode":
                path.chmod(path.stat().st_mode ^ 0o111)
            case "link":
                path.unlink(missing_ok=True)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(f"{act.who} {number}")


def read_state(root: Path) -> State:
    return {name: found for name, found in read_tree(root).items() if found[0] != "directory"}


class Memory:
    """The content at each path: at first, written by the agent, and last written by the person."""

    def __init__(self, root: Path) -> None:
        self.first = read_state(root)
        self.theirs = dict(self.first)
        self.left: defaultdict[bytes, set[Found | None]] = defaultdict(set)
        self.touched: set[bytes] = set()
        self.ignored = {self.first[IGNORED][1]}

    def note(self, act: FileChange, before: State, after: State) -> None:
        self.ignored |= {after[IGNORED][1]} if IGNORED in after else set()
        for name in {*before, *after}:
            if before.get(name) == after.get(name):
                continue
            if act.who != "person":
                self.left[name].add(after.get(name))
                continue
            self.touched.add(name)
            self.theirs.pop(name, None)
            if name in after:
                self.theirs[name] = after[name]


async def play(where: Path, script: list[FileChange]) -> None:
    root = where / "loom"
    for name in ("a", "d/a", "ignored.log"):
        write(root / name, f"person {name}")
    write(root / ".gitignore", "*.log\n")
    memory = Memory(root)
    async with open_snapshot_harness(where) as harness:
        for number, act in enumerate(script):
            before = read_state(root)
            await turn(harness, act, number)
            memory.note(act, before, read_state(root))
        last = read_state(root)
        done = await harness.undo()
        judge(memory, last, read_state(root))
        await harness.redo(done)
        assert read_state(root) == last


async def turn(harness: SnapshotHarness, act: FileChange, number: int) -> None:
    if act.who == "person":
        do(harness.root, act, number)
        return
    files = [str(harness.root / act.name), str(harness.root / act.to)]
    async with harness.snapshots.watch(SESSION, files if act.who == "tool" else None):
        do(harness.root, act, number)
    if act.ends:
        await harness.end_step()


def judge(memory: Memory, last: State, found: State) -> None:
    contents = {each[1] for each in found.values()}
    for name, each in last.items():
        # Nothing that a person wrote is lost: it is still there after the undo, here or where it came from.
        if each[1].startswith(b"person"):
            assert each[1] in contents, f"{each} of {name!r} is lost"
        # What is not as the agent left it stays as it is.
        if each not in memory.left[name]:
            assert found.get(name) == each, f"{name!r} was kept by nobody"
    for name in {*memory.first, *found} - memory.touched - {IGNORED}:
        assert found.get(name) == memory.first.get(name) or is_excused(name, found, memory), (
            f"{name!r} is not as it was"
        )


def is_excused(name: bytes, found: State, memory: Memory) -> bool:
    """Return True if a file and a directory exclude each other, if a text is the person's last, or if a command moved
    the file here from an unwatched place."""
    blocked = any(name.startswith(other + b"/") or other.startswith(name + b"/") for other in found)
    here = found.get(name, ("", b""))[1]
    elsewhere = {each[1] for other, each in found.items() if other != name}
    return blocked or here in memory.ignored or (here.startswith(b"person") and here not in elsewhere)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(acts, max_size=12))
def test_undo_keeps_all_work_of_the_person_and_none_of_the_agent(script: list[FileChange]) -> None:
    where = Path(tempfile.mkdtemp(prefix="weft-"))
    try:
        asyncio.run(play(where, script))
    finally:
        shutil.rmtree(where)
