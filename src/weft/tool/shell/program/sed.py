"""What a script of sed does beside changing lines: it may read and write files, and run programs."""

import re
from collections.abc import Iterator
from typing import Final, Literal

Deed = tuple[Literal["read", "write", "run"], str]

_ADDRESS: Final = re.compile(r"\d+(?:~\d+)?|\$|[+~]\d+")
_PLAIN: Final = frozenset("=dDgGhHnNpPxzFqQl{}")
_LABELS: Final = frozenset(":btT")
_TEXTS: Final = frozenset("aic")
_FILES: Final[dict[str, Literal["read", "write"]]] = {"r": "read", "R": "read", "w": "write", "W": "write"}


def deeds(script: str) -> list[Deed] | None:
    """What the script does with files and programs; None when it cannot be read."""
    try:
        return list(_Script(script).read())
    except (IndexError, _OddError):
        return None


class _OddError(Exception):
    pass


class _Script:
    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def read(self) -> Iterator[Deed]:
        while self._skip(" \t\n;"):
            self._addresses()
            command = self._next()
            if command == "#":
                self._line()
            elif command in _PLAIN:
                self._match(r"[ \t]*\d*")
            elif command in _LABELS:
                self._match(r"[ \t]*[^\s;}]*")
            elif command in _TEXTS:
                self._line(continued=True)
            elif command in _FILES:
                yield _FILES[command], self._line().strip()
            elif command == "e":
                yield "run", self._line().strip()
            elif command == "y":
                self._delimited(2)
            elif command == "s":
                self._delimited(2)
                yield from self._flags()
            else:
                raise _OddError

    def _flags(self) -> Iterator[Deed]:
        while self._place < len(self._text) and self._text[self._place] not in " \t\n;}":
            flag = self._next()
            if flag == "e":
                yield "run", ""
            elif flag == "w":
                yield "write", self._line().strip()
            elif flag not in "gpiImM0123456789":
                raise _OddError

    def _addresses(self) -> None:
        while True:
            self._skip(" \t")
            if found := _ADDRESS.match(self._text, self._place):
                self._place = found.end()
            elif self._text[self._place] == "/":
                self._delimited(1)
                self._match(r"[IM]*")
            elif self._text[self._place] == "\\":
                self._place += 1
                self._delimited(1)
                self._match(r"[IM]*")
            elif self._text[self._place] in ",!":
                self._place += 1
            else:
                return

    def _delimited(self, parts: int) -> None:
        """From a delimiter over so many parts to the last delimiter."""
        delimiter, first = self._next(), parts
        while parts:
            char = self._next()
            if char == "\\":
                self._place += 1
            elif char == "[" and parts == first and self._hides(delimiter):
                raise _OddError  # sometimes that is the delimiter, and sometimes not
            elif char == delimiter:
                parts -= 1

    def _hides(self, delimiter: str) -> bool:
        """Whether the brackets that have just been opened hold the delimiter."""
        found = re.compile(r"\^?\]?[^\]\n]*\]").match(self._text, self._place)
        return found is not None and delimiter in found[0]

    def _skip(self, chars: str) -> bool:
        while self._place < len(self._text) and self._text[self._place] in chars:
            self._place += 1
        return self._place < len(self._text)

    def _match(self, pattern: str) -> None:
        found = re.compile(pattern).match(self._text, self._place)
        self._place = found.end() if found else self._place

    def _next(self) -> str:
        char = self._text[self._place]
        self._place += 1
        return char

    def _line(self, *, continued: bool = False) -> str:
        start = self._place
        while self._place < len(self._text) and self._text[self._place] != "\n":
            self._place += 2 if continued and self._text[self._place] == "\\" else 1
        return self._text[start : self._place]
