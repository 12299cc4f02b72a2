"""Scratch checkouts: for work whose files nobody keeps. They are removed at the end, or by the next one after a crash."""

import os
import re
import secrets
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from msgspec import Struct

from weft.errors import ConflictError
from weft.host.files import make_directory
from weft.worktree.git import EXECUTABLE_MODE, WorktreeGit
from weft.worktree.repository import Worktree, WorktreeRepository, list_worktrees, lock_worktree

NAME_BYTES: Final = 4
_SCRATCH_NAME: Final = re.compile(r"weft-scratch-[0-9a-f]{8}")


class ScratchFile(Struct, frozen=True, kw_only=True):
    """A file to write into a checkout: its content, and its permissions, or that it is a symbolic link."""

    content: bytes
    permissions: int = 0o644
    link: bool = False


# What to write by path below the top; None removes the file.
ScratchFiles = Mapping[bytes, ScratchFile | None]


@contextmanager
def open_scratch(repository: WorktreeRepository, commit: str) -> Generator["ScratchCheckout"]:
    """Make a checkout of a commit, and remove it at the end. Those that dead processes left are removed first."""
    remove_dead_scratches(repository)
    name = f"weft-scratch-{secrets.token_hex(NAME_BYTES)}"
    worktree = Worktree(name=name, branch="", directory=os.path.join(repository.home, name))
    make_directory(repository.home)
    # Locked before it exists, so that nobody takes it for one of a dead process.
    with lock_worktree(repository, worktree):
        try:
            repository.checkouts.add_detached(worktree.directory, commit)
            yield ScratchCheckout(repository.inside(worktree), commit)
        finally:
            repository.checkouts.remove(worktree.directory)


def is_scratch(worktree: Worktree) -> bool:
    """Return True for a scratch checkout. It is on no branch, unlike every worktree of a session."""
    return not worktree.branch and _SCRATCH_NAME.fullmatch(worktree.name) is not None


def remove_dead_scratches(repository: WorktreeRepository) -> list[str]:
    """Remove the scratch checkouts that nobody uses any more, and return their names."""
    removed = []
    for worktree in filter(is_scratch, list_worktrees(repository)):
        with suppress(ConflictError), lock_worktree(repository, worktree):  # its process is alive
            repository.checkouts.remove(worktree.directory)
            removed.append(worktree.name)
    return removed


class ScratchCheckout:
    """A checkout of `commit`, into which any files can be written. Every method blocks."""

    def __init__(self, git: WorktreeGit, commit: str) -> None:
        self.directory = git.top
        self._git = git
        self._commit = commit
        self._ignored: frozenset[str] | None = None

    def mark_prepared(self) -> None:
        """Keep the ignored files that are there now, such as installed packages. `fill` removes later ones."""
        self._ignored = frozenset(self._git.list_ignored())

    def fill(self, *layers: ScratchFiles) -> None:
        """Set all files to the commit, and then to these layers, each over the one before."""
        self._git.restore(self._commit)
        if self._ignored is not None:
            # A cache of the files before could hide what the new files do.
            for ignored in self._git.list_ignored():
                if ignored not in self._ignored:
                    _remove_path(os.path.join(self.directory, ignored))
        for layer in layers:
            write_files(self.directory, layer)


def write_files(top: str, files: ScratchFiles) -> None:
    """Write files into a checkout, and remove those that are not to exist. Raise `ConflictError` for one that leads out of it."""
    # Removals come first: a directory may take the place of a file, and must not be removed with what was written below it.
    for path, file in sorted(files.items(), key=lambda each: each[1] is not None):
        target = os.path.join(os.fsencode(top), path)
        if _leaves(os.fsencode(top), target):
            raise ConflictError("file", os.fsdecode(path), "would be written outside the checkout")
        _remove_path(target)
        if file is not None:
            _write_file(target, file)


def _write_file(target: bytes, file: ScratchFile) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if file.link:
        os.symlink(file.content, target)
        return
    with open(target, "wb") as stream:
        os.fchmod(stream.fileno(), file.permissions)  # before anybody else could read it
        stream.write(file.content)


def _leaves(top: bytes, target: bytes) -> bool:
    """Return True if a path leads out of the checkout, by `..` or through a link."""
    real_top, real = os.path.realpath(top), os.path.realpath(os.path.dirname(target))
    return real != real_top and not real.startswith(real_top + b"/")


def _remove_path(path: bytes | str) -> None:
    from shutil import rmtree  # noqa: PLC0415  only checks need it

    if os.path.isdir(path) and not os.path.islink(path):
        rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)


def read_present_files(
    git: WorktreeGit, commit: str, *, until: int, is_excluded: Callable[[str], bool]
) -> tuple[dict[bytes, ScratchFile | None], list[str]]:
    """Return the files of a checkout that differ from a commit and have not changed since the time `until` (ms), as they are now.

    The second value lists the files that changed since then. Only the commit tells what these were like.
    """
    layer: dict[bytes, ScratchFile | None] = {}
    since: list[str] = []
    present = git.capture(untracked=True)
    for change in git.list_differences(git.get_tree(commit), present):
        if is_excluded(change.path) or change.is_submodule:
            continue
        found = _read_file(git.top, change.path, executable=change.mode == EXECUTABLE_MODE, until=until)
        if found is None:
            since.append(change.path)
        else:
            layer[os.fsencode(change.path)] = found
    return layer, since


def _read_file(top: str, path: str, *, executable: bool, until: int) -> ScratchFile | None:
    """Return a file if it exists and was last changed before a time."""
    target = os.path.join(top, path)
    try:
        status = os.lstat(target)
        if status.st_mtime_ns // 1_000_000 > until:
            return None
        if os.path.islink(target):
            return ScratchFile(content=os.fsencode(os.readlink(target)), link=True)
        with open(target, "rb") as stream:
            return ScratchFile(content=stream.read(), permissions=0o755 if executable else 0o644)
    except OSError:  # it is gone, and nobody knows since when
        return None


def list_names(paths: Iterable[str], limit: int = 5) -> str:
    """Return a few paths for a sentence."""
    names = list(paths)
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
