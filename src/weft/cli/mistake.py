"""Messages about a command line that cannot be parsed. Loaded only if there is a mistake."""

import argparse
import shlex
from collections.abc import Sequence

from weft.cli.commands import COMMANDS, build_parser
from weft.errors import InvalidInputError, NotFoundError, WeftError, find_similar

MAX_NEAR = 3
MAX_SHOWN = 60
CUTOFF = 0.7
OWN_OPTIONS = frozenset({"-h", "--help", "-v", "--version"})
# Arguments that are a whole command or query, which people forget to quote.
QUOTED_ARGUMENTS = frozenset({"COMMAND", "SQL"})
# What to do instead, for words that people expect a command to take.
INSTEAD = {"weft config": "it only shows settings; to change one, edit opencode.json"}


def find_wrong_command(arguments: Sequence[str]) -> WeftError | None:
    """Return the error of a command that does not exist or comes after its options, with what was meant.

    Return None if the words name a command.
    """
    if arguments and arguments[0].startswith("-"):
        return _find_misplaced_option(arguments)
    words: list[str] = []
    for argument in arguments:
        if any(entry.words == tuple(words) for entry in COMMANDS) or argument.startswith("-"):
            return None
        known = _list_next_words(words)
        if argument not in known:
            return _make_command_error(words, arguments, known)
        words.append(argument)
    return None


def _find_misplaced_option(arguments: Sequence[str]) -> WeftError | None:
    """Return the error of options before their command, or without one; None if they are those of `weft` itself."""
    first = arguments[0].partition("=")[0]
    if first in OWN_OPTIONS:
        return None
    for index in range(1, len(arguments)):
        options, rest = arguments[:index], arguments[index:]
        words = next(
            (entry.words for entry in COMMANDS if tuple(rest[: len(entry.words)]) == entry.words), None
        )
        if words is not None:
            corrected = shlex.join(["weft", *words, *options, *rest[len(words) :]])
            return InvalidInputError("weft", f"{first} comes after the command", hint=f"write: {corrected}")
    for command in ("chat", "run"):
        line = [command, *arguments]
        if _is_valid(line):
            hint = f"for example: {shlex.join(['weft', *line])}"
            return InvalidInputError("weft", f"{first} needs a command before it", hint=hint)
    return InvalidInputError("weft", f"there is no option {first[:MAX_SHOWN]}", hint="weft --help lists them")


def _is_valid(arguments: Sequence[str]) -> bool:
    try:
        return not build_parser(arguments).parse_known_args(arguments)[1]
    except InvalidInputError:
        return False


def _list_next_words(words: Sequence[str]) -> list[str]:
    depth = len(words)
    below = (entry.words for entry in COMMANDS if entry.words[:depth] == tuple(words))
    return list(dict.fromkeys(each[depth] for each in below))


def _make_command_error(words: Sequence[str], arguments: Sequence[str], known: Sequence[str]) -> WeftError:
    given = arguments[len(words)]
    group = " ".join(("weft", *words))
    elsewhere = [" ".join(("weft", *entry.words)) for entry in COMMANDS if entry.words[-1] == given]
    near = [" ".join((group, each)) for each in find_near(given, known)] or elsewhere[:MAX_NEAR]
    is_prompt = " " in given.strip() or (len(arguments) > 1 and not near)
    if not words and is_prompt:
        prompt = " ".join(arguments)
        shown = prompt if len(prompt) <= MAX_SHOWN else f"{prompt[: MAX_SHOWN - 1]}…"
        return NotFoundError(
            "command", given[:MAX_SHOWN], hint=f"to send a prompt: weft run {shlex.quote(shown)}"
        )
    return NotFoundError(
        "command", " ".join((*words, given))[:MAX_SHOWN], near=near, hint=f"{group} --help lists them"
    )


def find_near(given: str, known: Sequence[str]) -> list[str]:
    """Return the names that were most likely meant. Two swapped letters count as near in a short name too."""
    swapped = [each for each in known if sorted(each) == sorted(given)]
    completions = [each for each in known if len(given) > 1 and each.startswith(given)]
    return (swapped or completions or find_similar(given, known, n=MAX_NEAR, cutoff=CUTOFF))[:MAX_NEAR]


def make_leftover_error(parser: argparse.ArgumentParser, leftover: Sequence[str]) -> WeftError:
    """Return the error of arguments that a command does not take, with the nearest option."""
    first, unquoted = leftover[0].partition("=")[0], _find_unquoted(parser)
    if not first.startswith("-"):
        usage = " ".join(parser.format_usage().split())
        hint = unquoted or INSTEAD.get(parser.prog, usage)
        return InvalidInputError(parser.prog, f"it does not take {leftover[0][:MAX_SHOWN]!r}", hint=hint)
    options = [
        option
        for action in parser._actions  # noqa: SLF001  argparse has no other way to list them
        if action.help != argparse.SUPPRESS
        for option in action.option_strings
    ]
    near = find_near(first, [option for option in options if option.startswith("--")])
    suggestion = f"did you mean {' or '.join(near)}? " if near else f"{unquoted}; " if unquoted else ""
    return InvalidInputError(
        parser.prog,
        f"there is no option {first[:MAX_SHOWN]}",
        hint=f"{suggestion}{parser.prog} --help lists them",
    )


def _find_unquoted(parser: argparse.ArgumentParser) -> str:
    """Return the advice to quote the argument that is a whole command or query; "" if the command takes none."""
    names = (action.metavar for action in parser._actions if not action.option_strings)  # noqa: SLF001  as above
    name = next((name for name in names if name in QUOTED_ARGUMENTS), None)
    return f"put all of {name} in quotes" if name else ""
