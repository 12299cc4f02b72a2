"""Markdown files with front matter, for agents, commands, modes and skills."""

import math
import re
from typing import Any

import yaml

from weft.config.jsonc import MAX_DEPTH, KeyPath
from weft.errors import ConfigError

# Front matter is written by hand. More nodes than this are a mistake, or aliases and merges that multiply.
MAX_FRONT_MATTER_NODES = 10_000

_FENCE = re.compile(r"---[ \t]*\r?\n(.*?)(?:^|\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_PLAIN_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*):[ \t]+(\S.*)")

# The C loader exists only if PyYAML was built with it. Both behave the same.
_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BaseLoader):  # type: ignore[misc]  # the base class depends on the installation
    """Parses YAML as JavaScript does: `yes`, `on`, `12:30` and dates are strings."""

    def flatten_mapping(self, node: Any) -> None:
        super().flatten_mapping(node)
        if len(node.value) > MAX_FRONT_MATTER_NODES:
            raise _TooLargeError


class _TooLargeError(Exception):
    """The front matter has too many nodes, or is nested too deeply."""


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

    def locate(self, path: KeyPath) -> tuple[int, int]:
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
        text = "".join(f"{line}\n" for line in lines)
        try:
            _check_size(text)
            value = yaml.load(text, Loader=_Loader)
            if value is None:
                return {}
            if not isinstance(value, dict):
                raise ConfigError(path, "the front matter must consist of keys and values", at=(2, 1))
            plain: dict[str, Any] = _JsonConverter().convert(value)
        except _TooLargeError:
            raise ConfigError(path, "the front matter is too large", at=(1, 0)) from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            at = (self._find_original_line(mark.line) + 2, mark.column + 1) if mark else (1, 0)
            # Without the original text and `from error`: both may quote the file.
            raise ConfigError(path, "the front matter is not YAML", at=at) from None
        except (yaml.YAMLError, ValueError, TypeError, OverflowError, LookupError, AttributeError):
            # PyYAML raises the last two for a tag that its value does not fit, such as `!!bool x`.
            raise ConfigError(path, "the front matter is not YAML", at=(1, 0)) from None
        return plain

    def _find_original_line(self, line: int) -> int:
        """Map a line back to the file: quoting a colon turns one line into two."""
        count = 0
        for number, text in enumerate(self._lines):
            count += len(_quote_colon(text))
            if count > line:
                return number
        return len(self._lines)


def _check_size(text: str) -> None:
    """Raise `_TooLargeError` before a text is loaded that has too many nodes or is nested too deeply.

    The loader that is written in C calls itself for each level, and would end the process.
    """
    nodes = depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        nodes += isinstance(event, yaml.NodeEvent)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if nodes > MAX_FRONT_MATTER_NODES or depth > MAX_DEPTH:
            raise _TooLargeError


class _JsonConverter:
    """Converts YAML values to JSON values, up to a limit. Aliases can multiply them, and make a value contain itself."""

    def __init__(self) -> None:
        self._nodes = 0

    def convert(self, value: Any, depth: int = 0) -> Any:
        """Return the JSON value. Raise `_TooLargeError`, or `TypeError` or `OverflowError` for a value that JSON does not have."""
        self._nodes += 1
        if self._nodes > MAX_FRONT_MATTER_NODES or depth > MAX_DEPTH:
            raise _TooLargeError
        if isinstance(value, dict):
            return {_to_key(key): self.convert(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self.convert(item, depth + 1) for item in value]
        if value is not None and not isinstance(value, str | int | float):
            raise TypeError(f"{type(value).__name__} is not a type of JSON")
        if isinstance(value, int | float) and not math.isfinite(value):
            raise TypeError("not a number in JSON")
        return value


def _to_key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _quote_colons(lines: list[str]) -> list[str]:
    return [quoted for line in lines for quoted in _quote_colon(line)]


def _quote_colon(line: str) -> list[str]:
    """Turn a value with a colon into a text block: `description: Use when: asked` is common, but is not valid YAML.

    OpenCode also turns `tools: { write: false }` into text. We leave braces and brackets alone.
    """
    entry = _PLAIN_LINE.fullmatch(line.rstrip(" \t"))
    if entry is None or ":" not in entry[2] or entry[2][0] in "\"'{[>|&*!#":
        return [line]
    return [f"{entry[1]}: |-", f"  {entry[2]}"]
