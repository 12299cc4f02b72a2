"""What snapshots cost beside git alone: the first look, a look at unchanged files, and taking back 11 files.

python bench/snapshot.py [files ...]
"""

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

from weft.model.ids import ProjectID, SessionID
from weft.snapshot.contract import RestorePlan, SnapshotLimits
from weft.snapshot.git import open_snapshots
from weft.snapshot.location import SnapshotSite

SIZES = (5_000, 100_000)
CHANGED = 11
PER_DIRECTORY = 100
TRIES = 5
SESSION = SessionID("ses_bench")
GIT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def plant(root: Path, files: int) -> list[Path]:
    random, planted = Random(1), []
    for number in range(files):
        directory = root / f"d{number // PER_DIRECTORY % 40}" / f"s{number // PER_DIRECTORY}"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"f{number % PER_DIRECTORY}.txt"
        path.write_bytes(random.randbytes(random.randint(200, 4000)).hex().encode())
        planted.append(path)
    return planted


def git(root: Path, *args: str) -> None:
    subprocess.run(["git", *args], cwd=root, env=os.environ | GIT, check=True, capture_output=True)


def cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


async def best(work: Callable[[], Awaitable[object]], tries: int = TRIES) -> tuple[float, float]:
    """The least wall time and the least CPU."""
    walls, cpus = [], []
    for _ in range(tries):
        wall, used = time.perf_counter(), cpu()
        await work()
        walls.append(time.perf_counter() - wall)
        cpus.append(cpu() - used)
    return min(walls), min(cpus)


def weigh(directory: str) -> int:
    return sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())


def tell(what: str, taken: tuple[float, float]) -> None:
    print(f"  {what:<44}{taken[0]:8.3f} s wall {taken[1]:8.3f} s cpu")


async def alone(root: Path, *args: str) -> None:
    await asyncio.to_thread(git, root, *args)


async def measure(files: int, *, repository: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as place:
        root = Path(place) / "tree"
        planted = plant(root, files)
        site = SnapshotSite(root=str(root), project=ProjectID("bench"), base=f"{place}/data")
        print(f"{files} files, {'a repository' if repository else 'no repository'}")
        if repository:
            git(root, "init", "-q")
            git(root, "config", "gc.auto", "0")
            git(root, "add", "-A")
            git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
            git(root, "gc", "-q")
        await asyncio.sleep(2)  # git looks twice at files as young as its index
        if repository:
            tell("git status", await best(lambda: alone(root, "status", "--porcelain")))
            tell("git add -A", await best(lambda: alone(root, "add", "-A")))
        await watched(site, planted)
        print(f"  {'on disk':<44}{weigh(site.base) / 1e6:8.1f} MB")


async def watched(site: SnapshotSite, planted: list[Path]) -> None:
    limits = SnapshotLimits(wait_seconds=600)

    async def look() -> None:
        await snapshots.track(SESSION)

    async def run_nothing() -> None:
        async with snapshots.watch(SESSION):
            pass

    async def edit() -> None:
        async with snapshots.watch(SESSION, [str(planted[0])]):
            planted[0].write_bytes(os.urandom(100))

    async with open_snapshots(site, os.environ, limits) as snapshots:
        began = time.perf_counter()
        snapshots.begin()
        print(f"  {'asking for the first look':<44}{time.perf_counter() - began:8.3f} s wall")
        tell("first look", await best(look, 1))
        await asyncio.sleep(2)
        tell("unchanged look", await best(look))
        tell("a command that changes nothing (two looks)", await best(run_nothing))
        tell("an edit by a tool", await best(edit))
        await snapshots.take(SESSION)
        async with snapshots.watch(SESSION):
            for path in planted[1 : CHANGED + 1]:
                path.write_bytes(b"agent")
        patches = await snapshots.take(SESSION)

        async def swing() -> None:
            nonlocal patches
            done = await snapshots.restore(RestorePlan(session=SESSION, patches=patches))
            patches = (done.undo,) if done.undo else ()

        tell(f"restore {CHANGED} files", await best(swing, 1))
        tell("and back, and again", await best(swing))
    async with open_snapshots(site, os.environ, limits) as snapshots:
        tell("first look of the next process", await best(look, 1))


if __name__ == "__main__":
    for size in [int(word) for word in sys.argv[1:]] or SIZES:
        for kind in (True, False):
            asyncio.run(measure(size, repository=kind))
