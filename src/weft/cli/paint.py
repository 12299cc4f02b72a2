"""Colours, on a terminal and nowhere else."""

import os
from typing import TextIO


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
