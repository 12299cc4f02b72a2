"""The fingerprint of a project: every file that can have an effect, with the hash of its content."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from weft.config.commands import list_insertions, parse_template
from weft.config.flags import read_flags
from weft.config.instructions import list_held_instructions, to_sources
from weft.config.layer import ConfigLayer
from weft.config.load import LoadedConfig, load_config
from weft.config.sources import ConfigDirectory, ConfigFile, ConfigScope, list_sources, walk_up
from weft.config.trust import is_inside
from weft.errors import DirectoryError

MAX_FILES = 5000
MAX_BYTES = 256 << 20
CHUNK_BYTES = 1 << 20

# weft, OpenCode and Python write these themselves, the plans at the top of `.opencode`.
IGNORED_DIRECTORIES = frozenset({"node_modules", "__pycache__", ".git"})
PLANS_DIRECTORY = "plans"
IGNORED_FILES = frozenset({".gitignore", "package.json", "package-lock.json", "bun.lock", "bun.lockb"})


def find_root(scope: ConfigScope) -> str:
    """Return the real path of the project that is trusted: the checkout or, without one, the directory."""
    has_checkout = os.path.normpath(scope.worktree) != os.sep
    return os.path.realpath(scope.worktree if has_checkout else scope.directory)


def take_fingerprint(scope: ConfigScope) -> dict[str, str]:
    """Return the hash of each file that can have an effect, by its path from the root.

    Instructions that are not read without trust are in it too, by the path and the name under which they are held back, with a real
    path instead of a hash: of the file that a link leads to, or of the file that names an address.
    Raise `DirectoryError` if there are too many files or directories, or too many bytes in them.
    """
    root = find_root(scope)
    # Loading has no effect, and here we must see what would be held back.
    loaded = load_config(replace(scope, trusted=True))
    fingerprint: dict[str, str] = {}
    size = 0
    for path in dict.fromkeys((*_list_files(scope, root), *_list_named(loaded, scope, root))):
        hashed = _hash_file(path)
        if hashed is None:
            continue
        digest, length = hashed
        size += length
        if len(fingerprint) >= MAX_FILES or size > MAX_BYTES:
            raise _make_size_error(root)
        fingerprint[_format_path(path, root)] = digest
    untrusted = replace(scope, trusted=False)
    for held in list_held_instructions(to_sources(loaded, untrusted)):
        fingerprint[f"{_format_path(held.path, root)} -> {held.name}"] = os.path.realpath(held.path)
    return fingerprint


def _make_size_error(root: str) -> DirectoryError:
    return DirectoryError(
        root,
        f"weft can check at most {MAX_FILES:,} files of together {MAX_BYTES >> 20} MB for trust, and here more could act",
        hint="make .opencode and .claude/skills smaller, or trust the project whatever it contains: "
        "name its path under experimental.weft.trusted in your own opencode.json",
    )


def _format_path(path: str, root: str) -> str:
    """Return a path relative to the root, which may be reached by several paths; unchanged if it is elsewhere."""
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    shown = os.path.relpath(real, root) if real.startswith(root.rstrip(os.sep) + os.sep) else path
    return os.fsencode(shown).decode("utf-8", "backslashreplace")


def _list_files(scope: ConfigScope, root: str) -> Iterator[str]:
    for source in list_sources(scope, read_flags(scope.env)):
        if source.origin.own:
            continue
        match source:
            case ConfigFile(origin):
                yield origin.path
            case ConfigDirectory(origin):
                yield from _walk(origin.path, root, ignored=os.path.join(origin.path, PLANS_DIRECTORY))
            case _:
                pass
    home = os.path.normpath(scope.paths.home)
    for level in walk_up(scope):
        if level != home:
            yield from _walk(os.path.join(level, ".claude", "skills"), root)


def _walk(top: str, root: str, *, ignored: str = "") -> Iterator[str]:
    """Yield the files below a directory. Raise `DirectoryError` if there are too many directories."""
    visited: set[str] = set()
    for directory, subdirectories, files in os.walk(top, followlinks=True):
        real = os.path.realpath(directory)
        if real in visited or directory == ignored:
            subdirectories.clear()
            continue
        if len(visited) >= MAX_FILES:
            raise _make_size_error(root)
        visited.add(real)
        subdirectories[:] = sorted(name for name in subdirectories if name not in IGNORED_DIRECTORIES)
        yield from (os.path.join(directory, name) for name in sorted(files) if name not in IGNORED_FILES)


def _list_named(loaded: LoadedConfig, scope: ConfigScope, root: str) -> Iterator[str]:
    """Yield the files with the project's own settings, and those that these settings and commands run."""
    for layer in loaded.layers:
        if layer.origin.own:
            continue
        yield layer.origin.path
        bases = dict.fromkeys((scope.directory, root, os.path.dirname(layer.origin.path)))
        for word in _list_words(layer):
            paths = (os.path.normpath(os.path.join(base, word.removeprefix("file://"))) for base in bases)
            yield from (path for path in paths if "\0" not in path and is_inside(path, root))


def _list_words(layer: ConfigLayer) -> Iterator[str]:
    data = layer.data
    yield from data.get("plugin", ())
    for section in ("mcp", "formatter", "lsp"):
        yield from _list_command_words(data.get(section))
    for hooks in data.get("experimental", {}).get("weft", {}).get("hooks", {}).values():
        yield from (word for hook in hooks for word in hook.get("command") or ())
    for command in data.get("command", {}).values():
        for inserted in list_insertions(parse_template(str(command.get("template", "")))):
            yield from (word.strip("'\"") for word in inserted.split())


def _list_command_words(entries: Any) -> Iterable[str]:
    if not isinstance(entries, dict):
        return ()
    return [word for entry in entries.values() for word in entry.get("command") or ()]


def _hash_file(path: str) -> tuple[str, int] | None:
    """Return the hash and the length of a file, None if it is not a regular file."""
    try:
        # Non-blocking: opening a pipe without a writer would wait for ever.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError:
        return "unreadable", 0
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        digest, length = hashlib.sha256(), 0
        while length <= MAX_BYTES and (piece := file.read(CHUNK_BYTES)):
            digest.update(piece)
            length += len(piece)
    return digest.hexdigest(), length
