"""Agents, commands and modes written in markdown, and plugins, as found in a configuration directory."""

import os
from collections.abc import Callable, Iterator
from typing import Any

from weft.config.finding import KeyPath
from weft.config.layer import Layer, Origin, Problems, make_layer, read_text
from weft.config.markdown import Markdown
from weft.errors import ConfigError

# OpenCode runs the first two. The third is ours.
PLUGIN_ENDINGS = (".ts", ".js", ".py")

Shape = Callable[[Markdown], dict[str, Any]]


def read_definitions(origin: Origin, problems: Problems) -> Iterator[Layer]:
    """The layers of one directory, a layer per file. `origin` names the directory."""
    yield from _read_all(origin, ("command", "commands"), "command", _to_command, problems)
    yield from _read_all(origin, ("agent", "agents"), "agent", _to_agent, problems)
    yield from _read_all(origin, ("mode", "modes"), "agent", _to_mode, problems)
    yield from _list_plugins(origin)


def _to_command(text: Markdown) -> dict[str, Any]:
    return {**text.front, "template": text.body}


def _to_agent(text: Markdown) -> dict[str, Any]:
    return {**text.front, "prompt": text.body}


def _to_mode(text: Markdown) -> dict[str, Any]:
    return {**text.front, "prompt": text.body, "mode": "primary"}


class _Within:
    """A markdown file's keys as they stand in the configuration: below `agent.<name>`."""

    def __init__(self, text: Markdown) -> None:
        self._text = text

    def at(self, path: KeyPath) -> tuple[int, int]:
        return self._text.at(path[2:])


def _read_all(
    origin: Origin, folders: tuple[str, ...], section: str, shape: Shape, problems: Problems
) -> Iterator[Layer]:
    for folder in folders:
        top = os.path.join(origin.path, folder)
        for path in _list_markdown(top, deep=shape is not _to_mode):
            here = Origin(kind=origin.kind, path=path, own=origin.own)
            try:
                text = Markdown(path, read_text(path) or "")
            except ConfigError as error:
                problems.errors.append(error)
                continue
            # OpenCode looks for `/agent/` anywhere in the path, and a home below such a directory misleads it.
            name = os.path.relpath(path, top).removesuffix(".md").replace(os.sep, "/")
            given = text.front.get("name")
            name = given if isinstance(given, str) and given else name
            yield make_layer(here, {section: {name: shape(text)}}, _Within(text), problems)


def _list_markdown(top: str, *, deep: bool) -> list[str]:
    """Markdown files below `top`, links followed, in the order of their names."""
    found: list[str] = []
    seen: set[str] = set()
    for directory, subdirectories, files in os.walk(top, followlinks=True):
        real = os.path.realpath(directory)
        if real in seen or not deep:
            subdirectories.clear()
        if real not in seen:
            found += [os.path.join(directory, name) for name in files if name.endswith(".md")]
        seen.add(real)
    return sorted(found)


def _list_plugins(origin: Origin) -> Iterator[Layer]:
    for folder in ("plugin", "plugins"):
        top = os.path.join(origin.path, folder)
        try:
            names = sorted(os.listdir(top))
        except OSError:
            continue
        for name in names:
            path = os.path.join(top, name)
            if name.endswith(PLUGIN_ENDINGS) and os.path.isfile(path):
                here = Origin(kind=origin.kind, path=path, own=origin.own)
                yield Layer(origin=here, data={"plugin": [f"file://{path}"]})
