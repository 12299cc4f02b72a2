"""Open files below one directory by relative path, never through a link that leads out of it."""

import errno
import os
import re
import secrets
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import Final

from weft.host.files import Stamp, stamp_of
from weft.snapshot.entry import LINK, Entry, blob_name, parents

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

DIRECTORY_MODE: Final = 0o777
PIECE: Final = 1 << 20
TEMP_PREFIX: Final = b".weft-"
_TEMP: Final = re.compile(re.escape(TEMP_PREFIX) + b"[0-9a-f]{16}")


class TooLargeError(Exception):
    """It holds more than is kept of one file."""


class MovedError(Exception):
    """It does not stand as it was expected to stand."""


class Beneath:
    """Every step on the way is opened without following links: a path means what it says, or NotADirectoryError."""

    def __init__(self, root: str) -> None:
        self.root = os.fsencode(root)

    def locate(self, path: str) -> bytes | None:
        """The relative path of what an absolute one names, links on the way resolved. None if it lies elsewhere."""
        directory, name = os.path.split(os.fsencode(path))
        real = os.path.join(os.path.realpath(directory), name)
        prefix = self.root.rstrip(b"/") + b"/"
        relative = real.removeprefix(prefix)
        return relative if relative != real and relative and b".git" not in relative.split(b"/") else None

    def absolute(self, path: bytes) -> bytes:
        return os.path.join(self.root, path)

    def look(self, path: bytes) -> os.stat_result | None:
        """How it stands; None if nothing is there."""
        try:
            with self._directory_of(path) as (fd, name):
                return os.lstat(name, dir_fd=fd)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, path: bytes, *, limit: int) -> tuple[Entry, bytes, Stamp]:
        """A file or a link. OSError if it is neither or not to be read, `TooLargeError` past the limit."""
        with self._directory_of(path) as (directory, name):
            return _read(name, directory, limit)

    def read_many(self, paths: Iterable[bytes], *, limit: int) -> Iterator[bytes]:
        """The contents of those that can be read, directory by directory."""
        for directory, some in groupby(sorted(paths), os.path.dirname):
            with suppress(OSError), self._directory_of(directory + b"/." if directory else b".") as (fd, _):
                for path in some:
                    with suppress(OSError, TooLargeError):
                        yield _read(os.path.basename(path), fd, limit)[1]

    def existing(self, path: bytes) -> frozenset[bytes]:
        """Those of the directories a path lies in that are there."""
        return frozenset(each for each in parents(path) if self.is_directory(each))

    def is_directory(self, path: bytes) -> bool:
        found = self.look(path)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def write(self, path: bytes, entry: Entry, content: bytes, expected: Stamp | None) -> None:
        """Put a file or a link there, whole or not at all, over what is expected there; its directories are made."""
        with self._directory_of(path, make=True) as (directory, name):
            temp = TEMP_PREFIX + secrets.token_hex(8).encode()
            try:
                if entry.is_link:
                    os.symlink(content, temp, dir_fd=directory)
                else:
                    _fill(temp, directory, entry.permissions, content)
                _check(name, directory, expected)
                os.replace(temp, name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temp, dir_fd=directory)
                raise
            os.fsync(directory)

    def unlink(self, path: bytes, expected: Stamp | None) -> None:
        """Remove a file or a link that is expected there."""
        with self._directory_of(path) as (directory, name):
            _check(name, directory, expected)
            os.unlink(name, dir_fd=directory)

    def sweep(self, path: bytes) -> None:
        """Remove what was written aside in the directory of a path, and never put in its place."""
        with suppress(OSError), self._directory_of(path) as (directory, _):
            for name in os.listdir(directory):
                if _TEMP.fullmatch(os.fsencode(name)):
                    os.unlink(name, dir_fd=directory)

    def files_in(self, path: bytes) -> Iterator[bytes]:
        """All that lies in a directory but directories, at any depth. Links are not followed."""
        for where, dirs, names in os.walk(self.absolute(path)):
            links = [name for name in dirs if os.path.islink(os.path.join(where, name))]
            for name in (*names, *links):
                yield os.path.relpath(os.path.join(where, name), self.root)

    def prune(self, path: bytes) -> None:
        """Remove a directory if nothing is in it."""
        with suppress(OSError), self._directory_of(path) as (directory, name):
            os.rmdir(name, dir_fd=directory)

    @contextmanager
    def _directory_of(self, path: bytes, *, make: bool = False) -> Generator[tuple[int, bytes]]:
        """The directory a path lies in, opened, and the path's last name."""
        *steps, name = path.split(b"/")
        fd = os.open(self.root, _DIRECTORY)
        try:
            for step in steps:
                below = _step(fd, step, make=make)
                os.close(fd)
                fd = below
            yield fd, name
        finally:
            os.close(fd)


class Survey:
    """Looks at many files at one time: what is found of a directory holds for all files in it."""

    def __init__(self, beneath: Beneath) -> None:
        self._beneath = beneath
        self._directories: dict[bytes, bool] = {b"": True}

    def look(self, path: bytes) -> os.stat_result | None:
        """How it stands; None if nothing is there, or a link is on the way."""
        if not self.is_directory(path.rpartition(b"/")[0]):
            return None
        return lstat(self._beneath.absolute(path))

    def existing(self, path: bytes) -> frozenset[bytes]:
        return frozenset(each for each in parents(path) if self.is_directory(each))

    def is_directory(self, path: bytes) -> bool:
        if path not in self._directories:
            self._directories[path] = self._beneath.is_directory(path)
        return self._directories[path]


def lstat(path: bytes) -> os.stat_result | None:
    """How it stands, links on the way followed; None if that cannot be said."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def _read(name: bytes, directory: int, limit: int) -> tuple[Entry, bytes, Stamp]:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        content = os.readlink(name, dir_fd=directory)
        return Entry(LINK, blob_name(content)), content, stamp_of(found)
    fd = os.open(name, _READ, dir_fd=directory)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{name!r} is no file")
        content = b"".join(_pieces(fd, found.st_size, limit))
    finally:
        os.close(fd)
    return Entry(found.st_mode, blob_name(content)), content, stamp_of(found)


def _step(fd: int, name: bytes, *, make: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=fd)
    except FileNotFoundError:
        if not make:
            raise
    except OSError as error:
        # Some systems say of a link that it is one, others that it is no directory.
        raise NotADirectoryError(name) if error.errno == errno.ELOOP else error from None
    with suppress(FileExistsError):
        os.mkdir(name, DIRECTORY_MODE, dir_fd=fd)
    return os.open(name, _DIRECTORY, dir_fd=fd)


def _check(name: bytes, directory: int, expected: Stamp | None) -> None:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        found = None
    if (None if found is None else stamp_of(found)) != expected:
        raise MovedError


def _pieces(fd: int, size: int, limit: int) -> Iterator[bytes]:
    """All of it, also what it grows by while it is read."""
    if size > limit:
        raise TooLargeError
    left = limit + 1
    while piece := os.read(fd, min(PIECE, left)):
        left -= len(piece)
        if left == 0:
            raise TooLargeError
        yield piece


def _fill(temp: bytes, directory: int, permissions: int, content: bytes) -> None:
    fd = os.open(temp, _WRITE, 0o600, dir_fd=directory)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.fchmod(fd, permissions)
        os.fsync(fd)
    finally:
        os.close(fd)
