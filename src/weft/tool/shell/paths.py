"""Resolve the paths in a command to real paths, and expand globs to files."""

import glob
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from typing import Final

from msgspec import Struct

from weft.model.permission import UNKNOWN_START
from weft.model.project import is_within
from weft.tool.shell.arguments import FileListing, split_names

MAX_GLOB_FILES: Final = 500
MAX_LISTED_FILES: Final = 100
MAX_SCANNED_ENTRIES: Final = 4000
MAX_TREE_DEPTH: Final = 8
# Devices that neither store nor reveal anything.
_HARMLESS_DEVICE: Final = re.compile(r"/dev/(?:null|zero|full|u?random|tty|std(?:in|out|err)|fd/\d+)")
_SECRET_NAME: Final = re.compile(r".*\.env(?:\..*)?", re.IGNORECASE)
# Shells disagree on what `[!a-c]` and `[^[:alpha:]]` match. We assume any character.
_BRACKET_EXPRESSION: Final = re.compile(r"\[[!^]?\]?(?:\[[:.=].*?[:.=]\]|[^\]])*\]")
_SKIPPED_DIRECTORIES: Final = frozenset(
    {".git", "node_modules", ".venv", "venv", "__pycache__", "target", "dist"}
)
BUILTINS: Final = split_names(
    ". : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo enable"
    " eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf pushd pwd"
    " read readarray readonly return set shift shopt source suspend test times trap true type typeset ulimit umask unalias"
    " unset wait"
)
_PROGRAM_DIRECTORIES: Final = split_names(
    "/bin /sbin /usr/bin /usr/sbin /usr/local/bin /usr/local/sbin /opt/homebrew/bin"
)


class ResolvedPath(Struct, frozen=True, kw_only=True):
    """A path as the command means it, its real path, and whether that is inside of the project."""

    path: str
    real: str
    inside: bool


class CommandLocation(Struct, frozen=True, kw_only=True):
    """Where a command runs: its directory, the roots of the project (real paths), and its environment.

    `real_paths` caches resolved paths while one command is judged.
    """

    directory: str
    worktree: str
    roots: tuple[str, ...]
    environment: Mapping[str, str]
    real_paths: dict[str, str] = {}

    @property
    def home(self) -> str:
        return self.environment.get("HOME") or os.path.expanduser("~")

    def resolve(self, text: str, cwd: str) -> ResolvedPath | None:
        """Resolve a path. Return None for devices that store nothing. Text that no path can contain may raise `ValueError`."""
        joined = os.path.join(cwd, text)
        path = os.path.normpath(joined)
        if _HARMLESS_DEVICE.fullmatch(path):
            return None
        real = self.real_path(path)
        if ".." in text:
            # After a link, `..` leads to the parent of its target, and normalising the path gives a different one.
            followed = os.path.realpath(joined)
            path, real = (path, real) if followed == real else (followed, followed)
        # The content of /proc depends on the process that reads it.
        inside = not path.startswith("/proc/") and any(is_within(real, root) for root in self.roots)
        return ResolvedPath(path=path, real=real, inside=inside)

    def real_path(self, path: str) -> str:
        """Return the real path of a normalised path."""
        real = self.real_paths.get(path)
        if real is None:
            parent, name = os.path.split(path)
            if not name or path.count("/") > MAX_TREE_DEPTH * 4:
                real = os.path.realpath(path)
            else:
                real = os.path.join(self.real_path(parent), name)
                real = os.path.realpath(real) if os.path.islink(real) else real
            self.real_paths[path] = real
        return real

    def exists(self, text: str, cwd: str) -> bool:
        return "\0" not in text and os.path.lexists(os.path.join(cwd, text))

    def has_program(self, name: str) -> bool:
        """Return True if a name is that of a builtin of the shell or of a program in PATH."""
        return name in BUILTINS or shutil.which(name, path=self.environment.get("PATH")) is not None

    def is_in_program_directory(self, text: str) -> bool:
        """Return True if a path is directly in a directory for programs."""
        directory = os.path.dirname(os.path.normpath(text))
        return directory in _PROGRAM_DIRECTORIES or directory in self.environment.get("PATH", "").split(
            os.pathsep
        )


def locate_command(
    directory: str, worktree: str, environment: Mapping[str, str], *, extra_root: str = ""
) -> CommandLocation:
    """Return the location of a command. `extra_root` is a further root of the project. This blocks, because it follows links."""
    real = os.path.realpath(directory)
    # A worktree of `/` means that there is none. Otherwise everything would be inside.
    other_roots = (os.path.realpath(path) for path in (worktree, extra_root) if path not in ("", "/"))
    return CommandLocation(
        directory=real,
        worktree=worktree,
        roots=tuple(dict.fromkeys((real, *other_roots))),
        environment=environment,
    )


def expand_glob(pattern: str, cwd: str) -> list[str] | None:
    """Return the paths that match a pattern, the pattern itself if there are none, or None if there are too many."""
    paths = list(
        islice(
            glob.iglob(_BRACKET_EXPRESSION.sub(_replace_bracket, pattern), root_dir=cwd), MAX_GLOB_FILES + 1
        )
    )
    return None if len(paths) > MAX_GLOB_FILES else paths or [_to_literal(pattern)]


def list_deep_glob(pattern: str, cwd: str) -> FileListing:
    """Return the files that `**` matches in shells where it means every directory below."""
    parts = _BRACKET_EXPRESSION.sub(_replace_bracket, pattern).split("/")
    # Brackets that contained the `**` were replaced by `?`. Then list the files in the directory of the last name and below.
    first = next((index for index, part in enumerate(parts) if "**" in part), len(parts) - 1)
    name = _to_literal(parts[-1]) if "**" not in parts[-1] else None
    root = os.path.join(cwd, "/".join(parts[:first]) or ("/" if pattern.startswith("/") else ""))
    return FileListing(roots=(root,), name=name, hidden=name is not None and name.startswith("."))


def _replace_bracket(match: re.Match[str]) -> str:
    # Keep the brackets by which a quoted star, question mark or bracket is escaped.
    return match[0] if match[0] in ("[*]", "[?]", "[[]") else "?"


def _to_literal(pattern: str) -> str:
    return re.sub(r"\[([*?[])\]", r"\1", pattern)


def find_sensitive(listing: FileListing, *, links: bool, follow: bool = False) -> Iterator[str]:
    """Yield the files of a listing that the default rules protect, and with `links` all links.

    The search is bounded. With `follow`, it includes the directories that links lead to.
    """
    follow = follow or listing.follow
    with suppress(_TooManyError):
        for path, name, is_link in _walk(listing, _SKIPPED_DIRECTORIES, follow=follow):
            is_elsewhere = listing.follow and not any(is_within(path, root) for root in listing.roots)
            if (is_secret(name) or is_elsewhere or (links and is_link)) and _matches_listing(name, listing):
                yield path


def list_files(listing: FileListing) -> list[str] | None:
    """Return the files of a listing, or None if there are too many."""
    paths = []
    try:
        for path, name, _ in _walk(listing, frozenset(), follow=listing.follow):
            if _matches_listing(name, listing):
                paths.append(path)
    except _TooManyError:
        return None
    return paths if len(paths) <= MAX_LISTED_FILES else None


class _TooManyError(Exception):
    """A search has reached its limit."""


def _matches_listing(name: str, listing: FileListing) -> bool:
    if any(fnmatchcase(name, pattern) for pattern in listing.excluded):
        return False
    # `find` interprets backslashes in a pattern, and a hole in it may match anything.
    if listing.name is None or not {"\\", UNKNOWN_START}.isdisjoint(listing.name):
        return True
    return fnmatchcase(name, _BRACKET_EXPRESSION.sub(_replace_bracket, listing.name))


def _walk(
    listing: FileListing, skipped_directories: frozenset[str], *, follow: bool = False
) -> Iterator[tuple[str, str, bool]]:
    """Yield the files below some directories, nearest first: path, name, and whether it is a link.

    With `follow`, include the directories that links lead to. Raise `_TooManyError` at the limit.
    """
    remaining, visited = MAX_SCANNED_ENTRIES, set[str]()
    queue = [(root, 0) for root in listing.roots]
    while queue:
        directory, depth = queue.pop(0)
        try:
            with os.scandir(directory) as entries:
                batch = list(islice(entries, remaining))
        except NotADirectoryError:
            yield directory, os.path.basename(directory), os.path.islink(directory)
            continue
        except (OSError, ValueError):
            continue
        remaining -= len(batch) + 1
        if remaining <= 0 or depth > MAX_TREE_DEPTH:
            raise _TooManyError
        for entry in batch:
            if entry.name.startswith(".") and not listing.hidden:
                continue
            if not entry.is_dir(follow_symlinks=False):
                yield entry.path, entry.name, entry.is_symlink()
                real = os.path.realpath(entry.path) if follow and os.path.isdir(entry.path) else ""
                if real and real not in visited:
                    visited.add(real)
                    queue.append((real, depth + 1))
            elif entry.name not in skipped_directories:
                queue.append((entry.path, depth + 1))


def is_secret(name: str) -> bool:
    """Return True if the default rules protect a file of this name."""
    return _SECRET_NAME.fullmatch(name) is not None
