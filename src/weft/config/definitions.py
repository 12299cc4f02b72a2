"""Read agents, commands and modes from Markdown files, and list plugins, in a configuration directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from weft.config.jsonc import KeyPath
from weft.config.layer import ConfigLayer, ConfigOrigin, ConfigProblems, make_layer, read_text
from weft.errors import ConfigError

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.config.front_matter import Markdown

# OpenCode loads the first two. The third is ours.
PLUGIN_ENDINGS = (".ts", ".js", ".py")
# A link in a project may lead to the whole disk.
MAX_DIRECTORIES = 2000


def read_markdown(path: str, text: str) -> Markdown:
    """Parse a Markdown file. Raise `ConfigError` if its front matter is not YAML."""
    from weft.config.front_matter import Markdown  # noqa: PLC0415  YAML is slow to import, and many have no such file

    return Markdown(path, text)


ToSettings = Callable[["Markdown"], dict[str, Any]]


def read_definitions(origin: ConfigOrigin, problems: ConfigProblems) -> Iterator[ConfigLayer]:
    """Yield the layers of one directory, one for each file. `origin` names the directory."""
    yield from _read_folders(origin, ("command", "commands"), "command", _to_command, problems)
    yield from _read_folders(origin, ("agent", "agents"), "agent", _to_agent, problems)
    yield from _read_folders(origin, ("mode", "modes"), "agent", _to_mode, problems)
    yield from _list_plugins(origin)


def _to_command(text: Markdown) -> dict[str, Any]:
    return {**text.front, "template": text.body}


def _to_agent(text: Markdown) -> dict[str, Any]:
    return {**text.front, "prompt": text.body}


def _to_mode(text: Markdown) -> dict[str, Any]:
    return {**text.front, "prompt": text.body, "mode": "primary"}


class _DefinitionText:
    """Maps configuration keys below `agent.<name>` to keys of a Markdown file."""

    def __init__(self, text: Markdown) -> None:
        self._text = text

    def locate(self, path: KeyPath) -> tuple[int, int]:
        return self._text.locate(path[2:])


def _read_folders(
    origin: ConfigOrigin,
    folders: tuple[str, ...],
    section: str,
    to_settings: ToSettings,
    problems: ConfigProblems,
) -> Iterator[ConfigLayer]:
    for folder in folders:
        root = os.path.join(origin.path, folder)
        for path in _list_markdown(root, problems, recursive=to_settings is not _to_mode):
            file_origin = ConfigOrigin(kind=origin.kind, path=path, own=origin.own)
            try:
                text = read_markdown(path, read_text(path) or "")
            except ConfigError as error:
                problems.errors.append(error)
                continue
            # OpenCode searches for `/agent/` in the whole path, which fails for a home directory below such a directory.
            name = os.path.relpath(path, root).removesuffix(".md").replace(os.sep, "/")
            configured_name = text.front.get("name")
            name = configured_name if isinstance(configured_name, str) and configured_name else name
            yield make_layer(
                file_origin, {section: {name: to_settings(text)}}, _DefinitionText(text), problems
            )


def _list_markdown(root: str, problems: ConfigProblems, *, recursive: bool) -> list[str]:
    """Return the Markdown files below `root`, sorted by path. Links are followed. Report a tree that is too large."""
    paths: list[str] = []
    seen: set[str] = set()
    for directory, subdirectories, files in os.walk(root, followlinks=True):
        if len(seen) >= MAX_DIRECTORIES:
            problems.errors.append(
                ConfigError(root, f"has more than {MAX_DIRECTORIES:,} directories; the others are not read")
            )
            break
        real = os.path.realpath(directory)
        if real in seen or not recursive:
            subdirectories.clear()
        if real not in seen:
            paths += [os.path.join(directory, name) for name in files if name.endswith(".md")]
        seen.add(real)
    return sorted(paths)


def _list_plugins(origin: ConfigOrigin) -> Iterator[ConfigLayer]:
    for folder in ("plugin", "plugins"):
        root = os.path.join(origin.path, folder)
        try:
            names = sorted(os.listdir(root))
        except OSError:
            continue
        for name in names:
            path = os.path.join(root, name)
            if name.endswith(PLUGIN_ENDINGS) and os.path.isfile(path):
                file_origin = ConfigOrigin(kind=origin.kind, path=path, own=origin.own)
                yield ConfigLayer(origin=file_origin, data={"plugin": [f"file://{path}"]})
