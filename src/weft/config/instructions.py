"""Instructions for agents: which files and addresses they lie in, and what these say.

A repository may be hostile. What it brings along is read within its own bounds only: a link that leads out of it, or an
entry in its configuration that points elsewhere, could send a person's files to a model. What is not read is named,
with the reason, where its words would stand.
"""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

from weft.config.flags import Flags, read_flags
from weft.config.load import Loaded
from weft.config.patterns import find_files
from weft.config.remote import Fetch, Remote, is_address
from weft.config.sources import Situation
from weft.config.trust.bounds import is_inside
from weft.config.trust.held import Held, leads_out
from weft.errors import ConfigError
from weft.host.files import read_file
from weft.model.agent import Instruction

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
