"""Options and words of a command line, told apart as most programs do it."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from weft.tool.shell.field import Field

_SHORTEST: Final = 4  # of an abbreviated long option: `--ou` may be several


class Given(Struct, frozen=True, kw_only=True):
    """The options in order, each with its value if it has one; and the words that are none."""

    options: tuple[tuple[str, Field | None], ...]
    words: tuple[Field, ...]

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)

    def values(self, *names: str) -> list[Field]:
        return [value for name, value in self.options if name in names and value is not None]


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
    waiting = list(reversed(arguments))
    while waiting:
        field = waiting.pop()
        text = field.text
        if text == "--" or (options and options[-1][0] in last):
            words.extend([*([] if text == "--" else [field]), *reversed(waiting)])
            break
        if text.startswith("--"):
            name, equals, value = text.partition("=")
            name = _meant(name, taking)
            if equals:
                options.append((name, field.ending(value)))
            else:
                options.append((name, waiting.pop() if name in taking and waiting else None))
        elif text.startswith("-") and text != "-":
            options.extend(_cluster(field, taking, waiting))
        else:
            words.append(field)
            if until_word:
                words.extend(reversed(waiting))
                break
    return Given(options=tuple(options), words=tuple(words))


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


def _meant(name: str, taking: frozenset[str]) -> str:
    """A long option may be cut short as long as it is the only one that begins so."""
    if name in taking or len(name) < _SHORTEST:
        return name
    known = [each for each in taking if each.startswith(name)]
    return known[0] if len(known) == 1 else name
