"""The files a tool was allowed to touch, opened as the very files they were judged to be. Off the event loop."""

import asyncio
import fcntl
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

TEXT_LIMIT: Final = 16 << 20
_MOVED: Final = "changed its place while it was being opened. Try again."


class Stamp(Struct, frozen=True, kw_only=True):
    """By what a file is known to be as it was: when it was last written (ns), how long it is, and a digest of what an
    editor has in its place and did not save."""

    modified: int
    size: int
    unsaved: str = ""


class Text(Struct, frozen=True, kw_only=True):
    """A text file's whole content and the stamp it had then. Bytes that are not UTF-8 survive being written back."""

    content: str
    stamp: Stamp


@contextmanager
def open_to_read(path: str) -> Generator[BinaryIO]:
    """Open a real path. Raises `ToolError` when it is no plain file, or has become a link since it was judged."""
    # Not blocking: opening a named pipe would wait for someone to write.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _check_plain(fd, path)
        _check_place(fd, path)
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


def _check_place(fd: int, path: str) -> None:
    if _place_of(fd, path) != path:
        raise ToolError(f"{path} {_MOVED}")


def _place_of(fd: int, path: str) -> str:
    """Where an open file really is, as far as the system tells."""
    if sys.platform == "darwin":
        return os.fsdecode(fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return path


def stamp_of(file: BinaryIO) -> Stamp:
    found = os.fstat(file.fileno())
    return Stamp(modified=found.st_mtime_ns, size=found.st_size)


async def find_stamp(path: str) -> Stamp | None:
    def look() -> Stamp | None:
        try:
            found = os.stat(path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(found.st_mode):
            raise ToolError(f"{path} is not a plain file.")
        return Stamp(modified=found.st_mtime_ns, size=found.st_size)

    return await asyncio.to_thread(told(look))


async def find_text(path: str) -> Text | None:
    """The whole of a text file that is to be changed."""
    return await asyncio.to_thread(told(lambda: _find_text(path)))


def _find_text(path: str) -> Text | None:
    try:
        with open_to_read(path) as file:
            stamp = stamp_of(file)
            if stamp.size > TEXT_LIMIT:
                raise ToolError(
                    f"{path} has {stamp.size} bytes, too many to change as text. Use a shell command."
                )
            return Text(content=file.read().decode(errors="surrogateescape"), stamp=stamp)
    except (FileNotFoundError, NotADirectoryError):
        return None


async def write_text(path: str, content: str) -> Stamp:
    """Put a text in a file's place, with the directories it needs: all of it, or nothing changes."""
    return await asyncio.to_thread(told(lambda: replace_text(path, content)))


def replace_text(path: str, content: str, *, mode: int | None = None) -> Stamp:
    """The same, on the thread of the caller; a new file gets `mode`, one that is there keeps its own."""
    try:
        raw = content.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise ToolError(f"The text for {path} holds half a character (a lone surrogate).") from error
    return _replace(path, raw, mode)


def _replace(path: str, raw: bytes, mode: int | None) -> Stamp:
    parent, name = os.path.split(path)
    os.makedirs(parent, exist_ok=True)
    within = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check_place(within, parent)
        own = _mode_of(name, within)
        mode = mode if own is None else own
        # OpenCode writes into the file itself, so that a full disk or a crash leaves it empty.
        passing = f".{name[:100]}.{secrets.token_hex(6)}.tmp"
        fd = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=within)
        try:
            stamp = _fill(fd, raw, mode)
            os.replace(passing, name, src_dir_fd=within, dst_dir_fd=within)
        except BaseException:
            with suppress(OSError):
                os.unlink(passing, dir_fd=within)
            raise
        return stamp
    finally:
        os.close(within)


def check_replaceable(path: str) -> None:
    """Raise `ToolError` if a file may not be replaced, as `replace_text` would."""
    parent, name = os.path.split(path)
    try:
        within = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return  # it is made when the file is
    try:
        _check_place(within, parent)
        _mode_of(name, within)
    finally:
        os.close(within)


def _mode_of(name: str, within: int) -> int | None:
    try:
        found = os.stat(name, dir_fd=within, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(f"{name} is not a plain file.")
    if not os.access(name, os.W_OK, dir_fd=within):
        raise ToolError(f"{name} is read-only.")
    return stat.S_IMODE(found.st_mode)


def _fill(fd: int, raw: bytes, mode: int | None) -> Stamp:
    with os.fdopen(fd, "wb") as file:
        if mode is not None:
            os.fchmod(fd, mode)
        file.write(raw)
        file.flush()
        os.fsync(fd)
        return stamp_of(file)


def told(work: Callable[[], T]) -> Callable[[], T]:
    """The same work, its system errors told so that the model can act on them."""

    def run() -> T:
        try:
            return work()
        except OSError as error:
            raise ToolError(f"{error.filename or 'The file'}: {error.strerror or error}") from error

    return run
