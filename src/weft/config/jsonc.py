"""Parse JSON with comments and trailing commas, with the place of every key and without quoting values in errors."""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from msgspec import Struct

from weft.config.substitute import Resolve, Substitution, without_missing
from weft.errors import ConfigError

# The keys from the root down; an entry of a list by its number.
KeyPath = tuple[str, ...]


class Finding(Struct, frozen=True, kw_only=True):
    """Something in a file that was not taken as it stands. A `mild` one costs nothing that we know of."""

    path: KeyPath
    reason: str
    near: str = ""
    mild: bool = False


_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TRAILING_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"?|,(?=\s*[}\]])', re.DOTALL)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+|"', re.DOTALL)
_ODD_NUMBER = re.compile(r"-?(?:NaN|Infinity|[0-9]{4300,})")
_NOT_NEWLINE = re.compile(r"[^\n]")

_REASONS = {
    "Expecting ',' delimiter": "a comma or a closing bracket is missing before this",
    "Expecting property name enclosed in double quotes": "a key in double quotes is expected here",
    "Illegal trailing comma before end of object": "a key in double quotes is expected here",
    "Expecting ':' delimiter": "a colon is missing after the key",
    "Expecting value": "a value is expected here",
    "Unterminated string starting at": "this string has no closing quote",
    "Invalid control character at": "a string goes over the end of its line, or holds a control character",
    "Extra data": "nothing may follow the closing bracket",
    "Invalid \\escape": "a backslash that means nothing in JSON (write two for one)",
    "Invalid \\uXXXX escape": "\\u needs four hexadecimal digits",
}


class Document:
    """A configuration file's content: `value`, what was wrong with it, and where each key stands.

    Raises `ConfigError` if it is no JSON object. Of two keys with one name the later one holds.
    """

    def __init__(self, path: str, text: str, resolve: Resolve | None = None) -> None:
        self.path = path
        self._filled = Substitution(text.removeprefix("\ufeff"), resolve)
        self._text = self._without_comments(self._filled.text)
        self._offsets: dict[KeyPath, int] | None = None
        self.findings: list[Finding] = [
            Finding(path=_path_before(self._text, failure.at), reason=failure.reason)
            for failure in self._filled.failures
        ]
        self.value = self._parse()

    def at(self, path: KeyPath) -> tuple[int, int]:
        """Line and column of a key, or of the nearest one above it that is in the text."""
        if self._offsets is None:
            self._offsets = dict(_keys(self._text))
        for length in range(len(path), 0, -1):
            if path[:length] in self._offsets:
                return self._filled.place(self._offsets[path[:length]])
        return (1, 1)

    def _without_comments(self, text: str) -> str:
        def blank(found: re.Match[str]) -> str:
            piece = found[0]
            if piece.startswith("/*") and not (piece.endswith("*/") and len(piece) >= len("/**/")):
                self._refuse("this comment is not closed", found.start(), text)
            return _NOT_NEWLINE.sub(" ", piece) if piece.startswith("/") else piece

        bare = _COMMENT.sub(blank, text)
        return _TRAILING_COMMA.sub(lambda found: " " if found[0] == "," else found[0], bare)

    def _parse(self) -> dict[str, Any]:
        if not self._text.strip():
            return {}
        repeated: list[str] = []
        try:
            value = json.loads(
                self._text,
                parse_constant=_refuse_constant,
                object_pairs_hook=lambda pairs: _join(pairs, repeated),
            )
        except json.JSONDecodeError as error:
            self._refuse(_REASONS.get(error.msg.rstrip(": "), "this is not JSON"), error.pos)
        except RecursionError:
            self._refuse("nested too deeply", 0)
        except ValueError:
            # NaN and Infinity are refused below, integers of thousands of digits by Python; neither says where.
            odd = (token for token in _TOKEN.finditer(self._text) if _ODD_NUMBER.fullmatch(token[0]))
            self._refuse("a number that JSON does not have", next((token.start() for token in odd), 0))
        if not isinstance(value, dict):
            self._refuse("expected an object", 0)
        if repeated:
            self.findings.extend(self._repeats())
        kept = without_missing(value)
        return kept if isinstance(kept, dict) else {}

    def _repeats(self) -> Iterator[Finding]:
        seen: set[KeyPath] = set()
        repeated: set[KeyPath] = set()
        for path, _offset in _keys(self._text):
            if path in seen and not any(path[:end] in repeated for end in range(1, len(path) + 1)):
                repeated.add(path)
                yield Finding(path=path, reason="given twice; the later one holds", mild=True)
            seen.add(path)

    def _refuse(self, reason: str, offset: int, text: str = "") -> NoReturn:
        key = ".".join(_path_before(text or self._text, offset))
        raise ConfigError(self.path, reason, at=self._filled.place(offset), key=key) from None


def _join(pairs: list[tuple[str, Any]], repeated: list[str]) -> dict[str, Any]:
    joined = dict(pairs)
    if len(joined) != len(pairs):
        repeated.append("")
    return joined


def _refuse_constant(_name: str) -> NoReturn:
    raise ValueError("not a JSON number")


def _keys(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Every key and list entry of a JSON text, in order, with the offset it begins at."""
    reading = _Reading()
    for token in _TOKEN.finditer(text):
        if reading.in_list and token[0] not in "]},:":
            yield reading.path(), token.start()
        offset = reading.take(token[0], token.start())
        if offset is not None:
            yield reading.path(), offset


def _path_before(text: str, offset: int) -> KeyPath:
    """The key that was being read when `offset` was reached."""
    reading = _Reading()
    for token in _TOKEN.finditer(text, 0, offset):
        if token[0] == '"':
            break
        reading.take(token[0], token.start())
    return reading.path()


class _Reading:
    """Where one is in a JSON text, token by token.

    A string counts as a key only once its colon is there: in a broken text a string in a key's place may be a value,
    and a secret.
    """

    def __init__(self) -> None:
        # One step per open bracket: the key or index being read, None before the first key and after a comma.
        self._steps: list[str | int | None] = []
        self._string = ("", 0)

    def path(self) -> KeyPath:
        return tuple(str(step) for step in self._steps if step is not None)

    @property
    def in_list(self) -> bool:
        return bool(self._steps) and isinstance(self._steps[-1], int)

    def take(self, word: str, start: int) -> int | None:
        """Read on by one token. If that was a key's colon, gives the offset the key begins at."""
        match word:
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
                # A number's digits, if anything, never stand before a colon.
                self._string = (_decode(word), start)
        return None


def _decode(word: str) -> str:
    try:
        return str(json.loads(word, strict=False))
    except ValueError:
        return word[1:-1]
