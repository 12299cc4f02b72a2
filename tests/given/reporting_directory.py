"""A directory whose changes the kernel reports, and how many queues of such reports this process has."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from weft.host.directory_watch import REPORTING_FILE_SYSTEMS, find_mounted_type


@contextmanager
def open_reporting_directory() -> Iterator[Path]:
    """Yield an empty directory. In a container the usual place may be an overlay, so shared memory is tried next."""
    for place in (tempfile.gettempdir(), "/dev/shm"):
        if sys.platform == "linux" and _is_reporting(place):
            with tempfile.TemporaryDirectory(dir=place, prefix="weft-") as made:
                yield Path(made)
            return
    pytest.skip("no file system here reports its changes")


def _is_reporting(place: str) -> bool:
    try:
        fd = os.open(place, os.O_RDONLY)
    except OSError:
        return False
    try:
        return find_mounted_type(fd) in REPORTING_FILE_SYSTEMS
    finally:
        os.close(fd)


def count_queues() -> int:
    """Return how many queues of inotify this process has open."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:inotify"
        except FileNotFoundError:
            continue  # the descriptor of the list itself
    return found


def overflow_queue(directory: Path) -> None:
    """Change two entries in turn until the kernel has more events than its queue can hold. Equal neighbours would count as one."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    paths = [directory / ".one", directory / ".two"]
    for path in paths:
        path.touch()
    for number in range(limit + 2):
        os.utime(paths[number % 2], (number, number))
    for path in paths:
        path.unlink()
