"""Snapshot operations that kill their own process: `python killed_snapshot.py TMP restore|tool|command|both|look|beside [N]`.

`beside` does not die: it watches and takes snapshots N times, next to other processes that do the same.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from given.snapshot_harness import SESSION, SMALL_LIMITS, open_snapshot_harness, snapshot_site, write
from weft.host.files import Stamp
from weft.model.ids import SessionID
from weft.snapshot.contract import RestorePlan
from weft.snapshot.directory import SafeDirectory
from weft.snapshot.entry import FileEntry
from weft.snapshot.restore import Restorer
from weft.snapshot.tracker import FileTracker


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_after_tick() -> None:
    """Die in a later tick of the clock than the last change of a file. A change in the same one may be somebody else's."""
    time.sleep(0.1)
    die()


class KillingDirectory(SafeDirectory):
    """Kills the process at one change: before or right after it."""

    def __init__(self, root: str, at: int) -> None:
        super().__init__(root)
        self._left = at

    def _count_operation(self) -> None:
        self._left -= 1
        if self._left == 0:
            die()

    def write(self, path: bytes, entry: FileEntry, content: bytes, expected: Stamp | None) -> None:
        self._count_operation()
        super().write(path, entry, content, expected)
        self._count_operation()

    def unlink(self, path: bytes, expected: Stamp | None) -> None:
        self._count_operation()
        super().unlink(path, expected)
        self._count_operation()

    def prune(self, path: bytes) -> None:
        self._count_operation()
        super().prune(path)
        self._count_operation()


def restore(tmp: Path, at: int) -> None:
    """Restore, and print `done` if the process was not killed."""
    plan = msgspec.json.decode((tmp / "plan.json").read_bytes(), type=RestorePlan)
    works = FileTracker(snapshot_site(tmp), os.environ, SMALL_LIMITS, "doomed")
    restorer = Restorer(
        works.place, KillingDirectory(works.place.root, at), works.objects, SMALL_LIMITS.max_file_bytes
    )
    with restorer.restoring(plan):
        pass
    print("done", flush=True)


async def work(tmp: Path, what: str, times: int) -> None:
    async with open_snapshot_harness(tmp) as harness:
        if what == "look":
            harness.snapshots.begin()
            await asyncio.sleep(times / 1000)
            die()
        if what == "beside":
            own = harness.for_session(SessionID(f"ses_{os.getpid()}"))
            for number in range(times):
                await own.write_file(f"{os.getpid()}.txt", str(number))
                await own.run_command(lambda: write(harness.root / f"{os.getpid()}-c.txt", os.urandom(8)))
                await own.end_step()
            print(len(own.patches), flush=True)
            return
        if what in ("tool", "both"):
            async with harness.snapshots.watch(SESSION, [str(harness.root / "by-tool.txt")]):
                write(harness.root / "by-tool.txt", "tool")
                if what == "tool":
                    die_after_tick()
        async with harness.snapshots.watch(SESSION):
            write(harness.root / "by-command.txt", "command")
            (harness.root / "a.txt").unlink()
            die_after_tick()


if __name__ == "__main__":
    place, which, number = Path(sys.argv[1]), sys.argv[2], int((*sys.argv, "0")[3])
    if which == "restore":
        restore(place, number)
    else:
        asyncio.run(work(place, which, number))
