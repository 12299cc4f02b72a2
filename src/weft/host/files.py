"""Files: replaced whole, locked between processes, read within bounds. Plain `os` calls and no event loop."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

# Some file systems keep times in steps of two seconds. A file younger than that may change again
# and look the same, so what was read of it is not to be remembered.
SETTLED_NS = 2_000_000_000

BLOCK = 16_384
MARK_SIZE = 8

TIMED = 100
SLOW_SECONDS = 150e-6
THREADS = 4

# A directory that was just made may be gone again, removed by who found it empty: then it is made once more. A kernel
# that will not have it at all (below /proc) says the same, each time.
ATTEMPTS = 50

Stamp = tuple[int, int, int]


def stamp_of(found: os.stat_result) -> Stamp:
    """What tells one state of a file from another."""
    return found.st_mtime_ns, found.st_size, found.st_ino


def is_settled(found: os.stat_result) -> bool:
    """Whether the file is old enough that any later change will show in its stamp."""
    return time.time_ns() - found.st_mtime_ns > SETTLED_NS


def wait_a_moment() -> None:
    """As long as somebody who rewrites a file in place needs between emptying and filling it."""
    time.sleep(0.002)


def read_file(path: str, *, limit: int) -> tuple[bytes, os.stat_result]:
    """The whole file, and how it stood when opened. OSError too for what is no file or is over the limit."""
    # Not blocking: opening a pipe that nobody writes to would wait for ever.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EISDIR, "not a regular file", path)
        if found.st_size > limit:
            raise OSError(errno.EFBIG, f"{found.st_size} bytes, more than the {limit} allowed", path)
        raw = os.read(fd, found.st_size + 1)
        while len(raw) > found.st_size and (more := os.read(fd, limit + 1 - len(raw))):
            raw += more  # it grew while it was read
        return raw, found
    finally:
        os.close(fd)


def read_bytes(path: str, *, limit: int) -> bytes:
    """The same for who does not care how the file stood: a call to the system less."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        raw = os.read(fd, BLOCK)
        if len(raw) < BLOCK:
            return raw
    finally:
        os.close(fd)
    return read_file(path, limit=limit)[0]


def make_directory(path: str) -> list[str]:
    """Make a directory, for its owner alone, and the ones it lies in. Return those that were not there. Raise `OSError`
    where none can be made."""
    made: list[str] = []
    for attempt in range(ATTEMPTS):
        try:
            os.mkdir(path, DIRECTORY_MODE)
        except FileNotFoundError:
            if attempt == ATTEMPTS - 1 or os.path.dirname(path) == path:
                raise
            made += make_directory(os.path.dirname(path))
        except FileExistsError:
            if not os.path.isdir(path):
                raise
            break
        else:
            made.append(path)
            break
    return made


def write_atomic(path: str, raw: bytes, *, temp: str, flush: bool = False) -> None:
    """Replace a file whole or not at all, by way of `temp`: a free name on the same file system."""
    disk = Disk()
    disk.prepare(temp, raw, flush=flush)
    try:
        disk.move(temp, path)
    except OSError:
        disk.remove(temp)
        raise
    if flush:
        disk.flush(os.path.dirname(path))


class Disk:
    """The steps in which files change. An object, so that a test can hand in one that fails."""

    def prepare(self, temp: str, raw: bytes, *, flush: bool = False) -> None:
        """Write what is to be moved into place. On failure nothing stays."""
        fd = _open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            _write_all(fd, raw)
            if flush:
                os.fdatasync(fd)
        except OSError:
            with suppress(OSError):
                os.unlink(temp)
            raise
        finally:
            os.close(fd)

    def prepare_many(self, contents: Sequence[tuple[str, bytes]]) -> None:
        """The same for many. Where the kernel takes long to make a file it can do so on several cores at once; where it
        does not, threads only get into each other's way. So it is timed, a lot after the other."""
        for start in range(0, len(contents), TIMED):
            began = time.perf_counter()
            self._prepare_each(contents[start : start + TIMED])
            if time.perf_counter() - began > TIMED * SLOW_SECONDS:
                self._prepare_at_once(contents[start + TIMED :])
                return

    def _prepare_at_once(self, contents: Sequence[tuple[str, bytes]]) -> None:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

        share = -(-len(contents) // THREADS)
        with ThreadPoolExecutor(THREADS, thread_name_prefix="weft-files") as pool:
            shares = [contents[at : at + share] for at in range(0, len(contents), share or 1)]
            for _ in pool.map(self._prepare_each, shares):
                pass  # what went wrong in any of them is raised here

    def _prepare_each(self, contents: Sequence[tuple[str, bytes]]) -> None:
        for temp, raw in contents:
            self.prepare(temp, raw)

    def move(self, source: str, target: str) -> list[str]:
        """Rename, over what is there. Gives back the directories that had to be made."""
        made: list[str] = []
        for attempt in range(ATTEMPTS):
            try:
                os.replace(source, target)
            except FileNotFoundError:
                # Either there is nothing to move, or its directory was removed, maybe just now by who found it empty.
                if attempt == ATTEMPTS - 1 or not os.path.lexists(source):
                    raise
                made += make_directory(os.path.dirname(target))
            else:
                break
        return made

    def extend(self, path: str, at: int, raw: bytes) -> None:
        """Write from byte `at` on; what stood there goes. On failure the file ends at `at`."""
        fd = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            os.ftruncate(fd, at)
            os.lseek(fd, at, os.SEEK_SET)
            _write_all(fd, raw)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, at)
            raise
        finally:
            os.close(fd)

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it. Missing is fine."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError):  # the second is how some systems say the first
            if not os.path.isdir(path) or os.path.islink(path):
                raise
            for name in os.listdir(path):
                self.remove(f"{path}/{name}")
            os.rmdir(path)

    def prune(self, path: str) -> None:
        """Remove a directory if nothing is in it."""
        with suppress(OSError):
            os.rmdir(path)

    def flush(self, path: str) -> None:
        """Have a file or a directory on the disk itself before going on. Missing is fine."""
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def flush_all(self) -> None:
        """Have everything on the disk itself: cheaper than one by one where much was written."""
        os.sync()


@contextmanager
def locked(path: str) -> Generator[int]:
    """Hold a lock that no other holder, in this process or another, has. Waits for it. Gives its file."""
    fd = _lock(path, fcntl.LOCK_EX)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def try_locked(path: str) -> Generator[bool]:
    """The same without waiting: says whether it was to be had."""
    try:
        fd = _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        os.close(fd)


@contextmanager
def share_locked(path: str) -> Generator[int | None]:
    """Keep holders of the lock out while reading. None if there is no lock file, or none that we may use."""
    try:
        fd = _lock(path, fcntl.LOCK_SH, flags=os.O_RDONLY)
    except OSError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def is_locked(path: str) -> bool:
    """Whether somebody holds the lock right now. Needs no right to write, so it also works on a read-only disk."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _lock(path: str, operation: int, *, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    while True:
        fd = _open(path, flags)
        try:
            fcntl.flock(fd, operation)
            if _is_still_at(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # whoever held it removed the file: what we locked locks nobody out


def mark_of(fd: int) -> bytes:
    """The mark that the last holder of a lock left in its file; empty if there was none."""
    return os.pread(fd, MARK_SIZE, 0)


def leave_mark(fd: int) -> bytes:
    """Leave a mark in the file of a lock, like none before: whoever knows the last one learns that somebody was here."""
    mark = os.urandom(MARK_SIZE)
    os.pwrite(fd, mark, 0)
    return mark


def _is_still_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _open(path: str, flags: int) -> int:
    for _ in range(ATTEMPTS):
        try:
            return os.open(path, flags, FILE_MODE)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            make_directory(os.path.dirname(path))
    return os.open(path, flags, FILE_MODE)


def _write_all(fd: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(fd, view) :]
