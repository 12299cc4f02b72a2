"""Braces: one word written for several, `{a,b}` and `{1..3}`."""

from itertools import pairwise
from typing import Final

from msgspec import Struct

from weft.tool.shell.field import Value

MOST: Final = 64


class Atom(Struct, frozen=True):
    """A piece of a word: text, or the name of a variable, or what a command puts out (`values`), or some number."""

    text: str
    quoted: bool = False
    name: str = ""
    number: bool = False
    values: tuple[Value, ...] = ()

    @property
    def is_text(self) -> bool:
        return not self.name and not self.values and not self.number


Atoms = tuple[Atom, ...]


def expand(atoms: Atoms) -> list[Atoms] | None:
    """The words that a word stands for; None when there are too many to look at."""
    if not any(atom.is_text and not atom.quoted and "{" in atom.text for atom in atoms):
        return [atoms]
    words = _expand(_split(atoms))
    return words if len(words) <= MOST else None


def _split(atoms: Atoms) -> Atoms:
    """With every bare character for itself, so that braces and commas can be found."""
    return tuple(
        piece
        for atom in atoms
        for piece in ([Atom(char) for char in atom.text] if atom.is_text and not atom.quoted else [atom])
    )


def _expand(atoms: Atoms) -> list[Atoms]:
    opened = next((place for place, atom in enumerate(atoms) if _is(atom, "{")), None)
    if opened is None:
        return [atoms]
    closed, commas = _close(atoms, opened)
    head, inside = atoms[:opened], atoms[opened + 1 : closed]
    if closed is None:
        return [(*atoms[: opened + 1], *rest) for rest in _expand(atoms[opened + 1 :])]
    tails = _expand(atoms[closed + 1 :])
    if commas:
        ends = [opened, *commas, closed]
        choices = [choice for start, end in pairwise(ends) for choice in _expand(atoms[start + 1 : end])]
    else:
        choices = _sequence(inside) or [(atoms[opened], *each, atoms[closed]) for each in _expand(inside)]
    if len(choices) * len(tails) > MOST:
        return [head] * (MOST + 1)
    return [(*head, *choice, *tail) for choice in choices for tail in tails]


def _close(atoms: Atoms, opened: int) -> tuple[int | None, list[int]]:
    depth = 0
    commas: list[int] = []
    for place in range(opened, len(atoms)):
        if _is(atoms[place], "{"):
            depth += 1
        elif _is(atoms[place], "}"):
            depth -= 1
            if depth == 0:
                return place, commas
        elif depth == 1 and _is(atoms[place], ","):
            commas.append(place)
    return None, []


def _sequence(inside: Atoms) -> list[Atoms]:
    if not all(atom.is_text and not atom.quoted for atom in inside):
        return []
    ends = "".join(atom.text for atom in inside).split("..")
    try:
        first, last = int(ends[0]), int(ends[1])
        step = abs(int(ends[2])) if len(ends) > 2 else 1  # noqa: PLR2004  {1..9..2}
    except (ValueError, IndexError):
        return _letters(ends)
    way = (step or 1) if first <= last else -(step or 1)
    numbers = range(first, last + (1 if way > 0 else -1), way)
    return [(Atom(str(number)),) for number in numbers[: MOST + 1]]


def _letters(ends: list[str]) -> list[Atoms]:
    if [len(end) for end in ends] != [1, 1]:
        return []
    first, last = sorted(map(ord, ends))
    return [(Atom(chr(code)),) for code in range(first, last + 1)]


def _is(atom: Atom, char: str) -> bool:
    return atom.is_text and not atom.quoted and atom.text == char
