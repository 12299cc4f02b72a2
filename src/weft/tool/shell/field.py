"""The words of a command as a program is given them, with what cannot be known of them marked."""

import re
from collections.abc import Iterable
from enum import Enum
from typing import Final

from msgspec import Struct

from weft.model.permission import HOLE, HOLE_END, hole


class Listing(Struct, frozen=True, kw_only=True):
    """Names that a program puts out: of files below some directories, all that fit `name`; dot files too if `hidden`."""

    roots: tuple[str, ...]
    name: str | None = None
    hidden: bool = True


class Number(Enum):
    """Some number, nobody knows which."""

    SOME = "some"


# What a variable may hold, or a command put out.
Value = str | Listing | Number


class Field(Struct, frozen=True):
    """One word. `wild`: the pattern by which the shell makes file names of it. `listing`: it is one of these files."""

    text: str
    wild: str = ""
    listing: Listing | None = None

    @property
    def is_known(self) -> bool:
        return HOLE not in self.text and not self.wild and self.listing is None

    @property
    def is_number(self) -> bool:
        """Whether it is a number that is not known, and nothing beside it."""
        return self.wild == "*" and self.text.startswith(HOLE) and self.text.endswith(HOLE_END)

    def ending(self, text: str) -> "Field":
        """The end of the word, as wild as it was."""
        if not self.wild:
            return Field(text)
        before = self.text[: len(self.text) - len(text)]
        return Field(text, self.wild[len(before) :]) if self.wild.startswith(before) else unknown(text)


Reading = tuple[Field, ...]


def unknown(source: str) -> Field:
    """A word that only the shell will know."""
    return Field(hole(source))


_HOLES: Final = re.compile(f"{HOLE}[^{HOLE_END}]*{HOLE_END}")


def without_holes(text: str) -> str:
    """What is known of a text."""
    return _HOLES.sub("", text)


def has_hole(text: str) -> bool:
    return HOLE in text


def spelled(fields: Iterable[Field]) -> str:
    """The words as one text. A hole that may be no word at all takes the blank before it along."""
    text = ""
    for field in fields:
        if text and field.text.startswith(HOLE) and field.text.endswith(HOLE_END):
            text += f"{HOLE} {field.text[1:]}"
        else:
            text += f" {field.text}" if text else field.text
    return text
