"""The file watcher: tells what others do to a project's files and which branch is checked out, while somebody listens."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from weft.config.flags import read_flags
from weft.config.load import load_config
from weft.config.sources import Situation
from weft.errors import GitError
from weft.host.git import Git
from weft.host.paths import paths_from
from weft.host.watcher import watch_changes
from weft.model.event import BranchChanged, Event, FileWatched
from weft.project.look import checkout_of, follow
from weft.tool.file_listing import fits
from weft.trust.decision import is_trusted

GIT = ".git"
HEAD = "HEAD"
# What programs make and nobody edits. Whole directories by name, wherever they are; then files.
DIRECTORIES = frozenset(
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
FILES = ("*.swp", "*.swo", "*.pyc", "*.log", "*.tmp", "*~", ".DS_Store", "Thumbs.db", "4913")

Tell = Callable[[Event], Awaitable[None]]


class Scope(Struct, frozen=True, kw_only=True):
    """What is watched: `git_dir` for its HEAD, and all of `directory` if it is wanted `whole`; "" for nothing."""

    directory: str
    worktree: str = ""
    git_dir: str = ""
    whole: bool = False
    ignore: tuple[str, ...] = ()

    def wants(self, path: str) -> bool:
        """Return whether a change of this file is told."""
        name = os.path.relpath(path, self.directory)
        *above, last = name.split(os.sep)
        if not DIRECTORIES.isdisjoint(above) or any(fits(last, glob) for glob in FILES):
            return False
        levels = ["/".join([*above, last][: depth + 1]) for depth in range(len(above) + 1)]
        return not any(fits(level, glob.rstrip("/")) for glob in self.ignore for level in levels)

    def is_head(self, path: str) -> bool:
        return path == os.path.join(self.git_dir, HEAD)


def find_scope(directory: str, env: Mapping[str, str]) -> Scope:
    """Return what is to be watched in a directory. As in OpenCode that is nothing without a repository, its HEAD unless
    `watcher.ignore` names `.git`, and all files only if an experimental flag asks for them."""
    flags, checkout = read_flags(env), checkout_of(os.path.realpath(directory))
    if flags.disable_filewatcher or not checkout.top or not checkout.sound:
        return Scope(directory=checkout.directory)
    paths = paths_from(env)
    situation = Situation(
        directory=checkout.directory,
        worktree=checkout.top,
        paths=paths,
        env=env,
        trusted=is_trusted(paths, env, checkout.top, checkout.directory),
    )
    watcher = load_config(situation).config.watcher
    ignore = (watcher.ignore if watcher else None) or ()
    return Scope(
        directory=checkout.directory,
        worktree=checkout.top,
        git_dir="" if GIT in ignore else follow(checkout.top)[0],
        whole=flags.filewatcher,
        ignore=ignore,
    )


async def watch_files(directory: str, env: Mapping[str, str], tell: Tell) -> None:
    """Tell of changes until this is cancelled, or until there is nothing to watch. Raises `OSError` if the kernel watches
    no more files."""
    scope = await asyncio.to_thread(find_scope, directory, env)
    async with asyncio.TaskGroup() as tasks:
        if scope.git_dir:
            tasks.create_task(_watch_head(scope, env, tell))
        if scope.whole:
            tasks.create_task(_watch_all(scope, tell))


async def _watch_head(scope: Scope, env: Mapping[str, str], tell: Tell) -> None:
    # OpenCode 1.1.34 looks at the branch again when any watched file but HEAD has changed; that is the wrong way round.
    branch = await _find_branch(scope, env)
    async for changes in watch_changes(scope.git_dir, scope.is_head, recursive=False):
        for event, path in changes:
            # Git puts a new file in the place of the old one, which the kernel tells as one that was added.
            await tell(FileWatched(file=path, event="change" if event == "add" else event))
        before, branch = branch, await _find_branch(scope, env)
        if branch != before:
            await tell(BranchChanged(branch=branch))


async def _find_branch(scope: Scope, env: Mapping[str, str]) -> str | None:
    try:
        return await asyncio.to_thread(Git(env).find_branch, scope.worktree)
    except GitError:
        return None  # no git to be had, or no repository any more: a screen then shows no branch


async def _watch_all(scope: Scope, tell: Tell) -> None:
    async for changes in watch_changes(scope.directory, scope.wants, recursive=True):
        for event, path in changes:
            await tell(FileWatched(file=path, event=event))
