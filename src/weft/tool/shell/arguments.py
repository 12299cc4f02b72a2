"""The words that a program receives, parsed into options and operands.

Text that is only known at run time is marked as a hole (`⟦…⟧`, see `model/permission.py`). A hole may turn out to be
any text.
"""

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct

from weft.model.permission import UNKNOWN_END, UNKNOWN_START, mark_unknown


class FileListing(Struct, frozen=True, kw_only=True):
    """The names of files that a program prints: all files below `roots` that match `name`, dot files only if `hidden`."""

    roots: tuple[str, ...]
    name: str | None = None
    hidden: bool = True


class Number(Enum):
    """A number whose value is not known."""

    SOME = "some"


# A possible value of a variable, or of a command's output.
Value = str | FileListing | Number


class Field(Struct, frozen=True):
    """One word as a program receives it.

    `wild` is a glob pattern, if the shell expands the word to file names. `listing` is set if the word is one of these
    files, not known which.
    """

    text: str
    wild: str = ""
    listing: FileListing | None = None

    @property
    def is_known(self) -> bool:
        """Return True if the text of the word is known exactly."""
        return UNKNOWN_START not in self.text and not self.wild and self.listing is None

    @property
    def is_number(self) -> bool:
        """Return True if the word is a number of unknown value and nothing else."""
        return self.wild == "*" and self.text.startswith(UNKNOWN_START) and self.text.endswith(UNKNOWN_END)

    def ending(self, text: str) -> "Field":
        """Return the end of this word as a field, with the part of the glob pattern that belongs to it."""
        if not self.wild:
            return Field(text)
        before = self.text[: len(self.text) - len(text)]
        return Field(text, self.wild[len(before) :]) if self.wild.startswith(before) else unknown_field(text)


Fields = tuple[Field, ...]


def unknown_field(source: str) -> Field:
    """Return a word whose text is only known at run time."""
    return Field(mark_unknown(source))


_HOLES: Final = re.compile(f"{UNKNOWN_START}[^{UNKNOWN_END}]*{UNKNOWN_END}")


def remove_holes(text: str) -> str:
    """Return the text without its holes."""
    return _HOLES.sub("", text)


def has_hole(text: str) -> bool:
    return UNKNOWN_START in text


def join_fields(fields: Iterable[Field]) -> str:
    """Join the words by blanks. A hole that may turn out to be no word at all includes the blank before it."""
    text = ""
    for field in fields:
        if text and field.text.startswith(UNKNOWN_START) and field.text.endswith(UNKNOWN_END):
            text += f"{UNKNOWN_START} {field.text[1:]}"
        else:
            text += f" {field.text}" if text else field.text
    return text


_MIN_ABBREVIATION: Final = 3  # `--o` may be an abbreviation


class ParsedArguments(Struct, frozen=True, kw_only=True):
    """The options in order, each with its value if it has one, and the words that are not options.

    An abbreviated long option is listed as every option that it may mean. `guessed` is set if the next word was taken
    for an option's value without certainty.
    """

    options: tuple[tuple[str, Field | None], ...]
    words: tuple[Field, ...]
    guessed: bool = False

    def has(self, *names: str) -> bool:
        """Return True if one of these options may be given."""
        return any(may_mean(option, name) for option, _ in self.options for name in names)

    def values(self, *names: str) -> list[Field]:
        """Return the values of these options."""
        return [
            value
            for option, value in self.options
            if value is not None and any(may_mean(option, name) for name in names)
        ]


def may_mean(given: str, name: str) -> bool:
    """Return True if `given` may mean the option `name`: most programs accept abbreviated long options."""
    return given == name or (
        given.startswith("--") and len(given) >= _MIN_ABBREVIATION and name.startswith(given)
    )


def split_names(text: str) -> frozenset[str]:
    """Return the names in a text that are separated by blanks."""
    return frozenset(text.split())


def parse_arguments(
    arguments: Sequence[Field],
    taking: frozenset[str] = frozenset(),
    *,
    until_word: bool = False,
    last: frozenset[str] = frozenset(),
) -> ParsedArguments:
    """Separate options from words.

    `taking` are the options that take a value. With `until_word`, everything from the first word on counts as a word.
    Everything after an option in `last` and its value counts as words, too.
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
            meant = _complete_option(name, taking)
            value = field.ending(rest) if equals else None
            if not equals and meant and waiting:
                value = waiting[-1]
                # If this is a guess, keep it as a word as well, unless the first word is the command that is run.
                guessed |= meant != [name]
                if until_word or meant == [name]:
                    waiting.pop()
            options.extend((each, value) for each in meant or [name])
        elif text.startswith("-") and text != "-":
            options.extend(_parse_cluster(field, taking, waiting))
        else:
            words.append(field)
            if until_word:
                words.extend(reversed(waiting))
                break
    return ParsedArguments(options=tuple(options), words=tuple(words), guessed=guessed)


def _parse_cluster(
    field: Field, taking: frozenset[str], waiting: list[Field]
) -> list[tuple[str, Field | None]]:
    """Parse short options in one word. The first one that takes a value takes the rest, or the next word."""
    options: list[tuple[str, Field | None]] = []
    if field.text in taking:  # also `-name`, as some programs write long options
        return [(field.text, waiting.pop() if waiting else None)]
    for place, char in enumerate(field.text[1:], 1):
        name = f"-{char}"
        if name in taking:
            rest = field.text[place + 1 :]
            value = field.ending(rest) if rest else (waiting.pop() if waiting else None)
            return [*options, (name, value)]
        options.append((name, None))
    return options


def _complete_option(name: str, taking: frozenset[str]) -> list[str]:
    """Return the options with a value that a long option may mean."""
    return [name] if name in taking else sorted(each for each in taking if may_mean(name, each))
