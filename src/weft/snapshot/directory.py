"""Open files below one directory by relative path, and never follow a link out of it. Remember their permissions."""

import errno
import os
import re
import secrets
import stat
import struct
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from itertools import groupby
from typing import Final

from weft.host.files import Stamp, stamp_of
from weft.snapshot.entry import EXECUTABLE, FILE, LINK, FileEntry, blob_name, list_parents

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# How Linux is asked for the birth time of a file.
_AT_FDCWD: Final = -100
_NO_FOLLOW: Final = 0x100
_BIRTH_TIME: Final = 0x800
# The kernel's structure has 256 bytes. It begins with the fields that are known.
_STATX_BYTES: Final = 256
_STATX_BIRTH: Final = 80  # where the time of creation is, as seconds and nanoseconds

DIRECTORY_MODE: Final = 0o777
READ_BYTES: Final = 1 << 20
TEMP_PREFIX: Final = b".weft-"
_TEMP: Final = re.compile(re.escape(TEMP_PREFIX) + b"[0-9a-f]{16}")


class FileTooLargeError(Exception):
    """The file exceeds the size limit."""


class UnexpectedStateError(Exception):
    """The file is not in the expected state."""


class SafeDirectory:
    """Opens every component of a path without following links. Raises `NotADirectoryError` if one is a link."""

    def __init__(self, root: str) -> None:
        self.root = os.fsencode(root)

    def locate(self, path: str) -> bytes | None:
        """Return the relative path of an absolute one, with links in its directory resolved; None if it is outside."""
        directory, name = os.path.split(os.fsencode(path))
        real = os.path.join(os.path.realpath(directory), name)
        prefix = self.root.rstrip(b"/") + b"/"
        relative = real.removeprefix(prefix)
        return relative if relative != real and relative and b".git" not in relative.split(b"/") else None

    def absolute(self, path: bytes) -> bytes:
        return os.path.join(self.root, path)

    def find_status(self, path: bytes) -> os.stat_result | None:
        """Return the status of a path; None if nothing is there."""
        try:
            with self._open_parent(path) as (fd, name):
                return os.lstat(name, dir_fd=fd)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, path: bytes, *, limit: int) -> tuple[FileEntry, bytes, Stamp]:
        """Read a file or link. Raise `OSError` if it is neither or unreadable, `FileTooLargeError` above the limit."""
        with self._open_parent(path) as (directory, name):
            return _read(name, directory, limit)

    def read_many(self, paths: Iterable[bytes], *, limit: int) -> Iterator[bytes]:
        """Yield the contents of the readable files, directory by directory."""
        for directory, group in groupby(sorted(paths), os.path.dirname):
            with suppress(OSError), self._open_parent(directory + b"/." if directory else b".") as (fd, _):
                for path in group:
                    with suppress(OSError, FileTooLargeError):
                        yield _read(os.path.basename(path), fd, limit)[1]

    def list_existing_parents(self, path: bytes) -> frozenset[bytes]:
        """Return the parent directories of a path that exist."""
        return frozenset(parent for parent in list_parents(path) if self.is_directory(parent))

    def is_directory(self, path: bytes) -> bool:
        status = self.find_status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def write(self, path: bytes, entry: FileEntry, content: bytes, expected: Stamp | None) -> None:
        """Write a file or link atomically, if the old one has the expected stamp. Missing directories are created."""
        with self._open_parent(path, make=True) as (directory, name):
            temp = TEMP_PREFIX + secrets.token_hex(8).encode()
            try:
                if entry.is_link:
                    os.symlink(content, temp, dir_fd=directory)
                else:
                    _write_temp(temp, directory, entry.permissions, content)
                _check_stamp(name, directory, expected)
                os.replace(temp, name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temp, dir_fd=directory)
                raise
            os.fsync(directory)

    def unlink(self, path: bytes, expected: Stamp | None) -> None:
        """Remove a file or link if it has the expected stamp."""
        with self._open_parent(path) as (directory, name):
            _check_stamp(name, directory, expected)
            os.unlink(name, dir_fd=directory)

    def remove_temps(self, path: bytes) -> None:
        """Remove temporary files that `write` left in the directory of a path."""
        with suppress(OSError), self._open_parent(path) as (directory, _):
            for name in os.listdir(directory):
                if _TEMP.fullmatch(os.fsencode(name)):
                    os.unlink(name, dir_fd=directory)

    def list_files(self, path: bytes) -> Iterator[bytes]:
        """Yield everything below a directory except directories. Links are not followed."""
        for where, dirs, names in os.walk(self.absolute(path)):
            links = [name for name in dirs if os.path.islink(os.path.join(where, name))]
            for name in (*names, *links):
                yield os.path.relpath(os.path.join(where, name), self.root)

    def prune(self, path: bytes) -> None:
        """Remove a directory if it is empty."""
        with suppress(OSError), self._open_parent(path) as (directory, name):
            os.rmdir(name, dir_fd=directory)

    @contextmanager
    def _open_parent(self, path: bytes, *, make: bool = False) -> Generator[tuple[int, bytes]]:
        """Open the directory of a path. Yield its descriptor and the last component of the path."""
        *steps, name = path.split(b"/")
        fd = os.open(self.root, _DIRECTORY)
        try:
            for step in steps:
                child = _open_step(fd, step, make=make)
                os.close(fd)
                fd = child
            yield fd, name
        finally:
            os.close(fd)


class CachedLookup:
    """Looks up many files at once and caches which directories exist."""

    def __init__(self, files: SafeDirectory) -> None:
        self._files = files
        self._directories: dict[bytes, bool] = {b"": True}

    def find_status(self, path: bytes) -> os.stat_result | None:
        """Return the status of a path; None if nothing is there, or one of its directories is a link."""
        if not self.is_directory(path.rpartition(b"/")[0]):
            return None
        return find_stat(self._files.absolute(path))

    def list_existing_parents(self, path: bytes) -> frozenset[bytes]:
        return frozenset(parent for parent in list_parents(path) if self.is_directory(parent))

    def is_directory(self, path: bytes) -> bool:
        if path not in self._directories:
            self._directories[path] = self._files.is_directory(path)
        return self._directories[path]


def find_stat(path: bytes) -> os.stat_result | None:
    """Return the status of a path, None on failure. Links in its directories are followed."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def find_birth_time(path: bytes) -> int | None:
    """Return when a file was created, in ns since 1970, without following a link; None if that is unknown."""
    birth: object = getattr(os.lstat(path), "st_birthtime", None)
    if isinstance(birth, float):
        return int(birth * 1_000_000_000)
    import ctypes  # noqa: PLC0415  slow to import, and not every scan finds new files

    if (statx := _find_statx()) is None:
        return None
    status = ctypes.create_string_buffer(_STATX_BYTES)
    failed = statx(_AT_FDCWD, ctypes.c_char_p(path), _NO_FOLLOW, _BIRTH_TIME, status)
    (known,) = struct.unpack_from("=I", status)
    if failed or not known & _BIRTH_TIME:
        return None
    seconds, nanoseconds = struct.unpack_from("=qI", status, _STATX_BIRTH)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


@cache
def _find_statx() -> Callable[..., int] | None:
    """Return the system's function that knows birth times, if it has one."""
    import ctypes  # noqa: PLC0415  slow to import

    try:
        return ctypes.CDLL(None, use_errno=True).statx
    except (OSError, AttributeError):
        return None


def _read(name: bytes, directory: int, limit: int) -> tuple[FileEntry, bytes, Stamp]:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        content = os.readlink(name, dir_fd=directory)
        return FileEntry(LINK, blob_name(content)), content, stamp_of(status)
    fd = os.open(name, _READ, dir_fd=directory)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{name!r} is not a file")
        content = b"".join(_read_pieces(fd, status.st_size, limit))
    finally:
        os.close(fd)
    return FileEntry(status.st_mode, blob_name(content)), content, stamp_of(status)


def _open_step(fd: int, name: bytes, *, make: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=fd)
    except FileNotFoundError:
        if not make:
            raise
    except OSError as error:
        # Some systems report a link with ELOOP, others with ENOTDIR.
        raise NotADirectoryError(name) if error.errno == errno.ELOOP else error from None
    with suppress(FileExistsError):
        os.mkdir(name, DIRECTORY_MODE, dir_fd=fd)
    return os.open(name, _DIRECTORY, dir_fd=fd)


def _check_stamp(name: bytes, directory: int, expected: Stamp | None) -> None:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        status = None
    if (None if status is None else stamp_of(status)) != expected:
        raise UnexpectedStateError


def _read_pieces(fd: int, size: int, limit: int) -> Iterator[bytes]:
    """Read to the end, even if the file grows meanwhile. Raise `FileTooLargeError` above the limit."""
    if size > limit:
        raise FileTooLargeError
    remaining = limit + 1
    while piece := os.read(fd, min(READ_BYTES, remaining)):
        remaining -= len(piece)
        if remaining == 0:
            raise FileTooLargeError
        yield piece


def _write_temp(temp: bytes, directory: int, permissions: int, content: bytes) -> None:
    fd = os.open(temp, _WRITE, 0o600, dir_fd=directory)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.fchmod(fd, permissions)
        os.fsync(fd)
    finally:
        os.close(fd)


class FilePermissions:
    """Remembers permissions, which git does not: the most common ones, and the files that differ."""

    def __init__(self, files: SafeDirectory) -> None:
        self._files = files
        self._usual = {False: 0o644, True: 0o755}
        self._others: dict[bytes, int] = {}

    def learn(self, entries: Mapping[bytes, FileEntry]) -> None:
        """Read the permissions of all files once, because those of a removed file can no longer be read."""
        seen: dict[bytes, int] = {}
        for path, entry in entries.items():
            if not entry.is_link and (found := self._find_permissions(path)) is not None:
                seen[path] = found
        for executable in (False, True):
            counted = Counter(each for each in seen.values() if bool(each & EXECUTABLE) == executable)
            for usual, _ in counted.most_common(1):
                self._usual[executable] = usual
        self._others = {
            path: each for path, each in seen.items() if each != self._usual[bool(each & EXECUTABLE)]
        }

    def complete(
        self, path: bytes, old: FileEntry | None, new: FileEntry | None
    ) -> tuple[FileEntry | None, FileEntry | None]:
        """Return both entries with all nine permission bits: those of the file now, or those remembered if it is gone."""
        if old is not None and not old.is_link:
            executable = bool(old.mode & EXECUTABLE)
            known = self._others.get(path, self._usual[executable])
            old = FileEntry(FILE | known, old.oid) if bool(known & EXECUTABLE) == executable else old
        found = self._find_permissions(path) if new is not None and not new.is_link else None
        if new is not None and found is not None:
            new = FileEntry(FILE | found, new.oid)
            self._others[path] = found
            if old is not None and not old.is_link and old.mode & EXECUTABLE == new.mode & EXECUTABLE:
                old = FileEntry(new.mode, old.oid)
        return old, new

    def _find_permissions(self, path: bytes) -> int | None:
        try:
            found = os.lstat(self._files.absolute(path))
        except OSError:
            return None
        return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) else None
