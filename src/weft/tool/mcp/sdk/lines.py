"""Lines out of a stream of bytes, with an end to how long one may be (pure)."""

from collections.abc import Iterator
from typing import Final

LONGEST_LINE: Final = 16 << 20


class LineTooLongError(Exception):
    """Somebody talks and talks."""


class Lines:
    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines that are whole by now, without the empty ones."""
        *whole, rest = piece.split(b"\n")
        for line in whole:
            self._rest += line
            if stripped := bytes(self._rest).strip():
                yield stripped
            self._rest.clear()
        self._rest += rest
        if len(self._rest) > self._longest:
            raise LineTooLongError
