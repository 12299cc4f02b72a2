"""What an awk program does beside reading lines: it may read and write files, and run programs."""

import re
from collections.abc import Iterator
from typing import Final

from weft.tool.shell.field import Field
from weft.tool.shell.options import names
from weft.tool.shell.scene import Scene

_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t]+|\\\n|\#[^\n]*)|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<sign>\+\+|--|>>|\|\||&&|[<>=!+*/%^-]=|[^"])""",
    re.DOTALL,
)
_REGEX: Final = re.compile(r"/(?:[^/\\\n\[]|\\.|\[\^?\]?[^\]\n/]*\])*/")
# They read another file, run a program, or let the program choose what it is given. `@` calls and loads by name.
_WAYS: Final = names("system getline ARGV ARGC @ |")
_BEFORE_REGEX: Final = names("print printf return in else do case")
_ENDS: Final = frozenset({";", "}", "\n", ""})


class _OddError(Exception):
    pass


def look_at_awk(program: str, scene: Scene) -> bool:
    """Note what an awk program does beside reading lines. Gives whether it only tells."""
    try:
        saved = list(_saved(list(_tokens(program))))
    except _OddError:
        scene.unclear(f"awk {program}", "the awk program writes files or runs programs")
        return False
    for path in saved:
        scene.touch(Field(path), "write")
    return not saved


def _tokens(program: str) -> Iterator[str]:
    """The program in pieces, regular expressions left out. Raises where it cannot be told what a slash is."""
    place, before = 0, "\n"
    loops = re.search(r"\b(?:if|while|for|switch)\b", program) is not None
    while place < len(program):
        found = _TOKEN.match(program, place)
        if found is None:
            raise _OddError
        token = found[0]
        if token in ("/", "/=") and not _divides(before, loops=loops):
            regex = _REGEX.match(program, place)
            if regex is None:
                raise _OddError
            place, before = regex.end(), "0"
            continue
        place = found.end()
        if not found["blank"]:
            yield token
            before = token


def _divides(before: str, *, loops: bool) -> bool:
    """Whether a slash behind this is for dividing."""
    if before in ("++", "--", "length") or (before == ")" and loops):
        raise _OddError
    operand = before[0] in '"$)]' or before[0].isalnum() or before[0] in "._"
    return operand and before not in _BEFORE_REGEX


def _saved(tokens: list[str]) -> Iterator[str]:
    """The files that are printed to. Raises for what does more."""
    depth, printing = 0, False
    for place, token in enumerate(tokens):
        if token in _WAYS:
            raise _OddError
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token, 0)
        if token in ("print", "printf"):
            printing, depth = True, 0
        elif token in (";", "{", "}") or (token == "\n" and tokens[place - 1] not in (",", "&&", "||")):
            printing = False
        elif printing and depth <= 0 and token in (">", ">>"):
            path, end = (*tokens[place + 1 : place + 3], "", "")[:2]
            if not path.startswith('"') or "\\" in path or end not in _ENDS:
                raise _OddError
            yield path[1:-1]
