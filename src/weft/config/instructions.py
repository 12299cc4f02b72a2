"""Instructions for agents: which files and addresses hold them, and what they say."""

import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from itertools import islice

from msgspec import Struct

from weft.config.flags import Flags, read_flags
from weft.config.load import Loaded
from weft.config.remote import Fetch, Remote, is_address
from weft.config.sources import Situation
from weft.config.trust import Held, is_inside, leads_out
from weft.errors import ConfigError
from weft.host.files import read_file
from weft.model.agent import Instruction

MOST_SEEN = 20_000
MOST_FOUND = 100
MOST_CHOICES = 64
_MAGIC = re.compile(r"[*?\[]")
_CHOICE = re.compile(r"\{([^{}]*)\}")
# Nobody's instructions lie there, and there is much of it.
_PASSED_OVER = frozenset({".git", "node_modules"})


def find_files(base: str, pattern: str) -> list[str]:
    """The files below a directory that match, in the order of their paths."""
    search = _Search()
    found: set[str] = set()
    for choice in islice(_choices(pattern), MOST_CHOICES):
        words = [word for word in choice.split("/") if word not in ("", ".")]
        found.update(islice(search.walk(base, words), MOST_FOUND))
    return sorted(found)[:MOST_FOUND]


def _choices(pattern: str) -> Iterator[str]:
    """Every way to read the braces."""
    found = _CHOICE.search(pattern)
    if found is None:
        yield pattern
        return
    for word in found[1].split(","):
        yield from _choices(pattern[: found.start()] + word + pattern[found.end() :])


class _Search:
    def __init__(self) -> None:
        self._left = MOST_SEEN

    def walk(self, directory: str, words: list[str]) -> Iterator[str]:
        if not words:
            return
        word, rest = words[0], words[1:]
        if word == "**":
            yield from self.walk(directory, rest or ["*"])
            for entry in self._entries(directory):
                if entry.name not in _PASSED_OVER and entry.is_dir(follow_symlinks=False):
                    yield from self.walk(entry.path, words)
        elif not _MAGIC.search(word):
            yield from self._step(os.path.normpath(os.path.join(directory, word)), rest)
        else:
            for entry in self._entries(directory):
                if fnmatchcase(entry.name, word) and not (rest and entry.is_symlink()):
                    yield from self._step(entry.path, rest)

    def _step(self, path: str, rest: list[str]) -> Iterator[str]:
        if rest:
            yield from self.walk(path, rest)
        elif os.path.isfile(path):
            yield path

    def _entries(self, directory: str) -> list[os.DirEntry[str]]:
        if self._left <= 0:
            return []
        try:
            with os.scandir(directory) as entries:
                found = list(islice(entries, self._left))
        except OSError:
            return []
        self._left -= len(found) + 1
        return sorted(found, key=lambda entry: entry.name)


NAMES = ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")
# Some 16,000 tokens. More than that is no longer instructions, and every request would carry it.
LIMIT = 64 * 1024
READABLE = 4 << 20
MOST_FILES = 100
MOST_ADDRESSES = 20


class Asked(Struct, frozen=True, kw_only=True):
    """An entry of `instructions`: a pattern or an address, whether it is the person's own word, or vouched for; and
    the file it stands in."""

    pattern: str
    own: bool
    path: str = ""


class Sources(Struct, frozen=True, kw_only=True):
    """Where to look. Without `fetch`, nothing is fetched, and copies are read."""

    situation: Situation
    asked: tuple[Asked, ...] = ()
    fetch: Fetch | None = None


class _File(Struct, frozen=True, kw_only=True):
    """A file to read; `within` is where it must lie, "" for anywhere."""

    path: str
    within: str = ""


def to_sources(loaded: Loaded, situation: Situation, fetch: Fetch | None = None) -> Sources:
    entries = enumerate(loaded.config.instructions or ())
    origins = ((pattern, loaded.origins.get(("instructions", str(number)))) for number, pattern in entries)
    asked = tuple(
        Asked(
            pattern=pattern,
            own=situation.trusted or (origin is not None and origin.own),
            path=origin.path if origin is not None else "",
        )
        for pattern, origin in origins
    )
    return Sources(situation=situation, asked=asked, fetch=fetch)


def read_instructions(sources: Sources, known: Mapping[str, str] | None = None) -> tuple[Instruction, ...]:
    """What agents are to keep to: the project's files, the person's own, what is configured, and what is fetched.

    An address that is among the `known` is not fetched again. OpenCode fetches it anew for every step.
    """
    files: dict[str, _File] = {}
    for file in _list_files(sources):
        files.setdefault(file.path, file)
    found = [_read(file) for file in list(files.values())[:MOST_FILES]]
    addresses = [asked for asked in sources.asked if is_address(asked.pattern)][:MOST_ADDRESSES]
    if addresses:  # all at once: the wait for many is the wait for one
        with ThreadPoolExecutor(len(addresses)) as pool:
            found += pool.map(lambda asked: _fetch(sources, asked, known or {}), addresses)
    return tuple(each for each in found if each.text)


def list_held(sources: Sources) -> list[Held]:
    """What the project has for instructions that is not read, since nobody has vouched for it."""
    files = dict.fromkeys(file.path for file in _list_files(sources) if not _is_bounded(file))
    asked = [each for each in sources.asked if is_address(each.pattern) and not each.own]
    return [
        *(Held(kind="instructions", name=_spelled(path), path=path, does=leads_out()) for path in files),
        *(Held(kind="instructions", name=each.pattern, path=each.path, does="is fetched") for each in asked),
    ]


def _list_files(sources: Sources) -> Iterator[_File]:
    situation, flags = sources.situation, read_flags(sources.situation.env)
    if not flags.disable_project_config:
        yield from _project_files(situation)
    yield from _own_file(situation, flags)
    for asked in sources.asked:
        if not is_address(asked.pattern):
            yield from _asked_files(asked, situation, flags)


def _project_files(situation: Situation) -> Iterator[_File]:
    """All files of the first name that there is one of, the nearest first."""
    for name in NAMES:
        paths = [os.path.join(level, name) for level in levels(situation)]
        there = [path for path in paths if os.path.exists(path)]
        if there:
            yield from (_File(path=path, within=_bounds(situation, os.path.dirname(path))) for path in there)
            return


def _own_file(situation: Situation, flags: Flags) -> Iterator[_File]:
    """The first that there is of those a person may have for all their work."""
    paths = [os.path.join(situation.paths.config, "AGENTS.md")]
    if not flags.disable_claude_code_prompt:
        paths.append(os.path.join(situation.paths.os_home, ".claude", "CLAUDE.md"))
    if flags.config_dir:
        paths.append(os.path.join(situation.directory, flags.config_dir, "AGENTS.md"))
    there = (os.path.normpath(path) for path in paths if os.path.exists(path))
    yield from (_File(path=path) for path in [next(there, "")] if path)


def _asked_files(asked: Asked, situation: Situation, flags: Flags) -> Iterator[_File]:
    pattern = asked.pattern
    if pattern.startswith("~/"):
        pattern = os.path.join(situation.paths.os_home, pattern[2:])
    if os.path.isabs(pattern):
        base, name = os.path.split(pattern)
        places = [(base, name, _bounds(situation, situation.directory))]
    elif flags.disable_project_config:
        custom = os.path.join(situation.directory, flags.config_dir) if flags.config_dir else ""
        places = [(custom, pattern, custom)] if custom else []
    else:
        places = [(level, pattern, _bounds(situation, level)) for level in levels(situation)]
    for base, name, within in places:
        for path in find_files(base, name):
            yield _File(path=path, within="" if asked.own else within)


def levels(situation: Situation) -> Iterator[str]:
    """The directory and those above it, up to the top of the checkout."""
    directory, top = os.path.normpath(situation.directory), os.path.normpath(situation.worktree)
    while True:
        yield directory
        parent = os.path.dirname(directory)
        if directory in (top, parent):
            return
        directory = parent


def _bounds(situation: Situation, level: str) -> str:
    """Where what a project brings along must lie: in its checkout, or without one in the directory it was found in.

    A project that the person vouches for may lead anywhere.
    """
    if situation.trusted:
        return ""
    return level if os.path.normpath(situation.worktree) == os.sep else situation.worktree


# --- reading ---


def _read(file: _File) -> Instruction:
    if not _is_bounded(file):
        return _unread(file.path, f"it {leads_out()}")
    try:
        raw, _ = read_file(os.path.realpath(file.path), limit=READABLE)
    except OSError as error:
        return _unread(file.path, error.strerror or "it cannot be read")
    return _to_instruction(file.path, raw)


def _is_bounded(file: _File) -> bool:
    return not file.within or is_inside(file.path, file.within)


def _fetch(sources: Sources, asked: Asked, known: Mapping[str, str]) -> Instruction:
    url = asked.pattern
    if url in known:
        return Instruction(source=url, text=known[url])
    if not asked.own:
        # What a project points to can be another text tomorrow than the one that was looked at today.
        return _unread(url, "it is not fetched")
    try:
        remote = Remote(sources.situation.paths.cache, sources.fetch)
        return remote.get(url, lambda body: _to_instruction(url, body))
    except ConfigError as error:
        return _unread(url, f"it {error.reason}" if error.reason.startswith("could") else "it is not fetched")


def _to_instruction(source: str, raw: bytes) -> Instruction:
    text = raw[:LIMIT].decode("utf-8-sig", "replace" if len(raw) <= LIMIT else "ignore").strip()
    if len(raw) > LIMIT:
        text += f"\n[cut here: the first {LIMIT:,} of {len(raw):,} bytes]"
    return Instruction(source=_spelled(source), text=text)


def _unread(source: str, reason: str) -> Instruction:
    return Instruction(source=_spelled(source), text=f"[not read: {reason}]")


def _spelled(source: str) -> str:
    """A name of a file may hold bytes that are no text, and everything here is stored as text."""
    return source.encode("utf-8", "replace").decode()
