"""Examine shell builtins that change how the rest of the command is read."""

import re
from itertools import pairwise
from typing import Final

from weft.model.permission import has_hole, mark_unknown
from weft.tool.shell.arguments import Field, Fields, parse_arguments, remove_holes, split_names
from weft.tool.shell.state import ShellState, is_safe_number
from weft.tool.shell.variables import ASSIGNING_BUILTINS

DECLARING_BUILTINS: Final = split_names("declare typeset local export readonly")

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
# Builtins that evaluate variable names in their arguments: `a[$(…)]` runs a command.
_NAME_EVALUATING_BUILTINS: Final = split_names(
    "test [ [[ let declare typeset local export readonly read unset printf mapfile readarray wait getopts"
)
# Builtins that evaluate arguments as arithmetic.
_ARITHMETIC_BUILTINS: Final = split_names("let unset test [ declare typeset local")
# Options of the shell that change how the rest of the command is read.
_REINTERPRETING_OPTIONS: Final = split_names(
    "expand_aliases dotglob extglob globstar nullglob failglob sourcepath cdable_vars autocd lastpipe nocaseglob"
    " allexport physical histexpand"
)
_HISTORY_EXPANDING: Final = re.compile(r"-[A-Za-z]*H[A-Za-z]*")


def examine_builtin(name: str, arguments: Fields, state: ShellState) -> bool:
    """Note the effects of a builtin. Return False if the program is not a builtin that is handled here."""
    texts = [field.text for field in arguments]
    if name in _NAME_EVALUATING_BUILTINS and any(map(runs_when_evaluated, texts)):
        state.mark_unclear(" ".join([name, *texts]), "a name in it runs a command")
    if name in _ARITHMETIC_BUILTINS and not all(
        is_safe_number(field.text, state) for field in _list_evaluated(name, arguments)
    ):
        state.mark_unclear(" ".join([name, *texts]), "a name in it may run a command")
    match name:
        case "cd" | "pushd" | "chdir":
            _change_directory(arguments, state)
        case "popd":
            state.add_directories(state.visited)
        case "source" | ".":
            parsed = parse_arguments(arguments, frozenset({"-p"}), until_word=True)
            for field in (*parsed.words[:1], *(arguments[:1] if parsed.options else ())):
                _source(field, state)
            if parsed.options:
                state.mark_unclear(" ".join([name, *texts]), "it looks for the script elsewhere")
        case "hash" if any(re.match(r"-[a-z]*p", text) for text in texts):
            state.mark_unclear(" ".join([name, *texts]), "it replaces a program by another")
        case "enable" if any(text.startswith("-") for text in texts):
            state.mark_unclear(" ".join([name, *texts]), "it changes what the shell's own commands do")
        case "complete" | "compgen" | "bind" | "zmodload" | "autoload" | "zle" | "precmd":
            state.mark_unclear(" ".join([name, *texts]), "it makes something run later")
        case "shopt" | "setopt" | "set" if not _REINTERPRETING_OPTIONS.isdisjoint(texts) or (
            name == "set" and any(map(_HISTORY_EXPANDING.fullmatch, texts))
        ):
            state.mark_unclear(" ".join([name, *texts]), "it changes how the rest is read")
        case _:
            return False
    return True


def _list_evaluated(name: str, arguments: Fields) -> Fields:
    """Return the arguments that are evaluated as arithmetic or as variable names."""
    texts = [field.text for field in arguments]
    match name:
        case "let":
            return arguments
        case "unset":
            return tuple(field for field in arguments if not field.text.startswith("-"))
        case "test" | "[":
            return tuple(field for before, field in pairwise(arguments) if takes_variable_name(before.text))
        case _:
            return arguments if any(re.fullmatch(r"[-+]\w*i\w*", text) for text in texts) else ()


def takes_variable_name(operator: str) -> bool:
    """Return True if an operator of `test` takes a variable name, or may turn out to be one that does."""
    return operator in ("-v", "-R") or has_hole(operator)


def runs_when_evaluated(text: str) -> bool:
    """Return True if evaluating a text as a variable name or as arithmetic runs a command: `a[$(…)]`."""
    known_text = remove_holes(text)
    return ("[" in known_text or known_text.startswith(("$(", "`"))) and (
        "$(" in known_text or "`" in known_text
    )


def list_assigned(name: str, arguments: Fields) -> list[tuple[str, str]]:
    """Return the variables that a builtin sets, each with its value as far as it is known."""
    texts = [field.text for field in arguments]
    if name in DECLARING_BUILTINS:
        declared = [text.partition("=") for text in texts if not text.startswith("-")]
        return [
            (variable.rstrip("+"), value)
            for variable, equals, value in declared
            if equals or has_hole(variable)
        ]
    if name not in ASSIGNING_BUILTINS:
        return []
    if name == "printf":
        texts = _list_printf_variables(texts)
    candidates = [text[2:] if text.startswith("-") and not has_hole(text) else text for text in texts]
    names = [text for text in candidates if _NAME.match(text) or has_hole(text)]
    return [(text if has_hole(text) else _NAME.findall(text)[0], mark_unknown(name)) for text in names]


def makes_reference(name: str, arguments: Fields) -> bool:
    """Return True if a builtin makes a variable refer to another one: `declare -n`."""
    return name in DECLARING_BUILTINS and any(
        field.text.startswith("-") and ("n" in field.text or has_hole(field.text)) for field in arguments
    )


def _list_printf_variables(texts: list[str]) -> list[str]:
    """Return the variable after `-v`. A first argument of unknown text may turn out to be `-v`."""
    if texts[:1] and texts[0].startswith("-v"):
        return [text.removeprefix("-v") for text in texts if text != "-v"]
    if texts[:1] and texts[0].startswith("-") and has_hole(texts[0]):
        return texts[:1]
    may_be_name = [text for text in texts[1:2] if _NAME.fullmatch(text) or has_hole(text)]
    return may_be_name if texts[:1] and has_hole(texts[0]) else []


def _change_directory(arguments: Fields, state: ShellState) -> None:
    words = parse_arguments(arguments).words
    if any(field.text.startswith(("+", "~+", "~-")) for field in words):
        state.add_directories(state.visited)
        return
    dash = [field for field in arguments if field.text == "-"]
    before = state.cwds
    state.change_directory(words[0] if words else (dash[0] if dash else None))
    if len(words) > 1:  # bash refuses that and stays where it is; other shells take the first
        state.add_directories(before)


def _source(field: Field, state: ShellState) -> None:
    if field.text.startswith(("/dev/", "/proc/")):
        state.mark_unclear(f"source {field.text}", "what it runs is not known")
    state.touch(field, "read")
    state.variables.forget_all()
