"""Ways of finding the text to replace, strictest first.

A model quotes from memory: indentation, blanks and escapes come out differently. Each way yields parts of the content
that the quoted text may stand for; the first part that is there exactly once is taken.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Final

from weft.errors import ToolError

Way = Callable[[str, str], Iterator[str]]

ANCHORED: Final = 3
ALIKE: Final = 0.5
HALF: Final = 0.5
# Comparing letter by letter takes time in the square of the length; a line this long tells enough by its start.
COMPARED: Final = 400

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\n": "\n"}


def replace(content: str, old: str, new: str, *, every: bool = False) -> str:
    """The content with `old` replaced once, or everywhere. Raises `ToolError` when it is not clear where."""
    found = False
    for way in WAYS:
        for part in way(content, old):
            if not part or part not in content:
                continue
            found = True
            if every:
                return content.replace(part, new)
            if content.count(part) == 1 and content.find(part) == content.rfind(part):
                return content.replace(part, new, 1)
    if not found:
        raise ToolError(
            "oldString not found in content. Read the file again and quote the text as it stands there."
        )
    raise ToolError(
        "Found multiple matches for oldString. Quote more of the lines around it so that it is the only one, "
        "or set replaceAll to change every one."
    )


def exact(content: str, old: str) -> Iterator[str]:
    del content
    yield old


def line_trimmed(content: str, old: str) -> Iterator[str]:
    """Line by line the same, but for what stands before and after the words."""
    lines, wanted = content.split("\n"), [line.strip() for line in _quoted(old)]
    trimmed = [line.strip() for line in lines]
    for start in _starts(trimmed, wanted):
        yield "\n".join(lines[start : start + len(wanted)])


def block_anchor(content: str, old: str) -> Iterator[str]:
    """The first and the last line are there; what is between them is much alike."""
    wanted = _quoted(old)
    if len(wanted) < ANCHORED:
        return
    lines = content.split("\n")
    blocks = [lines[start : end + 1] for start, end in _anchored(lines, wanted)]
    # OpenCode takes a single candidate whatever stands between, and of several one that is three tenths alike over
    # the lines both have: it may replace a whole function for another that begins and ends the same. Here, one or
    # many, more than half of all the letters between have to be there.
    best = max(blocks, key=lambda block: _likeness(block, wanted), default=None)
    if best is not None and _likeness(best, wanted) > ALIKE:
        yield "\n".join(best)


def whitespace(content: str, old: str) -> Iterator[str]:
    """The same words, with other blanks between them."""
    words = old.split()
    if not words:
        return
    lines, wanted = content.split("\n"), " ".join(words)
    inside = re.compile(r"\s+".join(re.escape(word) for word in words))
    for line in lines:
        if " ".join(line.split()) == wanted:
            yield line
        elif match := inside.search(line):
            yield match.group()
    if len(count := _quoted(old)) > 1:
        yield from (block for block in _windows(lines, len(count)) if " ".join(block.split()) == wanted)


def indentation(content: str, old: str) -> Iterator[str]:
    """The same block, further in or further out."""
    wanted = _dedented(_quoted(old))
    lines = content.split("\n")
    stripped, first = [line.strip() for line in lines], [line.strip() for line in wanted]
    for start in _starts(stripped, first):
        block = lines[start : start + len(wanted)]
        if _dedented(block) == wanted:
            yield "\n".join(block)


def escapes(content: str, old: str) -> Iterator[str]:
    r"""The text was written with `\n` and `\"` where the characters themselves were meant."""
    meant = _unescaped(old)
    if meant in content:
        yield meant
    if "\\" not in content:
        return
    for block in _windows(content.split("\n"), meant.count("\n") + 1):
        if _unescaped(block) == meant:
            yield block


def trimmed_boundary(content: str, old: str) -> Iterator[str]:
    """The text was quoted with blanks or empty lines around it."""
    core = old.strip()
    if core == old:
        return
    if core in content:
        yield core
    yield from (
        block for block in _windows(content.split("\n"), old.count("\n") + 1) if block.strip() == core
    )


def context_aware(content: str, old: str) -> Iterator[str]:
    """First and last line are there, as many lines between, and half of those are the same."""
    wanted = _quoted(old)
    if len(wanted) < ANCHORED:
        return
    lines = content.split("\n")
    for start, end in _anchored(lines, wanted):
        block = lines[start : end + 1]
        if len(block) == len(wanted) and _half_same(block[1:-1], wanted[1:-1]):
            yield "\n".join(block)


def every_exact(content: str, old: str) -> Iterator[str]:
    """Each place where it stands: lets `every` through, and tells many from none."""
    if old:
        yield from (old for _ in range(content.count(old)))


WAYS: Final[tuple[Way, ...]] = (
    exact,
    line_trimmed,
    block_anchor,
    whitespace,
    indentation,
    escapes,
    trimmed_boundary,
    context_aware,
    every_exact,
)


def _quoted(old: str) -> list[str]:
    lines = old.split("\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


def _starts(lines: list[str], wanted: list[str]) -> Iterator[int]:
    for start in range(len(lines) - len(wanted) + 1):
        if lines[start] == wanted[0] and lines[start : start + len(wanted)] == wanted:
            yield start


def _windows(lines: list[str], count: int) -> Iterator[str]:
    for start in range(len(lines) - count + 1):
        yield "\n".join(lines[start : start + count])


def _anchored(lines: list[str], wanted: list[str]) -> Iterator[tuple[int, int]]:
    """Where the first line stands, and the nearest place after it, at least one line between, where the last one does."""
    first, last = wanted[0].strip(), wanted[-1].strip()
    trimmed = [line.strip() for line in lines]
    ends = [index for index, line in enumerate(trimmed) if line == last]
    for start, line in enumerate(trimmed):
        after = bisect_left(ends, start + 2)
        if line == first and after < len(ends):
            yield start, ends[after]


def _likeness(block: list[str], wanted: list[str]) -> float:
    """How alike the middle lines are, from 0 to 1; of no middle lines, wholly. A line too many is like nothing."""
    middle = zip_longest(block[1:-1], wanted[1:-1], fillvalue="")
    pairs = [(one.strip(), other.strip()) for one, other in middle if one.strip() or other.strip()]
    if not pairs:
        return 1.0
    return sum(1 - _distance(a, b) / max(len(a[:COMPARED]), len(b[:COMPARED])) for a, b in pairs) / len(pairs)


def _distance(a: str, b: str) -> int:
    """Levenshtein's: how many letters to add, drop or change."""
    a, b = a[:COMPARED], b[:COMPARED]
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
    return row[-1]


def _half_same(block: list[str], wanted: list[str]) -> bool:
    pairs = [(a.strip(), b.strip()) for a, b in zip(block, wanted, strict=True) if a.strip() or b.strip()]
    return not pairs or sum(a == b for a, b in pairs) / len(pairs) >= HALF


def _dedented(lines: list[str]) -> list[str]:
    said = [line for line in lines if line.strip()]
    shared = min((len(line) - len(line.lstrip()) for line in said), default=0)
    return [line[shared:] if line.strip() else line for line in lines]


def _unescaped(text: str) -> str:
    return re.sub(r"\\([ntr'\"`\\\n$])", lambda match: _ESCAPES.get(match[1], match[1]), text)
