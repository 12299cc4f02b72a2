"""What to say about a command line that cannot be parsed. Loaded only if there is a mistake."""

import argparse
import shlex
from collections.abc import Sequence
from difflib import get_close_matches

from weft.cli.commands import COMMANDS
from weft.errors import InvalidInputError, NotFoundError, WeftError

MAX_NEAR = 3
MAX_SHOWN = 60
CUTOFF = 0.7


def find_wrong_command(arguments: Sequence[str]) -> WeftError | None:
    """Return the error of a command that does not exist, with the nearest names; None if the words name one."""
    words: list[str] = []
    for argument in arguments:
        if any(entry.words == tuple(words) for entry in COMMANDS) or argument.startswith("-"):
            return None
        known = _list_next_words(words)
        if argument not in known:
            return _make_command_error(words, argument, known)
        words.append(argument)
    return None


def _list_next_words(words: Sequence[str]) -> list[str]:
    depth = len(words)
    below = (entry.words for entry in COMMANDS if entry.words[:depth] == tuple(words))
    return list(dict.fromkeys(each[depth] for each in below))


def _make_command_error(words: Sequence[str], given: str, known: Sequence[str]) -> WeftError:
    group = " ".join(("weft", *words))
    if not words and " " in given.strip():
        shown = given if len(given) <= MAX_SHOWN else f"{given[: MAX_SHOWN - 1]}…"
        return NotFoundError("command", shown, hint=f"to send a prompt: weft run {shlex.quote(shown)}")
    near = [" ".join((group, each)) for each in find_near(given, known)]
    return NotFoundError(
        "command", " ".join((*words, given))[:MAX_SHOWN], near=near, hint=f"{group} --help lists them"
    )


def find_near(given: str, known: Sequence[str]) -> list[str]:
    """Return the names that were most likely meant. Two swapped letters count as near in a short name too."""
    swapped = [each for each in known if sorted(each) == sorted(given)]
    completions = [each for each in known if len(given) > 1 and each.startswith(given)]
    return (swapped or completions or get_close_matches(given, known, n=MAX_NEAR, cutoff=CUTOFF))[:MAX_NEAR]


def make_leftover_error(parser: argparse.ArgumentParser, leftover: Sequence[str]) -> WeftError:
    """Return the error of arguments that a command does not take, with the nearest option."""
    first = leftover[0].partition("=")[0]
    if not first.startswith("-"):
        usage = " ".join(parser.format_usage().split())
        return InvalidInputError(parser.prog, f"it does not take {leftover[0][:MAX_SHOWN]!r}", hint=usage)
    options = [
        option
        for action in parser._actions  # noqa: SLF001  argparse has no other way to list them
        if action.help != argparse.SUPPRESS
        for option in action.option_strings
    ]
    near = find_near(first, [option for option in options if option.startswith("--")])
    suggestion = f"did you mean {' or '.join(near)}? " if near else ""
    return InvalidInputError(
        parser.prog,
        f"there is no option {first[:MAX_SHOWN]}",
        hint=f"{suggestion}{parser.prog} --help lists them",
    )
