"""Examine `ps` and `ldd`, which look at processes and programs."""

import re
from typing import Final

from weft.tool.shell.arguments import Fields, parse_arguments, split_names
from weft.tool.shell.program.effects import ProgramEffects
from weft.tool.shell.state import ShellState

_PS_VALUE_OPTIONS: Final = split_names(
    "-C -G -g -n -O -o -p -q -s -t -U -u --format --Group --group --pid --ppid --quick-pid --rows --sid --sort --tty --User --user"
    " --cols --columns --width --lines"
)


def examine_ps(arguments: Fields, state: ShellState) -> ProgramEffects:
    """Note whether ps shows environments of other processes, which may contain keys."""
    parsed = parse_arguments(arguments, _PS_VALUE_OPTIONS)
    # Options without a dash: the first that takes a value takes the rest of the word, or the next word.
    takes_value = False
    shows_environment = False
    for field in parsed.words:
        if takes_value:
            takes_value = False
            continue
        letters = re.match(r"[A-Za-z]*?(?:[OoUptkN](?P<value>.*)|$)", field.text)
        if letters is None:
            continue
        takes_value = letters["value"] == ""
        flags = field.text[: letters.start("value")] if letters["value"] is not None else field.text
        shows_environment |= "e" in flags
    # In BSD's ps, `-E` does it.
    if (
        shows_environment
        or parsed.has("-E")
        or not all(field.is_known or field.is_number for field in arguments)
    ):
        state.mark_unclear(
            " ".join(["ps", *(field.text for field in arguments)]),
            "it may show the environment of other processes",
        )
    return ProgramEffects()


def examine_ldd(arguments: Fields, state: ShellState) -> ProgramEffects:
    """Examine ldd, which starts the loader that a program names."""
    words = parse_arguments(arguments).words
    for field in words:
        state.touch(field, "read")
    return ProgramEffects(
        may_write=not all(
            field.is_known and state.location.is_in_program_directory(field.text) for field in words
        )
    )
