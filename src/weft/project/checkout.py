"""Inspect a directory through plain files: its checkout, its git directories and its id file. Git is not run."""

import os
import re
import stat
from contextlib import suppress
from typing import Literal

from msgspec.structs import replace

from weft.errors import DirectoryError, InvalidInputError
from weft.model.ids import GLOBAL_PROJECT, check_file_name
from weft.project.facts import Checkout, IdFile, Inode, LastLocation, LastSeen, is_inside

ID_FILE = "opencode"
MAX_ID_BYTES = 256

_VALID_ID = r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}"
# The author of a repository controls what is at this path: a link, a pipe without a writer, a huge file.
_READ_FLAGS = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)
_WRITE_FLAGS = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
)


def read_id(common_dir: str) -> str:
    """Return the id in the id file, "" if there is no file or no valid id."""
    text = read_text(os.path.join(common_dir, ID_FILE), MAX_ID_BYTES).strip()
    is_valid = re.fullmatch(_VALID_ID, text) is not None and text != GLOBAL_PROJECT
    return text if is_valid else ""


def read_text(path: str, limit: int) -> str:
    """Return the text of a small regular file, "" for anything else."""
    try:
        descriptor = os.open(path, _READ_FLAGS)
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


def write_id(id_file: IdFile) -> None:
    """Write the id file. If that fails, the repository stays as it is: where it was last seen identifies it too."""
    path, text = os.path.join(id_file.common_dir, ID_FILE), check_file_name("project", id_file.id).encode()
    temp = f"{path}.{os.getpid()}"
    try:
        _write_new(temp, text)
        # Replace the file instead of writing into it, so that a planted link has no effect.
        os.replace(temp, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temp)


def _write_new(path: str, text: bytes) -> None:
    descriptor = os.open(path, _WRITE_FLAGS, 0o644)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)


MAX_PATH_BYTES = 4096
MAX_CONFIG_BYTES = 65536
GIT_DIR_PREFIX = "gitdir:"


def find_checkout(directory: str, *, fake_vcs: str = "") -> Checkout:
    """Return the checkout that contains a directory. Raise `DirectoryError` if there is no such directory.

    `fake_vcs` is the value of `OPENCODE_FAKE_VCS`.
    """
    vcs: Literal["git"] | None = "git" if fake_vcs == "git" else None
    if fake_vcs and vcs is None:
        raise InvalidInputError(
            "OPENCODE_FAKE_VCS", f"{fake_vcs!r} is not a kind of repository", hint='set "git", or nothing'
        )
    return replace(inspect_checkout(resolve_directory(directory)), fake_vcs=vcs)


def resolve_directory(directory: str) -> str:
    """Return the real path of a directory. Raise `DirectoryError` if it does not exist or is not a directory."""
    hint = "create it, or pass another directory"
    if not directory:
        raise DirectoryError("''", "no directory was named", hint=hint)
    try:
        real = os.path.realpath(directory)
        os.stat(real)
    except (OSError, ValueError) as error:
        if not os.path.isabs(directory) and _is_current_directory_gone():
            gone_hint = "go to another one, or name one by its absolute path"
            raise DirectoryError("the current directory", "it was removed", hint=gone_hint) from error
        reason = error.strerror if isinstance(error, OSError) else None
        raise DirectoryError(directory, (reason or "not a path").lower(), hint=hint) from error
    if not os.path.isdir(real):
        raise DirectoryError(directory, "not a directory", hint=f"did you mean {os.path.dirname(real)}?")
    return real


def _is_current_directory_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def inspect_checkout(real: str) -> Checkout:
    """Return the checkout that contains a real path, which need not exist any more."""
    top = find_top(real)
    if not top:
        return Checkout(directory=real)
    git_dir, common_dir = find_git_directories(top)
    main = find_main_checkout(top, git_dir, common_dir)
    return Checkout(
        directory=real,
        top=top,
        main=main,
        common_dir=common_dir,
        is_valid=os.path.exists(os.path.join(common_dir, "HEAD")),
        git_file=not os.path.isdir(os.path.join(top, ".git")),
        shallow=os.path.exists(os.path.join(common_dir, "shallow")),
        id=read_id(common_dir),
        inode=find_inode(main),
    )


def find_top(real: str) -> str:
    """Return the nearest directory, going up, that contains `.git`; "" if there is none."""
    while not os.path.exists(os.path.join(real, ".git")):
        parent = os.path.dirname(real)
        if parent == real:
            return ""
        real = parent
    return real


def find_git_directories(top: str) -> tuple[str, str]:
    """Return the git directory of a checkout, and the one it shares with the other checkouts.

    If its `.git` is a file without a pointer, return the path of that file twice.
    """
    entry = os.path.join(top, ".git")
    if os.path.isdir(entry):
        real = os.path.realpath(entry)
        return real, real
    text = read_text(entry, MAX_PATH_BYTES)
    pointer = text.removeprefix(GIT_DIR_PREFIX).strip()
    if not pointer or pointer == text.strip():
        return entry, entry
    git_dir = os.path.realpath(os.path.join(top, pointer))
    shared = read_text(os.path.join(git_dir, "commondir"), MAX_PATH_BYTES).strip()
    if shared:
        return git_dir, os.path.realpath(os.path.join(git_dir, shared))
    parent = os.path.dirname(git_dir)
    if not os.path.exists(git_dir) and os.path.basename(parent) == "worktrees":
        # The repository is not where the pointer says, but the pointer still tells where it was.
        return git_dir, os.path.dirname(parent)
    return git_dir, git_dir


def find_main_checkout(top: str, git_dir: str, common_dir: str) -> str:
    # OpenCode always takes the directory that contains the shared git directory. That is right only for `.git`: a
    # submodule's is deep in its parent's `.git`, and a bare repository may be next to unrelated directories.
    if os.path.basename(common_dir) == ".git":
        return os.path.dirname(common_dir)
    if git_dir == common_dir:
        return top
    configured = read_core_worktree(read_text(os.path.join(common_dir, "config"), MAX_CONFIG_BYTES))
    return os.path.realpath(os.path.join(common_dir, configured))


def read_core_worktree(config: str) -> str:
    """Return `core.worktree` from a git configuration, "" if it is not set."""
    section = ""
    for line in config.splitlines():
        name, _, value = (part.strip() for part in line.partition("="))
        if name.startswith("["):
            section = name.lower()
        elif section == "[core]" and name.lower() == "worktree":
            return value
    return ""


def find_inode(path: str) -> Inode:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return Inode()
    return Inode(number=str(status.st_ino), device=str(status.st_dev))


def inspect_last_location(worktree: str, seen: LastSeen | None) -> LastLocation:
    """Inspect the place where a project was last seen."""
    if not os.path.isdir(worktree):
        return LastLocation()
    common_dir = seen.common_dir if seen else ""
    if not common_dir and os.path.exists(os.path.join(worktree, ".git")):
        common_dir = find_git_directories(worktree)[1]
    return LastLocation(
        exists=True,
        common_dir=os.path.realpath(common_dir) if common_dir else "",
        id=read_id(common_dir) if common_dir else "",
        inode=find_inode(worktree),
    )


def is_still_checkout(sandbox: str, common_dir: str) -> bool:
    """Return True if a recorded checkout still exists and does not belong to another repository by now."""
    if not os.path.isdir(sandbox):
        return False
    checkout = inspect_checkout(sandbox)
    return (
        not checkout.is_valid
        or not is_inside(checkout.top, sandbox)
        or checkout.common_dir == common_dir
        or not common_dir
    )
