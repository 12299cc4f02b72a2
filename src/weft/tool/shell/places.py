"""Where the paths in a command lead: by real path, from every directory it may be in by then."""

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

from weft.model.permission import HOLE
from weft.tool.shell.field import Listing, names

MOST_FILES: Final = 500
MOST_NAMED: Final = 100
MOST_SEEN: Final = 4000
DEEPEST: Final = 8
# Written and read without anything being kept or told.
_DEVICES: Final = re.compile(r"/dev/(?:null|zero|full|u?random|tty|std(?:in|out|err)|fd/\d+)")
_SECRET: Final = re.compile(r".*\.env(?:\..*)?", re.IGNORECASE)
# `[!a-c]`, `[^[:alpha:]]`: shells do not agree on what is in it. Any character may be.
_BRACKETS: Final = re.compile(r"\[[!^]?\]?(?:\[[:.=].*?[:.=]\]|[^\]])*\]")
_PASSED_OVER: Final = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__", "target", "dist"})
BUILTINS: Final = names(
    ". : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo enable"
    " eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf pushd pwd"
    " read readarray readonly return set shift shopt source suspend test times trap true type typeset ulimit umask unalias"
    " unset wait"
)
_PROGRAMS: Final = names("/bin /sbin /usr/bin /usr/sbin /usr/local/bin /usr/local/sbin /opt/homebrew/bin")


class Spot(Struct, frozen=True, kw_only=True):
    """A path as the command means it, the real one behind it, and whether that is in the project."""

    path: str
    real: str
    inside: bool


class Where(Struct, frozen=True, kw_only=True):
    """Where a command runs: its directory, what counts as inside (real paths), and the environment it sees.

    `reals` remembers where paths led, for as long as one command is judged.
    """

    directory: str
    worktree: str
    roots: tuple[str, ...]
    environment: Mapping[str, str]
    reals: dict[str, str] = {}

    @property
    def home(self) -> str:
        return self.environment.get("HOME") or os.path.expanduser("~")

    def spot(self, text: str, cwd: str) -> Spot | None:
        """Where a path leads; None for devices that keep nothing. Raises ValueError for what is no path."""
        joined = os.path.join(cwd, text)
        path = os.path.normpath(joined)
        if _DEVICES.fullmatch(path):
            return None
        real = self.real(path)
        if ".." in text:
            # Behind a link, `..` leads back from where the link leads: there the tidied path is another one.
            meant = os.path.realpath(joined)
            path, real = (path, real) if meant == real else (meant, meant)
        # What lies behind /proc depends on who looks.
        inside = not path.startswith("/proc/") and any(_is_within(real, root) for root in self.roots)
        return Spot(path=path, real=real, inside=inside)

    def real(self, path: str) -> str:
        """Where a tidied path leads."""
        found = self.reals.get(path)
        if found is None:
            parent, name = os.path.split(path)
            if not name or path.count("/") > DEEPEST * 4:
                found = os.path.realpath(path)
            else:
                found = os.path.join(self.real(parent), name)
                found = os.path.realpath(found) if os.path.islink(found) else found
            self.reals[path] = found
        return found

    def exists(self, text: str, cwd: str) -> bool:
        return "\0" not in text and os.path.lexists(os.path.join(cwd, text))

    def has_program(self, name: str) -> bool:
        """Whether a bare name is one of the shell's own commands, or of a program that it would find."""
        return name in BUILTINS or shutil.which(name, path=self.environment.get("PATH")) is not None

    def is_program(self, text: str) -> bool:
        """Whether a path names a program where programs are kept."""
        place = os.path.dirname(os.path.normpath(text))
        return place in _PROGRAMS or place in self.environment.get("PATH", "").split(os.pathsep)


def where_is(directory: str, worktree: str, environment: Mapping[str, str], *, also: str = "") -> Where:
    """`also` is inside, too. Blocks: it looks where links lead."""
    real = os.path.realpath(directory)
    # A worktree of `/` is no worktree: everything would be inside.
    others = (os.path.realpath(path) for path in (worktree, also) if path not in ("", "/"))
    return Where(
        directory=real,
        worktree=worktree,
        roots=tuple(dict.fromkeys((real, *others))),
        environment=environment,
    )


def expand(pattern: str, cwd: str) -> list[str] | None:
    """The files that a pattern stands for, itself if there are none; None if there are too many."""
    found = list(islice(glob.iglob(_BRACKETS.sub(_any, pattern), root_dir=cwd), MOST_FILES + 1))
    return None if len(found) > MOST_FILES else found or [_literal(pattern)]


def deep_listing(pattern: str, cwd: str) -> Listing:
    """What a pattern with two stars stands for in those shells where they mean every directory below."""
    parts = _BRACKETS.sub(_any, pattern).split("/")
    first = next(place for place, part in enumerate(parts) if "**" in part)
    name = _literal(parts[-1]) if "**" not in parts[-1] else None
    root = os.path.join(cwd, "/".join(parts[:first]) or ("/" if pattern.startswith("/") else ""))
    return Listing(roots=(root,), name=name, hidden=name is not None and name.startswith("."))


def _any(found: re.Match[str]) -> str:
    # Not what quotes made of a star, which means only itself.
    return found[0] if found[0] in ("[*]", "[?]", "[[]") else "?"


def _literal(pattern: str) -> str:
    return re.sub(r"\[([*?[])\]", r"\1", pattern)


def notable(listing: Listing, *, links: bool, follow: bool = False) -> Iterator[str]:
    """Among the files of a listing those that the usual rules protect, and links. Only so many are looked at.

    With `follow`, also those in the directories that links lead to.
    """
    with suppress(_TooManyError):
        for path, name, is_link in _walk(listing, _PASSED_OVER, follow=follow):
            if ((is_secret(name) and listing.hidden) or (links and is_link)) and _fits(name, listing):
                yield path


def files_of(listing: Listing) -> list[str] | None:
    """The files of a listing; None if there are too many to name."""
    found = []
    try:
        for path, name, _ in _walk(listing, frozenset()):
            if _fits(name, listing):
                found.append(path)
    except _TooManyError:
        return None
    return found if len(found) <= MOST_NAMED else None


class _TooManyError(Exception):
    pass


def _fits(name: str, listing: Listing) -> bool:
    # `find` reads backslashes in a pattern; and what is not known of one may fit anything.
    if listing.name is None or not {"\\", HOLE}.isdisjoint(listing.name):
        return True
    return fnmatchcase(name, _BRACKETS.sub(_any, listing.name))


def _walk(
    listing: Listing, passed_over: frozenset[str], *, follow: bool = False
) -> Iterator[tuple[str, str, bool]]:
    """Files below some directories, with their names and whether they are links; the nearest first.

    With `follow`, also below the directories that links lead to.
    """
    left, been = MOST_SEEN, set[str]()
    waiting = [(root, 0) for root in listing.roots]
    while waiting:
        directory, depth = waiting.pop(0)
        try:
            with os.scandir(directory) as entries:
                found = list(islice(entries, left))
        except NotADirectoryError:
            yield directory, os.path.basename(directory), os.path.islink(directory)
            continue
        except (OSError, ValueError):
            continue
        left -= len(found) + 1
        if left <= 0 or depth > DEEPEST:
            raise _TooManyError
        for entry in found:
            if entry.name.startswith(".") and not listing.hidden:
                continue
            if not entry.is_dir(follow_symlinks=False):
                yield entry.path, entry.name, entry.is_symlink()
                real = os.path.realpath(entry.path) if follow and os.path.isdir(entry.path) else ""
                if real and real not in been:
                    been.add(real)
                    waiting.append((real, depth + 1))
            elif entry.name not in passed_over:
                waiting.append((entry.path, depth + 1))


def is_secret(name: str) -> bool:
    """Whether a file is by its name one of those that the usual rules protect."""
    return _SECRET.fullmatch(name) is not None


def _is_within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
