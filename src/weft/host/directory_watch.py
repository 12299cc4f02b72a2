"""Ask the kernel which entries of a directory changed, without a thread or an event loop (Linux: inotify).

`host/file_watcher.py` watches for listeners: it collects changes in a thread and tells them later. Here a question is answered at the moment
when it is asked. The kernel queues a change before the system call that made it returns, so the answer contains every change that was
complete when the question was asked.
"""

import fcntl
import os
import struct
import sys
import termios
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from msgspec import Struct

# Here the kernel of this machine makes every change, so it can report every change. On a network file system, another machine can. With
# FUSE, 9p and overlay, a change may go past the directory that we see. A rollback of ZFS changes files without a report.
REPORTING_FILE_SYSTEMS: Final = frozenset(["btrfs", "ext2", "ext3", "ext4", "f2fs", "tmpfs", "xfs"])
MOUNTS: Final = "/proc/self/mountinfo"

# From sys/inotify.h.
IN_MODIFY: Final = 0x2
IN_ATTRIB: Final = 0x4
IN_CLOSE_WRITE: Final = 0x8
IN_MOVED_FROM: Final = 0x40
IN_MOVED_TO: Final = 0x80
IN_CREATE: Final = 0x100
IN_DELETE: Final = 0x200
IN_DELETE_SELF: Final = 0x400
IN_MOVE_SELF: Final = 0x800
IN_Q_OVERFLOW: Final = 0x4000
IN_ONLYDIR: Final = 0x1000000
CHANGES: Final = (
    IN_MODIFY
    | IN_ATTRIB
    | IN_CLOSE_WRITE
    | IN_MOVED_FROM
    | IN_MOVED_TO
    | IN_CREATE
    | IN_DELETE
    | IN_DELETE_SELF
    | IN_MOVE_SELF
    | IN_ONLYDIR
)
_EVENT: Final = struct.Struct("iIII")


class InotifyEvent(NamedTuple):
    """An event as the kernel reports it. It has no name if it is about the watched directory itself, or about the queue."""

    watch: int
    mask: int
    name: str


class WatchedDirectory(Struct, eq=False):
    """A directory that is watched: its path, the device and inode it had, and the names that changed since somebody asked."""

    path: str
    identity: tuple[int, int]
    changed: set[str]


class InotifyQueue:
    """The queue of events in the kernel, which lasts until `close`, or until nobody refers to this object. Raises `OSError`."""

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415  takes some milliseconds, and few processes watch

        self._ctypes = ctypes
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._fd = self._check(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._process = os.getpid()
        self.close = weakref.finalize(self, os.close, self._fd)

    def _check(self, result: int) -> int:
        if result < 0:
            number = self._ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result

    def is_mine(self) -> bool:
        """Return False in a fork of the process that made the queue."""
        return self._process == os.getpid()

    def add(self, path: str) -> int:
        """Watch a directory and return the number of the watch, which is never used for another one."""
        return self._check(self._libc.inotify_add_watch(self._fd, os.fsencode(path), CHANGES))

    def read(self) -> list[InotifyEvent]:
        """Return the events that are in the queue now, and no later ones, which may never end."""
        left = int.from_bytes(fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)), sys.byteorder)
        events: list[InotifyEvent] = []
        while left > 0:
            raw = os.read(self._fd, left)
            events += parse_events(raw)
            left -= len(raw)
        return events


class DirectoryWatcher:
    """Knows which entries of some directories changed. Many threads may use it.

    Whenever it cannot know, it forgets the directory: the queue of the kernel was full; the directory was removed, moved or replaced, or
    its own attributes changed; a file system was mounted over it; or this process is a fork of the one that began to watch.
    """

    def __init__(self, open_queue: Callable[[], InotifyQueue] = InotifyQueue) -> None:
        self._lock = threading.Lock()
        self._open_queue = open_queue
        self._queue: InotifyQueue | None = None
        self._watches: dict[int, WatchedDirectory] = {}
        self._is_closed = False

    def start(self, path: str) -> bool:
        """Watch a directory from now on. Return False if its changes cannot be known here.

        Only changes after this call are reported, so look at the entries after it.
        """
        with self._lock:
            self._read_events()  # what happened before is not about this watch
            if self._is_closed or sys.platform != "linux":
                return False
            try:
                return self._start(path)
            except OSError:  # there is no such directory, or this user watches as many as the system allows
                return False

    def _start(self, path: str) -> bool:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if find_mounted_type(fd) not in REPORTING_FILE_SYSTEMS:
                return False
            if self._queue is None:
                self._queue = self._open_queue()
            status = os.fstat(fd)
            # By its descriptor, because another directory may be at the path by now.
            number = self._queue.add(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)
        # What was at this path before is of no interest any more.
        self._watches = {each: known for each, known in self._watches.items() if known.path != path}
        if number in self._watches:
            return False  # this directory is watched by another path already, and the kernel has only one watch for it
        self._watches[number] = WatchedDirectory(path, (status.st_dev, status.st_ino), set())
        return True

    def take_changes(self, path: str) -> set[str] | None:
        """Return the names of entries that may have changed since the last call, or since `start`.

        Return None if that is not known, because the directory is not watched, or no longer.
        """
        with self._lock:
            self._read_events()
            watched = self._find(path)
            if watched is None:
                return None
            changed, watched.changed = watched.changed, set()
            return changed

    def is_watched(self, path: str) -> bool:
        """Return True if the directory at this path is the one that is watched."""
        with self._lock:
            return self._find(path) is not None

    def close(self) -> None:
        """Watch nothing any more."""
        with self._lock:
            self._is_closed = True
            self._forget_all()

    def _find(self, path: str) -> WatchedDirectory | None:
        """Return the watch of a directory that is still at its path. When a parent is moved, nothing is reported."""
        for number, watched in self._watches.items():
            if watched.path == path:
                with suppress(OSError):
                    status = os.stat(path)
                    if watched.identity == (status.st_dev, status.st_ino):
                        return watched
                del self._watches[number]
                break
        return None

    def _read_events(self) -> None:
        if self._queue is None:
            return
        try:
            # A fork shares the queue, and must leave the events to its parent.
            events = self._queue.read() if self._queue.is_mine() else None
        except OSError:
            events = None
        if events is None or any(event.mask & IN_Q_OVERFLOW for event in events):
            self._forget_all()
            return
        for event in events:
            watched = self._watches.get(event.watch)
            if watched is None:
                continue
            if event.name:
                watched.changed.add(event.name)
            else:
                del self._watches[event.watch]

    def _forget_all(self) -> None:
        self._watches.clear()
        if self._queue is not None:
            self._queue.close()
            self._queue = None


def parse_events(raw: bytes) -> Iterator[InotifyEvent]:
    """Yield the events that were read from a queue (pure)."""
    at = 0
    while at < len(raw):
        watch, mask, _, size = _EVENT.unpack_from(raw, at)
        at += _EVENT.size + size
        yield InotifyEvent(watch, mask, os.fsdecode(raw[at - size : at].rstrip(b"\0")))


def find_mounted_type(fd: int, *, mounts: str = MOUNTS) -> str:
    """Return the type of the file system of an open file as the kernel of this machine calls it; "" if it is unknown.

    `statfs` does not tell: 9p reports the type that the file system has on the other machine.
    """
    with (
        suppress(OSError),
        open(f"/proc/self/fdinfo/{fd}", "rb") as fields,
        open(mounts, "rb") as lines,
    ):
        mount = next((field.split()[1] for field in fields if field.startswith(b"mnt_id:")), None)
        for line in lines:
            if line.split(b" ", 1)[0] == mount:
                return line.partition(b" - ")[2].split(b" ", 1)[0].decode()
    return ""
