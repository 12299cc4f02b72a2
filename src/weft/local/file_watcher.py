"""Watch the files of a project and its checked-out branch, and publish changes."""

import asyncio
import os
from collections.abc import Mapping

from msgspec import Struct

from weft.config.flags import read_flags
from weft.config.load import load_config
from weft.config.sources import ConfigScope
from weft.errors import GitError
from weft.host.file_watcher import watch_changes
from weft.host.git import Git
from weft.host.paths import paths_from
from weft.model.event import BranchChanged, FileWatched, Publish
from weft.project.checkout import find_git_directories, inspect_checkout
from weft.tool.file_listing import matches_glob
from weft.trust.decision import is_trusted

GIT = ".git"
HEAD = "HEAD"
# Generated files and directories that nobody edits by hand.
IGNORED_DIRECTORIES = frozenset(
    [
        ".git",
        ".hg",
        ".svn",
        ".jj",
        "node_modules",
        "bower_components",
        ".pnpm-store",
        "vendor",
        ".npm",
        ".venv",
        "__pycache__",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".tox",
        "dist",
        "build",
        "out",
        "target",
        "bin",
        "obj",
        ".next",
        ".nuxt",
        ".output",
        ".turbo",
        ".cache",
        ".gradle",
        ".idea",
        ".vscode",
        ".vs",
        "coverage",
        ".nyc_output",
        "tmp",
        "temp",
        ".tmp",
        "logs",
        "desktop",
    ]
)
IGNORED_FILES = ("*.swp", "*.swo", "*.pyc", "*.log", "*.tmp", "*~", ".DS_Store", "Thumbs.db", "4913")


class WatchScope(Struct, frozen=True, kw_only=True):
    """What to watch: HEAD in `git_dir`, unless that is empty, and with `all_files` all files in `directory`."""

    directory: str
    worktree: str = ""
    git_dir: str = ""
    all_files: bool = False
    ignore: tuple[str, ...] = ()

    def wants(self, path: str) -> bool:
        """Return True if changes of this file are published."""
        name = os.path.relpath(path, self.directory)
        *above, last = name.split(os.sep)
        if not IGNORED_DIRECTORIES.isdisjoint(above) or any(
            matches_glob(last, glob) for glob in IGNORED_FILES
        ):
            return False
        levels = ["/".join([*above, last][: depth + 1]) for depth in range(len(above) + 1)]
        return not any(matches_glob(level, glob.rstrip("/")) for glob in self.ignore for level in levels)

    def is_head(self, path: str) -> bool:
        return path == os.path.join(self.git_dir, HEAD)


def read_watch_scope(directory: str, env: Mapping[str, str]) -> WatchScope:
    """Return what to watch in a directory.

    As in OpenCode, nothing is watched without a repository. HEAD is watched unless `watcher.ignore` contains `.git`. All
    files are watched only with an experimental flag.
    """
    flags, checkout = read_flags(env), inspect_checkout(os.path.realpath(directory))
    if flags.disable_filewatcher or not checkout.top or not checkout.is_valid:
        return WatchScope(directory=checkout.directory)
    paths = paths_from(env)
    scope = ConfigScope(
        directory=checkout.directory,
        worktree=checkout.top,
        paths=paths,
        env=env,
        trusted=is_trusted(paths, env, checkout.top, checkout.directory),
    )
    watcher = load_config(scope).config.watcher
    ignore = (watcher.ignore if watcher else None) or ()
    return WatchScope(
        directory=checkout.directory,
        worktree=checkout.top,
        git_dir="" if GIT in ignore else find_git_directories(checkout.top)[0],
        all_files=flags.filewatcher,
        ignore=ignore,
    )


async def watch_files(directory: str, env: Mapping[str, str], publish: Publish) -> None:
    """Publish changes until cancelled. Return at once if there is nothing to watch.

    Raise an exception group with an `OSError` if the kernel allows no more watches.
    """
    scope = await asyncio.to_thread(read_watch_scope, directory, env)
    async with asyncio.TaskGroup() as tasks:
        if scope.git_dir:
            tasks.create_task(_watch_head(scope, env, publish))
        if scope.all_files:
            tasks.create_task(_watch_all(scope, publish))


async def _watch_head(scope: WatchScope, env: Mapping[str, str], publish: Publish) -> None:
    # OpenCode 1.1.34 checks the branch when any file except HEAD changes, which misses branch changes.
    branch = await _find_branch(scope, env)
    async for changes in watch_changes(scope.git_dir, scope.is_head, recursive=False):
        for event, path in changes:
            # Git replaces HEAD by a rename, which the kernel reports as a new file.
            await publish(FileWatched(file=path, event="change" if event == "add" else event))
        before, branch = branch, await _find_branch(scope, env)
        if branch != before:
            await publish(BranchChanged(branch=branch))


async def _find_branch(scope: WatchScope, env: Mapping[str, str]) -> str | None:
    try:
        return await asyncio.to_thread(Git(env).find_branch, scope.worktree)
    except GitError:
        return None  # git is missing, or the repository is gone: front ends then show no branch


async def _watch_all(scope: WatchScope, publish: Publish) -> None:
    async for changes in watch_changes(scope.directory, scope.wants, recursive=True):
        for event, path in changes:
            await publish(FileWatched(file=path, event=event))
