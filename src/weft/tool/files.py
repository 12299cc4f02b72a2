"""Open and replace files by their real path, and refuse a file that was moved since its path was resolved.

The async functions do their work in a thread.
"""

import asyncio
import fcntl
import hashlib
import os
import secrets
import stat
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, TypeVar

from msgspec import Struct

from weft.errors import ToolError

T = TypeVar("T")

MAX_TEXT_BYTES: Final = 16 << 20
MAX_PREFIX_BYTES: Final = 100


class Stamp(Struct, frozen=True, kw_only=True):
    """The state of a file: its modification time (ns), its size, and a digest of text that an editor has not saved."""

    modified: int
    size: int
    unsaved: str = ""


class TextFile(Struct, frozen=True, kw_only=True):
    """The whole content of a text file and its stamp. Bytes that are not UTF-8 survive a round trip."""

    content: str
    stamp: Stamp


@contextmanager
def open_plain_file(path: str) -> Generator[BinaryIO]:
    """Open a file by its real path for reading.

    Raise `ToolError` if it is not a plain file, or if a link has replaced it since the path was resolved.
    """
    # Do not block: opening a named pipe would wait for a writer.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _check_plain(fd, path)
        _check_not_moved(fd, path)
    except BaseException:
        os.close(fd)
        raise
    with os.fdopen(fd, "rb") as file:
        yield file


def _check_plain(fd: int, path: str) -> None:
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        raise ToolError(f"{path} is a directory, not a file. Use the glob tool to see what is in it.")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{path} is not a plain file.")


def _check_not_moved(fd: int, path: str) -> None:
    if _find_real_path(fd, path) != path:
        raise ToolError(f"{path} was moved while it was being opened. Try again.")


def _find_real_path(fd: int, path: str) -> str:
    """Return the real path of an open file, as far as the system reveals it."""
    if sys.platform == "darwin":
        return os.fsdecode(fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return path


def stamp_of(file: BinaryIO) -> Stamp:
    status = os.fstat(file.fileno())
    return Stamp(modified=status.st_mtime_ns, size=status.st_size)


async def find_stamp(path: str) -> Stamp | None:
    """Return the stamp of a plain file, or None if there is none. Raise `ToolError` for anything else."""

    def read_stamp() -> Stamp | None:
        try:
            status = os.stat(path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(f"{path} is not a plain file.")
        return Stamp(modified=status.st_mtime_ns, size=status.st_size)

    return await asyncio.to_thread(with_tool_errors(read_stamp))


async def find_text(path: str) -> TextFile | None:
    """Return a whole text file, or None if there is none. Raise `ToolError` if it is too large to be changed as text."""
    return await asyncio.to_thread(with_tool_errors(lambda: _find_text(path)))


def _find_text(path: str) -> TextFile | None:
    try:
        with open_plain_file(path) as file:
            stamp = stamp_of(file)
            if stamp.size > MAX_TEXT_BYTES:
                raise ToolError(
                    f"{path} has {stamp.size} bytes, too many to change as text. Use a shell command."
                )
            return TextFile(content=file.read().decode(errors="surrogateescape"), stamp=stamp)
    except (FileNotFoundError, NotADirectoryError):
        return None


def digest_text(content: str | None) -> str | None:
    """Return a digest of the bytes that a text has in a file, None for None, and "" for a text that no file can hold."""
    if content is None:
        return None
    try:
        return hashlib.sha256(content.encode(errors="surrogateescape")).hexdigest()
    except UnicodeEncodeError:
        return ""


async def write_text(path: str, content: str) -> Stamp:
    """Replace the text of a file atomically, creating its directories."""
    return await asyncio.to_thread(with_tool_errors(lambda: replace_text(path, content)))


def replace_text(path: str, content: str, *, mode: int | None = None) -> Stamp:
    """Replace the text of a file atomically, in the caller's thread.

    A new file gets `mode`; an existing one keeps its own. Raise `ToolError` if the file is read-only or not plain.
    """
    try:
        raw = content.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise ToolError(f"The text for {path} holds half a character (a lone surrogate).") from error
    return _replace(path, raw, mode)


def make_temporary_prefix(name: str) -> str:
    """Return how the names of the temporary files begin into which the new content of a file is written.

    A name may have 255 bytes, so only the first ones of the file's own name are in it.
    """
    return f".{os.fsencode(name)[:MAX_PREFIX_BYTES].decode(errors='ignore')}."


def _replace(path: str, raw: bytes, mode: int | None) -> Stamp:
    parent, name = os.path.split(path)
    os.makedirs(parent, exist_ok=True)
    parent_fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check_not_moved(parent_fd, parent)
        existing_mode = _find_writable_mode(name, parent_fd)
        mode = mode if existing_mode is None else existing_mode
        # OpenCode writes into the file itself, so a full disk or a crash leaves it empty.
        temporary = f"{make_temporary_prefix(name)}{secrets.token_hex(6)}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=parent_fd)
        try:
            stamp = _write_synced(fd, raw, mode)
            os.replace(temporary, name, src_dir_fd=parent_fd, dst_dir_fd=parent_fd)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=parent_fd)
            raise
        return stamp
    finally:
        os.close(parent_fd)


def check_replaceable(path: str) -> None:
    """Raise `ToolError` if `replace_text` could not replace the file."""
    parent, name = os.path.split(path)
    try:
        parent_fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return  # the directory is created with the file
    try:
        _check_not_moved(parent_fd, parent)
        _find_writable_mode(name, parent_fd)
    finally:
        os.close(parent_fd)


def _find_writable_mode(name: str, parent_fd: int) -> int | None:
    """Return the mode of a file, or None if there is none. Raise `ToolError` if it is read-only or not plain."""
    try:
        status = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{name} is not a plain file.")
    if not os.access(name, os.W_OK, dir_fd=parent_fd):
        raise ToolError(f"{name} is read-only.")
    return stat.S_IMODE(status.st_mode)


def _write_synced(fd: int, raw: bytes, mode: int | None) -> Stamp:
    with os.fdopen(fd, "wb") as file:
        if mode is not None:
            os.fchmod(fd, mode)
        file.write(raw)
        file.flush()
        os.fsync(fd)
        return stamp_of(file)


def with_tool_errors(work: Callable[[], T]) -> Callable[[], T]:
    """Wrap a function so that it raises `OSError`s as `ToolError`s that the model can act on."""

    def run() -> T:
        try:
            return work()
        except OSError as error:
            raise ToolError(f"{error.filename or 'The file'}: {error.strerror or error}") from error

    return run
