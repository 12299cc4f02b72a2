"""The id file: where a repository says which project it is, in OpenCode's place and words."""

import os
import re
import stat
from contextlib import suppress

from weft.model.ids import GLOBAL_PROJECT, file_name
from weft.project.facts import IdFile

NAME = "opencode"
LIMIT = 256

_USABLE = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")
# Whoever made the repository made what lies at this name: a link, a pipe nobody writes to, a gigabyte.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def read_id(common_dir: str) -> str:
    """The id the file holds, "" if there is no file or no id in it."""
    text = read_text(os.path.join(common_dir, NAME), LIMIT).strip()
    usable = _USABLE.fullmatch(text) is not None and text != GLOBAL_PROJECT
    return text if usable else ""


def read_text(path: str, limit: int) -> str:
    """A small regular file's text, "" for anything else."""
    try:
        descriptor = os.open(path, _READ)
    except (OSError, ValueError):
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        raw = os.read(descriptor, limit + 1)
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return os.fsdecode(raw) if len(raw) <= limit and b"\0" not in raw else ""


def write_id(wanted: IdFile) -> None:
    """Say in the repository which project it is. One we may not write to stays as it is: the alias knows it too."""
    path, text = os.path.join(wanted.common_dir, NAME), file_name("project", wanted.id).encode()
    fresh = f"{path}.{os.getpid()}"
    try:
        _write_new(fresh, text)
        # Replacing, not writing into: a link planted here leads nowhere.
        os.replace(fresh, path)
    except OSError:
        with suppress(OSError):
            os.unlink(fresh)


def _write_new(path: str, text: bytes) -> None:
    descriptor = os.open(path, _WRITE, 0o644)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)
