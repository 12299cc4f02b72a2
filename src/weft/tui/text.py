"""Styled text: measure it in terminal cells, wrap it to a width, and turn it into ANSI codes (pure).

A fragment is a style and a text, as in prompt_toolkit; a style is a list of words such as `bold ansired`. So the same lines
can be printed and shown in the live region.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

Fragment = tuple[str, str]
Line = list[Fragment]
EMPTY_LINE: Line = []  # always the same one, so that it is drawn once

RESET: Final = "\x1b[0m"
TAB: Final = "    "
# Latin letters and the marks that our own texts use: one cell each.
_NARROW: Final = re.compile("[\x00-\u02ff…–—‘’“”•→←↑↓⏎▌▐│─]*")
_CODES: Final = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "underline": "4",
    "reverse": "7",
    "strike": "9",
    "ansired": "31",
    "ansigreen": "32",
    "ansiyellow": "33",
    "ansiblue": "34",
    "ansimagenta": "35",
    "ansicyan": "36",
    "ansibrightblack": "90",
}


def measure(text: str) -> int:
    """Return the number of terminal cells that a text takes. Control characters must be escaped already."""
    if text.isascii() or _NARROW.fullmatch(text):
        return len(text)
    from wcwidth import wcswidth  # noqa: PLC0415  its tables are loaded only if the text needs them

    width = wcswidth(text)
    return len(text) if width < 0 else width


def cut(line: Line, width: int) -> Line:
    """Cut a line off at a width, with an ellipsis if something is missing."""
    if sum(measure(text) for _, text in line) <= width:
        return line
    left, shown = max(width - 1, 0), list[Fragment]()
    for style, text in line:
        fitting = take(text, left)
        shown.append((style, fitting))
        left -= measure(fitting)
        if fitting != text:
            break
    return [*shown, ("dim", "…")] if width > 0 else []


def take(text: str, width: int) -> str:
    """Return the longest start of a text that fits into a width."""
    if text.isascii():
        return text[:width]
    taken = 0
    for index, char in enumerate(text):
        taken += measure(char)
        if taken > width:
            return text[:index]
    return text


def wrap(fragments: Iterable[Fragment], width: int, *, first: Line = [], rest: Line = []) -> list[Line]:  # noqa: B006  never changed
    """Wrap text at spaces to a width. `first` begins the first line, `rest` every other line. A newline breaks a line."""
    lines: list[Line] = []
    later = max(width - _measure_line(rest), 1)
    line, used, room = list(first), 0, max(width - _measure_line(first), 1)
    gap, gap_style = "", ""

    def break_line() -> None:
        nonlocal line, used, room, gap
        lines.append(line)
        line, used, room, gap = list(rest), 0, later, ""

    for style, word in _split_words(fragments):
        if word == "\n":
            break_line()
        elif word == " ":
            gap, gap_style = f"{gap} ", style
        else:
            for piece in _split_to(word, max(room, later), later):
                size = measure(piece)
                if used and used + size + len(gap) > room:
                    break_line()
                line += [(gap_style, gap), (style, piece)]
                used, gap = used + size + len(gap), ""
    lines.append(line)
    return [_merge(each) for each in lines]


def _measure_line(line: Line) -> int:
    return sum(measure(text) for _, text in line)


def _split_words(fragments: Iterable[Fragment]) -> Iterator[Fragment]:
    """Yield words, spaces and newlines."""
    for style, text in fragments:
        for number, row in enumerate(text.replace("\t", TAB).split("\n")):
            if number:
                yield style, "\n"
            for place, word in enumerate(row.split(" ")):
                if place:
                    yield style, " "
                if word:
                    yield style, word


def _split_to(word: str, room: int, later: int) -> Iterator[str]:
    """Split a word that is longer than a whole line."""
    if measure(word) <= room:
        yield word
        return
    while word:
        piece = take(word, later) or word[:1]
        yield piece
        word = word[len(piece) :]


def _merge(line: Line) -> Line:
    """Join neighbouring fragments of one style."""
    merged: Line = []
    for style, text in line:
        if text and merged and merged[-1][0] == style:
            merged[-1] = (style, merged[-1][1] + text)
        elif text:
            merged.append((style, text))
    return merged


def to_ansi(line: Sequence[Fragment], *, colour: bool) -> str:
    """Return a line with ANSI codes for its styles, or without if `colour` is False."""
    if not colour:
        return "".join(text for _, text in line)
    return "".join(_to_ansi(style, text) for style, text in line)


def _to_ansi(style: str, text: str) -> str:
    codes = ";".join(_CODES[word] for word in style.split() if word in _CODES)
    return f"\x1b[{codes}m{text}{RESET}" if codes and text else text


def to_plain_text(lines: Iterable[Line]) -> str:
    """Return lines as text without styles."""
    return "\n".join("".join(text for _, text in line) for line in lines)
