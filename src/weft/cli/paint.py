"""Colours, on a terminal and nowhere else."""

import os
import re
import sys
from typing import Any, Final, TextIO

from weft.model.wire import encode, encode_pretty

# DEL, C1, line and paragraph separators, and what Unicode calls format characters: directions, joiners, tags.
_STEERING: Final = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e007f\ud800-\udfff]"
)


class Paint:
    """Wraps text in colour if the stream is a terminal that wants it."""

    def __init__(self, stream: TextIO) -> None:
        self.on = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def bold(self, text: str) -> str:
        return self._in("1", text)

    def dim(self, text: str) -> str:
        return self._in("2", text)

    def red(self, text: str) -> str:
        return self._in("31", text)

    def green(self, text: str) -> str:
        return self._in("32", text)

    def yellow(self, text: str) -> str:
        return self._in("33", text)

    def blue(self, text: str) -> str:
        return self._in("34", text)

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and text else text

    def diff(self, text: str) -> str:
        """A unified diff, line by line: added green, removed red, the rest dim."""
        return "\n".join(self._diff_line(line) for line in text.splitlines())

    def _diff_line(self, line: str) -> str:
        if line.startswith("+"):
            return self.green(line)
        return self.red(line) if line.startswith("-") else self.dim(line)


def plain(text: str) -> str:
    """Text from a model or a file, without what would steer the terminal: only tab and newline are kept."""
    if text.isprintable():
        return text
    return "".join(char if char in "\t\n" or char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def escape(json: str) -> str:
    """JSON with every character that would steer a terminal written as an escape; it means the same.

    JSON itself escapes the first 32 alone. The controls from 127 on steer a terminal as well, and those for the
    direction of text make it show another text than there is.
    """
    return _STEERING.sub(_escape, json)


def _escape(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def write_json(value: Any) -> None:
    """Print a value as JSON over several lines."""
    sys.stdout.write(escape(encode_pretty(value).decode()) + "\n")


def write_json_line(value: Any) -> None:
    """Print a value as JSON in one line, at once."""
    sys.stdout.write(escape(encode(value).decode()) + "\n")
    sys.stdout.flush()
