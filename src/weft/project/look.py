"""Look at a directory: its checkout, what plain files say about it, and its id file. Git is not asked."""

import os
import re
import stat
from contextlib import suppress
from typing import Literal

from msgspec.structs import replace

from weft.errors import DirectoryError, InvalidInputError
from weft.model.ids import GLOBAL_PROJECT, file_name
from weft.project.facts import Alias, Checkout, Home, IdFile, Inode, inside

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


PATH_LIMIT = 4096
CONFIG_LIMIT = 65536
POINTER = "gitdir:"


def look(directory: str, *, fake_vcs: str = "") -> Checkout:
    """The checkout a directory lies in. Raises `DirectoryError` if it is none; `fake_vcs` is `OPENCODE_FAKE_VCS`."""
    vcs: Literal["git"] | None = "git" if fake_vcs == "git" else None
    if fake_vcs and vcs is None:
        raise InvalidInputError(
            "OPENCODE_FAKE_VCS", f"{fake_vcs!r} is not a kind of repository", hint='set "git", or nothing'
        )
    return replace(checkout_of(real_directory(directory)), fake_vcs=vcs)


def real_directory(directory: str) -> str:
    """The directory by its one real name, whatever links and slashes it was asked for with."""
    way_out = "create it, or pass another directory"
    if not directory:
        raise DirectoryError("''", "no directory was named", hint=way_out)
    try:
        real = os.path.realpath(directory)
        os.stat(real)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise DirectoryError(directory, (reason or "not a path").lower(), hint=way_out) from error
    if not os.path.isdir(real):
        raise DirectoryError(directory, "not a directory", hint=f"did you mean {os.path.dirname(real)}?")
    return real


def checkout_of(real: str) -> Checkout:
    """The checkout a real path lies in, also one that is gone."""
    top = find_top(real)
    if not top:
        return Checkout(directory=real)
    git_dir, common_dir = follow(top)
    main = main_checkout(top, git_dir, common_dir)
    return Checkout(
        directory=real,
        top=top,
        main=main,
        common_dir=common_dir,
        sound=os.path.exists(os.path.join(common_dir, "HEAD")),
        git_file=not os.path.isdir(os.path.join(top, ".git")),
        shallow=os.path.exists(os.path.join(common_dir, "shallow")),
        id=read_id(common_dir),
        inode=inode_of(main),
    )


def find_top(real: str) -> str:
    """The nearest directory upward with a `.git` in it, "" if there is none."""
    while not os.path.exists(os.path.join(real, ".git")):
        above = os.path.dirname(real)
        if above == real:
            return ""
        real = above
    return real


def follow(top: str) -> tuple[str, str]:
    """Where a checkout's own git directory is, and the one it shares with the other checkouts."""
    entry = os.path.join(top, ".git")
    if os.path.isdir(entry):
        real = os.path.realpath(entry)
        return real, real
    text = read_text(entry, PATH_LIMIT)
    pointer = text.removeprefix(POINTER).strip()
    if not pointer or pointer == text.strip():
        return entry, entry
    git_dir = os.path.realpath(os.path.join(top, pointer))
    shared = read_text(os.path.join(git_dir, "commondir"), PATH_LIMIT).strip()
    if shared:
        return git_dir, os.path.realpath(os.path.join(git_dir, shared))
    above = os.path.dirname(git_dir)
    if not os.path.exists(git_dir) and os.path.basename(above) == "worktrees":
        # The repository is not where the pointer says; it still says where it was.
        return git_dir, os.path.dirname(above)
    return git_dir, git_dir


def main_checkout(top: str, git_dir: str, common_dir: str) -> str:
    # OpenCode takes whatever directory holds the shared one. That is right for `.git` alone: a submodule's lies deep
    # in its parent's `.git`, and a bare repository's next to strangers.
    if os.path.basename(common_dir) == ".git":
        return os.path.dirname(common_dir)
    if git_dir == common_dir:
        return top
    configured = core_worktree(read_text(os.path.join(common_dir, "config"), CONFIG_LIMIT))
    return os.path.realpath(os.path.join(common_dir, configured))


def core_worktree(config: str) -> str:
    """What a repository's configuration names as its checkout, "" for nothing."""
    section = ""
    for line in config.splitlines():
        name, _, value = (part.strip() for part in line.partition("="))
        if name.startswith("["):
            section = name.lower()
        elif section == "[core]" and name.lower() == "worktree":
            return value
    return ""


def inode_of(path: str) -> Inode:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return Inode()
    return Inode(number=str(found.st_ino), device=str(found.st_dev))


def look_home(worktree: str, alias: Alias | None) -> Home:
    """What is found today where a project was last seen."""
    if not os.path.isdir(worktree):
        return Home()
    common_dir = alias.common_dir if alias else ""
    if not common_dir and os.path.exists(os.path.join(worktree, ".git")):
        common_dir = follow(worktree)[1]
    return Home(
        exists=True,
        common_dir=os.path.realpath(common_dir) if common_dir else "",
        id=read_id(common_dir) if common_dir else "",
        inode=inode_of(worktree),
    )


def stands(sandbox: str, common_dir: str) -> bool:
    """Whether a listed checkout is still there, and has not become another repository's."""
    if not os.path.isdir(sandbox):
        return False
    there = checkout_of(sandbox)
    return (
        not there.sound or not inside(there.top, sandbox) or there.common_dir == common_dir or not common_dir
    )
