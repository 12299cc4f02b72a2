"""Agents, commands and modes written in Markdown, and plugins, in a configuration directory."""

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from weft.config.jsonc import KeyPath
from weft.config.layer import Layer, Origin, Problems, make_layer, read_text
from weft.errors import ConfigError

# Front matter is written by hand. More than this is a mistake, or aliases that multiply.
MOST_NODES = 10_000

_FENCE = re.compile(r"---[ \t]*\r?\n(.*?)(?:^|\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_PLAIN_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*):[ \t]+(\S.*?)[ \t]*")

# Either is there or not when PyYAML was built; they read alike.
_Fastest: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Fastest):  # type: ignore[misc]  # which class it is, only the machine knows
    """YAML as JavaScript reads it: `yes`, `on`, `12:30` and dates are words, as everyone expects."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", "-+0123456789."),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), list(_first))


class Markdown:
    """`front` is what the front matter says, `body` the words below it. Raises `ConfigError` if it is not YAML."""

    def __init__(self, path: str, text: str) -> None:
        fence = _FENCE.match(text)
        self._lines = fence[1].splitlines() if fence else []
        self.body = text[fence.end() if fence else 0 :].strip()
        self.front = self._parse(path, _quote_colons(self._lines))

    def at(self, path: KeyPath) -> tuple[int, int]:
        """Line and column of a key: the deepest of `path` that is found, searched for from the top down."""
        line, column = 0, 1
        for key in path:
            pattern = re.compile(rf"(\s*)['\"]?{re.escape(key)}['\"]?\s*:")
            for number, text in enumerate(self._lines[line:], start=line):
                found = pattern.match(text)
                if found:
                    line, column = number, len(found[1]) + 1
                    break
        # The fence is the first line.
        return line + 2, column

    def _parse(self, path: str, lines: list[str]) -> dict[str, Any]:
        try:
            value = yaml.load("".join(f"{line}\n" for line in lines), Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            at = (self._original_line(mark.line) + 2, mark.column + 1) if mark else (1, 0)
            # Neither its text nor `from error`: they may quote the file.
            raise ConfigError(path, "the front matter is not YAML", at=at) from None
        except (yaml.YAMLError, ValueError, RecursionError, TypeError):
            raise ConfigError(path, "the front matter is not YAML", at=(1, 0)) from None
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ConfigError(path, "the front matter must be keys and values", at=(2, 1))
        plain: dict[str, Any] = _Plain(path).convert(value)
        return plain

    def _original_line(self, line: int) -> int:
        """Quoting a colon makes two lines of one; count back."""
        made = 0
        for number, text in enumerate(self._lines):
            made += len(_quote_colon(text))
            if made > line:
                return number
        return len(self._lines)


class _Plain:
    """YAML's values as JSON would have them, up to a limit."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._nodes = 0

    def convert(self, value: Any) -> Any:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise ConfigError(self._path, "the front matter is too large", at=(1, 0))
        if isinstance(value, dict):
            return {_key(key): self.convert(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.convert(item) for item in value]
        return value


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _quote_colons(lines: list[str]) -> list[str]:
    return [made for line in lines for made in _quote_colon(line)]


def _quote_colon(line: str) -> list[str]:
    """`description: Use when: asked` is what people write, and is not YAML. As a block of text it is.

    OpenCode also turns `tools: { write: false }` into text. We leave braces and brackets alone.
    """
    found = _PLAIN_LINE.fullmatch(line)
    if found is None or ":" not in found[2] or found[2][0] in "\"'{[>|&*!#":
        return [line]
    return [f"{found[1]}: |-", f"  {found[2]}"]


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
