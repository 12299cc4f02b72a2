"""Follow lines from one version of a file to the next (pure).

A version is a list of lines without their ends, and each line has an author. Line ends are left out of the comparison, so that a
person who converts them does not become the author of the whole file.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, Generic, NamedTuple, TypeVar

# How many letters and digits a block needs to keep its author: one that was moved within a file, or came back from an older version of
# it, and one that came from another file. Shorter ones may be alike by chance. Git uses the same figures.
MIN_MOVED_CHARS: Final = 20
MIN_COPIED_CHARS: Final = 40
# Above this many comparisons, lines that are very frequent do not count as equal.
MAX_COMPARISONS: Final = 4_000_000
# So many lines are compared at once.
CHUNK: Final = 256
# A line that occurs more often is looked for in its first places only.
MAX_PLACES: Final = 64
BINARY_PROBE_BYTES: Final = 8000
_OTHER_BYTES: Final = bytes(byte for byte in range(128) if not chr(byte).isalnum())

Author = TypeVar("Author", bound=Hashable)
Line = bytes


class Version(NamedTuple, Generic[Author]):
    """A version of a file: its lines and the author of each."""

    lines: Sequence[Line]
    authors: Sequence[Author]


class Match(NamedTuple):
    """A block that is equal in two versions: where it begins in the old and in the new one, and how many lines it has."""

    old: int
    new: int
    size: int


def split_lines(content: bytes) -> list[Line]:
    """Return the lines of a file without their ends."""
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def is_binary(content: bytes) -> bool:
    return b"\0" in content[:BINARY_PROBE_BYTES]


def match_lines(old: Sequence[Line], new: Sequence[Line]) -> list[Match]:
    """Return the blocks that are equal in both versions, in order. What lies between them was removed or added."""
    return list(_join_adjacent(_match(old, new, 0, 0)))


def _match(old: Sequence[Line], new: Sequence[Line], old_at: int, new_at: int) -> Iterator[Match]:
    head = _count_equal(old, new)
    if head:
        yield Match(old_at, new_at, head)
    old, new, old_at, new_at = old[head:], new[head:], old_at + head, new_at + head
    tail = _count_equal(old[::-1], new[::-1])
    middle_old, middle_new = old[: len(old) - tail], new[: len(new) - tail]
    if middle_old and middle_new:
        anchors = _find_anchors(middle_old, middle_new)
        if anchors:
            start_old = start_new = 0
            for at_old, at_new in [*anchors, (len(middle_old), len(middle_new))]:
                yield from _match(
                    middle_old[start_old:at_old],
                    middle_new[start_new:at_new],
                    old_at + start_old,
                    new_at + start_new,
                )
                start_old, start_new = at_old, at_new
        else:
            is_large = len(middle_old) * len(middle_new) > MAX_COMPARISONS
            matcher = SequenceMatcher(None, middle_old, middle_new, autojunk=is_large)
            for block in matcher.get_matching_blocks():
                if block.size:
                    yield Match(old_at + block.a, new_at + block.b, block.size)
    if tail:
        yield Match(old_at + len(middle_old), new_at + len(middle_new), tail)


def _count_equal(old: Sequence[Line], new: Sequence[Line]) -> int:
    count, size = 0, min(len(old), len(new))
    while count < size and old[count : count + CHUNK] == new[count : count + CHUNK]:
        count = min(size, count + CHUNK)
    while count < size and old[count] == new[count]:
        count += 1
    return count


def _find_anchors(old: Sequence[Line], new: Sequence[Line]) -> list[tuple[int, int]]:
    """Return the places of lines that occur once in both versions, as many as are in the same order (a patience diff)."""
    counts = Counter(old), Counter(new)
    places = {line: index for index, line in enumerate(new) if counts[1][line] == 1}
    pairs = [
        (index, places[line]) for index, line in enumerate(old) if counts[0][line] == 1 and line in places
    ]
    tops: list[int] = []
    ends: list[int] = []
    previous: list[int] = []
    for number, (_, place) in enumerate(pairs):
        stack = bisect_left(tops, place)
        previous.append(ends[stack - 1] if stack else -1)
        if stack == len(tops):
            tops.append(place)
            ends.append(number)
        else:
            tops[stack], ends[stack] = place, number
    chain: list[tuple[int, int]] = []
    number = ends[-1] if ends else -1
    while number >= 0:
        chain.append(pairs[number])
        number = previous[number]
    return chain[::-1]


def _join_adjacent(matches: Iterator[Match]) -> Iterator[Match]:
    last: Match | None = None
    for match in matches:
        if last is not None and last.old + last.size == match.old and last.new + last.size == match.new:
            last = Match(last.old, last.new, last.size + match.size)
            continue
        if last is not None:
            yield last
        last = match
    if last is not None:
        yield last


def follow_lines(
    old: Version[Author], new: Sequence[Line], *, removed_elsewhere: Sequence[Version[Author]] = ()
) -> list[Author | None]:
    """Return the author of each line of a new version: that of the old line, None for a line that is new.

    A block that was moved keeps its author. `removed_elsewhere` are lines that left other files at the same time.
    """
    authors: list[Author | None] = [None] * len(new)
    kept: set[int] = set()
    for match in match_lines(old.lines, new):
        authors[match.new : match.new + match.size] = old.authors[match.old : match.old + match.size]
        kept.update(range(match.old, match.old + match.size))
    removed = _without(old, kept)
    if removed.lines:
        take_blocks(removed, new, authors, MIN_MOVED_CHARS)
    for version in removed_elsewhere:
        take_blocks(version, new, authors, MIN_COPIED_CHARS)
    return authors


def list_removed(old: Version[Author], new: Sequence[Line]) -> Version[Author]:
    """Return the lines of the old version that are not in the new one."""
    kept = {
        index for match in match_lines(old.lines, new) for index in range(match.old, match.old + match.size)
    }
    return _without(old, kept)


def _without(version: Version[Author], kept: set[int]) -> Version[Author]:
    rest = [index for index in range(len(version.lines)) if index not in kept]
    return Version([version.lines[index] for index in rest], [version.authors[index] for index in rest])


def take_blocks(
    source: Version[Author], new: Sequence[Line], authors: list[Author | None], min_chars: int
) -> None:
    """Fill in the authors of lines that have none yet, from blocks of another version that are long enough."""
    places: dict[Line, list[int]] = {}
    for index, line in enumerate(source.lines):
        found = places.setdefault(line, [])
        if len(found) < MAX_PLACES:
            found.append(index)
    at = 0
    while at < len(new):
        if authors[at] is not None or new[at] not in places:
            at += 1
            continue
        start, size = max(
            ((place, _measure_block(source.lines, place, new, at, authors)) for place in places[new[at]]),
            key=lambda found: found[1],
        )
        if count_chars(new[at : at + size]) >= min_chars:
            authors[at : at + size] = source.authors[start : start + size]
        at += size


def _measure_block(
    source: Sequence[Line], place: int, new: Sequence[Line], at: int, authors: Sequence[object]
) -> int:
    size = 0
    while (
        place + size < len(source)
        and at + size < len(new)
        and source[place + size] == new[at + size]
        and authors[at + size] is None
    ):
        size += 1
    return size


def count_chars(lines: Sequence[Line]) -> int:
    """Return the number of letters and digits. Bytes beyond ASCII count as letters."""
    return sum(len(line.translate(None, _OTHER_BYTES)) for line in lines)


def measure_similarity(old: Sequence[Line], new: Sequence[Line]) -> float:
    """Return which part of the lines of both versions is equal, from 0 to 1."""
    total = len(old) + len(new)
    return 2 * sum(match.size for match in match_lines(old, new)) / total if total else 1.0
