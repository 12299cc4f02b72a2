"""Parse JSON with comments and trailing commas. Errors name the position of a key and never quote a value."""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from msgspec import Struct

from weft.config.substitution import Resolve, Substitution, drop_missing
from weft.errors import ConfigError

# The keys from the root down; a list entry has its index.
KeyPath = tuple[str, ...]
# Settings are nested this deeply only by mistake, and whoever reads them calls itself for each level.
MAX_DEPTH = 100
# Finding the key of a placeholder reads the whole text. Nobody needs more of them to find the mistake.
MAX_REPORTED_FAILURES = 100


class ConfigFinding(Struct, frozen=True, kw_only=True):
    """A problem in a file. If it `is_warning`, the setting is in force all the same."""

    path: KeyPath
    reason: str
    near: str = ""
    is_warning: bool = False


CORRECTION_HINT = "correct it at this line and column; weft doctor checks it again"
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TRAILING_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"?|,(?=\s*[}\]])', re.DOTALL)
_TOKEN = r'(?s)"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+|"'
_INVALID_NUMBER = r"-?(?:NaN|Infinity|[0-9]{4300,})"
_NOT_NEWLINE = r"[^\n]"

_REASONS = {
    "Expecting ',' delimiter": "a comma or a closing bracket is missing before this",
    "Expecting property name enclosed in double quotes": "a key in double quotes is expected here",
    "Illegal trailing comma before end of object": "a key in double quotes is expected here",
    "Expecting ':' delimiter": "a colon is missing after the key",
    "Expecting value": "a value is expected here",
    "Unterminated string starting at": "this string has no closing quote",
    "Invalid control character at": "this string contains a line break or a control character",
    "Extra data": "nothing may follow the closing bracket",
    "Invalid \\escape": "this backslash escape is not valid in JSON (write \\\\ for one backslash)",
    "Invalid \\uXXXX escape": "\\u needs four hexadecimal digits",
}


class JsoncDocument:
    """A parsed configuration file: its `value`, its `findings`, and the position of each key.

    Raise `ConfigError` if it is not a JSON object. If a key occurs twice, the later one wins.
    """

    def __init__(self, path: str, text: str, resolve: Resolve | None = None) -> None:
        self.path = path
        self._substitution = Substitution(text.removeprefix("\ufeff"), resolve)
        self._text = self._blank_comments(self._substitution.text)
        self._offsets: dict[KeyPath, int] | None = None
        self.findings: list[ConfigFinding] = [
            ConfigFinding(path=_find_path(self._text, failure.at), reason=failure.reason)
            for failure in self._substitution.failures[:MAX_REPORTED_FAILURES]
        ]
        self.value = self._parse()

    def locate(self, path: KeyPath) -> tuple[int, int]:
        """Return line and column of a key, or of the nearest key above it that is in the text."""
        if self._offsets is None:
            self._offsets = dict(_iterate_keys(self._text))
        for length in range(len(path), 0, -1):
            if path[:length] in self._offsets:
                return self._substitution.locate(self._offsets[path[:length]])
        return (1, 1)

    def _blank_comments(self, text: str) -> str:
        def blank(match: re.Match[str]) -> str:
            comment = match[0]
            if comment.startswith("/*") and not (comment.endswith("*/") and len(comment) >= len("/**/")):
                self._raise_error("this comment is not closed", match.start(), text)
            return re.sub(_NOT_NEWLINE, " ", comment) if comment.startswith("/") else comment

        uncommented = _COMMENT.sub(blank, text)
        return _TRAILING_COMMA.sub(lambda match: " " if match[0] == "," else match[0], uncommented)

    def _parse(self) -> dict[str, Any]:
        if not self._text.strip():
            return {}
        repeated: list[str] = []
        try:
            value = json.loads(
                self._text,
                parse_constant=_refuse_constant,
                object_pairs_hook=lambda pairs: _to_object(pairs, repeated),
            )
        except json.JSONDecodeError as error:
            self._raise_error(_REASONS.get(error.msg.rstrip(": "), "this is not JSON"), error.pos)
        except RecursionError:
            self._raise_error("nested too deeply", 0)
        except ValueError:
            # NaN and Infinity are refused by `_refuse_constant`, huge integers by Python. Neither error has a position.
            invalid = (
                token for token in re.finditer(_TOKEN, self._text) if re.fullmatch(_INVALID_NUMBER, token[0])
            )
            self._raise_error("this is not a number in JSON", next((token.start() for token in invalid), 0))
        if not isinstance(value, dict):
            self._raise_error("expected an object", 0)
        if is_too_deep(value):
            self._raise_error("nested too deeply", 0)
        if repeated:
            self.findings.extend(self._iterate_repeats())
        present = drop_missing(value)
        return present if isinstance(present, dict) else {}

    def _iterate_repeats(self) -> Iterator[ConfigFinding]:
        seen: set[KeyPath] = set()
        repeated: set[KeyPath] = set()
        for path, _offset in _iterate_keys(self._text):
            if path in seen and not any(path[:end] in repeated for end in range(1, len(path) + 1)):
                repeated.add(path)
                yield ConfigFinding(path=path, reason="occurs twice; the later one is used", is_warning=True)
            seen.add(path)

    def _raise_error(self, reason: str, offset: int, text: str = "") -> NoReturn:
        key = ".".join(_find_path(text or self._text, offset))
        at = self._substitution.locate(offset)
        raise ConfigError(self.path, reason, at=at, key=key, hint=CORRECTION_HINT) from None


def is_too_deep(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Return True if objects and lists are nested more than that many levels deep."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return items is not None and (levels == 0 or any(is_too_deep(item, levels - 1) for item in items))


def _to_object(pairs: list[tuple[str, Any]], repeated: list[str]) -> dict[str, Any]:
    joined = dict(pairs)
    if len(joined) != len(pairs):
        repeated.append("")
    return joined


def _refuse_constant(_name: str) -> NoReturn:
    raise ValueError("not a JSON number")


def _iterate_keys(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Yield every key and list entry of a JSON text in order, with its offset."""
    tracker = _KeyTracker()
    for token in re.finditer(_TOKEN, text):
        if tracker.in_list and token[0] not in "]},:":
            yield tracker.get_path(), token.start()
        offset = tracker.read_token(token[0], token.start())
        if offset is not None:
            yield tracker.get_path(), offset


def _find_path(text: str, offset: int) -> KeyPath:
    """Return the key that is being read at `offset`."""
    tracker = _KeyTracker()
    for token in re.compile(_TOKEN).finditer(text, 0, offset):
        if token[0] == '"':
            break
        tracker.read_token(token[0], token.start())
    return tracker.get_path()


class _KeyTracker:
    """Tracks the current key in a JSON text, token by token.

    A string counts as a key only after its colon: in a broken text a string in a key's place may be a value, and a
    secret.
    """

    def __init__(self) -> None:
        # One step per open bracket: the current key or index; None before the first key and after a comma.
        self._steps: list[str | int | None] = []
        self._string = ("", 0)

    def get_path(self) -> KeyPath:
        return tuple(str(step) for step in self._steps if step is not None)

    @property
    def in_list(self) -> bool:
        return bool(self._steps) and isinstance(self._steps[-1], int)

    def read_token(self, token: str, start: int) -> int | None:
        """Read one token. If it was the colon after a key, return the offset of the key."""
        match token:
            case "{":
                self._steps.append(None)
            case "[":
                self._steps.append(0)
            case "}" | "]":
                self._steps[-1:] = []
            case "," if self._steps:
                step = self._steps[-1]
                self._steps[-1] = step + 1 if isinstance(step, int) else None
            case ":" if self._steps and not self.in_list:
                self._steps[-1], offset = self._string
                return offset
            case _:
                # A string, or a literal that no colon follows.
                self._string = (_decode(token), start)
        return None


def _decode(token: str) -> str:
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        return token[1:-1]
