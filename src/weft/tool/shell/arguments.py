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
    """The names of files that a program prints: all files below `roots` that match `name`, dot files only if `hidden`.

    Names that match a pattern of `excluded` are left out. With `follow`, files in the directories that links lead to are included.
    """

    roots: tuple[str, ...]
    name: str | None = None
    hidden: bool = True
    excluded: tuple[str, ...] = ()
    follow: bool = False


class Number(Enum):
    """A number whose value is not known."""

    SOME = "some"


# A possible value of a variable, or of a command's output.
Value = str | FileListing | Number


class Field(Struct, frozen=True):
    """One word as a program receives it.

    `glob_pattern` is set if the shell expands the word to file names. `listing` is set if the word is one of these files,
    not known which.
    """

    text: str
    glob_pattern: str = ""
    listing: FileListing | None = None

    @property
    def is_known(self) -> bool:
        """Return True if the text of the word is known exactly."""
        return UNKNOWN_START not in self.text and not self.glob_pattern and self.listing is None

    @property
    def is_number(self) -> bool:
        """Return True if the word is a number of unknown value and nothing else."""
        return (
            self.glob_pattern == "*"
            and self.text.startswith(UNKNOWN_START)
            and self.text.endswith(UNKNOWN_END)
        )

    def ending(self, text: str) -> "Field":
        """Return the end of this word as a field, with the part of the glob pattern that belongs to it."""
        if not self.glob_pattern:
            return Field(text)
        before = self.text[: len(self.text) - len(text)]
        return (
            Field(text, self.glob_pattern[len(before) :])
            if self.glob_pattern.startswith(before)
            else unknown_field(text)
        )


Fields = tuple[Field, ...]


def unknown_field(source: str) -> Field:
    """Return a word whose text is only known at run time."""
    return Field(mark_unknown(source))


_HOLE: Final = re.compile(f"{UNKNOWN_START}[^{UNKNOWN_END}]*{UNKNOWN_END}")


def remove_holes(text: str) -> str:
    """Return the text without its holes."""
    return _HOLE.sub("", text)


def join_fields(fields: Iterable[Field]) -> str:
    """Join the words by blanks. A hole that may turn out to be no word at all includes the blank before it."""
    text = ""
    for field in fields:
        if text and field.text.startswith(UNKNOWN_START) and field.text.endswith(UNKNOWN_END):
            text += f"{UNKNOWN_START} {field.text[1:]}"
        else:
            text += f" {field.text}" if text else field.text
    return text


# The shortest abbreviation of a long option is `--` and a letter.
_MIN_ABBREVIATION_LENGTH: Final = 3


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


def may_mean(option: str, name: str) -> bool:
    """Return True if `option` may mean the option `name`: most programs accept abbreviated long options."""
    return option == name or (
        option.startswith("--") and len(option) >= _MIN_ABBREVIATION_LENGTH and name.startswith(option)
    )


def split_names(text: str) -> frozenset[str]:
    """Return the names in a text, which are separated by blanks."""
    return frozenset(text.split())


def parse_arguments(
    arguments: Sequence[Field],
    value_options: frozenset[str] = frozenset(),
    *,
    until_word: bool = False,
    last_options: frozenset[str] = frozenset(),
) -> ParsedArguments:
    """Separate options from words.

    `value_options` are the options that take a value. With `until_word`, everything from the first word on counts as a word.
    Everything after one of the `last_options` and its value counts as words, too.
    """
    options: list[tuple[str, Field | None]] = []
    words: list[Field] = []
    guessed = False
    remaining = list(reversed(arguments))
    while remaining:
        field = remaining.pop()
        text = field.text
        if text == "--" or (options and options[-1][0] in last_options):
            words.extend([*([] if text == "--" else [field]), *reversed(remaining)])
            break
        if text.startswith("--"):
            name, equals, rest = text.partition("=")
            if name.strip("-"):  # rg takes `----pre` for `--pre`
                name = f"--{name.lstrip('-')}"
            candidates = _complete_option(name, value_options)
            value = field.ending(rest) if equals else None
            if not equals and candidates and remaining:
                value = remaining[-1]
                # If this is a guess, keep it as a word as well, unless the first word is the command that is run.
                guessed |= candidates != [name]
                if until_word or candidates == [name]:
                    remaining.pop()
            options.extend((candidate, value) for candidate in candidates or [name])
        elif text.startswith("-") and text != "-":
            options.extend(_parse_cluster(field, value_options, remaining))
        else:
            words.append(field)
            if until_word:
                words.extend(reversed(remaining))
                break
    return ParsedArguments(options=tuple(options), words=tuple(words), guessed=guessed)


def _parse_cluster(
    field: Field, value_options: frozenset[str], remaining: list[Field]
) -> list[tuple[str, Field | None]]:
    """Parse short options in one word. The first one that takes a value takes the rest, or the next word."""
    options: list[tuple[str, Field | None]] = []
    if field.text in value_options:  # also `-name`, as some programs write long options
        return [(field.text, remaining.pop() if remaining else None)]
    for index, char in enumerate(field.text[1:], 1):
        name = f"-{char}"
        if name in value_options:
            rest = field.text[index + 1 :]
            value = field.ending(rest) if rest else (remaining.pop() if remaining else None)
            return [*options, (name, value)]
        options.append((name, None))
    return options


def _complete_option(name: str, value_options: frozenset[str]) -> list[str]:
    """Return the options with a value that a long option may mean."""
    return (
        [name]
        if name in value_options
        else sorted(option for option in value_options if may_mean(name, option))
    )
