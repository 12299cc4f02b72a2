"""Files and snapshots that are packed in one checkout are the same in another one, and a hostile pack is refused."""

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from given.snapshot_harness import SESSION, snapshot_site
from weft.errors import BundleError
from weft.snapshot.contract import PackedObject, RestorePlan, SnapshotLimits
from weft.snapshot.entry import FILE, FileEntry, frame, object_name
from weft.snapshot.git import open_snapshots
from weft.snapshot.pack import MAX_MOVED_FILE_BYTES

LIMITS = SnapshotLimits(max_file_bytes=MAX_MOVED_FILE_BYTES)
NAMES = st.sampled_from(("a", "b", "a/x", "a/y/z", "b/x", "c/\N{SNOWMAN}", "c/d"))
CONTENTS = st.one_of(
    st.binary(max_size=40).map(lambda content: ("file", content)),
    st.binary(max_size=40).map(lambda content: ("program", content)),
    st.sampled_from((b"a", b"../outside", b"nowhere")).map(lambda target: ("link", target)),
)
Files = dict[str, tuple[str, bytes]]


def without_clashes(files: Files) -> Files:
    """Drop files that are in the place of a directory."""
    return {
        name: each for name, each in files.items() if not any(other.startswith(f"{name}/") for other in files)
    }


FILES = st.dictionaries(NAMES, CONTENTS, max_size=5).map(without_clashes)


def write(root: Path, files: Files) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, (kind, content) in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            path.symlink_to(os.fsdecode(content))
        else:
            path.write_bytes(content)
            path.chmod(0o755 if kind == "program" else 0o644)


def read(root: Path) -> Files:
    found: Files = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", os.fsencode(os.readlink(path)))
        elif path.is_file():
            found[name] = (
                "program" if os.access(path, os.X_OK) and path.stat().st_mode & 0o100 else "file",
                path.read_bytes(),
            )
    return found


async def carry_files(source: Path, target: Path, paths: set[str]) -> None:
    """Make the files at `paths` in the target what they are in the source."""
    async with (
        open_snapshots(snapshot_site(source), os.environ, LIMITS) as there,
        open_snapshots(snapshot_site(target), os.environ, LIMITS) as here,
    ):
        trees = await there.pack_files([os.fsencode(path) for path in sorted(paths)])
        objects: list[PackedObject] = []
        await there.read_objects(trees, objects.append)
        await here.add_objects(objects, "bundle")
        patch = await here.plan_overlay(trees)
        restored = await here.restore(RestorePlan(session=SESSION, patches=(patch,)))
        assert {fate.fate for fate in restored.fates} <= {"restored", "removed", "unchanged"}


@given(before=FILES, after=FILES)
def test_any_files_can_be_transferred_to_another_checkout(before: Files, after: Files) -> None:
    with TemporaryDirectory() as directory:
        source, target = Path(directory) / "source", Path(directory) / "target"
        write(source / "loom", after)
        write(target / "loom", before)
        asyncio.run(carry_files(source, target, {*before, *after}))
        assert read(target / "loom") == after


def to_tree(name: bytes) -> PackedObject:
    line = b"%o %s\0%s" % (FILE | 0o644, name, bytes.fromhex(object_name(frame(b"blob", b"x"))))
    return PackedObject("tree", object_name(frame(b"tree", line)), line)


@pytest.mark.parametrize("name", [b"..", b".", b".git", b".GIT", b"a/../../b", b"/etc/passwd"])
async def test_a_tree_with_unsafe_paths_is_refused(tmp_path: Path, name: bytes) -> None:
    write(tmp_path / "loom", {})
    async with open_snapshots(snapshot_site(tmp_path), os.environ, LIMITS) as snapshots:
        with pytest.raises(BundleError, match="is not allowed"):
            await snapshots.add_objects([to_tree(name)], "bundle")


async def test_an_object_that_does_not_match_its_hash_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "loom", {})
    good = FileEntry(FILE | 0o644, object_name(frame(b"blob", b"good")))
    async with open_snapshots(snapshot_site(tmp_path), os.environ, LIMITS) as snapshots:
        with pytest.raises(BundleError, match="is damaged"):
            await snapshots.add_objects([PackedObject("blob", good.oid, b"evil")], "bundle")
        with pytest.raises(BundleError, match="is damaged"):
            await snapshots.add_objects(
                [PackedObject("tree", object_name(frame(b"tree", b"x")), b"x")], "bundle"
            )
