"""Instructions for agents: find their files and URLs, and read them."""

import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from itertools import islice

from msgspec import Struct

from weft.config.flags import Flags, read_flags
from weft.config.load import LoadedConfig
from weft.config.remote import Fetch, RemoteDocuments, is_address
from weft.config.sources import ConfigScope, walk_up
from weft.config.trust import LEADS_OUT, is_inside
from weft.errors import ConfigError
from weft.host.files import read_file
from weft.model.agent import Instruction
from weft.model.trust import HeldItem

MAX_SCANNED_ENTRIES = 20_000
MAX_MATCHES = 100
MAX_ALTERNATIVES = 64
# Longer patterns match nothing. Reading one takes a call for each of its parts, and the project may be foreign.
MAX_PATTERN_LENGTH = 4096
MAX_PARTS = 100
_WILDCARD = r"[*?\[]"
_BRACES = r"\{([^{}]*)\}"
# These hold no instructions, and many files.
_SKIPPED_DIRECTORIES = frozenset({".git", "node_modules"})


def find_files(base: str, pattern: str) -> list[str]:
    """Return the files below a directory that match a pattern, sorted."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        return []
    search = _FileSearch()
    matches: set[str] = set()
    for choice in islice(_expand_braces(pattern), MAX_ALTERNATIVES):
        parts = [part for part in choice.split("/") if part not in ("", ".")]
        if len(parts) <= MAX_PARTS:
            matches.update(islice(search.walk(base, parts), MAX_MATCHES))
    return sorted(matches)[:MAX_MATCHES]


def _expand_braces(pattern: str) -> Iterator[str]:
    """Yield every alternative of the braces in a pattern."""
    pending = [pattern]
    while pending:
        text = pending.pop()
        braces = re.search(_BRACES, text)
        if braces is None:
            yield text
        else:
            before, after = text[: braces.start()], text[braces.end() :]
            pending += (before + alternative + after for alternative in reversed(braces[1].split(",")))


class _FileSearch:
    """Matches a pattern, part by part, and stops after `MAX_SCANNED_ENTRIES` directory entries."""

    def __init__(self) -> None:
        self._left = MAX_SCANNED_ENTRIES

    def walk(self, directory: str, parts: list[str]) -> Iterator[str]:
        if not parts:
            return
        part, rest = parts[0], parts[1:]
        if part == "**":
            yield from self.walk(directory, rest or ["*"])
            for entry in self._list_entries(directory):
                if entry.name not in _SKIPPED_DIRECTORIES and entry.is_dir(follow_symlinks=False):
                    yield from self.walk(entry.path, parts)
        elif not re.search(_WILDCARD, part):
            yield from self._match_rest(os.path.normpath(os.path.join(directory, part)), rest)
        else:
            for entry in self._list_entries(directory):
                if fnmatchcase(entry.name, part) and not (rest and entry.is_symlink()):
                    yield from self._match_rest(entry.path, rest)

    def _match_rest(self, path: str, rest: list[str]) -> Iterator[str]:
        if rest:
            yield from self.walk(path, rest)
        elif os.path.isfile(path):
            yield path

    def _list_entries(self, directory: str) -> list[os.DirEntry[str]]:
        if self._left <= 0:
            return []
        try:
            with os.scandir(directory) as entries:
                listed = list(islice(entries, self._left))
        except OSError:
            return []
        self._left -= len(listed) + 1
        return sorted(listed, key=lambda entry: entry.name)


INSTRUCTION_NAMES = ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")
# About 16,000 tokens. Every request carries the instructions, so longer ones are cut.
MAX_INSTRUCTION_BYTES = 64 * 1024
MAX_READ_BYTES = 4 << 20
MAX_FILES = 100
MAX_ADDRESSES = 20


class InstructionEntry(Struct, frozen=True, kw_only=True):
    """An entry of `instructions`: a pattern or a URL, whether it is trusted, and the file that holds it."""

    pattern: str
    own: bool
    path: str = ""


class InstructionSources(Struct, frozen=True, kw_only=True):
    """Where to look for instructions. Without `fetch`, only copies of earlier fetches are read."""

    scope: ConfigScope
    entries: tuple[InstructionEntry, ...] = ()
    fetch: Fetch | None = None


class _InstructionFile(Struct, frozen=True, kw_only=True):
    """A file to read. `boundary` is the directory that must contain it, "" for anywhere."""

    path: str
    boundary: str = ""


def to_sources(loaded: LoadedConfig, scope: ConfigScope, fetch: Fetch | None = None) -> InstructionSources:
    """Return the sources for a loaded configuration."""
    numbered = enumerate(loaded.config.instructions or ())
    origins = ((pattern, loaded.origins.get(("instructions", str(number)))) for number, pattern in numbered)
    entries = tuple(
        InstructionEntry(
            pattern=pattern,
            own=scope.trusted or (origin is not None and origin.own),
            path=origin.path if origin is not None else "",
        )
        for pattern, origin in origins
    )
    return InstructionSources(scope=scope, entries=entries, fetch=fetch)


def read_instructions(
    sources: InstructionSources, fetched: Mapping[str, str] | None = None
) -> tuple[Instruction, ...]:
    """Return the instructions: the project's files, the user's own, configured files, and fetched URLs.

    A URL in `fetched` is not fetched again: it maps URLs to texts. OpenCode fetches each URL for every step.
    """
    files: dict[str, _InstructionFile] = {}
    for file in _list_files(sources):
        files.setdefault(file.path, file)
    instructions = [_read_instruction(file) for file in list(files.values())[:MAX_FILES]]
    addresses = [entry for entry in sources.entries if is_address(entry.pattern)][:MAX_ADDRESSES]
    if addresses:  # fetch in parallel
        with ThreadPoolExecutor(len(addresses)) as pool:
            instructions += pool.map(
                lambda entry: _fetch_instruction(sources, entry, fetched or {}), addresses
            )
    return tuple(instruction for instruction in instructions if instruction.text)


def list_held_instructions(sources: InstructionSources) -> list[HeldItem]:
    """Return the instructions of an untrusted project that are not read."""
    files = dict.fromkeys(file.path for file in _list_files(sources) if not _is_allowed(file))
    entries = [entry for entry in sources.entries if is_address(entry.pattern) and not entry.own]
    return [
        *(HeldItem(kind="instructions", name=_to_text(path), path=path, does=LEADS_OUT) for path in files),
        *(
            HeldItem(kind="instructions", name=entry.pattern, path=entry.path, does="is fetched")
            for entry in entries
        ),
    ]


def _list_files(sources: InstructionSources) -> Iterator[_InstructionFile]:
    scope, flags = sources.scope, read_flags(sources.scope.env)
    if not flags.disable_project_config:
        yield from _list_project_files(scope)
    yield from _list_own_files(scope, flags)
    for entry in sources.entries:
        if not is_address(entry.pattern):
            yield from _list_entry_files(entry, scope, flags)


def _list_project_files(scope: ConfigScope) -> Iterator[_InstructionFile]:
    """Yield every file that has the first of the names that exists, the nearest file first."""
    for name in INSTRUCTION_NAMES:
        paths = [os.path.join(level, name) for level in walk_up(scope)]
        existing = [path for path in paths if os.path.exists(path)]
        if existing:
            yield from (
                _InstructionFile(path=path, boundary=_get_boundary(scope, os.path.dirname(path)))
                for path in existing
            )
            return


def _list_own_files(scope: ConfigScope, flags: Flags) -> Iterator[_InstructionFile]:
    """Yield the first of the user's own instruction files that exists."""
    paths = [os.path.join(scope.paths.config, "AGENTS.md")]
    if not flags.disable_claude_code_prompt:
        paths.append(os.path.join(scope.paths.os_home, ".claude", "CLAUDE.md"))
    if flags.config_dir:
        paths.append(os.path.join(scope.directory, flags.config_dir, "AGENTS.md"))
    existing = (os.path.normpath(path) for path in paths if os.path.exists(path))
    yield from (_InstructionFile(path=path) for path in [next(existing, "")] if path)


def _list_entry_files(
    entry: InstructionEntry, scope: ConfigScope, flags: Flags
) -> Iterator[_InstructionFile]:
    pattern = entry.pattern
    if pattern.startswith("~/"):
        pattern = os.path.join(scope.paths.os_home, pattern[2:])
    if os.path.isabs(pattern):
        base, name = os.path.split(pattern)
        locations = [(base, name, _get_boundary(scope, scope.directory))]
    elif flags.disable_project_config:
        config_dir = os.path.join(scope.directory, flags.config_dir) if flags.config_dir else ""
        locations = [(config_dir, pattern, config_dir)] if config_dir else []
    else:
        locations = [(level, pattern, _get_boundary(scope, level)) for level in walk_up(scope)]
    for base, name, boundary in locations:
        for path in find_files(base, name):
            yield _InstructionFile(path=path, boundary="" if entry.own else boundary)


def _get_boundary(scope: ConfigScope, level: str) -> str:
    """Return the directory that must contain a project's files: its checkout or, without one, the directory of the
    file.

    A trusted project may refer to any file: return "".
    """
    if scope.trusted:
        return ""
    return level if os.path.normpath(scope.worktree) == os.sep else scope.worktree


# --- reading ---


def _read_instruction(file: _InstructionFile) -> Instruction:
    if not _is_allowed(file):
        return _to_unread(file.path, f"it {LEADS_OUT}")
    try:
        raw, _ = read_file(os.path.realpath(file.path), limit=MAX_READ_BYTES)
    except OSError as error:
        return _to_unread(file.path, error.strerror or "it cannot be read")
    return _to_instruction(file.path, raw)


def _is_allowed(file: _InstructionFile) -> bool:
    return not file.boundary or is_inside(file.path, file.boundary)


def _fetch_instruction(
    sources: InstructionSources, entry: InstructionEntry, fetched: Mapping[str, str]
) -> Instruction:
    url = entry.pattern
    if url in fetched:
        return Instruction(source=url, text=fetched[url])
    if not entry.own:
        # The content at a project's URL may change after the user has reviewed it.
        return _to_unread(url, "it is not fetched")
    try:
        remote = RemoteDocuments(sources.scope.paths.cache, sources.fetch)
        return remote.get(url, lambda body: _to_instruction(url, body))
    except ConfigError as error:
        return _to_unread(
            url, f"it {error.reason}" if error.reason.startswith("could") else "it is not fetched"
        )


def _to_instruction(source: str, raw: bytes) -> Instruction:
    text = (
        raw[:MAX_INSTRUCTION_BYTES]
        .decode("utf-8-sig", "replace" if len(raw) <= MAX_INSTRUCTION_BYTES else "ignore")
        .strip()
    )
    if len(raw) > MAX_INSTRUCTION_BYTES:
        text += f"\n[cut here: the first {MAX_INSTRUCTION_BYTES:,} of {len(raw):,} bytes]"
    return Instruction(source=_to_text(source), text=text)


def _to_unread(source: str, reason: str) -> Instruction:
    return Instruction(source=_to_text(source), text=f"[not read: {reason}]")


def _to_text(source: str) -> str:
    """Replace undecodable bytes in a file name, because it is stored as text."""
    return source.encode("utf-8", "replace").decode()
