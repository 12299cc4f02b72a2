"""A directory with files, an agent whose changes are snapshotted, and a person whose changes are not."""

import asyncio
import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from weft.host.files import is_locked
from weft.model.diff import FileFate, Patch
from weft.model.ids import ProjectID, SessionID
from weft.snapshot.contract import Restoration, RestorePlan, SnapshotLimits, Snapshots
from weft.snapshot.git import open_snapshots
from weft.snapshot.location import SnapshotSite

SESSION = SessionID("ses_loom")
OTHER = SessionID("ses_shuttle")
SMALL_LIMITS = SnapshotLimits(max_file_bytes=1000)

AUTHOR = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(where: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *args],
        cwd=where,
        env=os.environ | AUTHOR,
        check=True,
        capture_output=True,
    )
    return os.fsdecode(done.stdout).strip()


def run_shell(command: str, where: Path) -> None:
    subprocess.run(["sh", "-c", command], cwd=where, check=True, env=os.environ | AUTHOR)


def snapshot_site(tmp_path: Path) -> SnapshotSite:
    root = tmp_path / "loom"
    return SnapshotSite(root=str(root), project=ProjectID("prj"), base=str(tmp_path / "data" / "snapshot"))


class SnapshotHarness:
    """Changes files of one directory as an agent does, and takes snapshots."""

    def __init__(self, root: Path, snapshots: Snapshots, session: SessionID = SESSION) -> None:
        self.root = root
        self.snapshots = snapshots
        self.session = session
        self.patches: list[Patch] = []

    def for_session(self, session: SessionID) -> "SnapshotHarness":
        """Return a harness for another session in the same directory."""
        return SnapshotHarness(self.root, self.snapshots, session)

    async def write_file(self, name: str, text: str | bytes) -> None:
        """Write a file with a tool that announces it."""
        path = self.root / name
        async with self.snapshots.watch(self.session, [str(path)]):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())

    async def run_command(self, act: Callable[[], object] | str) -> None:
        """Run a command, which may change anything."""
        async with self.snapshots.watch(self.session):
            if isinstance(act, str):
                await asyncio.to_thread(run_shell, act, self.root)
            else:
                act()

    async def end_step(self) -> tuple[Patch, ...]:
        found = await self.snapshots.take(self.session)
        await self.snapshots.mark_stored(self.session)
        self.patches += found
        return found

    async def plan(self, *files: str) -> RestorePlan:
        await self.end_step()
        named = tuple(str(self.root / file) for file in files) or None
        return RestorePlan(session=self.session, patches=tuple(self.patches), files=named)

    async def undo(self, *files: str) -> Restoration:
        """Undo, and check that the preview reports the same."""
        plan = await self.plan(*files)
        preview = await self.snapshots.preview(plan)
        done = await self.snapshots.restore(plan)
        assert preview.fates == done.fates
        return done

    async def redo(self, done: Restoration) -> Restoration:
        patches = (done.undo,) if done.undo is not None else ()
        return await self.snapshots.restore(RestorePlan(session=self.session, patches=patches))

    def fates(self, done: Restoration) -> dict[str, str]:
        return {str(Path(each.file).relative_to(self.root)): each.fate for each in done.fates}

    def reason(self, done: Restoration, name: str) -> str:
        return self.fate(done, name).reason

    def fate(self, done: Restoration, name: str) -> FileFate:
        return next(each for each in done.fates if each.file == str(self.root / name))


@asynccontextmanager
async def open_snapshot_harness(
    tmp_path: Path, limits: SnapshotLimits = SMALL_LIMITS
) -> AsyncIterator[SnapshotHarness]:
    (tmp_path / "loom").mkdir(exist_ok=True)
    async with open_snapshots(snapshot_site(tmp_path), os.environ, limits) as snapshots:
        yield SnapshotHarness((tmp_path / "loom").resolve(), snapshots)


def list_witnesses(base: Path) -> list[Path]:
    """Return the files in which the death of processes is noted, below the directory of all snapshots."""
    return list(base.glob("*/*/live/*/witness"))


def wait_for_witnesses(base: Path) -> None:
    for witness in list_witnesses(base):
        while is_locked(str(witness)):
            os.sched_yield()


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def init_repository(root: Path) -> Path:
    """Make a repository, with all files committed."""
    root.mkdir(exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "one")
    return root


def read_tree(root: Path, *, without: str = ".git") -> dict[bytes, tuple[str, bytes]]:
    """Return the kind, permissions and content of every file below the root."""
    found: dict[bytes, tuple[str, bytes]] = {}
    top = os.fsencode(root)
    for where, dirs, names in os.walk(top):
        dirs[:] = sorted(each for each in dirs if each != without.encode())
        for name in (*names, *(each for each in dirs if os.path.islink(os.path.join(where, each)))):
            path = os.path.join(where, name)
            key = os.path.relpath(path, top)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                found[key] = ("link", os.readlink(path))
            elif stat.S_ISREG(mode):
                with open(path, "rb") as file:
                    found[key] = (oct(stat.S_IMODE(mode)), file.read())
        for each in dirs:
            path = os.path.join(where, each)
            if not os.path.islink(path):
                found[os.path.relpath(path, top)] = ("directory", b"")
    return found


def fingerprint(directory: Path) -> dict[str, tuple[int, int, str]]:
    """Return the time, mode and digest of every file below."""
    found = {}
    for path in sorted(directory.rglob("*")):
        seen = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(directory))] = (seen.st_mtime_ns, seen.st_mode, digest)
    return found


def delete_objects(tmp_path: Path) -> None:
    """Delete every stored object."""
    for objects in (tmp_path / "data").rglob("objects"):
        shutil.rmtree(objects)
        objects.mkdir()
