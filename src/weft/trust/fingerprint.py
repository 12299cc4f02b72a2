"""The fingerprint of a project: every file that could act, with the hash of its content."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from weft.config.commands import list_insertions, parse
from weft.config.flags import read_flags
from weft.config.instructions import levels, list_held, to_sources
from weft.config.layer import Layer
from weft.config.load import Loaded, load_config
from weft.config.sources import Directory, File, Situation, list_sources
from weft.config.trust import is_inside
from weft.errors import DirectoryError

MOST_FILES = 5000
MOST_BYTES = 256 << 20
PIECE = 1 << 20

# What weft, OpenCode and Python write there themselves.
PASSED_OVER = frozenset({"node_modules", "plans", "__pycache__", ".git"})
WRITTEN_HERE = frozenset({".gitignore", "package.json", "package-lock.json", "bun.lock", "bun.lockb"})


def find_root(situation: Situation) -> str:
    """The project that is vouched for: the checkout, or without one the directory; its real path."""
    has_checkout = os.path.normpath(situation.worktree) != os.sep
    return os.path.realpath(situation.worktree if has_checkout else situation.directory)


def seal(situation: Situation) -> dict[str, str]:
    """Each file that matters, by its path from the root, with the hash of its content."""
    root = find_root(situation)
    # Loading looks things up, and lets nothing out; what is held back must be in sight here.
    loaded = load_config(replace(situation, trusted=True))
    sealed: dict[str, str] = {}
    size = 0
    for path in dict.fromkeys((*_list_files(situation), *_list_named(loaded, situation, root))):
        found = _hash(path)
        if found is None:
            continue
        digest, length = found
        size += length
        if len(sealed) >= MOST_FILES or size > MOST_BYTES:
            raise DirectoryError(root, "it brings along more than can be looked at for trust")
        sealed[_named(path, root)] = digest
    untrusted = replace(situation, trusted=False)
    for held in list_held(to_sources(loaded, untrusted)):
        sealed[f"{_named(held.path, root)} -> {held.name}"] = os.path.realpath(held.path)
    return sealed


def _named(path: str, root: str) -> str:
    """From the root, as the checkout may be reached by several ways; as it is, where it lies elsewhere."""
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    shown = os.path.relpath(real, root) if real.startswith(root.rstrip(os.sep) + os.sep) else path
    return os.fsencode(shown).decode("utf-8", "backslashreplace")


def _list_files(situation: Situation) -> Iterator[str]:
    for source in list_sources(situation, read_flags(situation.env)):
        if source.origin.own:
            continue
        match source:
            case File(origin):
                yield origin.path
            case Directory(origin):
                yield from _walk(origin.path)
            case _:
                pass
    home = os.path.normpath(situation.paths.home)
    for level in levels(situation):
        if level != home:
            yield from _walk(os.path.join(level, ".claude", "skills"))


def _walk(top: str) -> Iterator[str]:
    seen: set[str] = set()
    for directory, below, files in os.walk(top, followlinks=True):
        real = os.path.realpath(directory)
        if real in seen or len(seen) >= MOST_FILES:
            below.clear()
            continue
        seen.add(real)
        below[:] = sorted(name for name in below if name not in PASSED_OVER)
        yield from (os.path.join(directory, name) for name in sorted(files) if name not in WRITTEN_HERE)


def _list_named(loaded: Loaded, situation: Situation, root: str) -> Iterator[str]:
    """The files of the project that its own settings and commands name as something to run."""
    for layer in loaded.layers:
        if layer.origin.own:
            continue
        bases = dict.fromkeys((situation.directory, root, os.path.dirname(layer.origin.path)))
        for word in _list_words(layer):
            paths = (os.path.normpath(os.path.join(base, word.removeprefix("file://"))) for base in bases)
            yield from (path for path in paths if "\0" not in path and is_inside(path, root))


def _list_words(layer: Layer) -> Iterator[str]:
    data = layer.data
    yield from data.get("plugin", ())
    for section in ("mcp", "formatter", "lsp"):
        yield from _command_words(data.get(section))
    for hooks in data.get("experimental", {}).get("weft", {}).get("hooks", {}).values():
        yield from (word for hook in hooks for word in hook.get("command") or ())
    for command in data.get("command", {}).values():
        for inserted in list_insertions(parse(str(command.get("template", "")))):
            yield from (word.strip("'\"") for word in inserted.split())


def _command_words(entries: Any) -> Iterable[str]:
    if not isinstance(entries, dict):
        return ()
    return [word for entry in entries.values() for word in entry.get("command") or ()]


def _hash(path: str) -> tuple[str, int] | None:
    """The hash and the length of a file; None for what is none."""
    try:
        # Not blocking: opening a pipe that nobody writes to would wait for ever.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError:
        return "unreadable", 0
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        digest, length = hashlib.sha256(), 0
        while length <= MOST_BYTES and (piece := file.read(PIECE)):
            digest.update(piece)
            length += len(piece)
    return digest.hexdigest(), length
