"""A secret of our own in a file that only its owner can read."""

import os
import secrets
import stat

from weft.errors import ConfigError
from weft.host.files import FILE_MODE, make_directory

LENGTH = 24
LONGEST = 1024


def find_secret(path: str) -> str | None:
    """What is kept there; None if nothing is. Raises `ConfigError` for a file that others can read or change."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(path, f"cannot be read: {error.strerror}") from error
    try:
        found = os.fstat(fd)
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or found.st_uid != os.geteuid():
            raise ConfigError(path, "others could read it: remove it, and another is made")
        return os.read(fd, LONGEST).decode(errors="replace").strip() or None
    finally:
        os.close(fd)


def get_secret(path: str) -> str:
    """The same, made the first time. Raises `ConfigError` where none can be written."""
    while (found := find_secret(path)) is None:
        try:
            _make(path)
        except OSError as error:
            raise ConfigError(path, f"no password can be written there: {error.strerror}") from error
    return found


def _make(path: str) -> None:
    make_directory(os.path.dirname(path))
    temp = f"{path}.{os.getpid()}-{secrets.token_hex(4)}.new"
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(secrets.token_urlsafe(LENGTH).encode() + b"\n")
        os.link(temp, path)  # unlike a rename, never over one that somebody else has just made
    except FileExistsError:
        if find_secret(path) is None:  # it is there and empty
            os.unlink(path)
    finally:
        os.unlink(temp)
