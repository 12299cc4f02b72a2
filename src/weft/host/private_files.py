"""Temporary files and files with secrets: only their owner may read them."""

import asyncio
import os
import secrets
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from weft.errors import ConfigError
from weft.host.files import FILE_MODE, make_directory
from weft.host.tasks import run_to_completion


@asynccontextmanager
async def open_temporary(prefix: str, content: bytes) -> AsyncIterator[str]:
    """Write a temporary file that only its owner may read, and yield its path. It is removed at the end."""
    # Named first, so that it can be removed if writing is cancelled.
    path = os.path.join(tempfile.gettempdir(), f"{prefix}{secrets.token_hex(8)}")
    try:
        await run_to_completion(asyncio.to_thread(_write_private, path, content))
        yield path
    finally:
        with suppress(FileNotFoundError):  # writing failed and was raised
            os.unlink(path)


def _write_private(path: str, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


SECRET_BYTES = 24
MAX_SECRET_BYTES = 1024


def find_secret(path: str) -> str | None:
    """Return the secret in a file, None if there is none. Raise `ConfigError` if others can read or change the file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(path, f"cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(fd)
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or status.st_uid != os.geteuid():
            raise ConfigError(path, "others could read it: remove it, and another is made")
        return os.read(fd, MAX_SECRET_BYTES).decode(errors="replace").strip() or None
    finally:
        os.close(fd)


def get_secret(path: str) -> str:
    """Return the secret in a file, creating one if needed. Raise `ConfigError` if it cannot be written."""
    while (secret := find_secret(path)) is None:
        try:
            _create_secret(path)
        except OSError as error:
            raise ConfigError(path, f"no password can be written there: {error.strerror}") from error
    return secret


def _create_secret(path: str) -> None:
    make_directory(os.path.dirname(path))
    temp = f"{path}.{os.getpid()}-{secrets.token_hex(4)}.new"
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(secrets.token_urlsafe(SECRET_BYTES).encode() + b"\n")
        os.link(temp, path)  # unlike a rename, this never replaces one that another process has just made
    except FileExistsError:
        if find_secret(path) is None:  # it exists and is empty
            os.unlink(path)
    finally:
        os.unlink(temp)
