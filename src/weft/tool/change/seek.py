"""Where some lines stand among others: exactly, or nearly, as models quote them (pure)."""

from collections.abc import Callable, Sequence
from typing import Final

_PUNCTUATION: Final = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2009\u200a\u202f\u205f\u3000", " "),
        "\u2026": "...",
    }
)


def _plain(line: str) -> str:
    return line.translate(_PUNCTUATION).strip()


def _same(line: str) -> str:
    return line


# From the strictest on.
WAYS: Final[tuple[Callable[[str], str], ...]] = (_same, str.rstrip, str.strip, _plain)


def seek(lines: Sequence[str], wanted: Sequence[str], start: int, *, last: bool = False) -> int | None:
    """The first place from `start` on where the wanted lines stand; with `last`, at the end if they are there."""
    for way in WAYS:
        found = _seek([way(line) for line in lines], [way(line) for line in wanted], start, last=last)
        if found is not None:
            return found
    return None


def _seek(lines: list[str], wanted: list[str], start: int, *, last: bool) -> int | None:
    final = len(lines) - len(wanted)
    if last and final >= start and lines[final:] == wanted:
        return final
    for at in range(start, final + 1):
        if lines[at] == wanted[0] and lines[at : at + len(wanted)] == wanted:
            return at
    return None
