"""Builtins of the shell that change how the rest of the command is to be read."""

import re
from itertools import pairwise
from typing import Final

from weft.model.permission import hole
from weft.tool.shell.arithmetic import is_countable
from weft.tool.shell.field import Field, Reading, has_hole, names, split, without_holes
from weft.tool.shell.scene import Scene
from weft.tool.shell.variables import FILLING

DECLARING: Final = names("declare typeset local export readonly")

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
# They read a name that is computed: `a[$(…)]` runs what is in it.
_READING_NAMES: Final = names(
    "test [ [[ let declare typeset local export readonly read unset printf mapfile readarray wait getopts"
)
_COUNTING: Final = names("let unset test [ declare typeset local")
_LOOSE_OPTIONS: Final = names(
    "expand_aliases dotglob extglob globstar nullglob failglob sourcepath cdable_vars autocd lastpipe nocaseglob"
    " allexport physical"
)


def look_at_builtin(name: str, rest: Reading, scene: Scene) -> bool:
    """Whether it was a builtin that is dealt with here."""
    texts = [field.text for field in rest]
    if name in _READING_NAMES and any(map(runs_as_name, texts)):
        scene.unclear(" ".join([name, *texts]), "a name in it runs a command")
    if name in _COUNTING and not all(is_countable(field.text, scene) for field in _counted(name, rest)):
        scene.unclear(" ".join([name, *texts]), "a name in it may run a command")
    match name:
        case "cd" | "pushd" | "chdir":
            _go(rest, scene)
        case "popd":
            scene.stay(scene.been)
        case "source" | ".":
            for field in rest[:1]:
                _source(field, scene)
        case "hash" if "-p" in texts:
            scene.unclear(" ".join([name, *texts]), "it puts another program in place of one")
        case "enable" if any(text.startswith("-") for text in texts):
            scene.unclear(" ".join([name, *texts]), "it changes what the shell's own commands do")
        case "complete" | "compgen" | "bind" | "zmodload" | "autoload" | "zle" | "precmd":
            scene.unclear(" ".join([name, *texts]), "it has something run later")
        case "shopt" | "setopt" | "set" if not _LOOSE_OPTIONS.isdisjoint(texts):
            scene.unclear(" ".join([name, *texts]), "it changes how the rest is read")
        case _:
            return False
    return True


def _counted(name: str, rest: Reading) -> Reading:
    """The words that are counted with, or that name what is."""
    texts = [field.text for field in rest]
    match name:
        case "let":
            return rest
        case "unset":
            return tuple(field for field in rest if not field.text.startswith("-"))
        case "test" | "[":
            return tuple(field for before, field in pairwise(rest) if takes_name(before.text))
        case _:
            return rest if any(re.fullmatch(r"[-+]\w*i\w*", text) for text in texts) else ()


def takes_name(operator: str) -> bool:
    """Whether an operator of a test takes the name of a variable, or may turn out to be one that does."""
    return operator in ("-v", "-R") or has_hole(operator)


def runs_as_name(text: str) -> bool:
    """Whether a text, read as the name of a variable or as a number, runs something: `a[$(…)]`."""
    known = without_holes(text)
    return ("[" in known or known.startswith(("$(", "`"))) and ("$(" in known or "`" in known)


def list_filled(name: str, rest: Reading) -> list[tuple[str, str]]:
    """The variables that a builtin sets, each with its value as far as that is known."""
    texts = [field.text for field in rest]
    if name in DECLARING:
        declared = [text.partition("=") for text in texts if not text.startswith("-")]
        return [
            (variable.rstrip("+"), value)
            for variable, equals, value in declared
            if equals or has_hole(variable)
        ]
    if name not in FILLING:
        return []
    if name == "printf":
        texts = _given_to_printf(texts)
    named = [text[2:] if text.startswith("-") and not has_hole(text) else text for text in texts]
    found = [text for text in named if _NAME.match(text) or has_hole(text)]
    return [(text if has_hole(text) else _NAME.findall(text)[0], hole(name)) for text in found]


def renames_variables(name: str, rest: Reading) -> bool:
    """Whether a builtin makes one variable another name of a second: `declare -n`."""
    return name in DECLARING and any(
        field.text.startswith("-") and ("n" in field.text or has_hole(field.text)) for field in rest
    )


def _given_to_printf(texts: list[str]) -> list[str]:
    """The name behind `-v`, which a first word that is not known may turn out to be."""
    if texts[:1] and texts[0].startswith("-v"):
        return [text.removeprefix("-v") for text in texts if text != "-v"]
    if texts[:1] and texts[0].startswith("-") and has_hole(texts[0]):
        return texts[:1]
    return texts[1:2] if texts[:1] and has_hole(texts[0]) and _NAME.fullmatch(" ".join(texts[1:2])) else []


def _go(rest: Reading, scene: Scene) -> None:
    words = split(rest).words
    if any(field.text.startswith(("+", "~+", "~-")) for field in words):
        scene.stay(scene.been)
        return
    dash = [field for field in rest if field.text == "-"]
    scene.go(words[0] if words else (dash[0] if dash else None))


def _source(field: Field, scene: Scene) -> None:
    if field.text.startswith(("/dev/", "/proc/")):
        scene.unclear(f"source {field.text}", "what it runs is not known")
    scene.touch(field, "read")
    scene.variables.forget_all()
