"""Read agents, commands and modes from Markdown files, and list plugins, in a configuration directory."""

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from weft.config.jsonc import KeyPath
from weft.config.layer import ConfigLayer, ConfigOrigin, ConfigProblems, make_layer, read_text
from weft.errors import ConfigError

# Front matter is written by hand. More nodes than this are a mistake, or aliases that multiply.
MAX_NODES = 10_000

_FENCE = re.compile(r"---[ \t]*\r?\n(.*?)(?:^|\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_PLAIN_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*):[ \t]+(\S.*?)[ \t]*")

# The C loader exists only if PyYAML was built with it. Both behave the same.
_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BaseLoader):  # type: ignore[misc]  # the base class depends on the installation
    """Parses YAML as JavaScript does: `yes`, `on`, `12:30` and dates are strings."""


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
    """A Markdown file: its `front` matter and the `body` below. Raise `ConfigError` if the front matter is not YAML."""

    def __init__(self, path: str, text: str) -> None:
        fence = _FENCE.match(text)
        self._lines = fence[1].splitlines() if fence else []
        self.body = text[fence.end() if fence else 0 :].strip()
        self.front = self._parse(path, _quote_colons(self._lines))

    def at(self, path: KeyPath) -> tuple[int, int]:
        """Return line and column of a key: of the deepest key in `path` that is found, searching from the top."""
        line, column = 0, 1
        for key in path:
            pattern = re.compile(rf"(\s*)['\"]?{re.escape(key)}['\"]?\s*:")
            for number, text in enumerate(self._lines[line:], start=line):
                found = pattern.match(text)
                if found:
                    line, column = number, len(found[1]) + 1
                    break
        # The fence is line 1.
        return line + 2, column

    def _parse(self, path: str, lines: list[str]) -> dict[str, Any]:
        try:
            value = yaml.load("".join(f"{line}\n" for line in lines), Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            at = (self._original_line(mark.line) + 2, mark.column + 1) if mark else (1, 0)
            # Without the original text and `from error`: both may quote the file.
            raise ConfigError(path, "the front matter is not YAML", at=at) from None
        except (yaml.YAMLError, ValueError, RecursionError, TypeError):
            raise ConfigError(path, "the front matter is not YAML", at=(1, 0)) from None
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ConfigError(path, "the front matter must consist of keys and values", at=(2, 1))
        plain: dict[str, Any] = _JsonConverter(path).convert(value)
        return plain

    def _original_line(self, line: int) -> int:
        """Map a line back to the file: quoting a colon turns one line into two."""
        made = 0
        for number, text in enumerate(self._lines):
            made += len(_quote_colon(text))
            if made > line:
                return number
        return len(self._lines)


class _JsonConverter:
    """Converts YAML values to JSON values, up to a limit."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._nodes = 0

    def convert(self, value: Any) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise ConfigError(self._path, "the front matter is too large", at=(1, 0))
        if isinstance(value, dict):
            return {_to_key(key): self.convert(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.convert(item) for item in value]
        return value


def _to_key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _quote_colons(lines: list[str]) -> list[str]:
    return [made for line in lines for made in _quote_colon(line)]


def _quote_colon(line: str) -> list[str]:
    """Turn a value with a colon into a text block: `description: Use when: asked` is common, but is not valid YAML.

    OpenCode also turns `tools: { write: false }` into text. We leave braces and brackets alone.
    """
    found = _PLAIN_LINE.fullmatch(line)
    if found is None or ":" not in found[2] or found[2][0] in "\"'{[>|&*!#":
        return [line]
    return [f"{found[1]}: |-", f"  {found[2]}"]


# OpenCode loads the first two. The third is ours.
PLUGIN_ENDINGS = (".ts", ".js", ".py")

ToConfig = Callable[[Markdown], dict[str, Any]]


def read_definitions(origin: ConfigOrigin, problems: ConfigProblems) -> Iterator[ConfigLayer]:
    """Yield the layers of one directory, one for each file. `origin` names the directory."""
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


class _DefinitionText:
    """Maps configuration keys below `agent.<name>` to keys of a Markdown file."""

    def __init__(self, text: Markdown) -> None:
        self._text = text

    def at(self, path: KeyPath) -> tuple[int, int]:
        return self._text.at(path[2:])


def _read_all(
    origin: ConfigOrigin, folders: tuple[str, ...], section: str, shape: ToConfig, problems: ConfigProblems
) -> Iterator[ConfigLayer]:
    for folder in folders:
        root = os.path.join(origin.path, folder)
        for path in _list_markdown(root, deep=shape is not _to_mode):
            here = ConfigOrigin(kind=origin.kind, path=path, own=origin.own)
            try:
                text = Markdown(path, read_text(path) or "")
            except ConfigError as error:
                problems.errors.append(error)
                continue
            # OpenCode searches for `/agent/` in the whole path, which fails for a home directory below such a directory.
            name = os.path.relpath(path, root).removesuffix(".md").replace(os.sep, "/")
            given = text.front.get("name")
            name = given if isinstance(given, str) and given else name
            yield make_layer(here, {section: {name: shape(text)}}, _DefinitionText(text), problems)


def _list_markdown(root: str, *, deep: bool) -> list[str]:
    """Return the Markdown files below `root`, sorted by path. Links are followed."""
    found: list[str] = []
    seen: set[str] = set()
    for directory, subdirectories, files in os.walk(root, followlinks=True):
        real = os.path.realpath(directory)
        if real in seen or not deep:
            subdirectories.clear()
        if real not in seen:
            found += [os.path.join(directory, name) for name in files if name.endswith(".md")]
        seen.add(real)
    return sorted(found)


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
                here = ConfigOrigin(kind=origin.kind, path=path, own=origin.own)
                yield ConfigLayer(origin=here, data={"plugin": [f"file://{path}"]})
