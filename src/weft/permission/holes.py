"""Texts with holes: what is certain of them, and what is possible, before they are known."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Final

from weft.model.permission import HOLE, HOLE_END

# Stands for a hole of any length; no pattern has it.
_GAP: Final = "\0"
_HOLES: Final = re.compile(f"{HOLE}[^{HOLE_END}]*(?:{HOLE_END}|$)")
# Comparing takes as long as both are long, multiplied. Of a longer text anything is possible.
LONGEST: Final = 4000
# Every hole that may be no word at all doubles the texts to be held against a pattern.
MOST_MAYBES: Final = 4


def has_hole(text: str) -> bool:
    return HOLE in text


def surely_matches(text: str, pattern: str) -> bool:
    """Whether the text fits whatever its holes turn out to be: only a star takes in a hole."""
    compiled = _compiled(pattern)
    return all(compiled.fullmatch(each) is not None for each in _ways(text))


def may_match(text: str, pattern: str) -> bool:
    """Whether there is something the holes could turn out to be with which the text fits."""
    gapped = _gapped(text)
    if len(gapped) > LONGEST:
        return True
    if pattern.endswith(" *") and _meet(gapped, pattern[:-2]):
        return True
    return _meet(gapped, pattern)


def _gapped(text: str) -> str:
    return _HOLES.sub(_GAP, text.replace(_GAP, ""))


def _ways(text: str) -> Iterator[str]:
    """The text with its gaps. One that begins with a blank is a word, or several, or there is nothing at all of it."""
    plain = text.replace(_GAP, "")
    between, holes = _HOLES.split(plain), _HOLES.findall(plain)
    maybes = [hole.startswith(f"{HOLE} ") for hole in holes]
    if sum(maybes) > MOST_MAYBES:
        yield _gapped(text)
        return
    choices = [(f" {_GAP}", "") if maybe else (_GAP,) for maybe in maybes]
    for gaps in product(*choices):
        yield "".join(piece for pair in zip(between, (*gaps, ""), strict=True) for piece in pair)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    head, tail = (pattern[:-2], "(?: .*)?") if pattern.endswith(" *") else (pattern, "")
    pieces = {"*": ".*", "?": f"[^{_GAP}]"}
    head = re.sub(r"\*+", "*", head)
    return re.compile("".join(pieces.get(char) or re.escape(char) for char in head) + tail, re.DOTALL)


def _meet(text: str, pattern: str) -> bool:
    """Whether two patterns have a text in common; in the first only gaps are wild, in the second `*` and `?`."""
    reached = {0}
    for char in text:
        reached = _pass_gap(reached, pattern) if char == _GAP else _pass_char(reached, pattern, char)
        if not reached:
            return False
    return any(not pattern[place:].strip("*") for place in reached)


def _pass_gap(reached: set[int], pattern: str) -> set[int]:
    """A gap may be whatever the rest of the pattern wants, up to any place in it."""
    return set(range(min(reached), len(pattern) + 1))


def _pass_char(reached: set[int], pattern: str, char: str) -> set[int]:
    passed = set()
    for start in reached:
        place = start
        while place < len(pattern):
            if pattern[place] == "*":
                passed.add(place)  # the star takes it, and may take more
                place += 1
                continue
            if pattern[place] in ("?", char):
                passed.add(place + 1)
            break
    return passed
