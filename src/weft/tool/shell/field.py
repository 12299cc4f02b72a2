"""The words of a command line as a program is given them: options, operands, and what cannot be known."""

import re
from collections.abc import Iterable, Sequence
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


_SHORTEST: Final = 3  # `--o` may be one already


class Given(Struct, frozen=True, kw_only=True):
    """The options in order, each with its value if it has one; and the words that are none.

    A long option that was cut short is there as each of those that it may be. `guessed`: the next word was taken for the
    value of one, which it may not be.
    """

    options: tuple[tuple[str, Field | None], ...]
    words: tuple[Field, ...]
    guessed: bool = False

    def has(self, *names: str) -> bool:
        return any(is_meant(option, name) for option, _ in self.options for name in names)

    def values(self, *names: str) -> list[Field]:
        return [
            value
            for option, value in self.options
            if value is not None and any(is_meant(option, name) for name in names)
        ]


def is_meant(given: str, name: str) -> bool:
    """Whether an option may be meant by what was given: most programs take a long one that is cut short."""
    return given == name or (given.startswith("--") and len(given) >= _SHORTEST and name.startswith(given))


def names(text: str) -> frozenset[str]:
    """Names, written one after the other."""
    return frozenset(text.split())


def split(
    arguments: Sequence[Field],
    taking: frozenset[str] = frozenset(),
    *,
    until_word: bool = False,
    last: frozenset[str] = frozenset(),
) -> Given:
    """`taking` are the options that take a value. With `until_word`, all from the first word on are words.

    After one that is in `last`, with its value, all the rest are words.
    """
    options: list[tuple[str, Field | None]] = []
    words: list[Field] = []
    guessed = False
    waiting = list(reversed(arguments))
    while waiting:
        field = waiting.pop()
        text = field.text
        if text == "--" or (options and options[-1][0] in last):
            words.extend([*([] if text == "--" else [field]), *reversed(waiting)])
            break
        if text.startswith("--"):
            name, equals, rest = text.partition("=")
            meant = _meant(name, taking)
            value = field.ending(rest) if equals else None
            if not equals and meant and waiting:
                value = waiting[-1]
                # Where that is a guess it stays a word as well, unless the first word is what is run.
                guessed |= meant != [name]
                if until_word or meant == [name]:
                    waiting.pop()
            options.extend((each, value) for each in meant or [name])
        elif text.startswith("-") and text != "-":
            options.extend(_cluster(field, taking, waiting))
        else:
            words.append(field)
            if until_word:
                words.extend(reversed(waiting))
                break
    return Given(options=tuple(options), words=tuple(words), guessed=guessed)


def _cluster(field: Field, taking: frozenset[str], waiting: list[Field]) -> list[tuple[str, Field | None]]:
    """Short options in one word; the first that takes a value takes the rest of it, or the next word."""
    options: list[tuple[str, Field | None]] = []
    if field.text in taking:  # also `-name` as some programs have it
        return [(field.text, waiting.pop() if waiting else None)]
    for place, char in enumerate(field.text[1:], 1):
        name = f"-{char}"
        if name in taking:
            rest = field.text[place + 1 :]
            value = field.ending(rest) if rest else (waiting.pop() if waiting else None)
            return [*options, (name, value)]
        options.append((name, None))
    return options


def _meant(name: str, taking: frozenset[str]) -> list[str]:
    """The options with a value that a long one may be."""
    return [name] if name in taking else sorted(each for each in taking if is_meant(name, each))
