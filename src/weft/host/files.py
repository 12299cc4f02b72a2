"""Read files up to a limit, replace them atomically, and lock them between processes. All calls block."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

# Some file systems store times in steps of two seconds. A younger file may change again without a change of its
# stamp, so its content must not be cached.
COARSEST_TIMESTAMP_NS = 2_000_000_000

SMALL_FILE_BYTES = 16_384
MARK_SIZE = 8

BATCH_SIZE = 100
SLOW_WRITE_SECONDS = 150e-6
WRITER_THREADS = 4
FLUSH_THREADS = 4  # for one write
MAX_FLUSH_THREADS = 32  # for all writes of a store
LOCK_POLL_SECONDS = 0.02

# Another process may remove an empty directory right after it was made, so making it is repeated. The number is limited
# because a kernel that never allows it (below /proc) reports the same error each time.
MAX_ATTEMPTS = 50

Stamp = tuple[int, int, int]


def stamp_of(status: os.stat_result) -> Stamp:
    """Return a value that changes when the file does."""
    return status.st_mtime_ns, status.st_size, status.st_ino


def has_final_stamp(status: os.stat_result) -> bool:
    """Return True if the file is old enough that any later change changes its stamp."""
    return is_final_stamp(stamp_of(status))


def is_final_stamp(stamp: Stamp) -> bool:
    return stamp[0] < find_final_stamp_time()


def find_final_stamp_time() -> int:
    """Return the time (ns) before which a file must have changed for its stamp to be final."""
    return time.time_ns() - COARSEST_TIMESTAMP_NS


def wait_briefly() -> None:
    """Wait as long as a program that rewrites a file in place needs between truncating and writing."""
    time.sleep(0.002)


def wait_randomly(shortest: float, longest: float) -> None:
    """Wait for a random time in seconds, so that processes that wait for each other do not meet again and again."""
    chance = (
        int.from_bytes(os.urandom(2)) / 0xFFFF
    )  # importing `random` costs more than all other imports here
    time.sleep(shortest + chance * (longest - shortest))


def read_file(path: str, *, limit: int) -> tuple[bytes, os.stat_result]:
    """Return the whole file and its status when it was opened. Raise `OSError` if it is not a regular file or over
    the limit."""
    # Non-blocking: opening a pipe without a writer would wait for ever.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EISDIR, "not a regular file", path)
        if status.st_size > limit:
            raise OSError(errno.EFBIG, f"{status.st_size} bytes, more than the {limit} allowed", path)
        raw = os.read(fd, status.st_size + 1)
        while len(raw) > status.st_size and (more := os.read(fd, limit + 1 - len(raw))):
            raw += more  # it grew while it was read
        if len(raw) > limit:
            raise OSError(errno.EFBIG, f"more than the {limit} allowed", path)
        return raw, status
    finally:
        os.close(fd)


def read_bytes(path: str, *, limit: int) -> bytes:
    """Return the whole file as `read_file` does, with one system call less for a small file.

    Content that waits in a pipe counts as a small file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        raw = os.read(fd, SMALL_FILE_BYTES)
        # A pipe without a writer looks like an empty file.
        if 0 < len(raw) < SMALL_FILE_BYTES and len(raw) <= limit:
            return raw
    finally:
        os.close(fd)
    return read_file(path, limit=limit)[0]


def walk_files(directory: str, *, skip: Callable[[str], bool], seconds: float) -> Iterator[str]:
    """Yield the paths of all files, relative to the directory. Leave out subdirectories for whose name `skip` returns True.

    End when the time is up: somebody may have named the whole disk. The files of the directory itself are always listed.
    """
    end = time.monotonic() + seconds
    for parent, directories, names in os.walk(directory):
        directories[:] = [] if time.monotonic() >= end else [each for each in directories if not skip(each)]
        below = os.path.relpath(parent, directory)
        yield from (name if below == "." else f"{below}/{name}" for name in names)


def make_directory(path: str) -> list[str]:
    """Make a directory with its parents, for its owner only. Return those that were made. Raise `OSError` on failure."""
    made: list[str] = []
    for attempt in range(MAX_ATTEMPTS):
        try:
            os.mkdir(path, DIRECTORY_MODE)
        except FileNotFoundError:
            if attempt == MAX_ATTEMPTS - 1 or os.path.dirname(path) == path:
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
    """Replace a file atomically by way of `temp`, an unused name on the same file system."""
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
    """The system calls that change files. It is a class so that a test can pass one that fails."""

    def prepare(self, temp: str, raw: bytes, *, flush: bool = False) -> None:
        """Write a file that is to be moved into place. On failure nothing is left."""
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
        """Write many files, in threads if the kernel is slow to create files.

        Some kernels create files slowly but on several cores at once; on others threads only hinder each other. So
        each batch is timed.
        """
        for start in range(0, len(contents), BATCH_SIZE):
            began = time.perf_counter()
            self._prepare_each(contents[start : start + BATCH_SIZE])
            if time.perf_counter() - began > BATCH_SIZE * SLOW_WRITE_SECONDS:
                self._prepare_in_threads(contents[start + BATCH_SIZE :])
                return

    def _prepare_in_threads(self, contents: Sequence[tuple[str, bytes]]) -> None:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  reading few files needs no threads

        share_size = -(-len(contents) // WRITER_THREADS)
        with ThreadPoolExecutor(WRITER_THREADS, thread_name_prefix="weft-files") as pool:
            shares = [
                contents[start : start + share_size] for start in range(0, len(contents), share_size or 1)
            ]
            for _ in pool.map(self._prepare_each, shares):
                pass  # raises the error of any of them

    def _prepare_each(self, contents: Sequence[tuple[str, bytes]]) -> None:
        for temp, raw in contents:
            self.prepare(temp, raw)

    def move(self, source: str, target: str) -> list[str]:
        """Rename over an existing file. Return the directories that had to be made."""
        made: list[str] = []
        for attempt in range(MAX_ATTEMPTS):
            try:
                os.replace(source, target)
            except FileNotFoundError:
                # Either the source is missing, or its directory was removed, maybe just now because it was empty.
                if attempt == MAX_ATTEMPTS - 1 or not os.path.lexists(source):
                    raise
                made += make_directory(os.path.dirname(target))
            else:
                break
        return made

    def extend(self, path: str, offset: int, raw: bytes) -> None:
        """Write from byte `offset` on, replacing what follows. On failure the file ends at `offset`."""
        fd = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            os.ftruncate(fd, offset)
            os.lseek(fd, offset, os.SEEK_SET)
            _write_all(fd, raw)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, offset)
            raise
        finally:
            os.close(fd)

    def append(self, path: str, raw: bytes, *, at: int, head: bytes = b"") -> None:
        """Write at byte `at`, the end of a file that exists, and then `head` over its first bytes.

        On failure the file ends at `at`, but `head` may have been written.
        """
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.lseek(fd, at, os.SEEK_SET)
            _write_all(fd, raw)
            if head:
                os.pwrite(fd, head, 0)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, at)
            raise
        finally:
            os.close(fd)

    def extend_under_head(self, path: str, offset: int, raw: bytes, head: bytes) -> None:
        """Write from byte `offset` on, replacing what follows, and then `head` over the first bytes of the file."""
        fd = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(fd).st_size != offset:
                os.ftruncate(fd, offset)
            os.lseek(fd, offset, os.SEEK_SET)
            _write_all(fd, raw)
            os.pwrite(fd, head, 0)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, offset)
            raise
        finally:
            os.close(fd)

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its content. A missing path is not an error."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError):  # some systems report a directory with the second
            if not os.path.isdir(path) or os.path.islink(path):
                raise
            for name in os.listdir(path):
                self.remove(f"{path}/{name}")
            os.rmdir(path)

    def prune(self, path: str) -> None:
        """Remove a directory if it is empty."""
        with suppress(OSError):
            os.rmdir(path)

    def flush(self, path: str) -> None:
        """Write a file or directory to the disk itself. A missing path is not an error."""
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def flush_many(self, paths: Sequence[str]) -> None:
        """Write files and directories to the disk itself, several at once. A missing path is not an error.

        A disk takes hardly longer for several files than for one, and a file system with a journal commits them together.
        """
        shares = [paths[start::FLUSH_THREADS] for start in range(min(FLUSH_THREADS, len(paths)))]
        if not shares:
            return
        started = [self._flushers.submit(self._flush_each, share) for share in shares[1:]]
        try:
            self._flush_each(shares[0])
        finally:
            errors = [each.exception() for each in started]  # waits for all of them
        for error in errors:
            if error is not None:
                raise error

    def _flush_each(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.flush(path)

    @cached_property
    def _flushers(self) -> "ThreadPoolExecutor":
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  reading files needs no threads

        return ThreadPoolExecutor(MAX_FLUSH_THREADS, thread_name_prefix="weft-flush")

    def flush_all(self) -> None:
        """Write everything to the disk itself: cheaper than single files if many were written."""
        os.sync()


@contextmanager
def hold_lock(path: str) -> Generator[int]:
    """Hold an exclusive lock between tasks and processes. Wait for it, and yield its file descriptor."""
    fd = _lock(path, fcntl.LOCK_EX)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def try_lock(path: str, *, seconds: float = 0.0) -> Generator[bool]:
    """Try for at most `seconds` to take the lock. Yield True if that succeeded."""
    fd = _try_lock(path)
    deadline = time.monotonic() + seconds
    while fd is None and time.monotonic() < deadline:
        time.sleep(LOCK_POLL_SECONDS)
        fd = _try_lock(path)
    if fd is None:
        yield False
        return
    try:
        yield True
    finally:
        os.close(fd)


def _try_lock(path: str) -> int | None:
    with suppress(BlockingIOError):
        return _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return None


@contextmanager
def share_lock(path: str) -> Generator[int | None]:
    """Hold a shared lock while reading. Yield None if there is no lock file, or none that we may open."""
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
    """Return True if a process holds the exclusive lock now. This needs no write permission and works on a read-only disk.

    It holds a shared lock for a moment, in which `try_lock` fails elsewhere.
    """
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
        os.close(fd)  # the holder removed the file: a lock on it excludes nobody


def read_mark(fd: int) -> bytes:
    """Return the mark that the last holder left in the lock file, empty if there is none."""
    return os.pread(fd, MARK_SIZE, 0)


def write_mark(fd: int) -> bytes:
    """Write a new random mark into a lock file, which tells others that the data may have changed."""
    mark = os.urandom(MARK_SIZE)
    os.pwrite(fd, mark, 0)
    return mark


def _is_still_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _open(path: str, flags: int) -> int:
    for _ in range(MAX_ATTEMPTS):
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
